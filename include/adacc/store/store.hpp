// SPDX-License-Identifier: MIT
/// The store contract: places outside of the arena where a step may keep activations.
///
/// A store is any object with
///
///     std::size_t bytes() const;       // room, constant
///     std::size_t alignment() const;   // a power of 2, at least 64, constant: divides the offsets,
///                                      // addresses and sizes of transfers
///     Error prepare(int tickets, Bytes memory);
///     void  begin(int ticket, StoreTransfer request);
///     bool  done(int ticket);          // const or not
///     Error wait(int ticket);
///
/// and, if transfers may also be from and to memory of a device,
///
///     const void* stream() const;      // of the device, constant: orders transfers with its work
///
/// prepare() belongs to set-up and may take time and memory. It tells the number of tickets and the memory in which
/// all transfers lie. It is called again when either changes, but never while a transfer is under way. The other
/// functions belong to the step: they neither allocate nor throw.
///
/// begin() starts a transfer under `ticket`, 0 <= ticket < tickets, and returns at once. Until wait() for the ticket
/// has returned, a write may read its memory, and a read may have put anything into it. Transfers may end in any
/// order; to begin one after another, wait in between. done() says whether wait() would return at once. wait()
/// returns once the transfer has ended, with the reason if it failed; then the ticket is free for another transfer. A
/// store remains usable after an error: only the bytes of the failed transfer are lost.
///
/// A store serves one step under way at a time. Nothing checks this: steps that run at once, in threads or by turns in
/// slices, would write over each other's activations. Lend each its own store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/error.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// One transfer between memory and a store.
struct StoreTransfer {
  enum class Direction : std::uint8_t { write, read };
  Direction direction = Direction::write;  ///< write: from memory to the store
  std::size_t offset = 0;                  ///< in the store, bytes
  Bytes memory;
};

/// A reference to the caller's store; empty by default.
class StoreRef {
 public:
  constexpr StoreRef() = default;

  template <class Store>
    requires(!std::is_same_v<std::remove_const_t<Store>, StoreRef>)
  StoreRef(Store& store)  // implicit: a parameter type
      : object_(&store), calls_(&calls_of<Store>) {}

  constexpr explicit operator bool() const { return object_ != nullptr; }
  friend constexpr bool operator==(const StoreRef& a, const StoreRef& b) {
    return a.object_ == b.object_;
  }

  std::size_t bytes() const { return calls_->bytes(object_); }
  std::size_t alignment() const { return calls_->alignment(object_); }
  Error prepare(int tickets, Bytes memory) const {
    return calls_->prepare(object_, tickets, memory);
  }
  void begin(int ticket, const StoreTransfer& request) const {
    calls_->begin(object_, ticket, request);
  }
  bool done(int ticket) const { return calls_->done(object_, ticket); }
  Error wait(int ticket) const { return calls_->wait(object_, ticket); }
  bool reaches_devices() const { return calls_->stream != nullptr; }
  /// The stream of a store that reaches devices.
  const void* stream() const { return calls_->stream(object_); }

 private:
  struct Calls {
    std::size_t (*bytes)(void*);
    std::size_t (*alignment)(void*);
    Error (*prepare)(void*, int, Bytes);
    void (*begin)(void*, int, const StoreTransfer&);
    bool (*done)(void*, int);
    Error (*wait)(void*, int);
    const void* (*stream)(void*);  ///< null: does not reach devices
  };
  template <class Store>
  static constexpr Calls calls_of{
      [](void* store) -> std::size_t { return static_cast<Store*>(store)->bytes(); },
      [](void* store) -> std::size_t { return static_cast<Store*>(store)->alignment(); },
      [](void* store, int tickets, Bytes memory) -> Error {
        return static_cast<Store*>(store)->prepare(tickets, memory);
      },
      [](void* store, int ticket, const StoreTransfer& request) {
        static_cast<Store*>(store)->begin(ticket, request);
      },
      [](void* store, int ticket) -> bool { return static_cast<Store*>(store)->done(ticket); },
      [](void* store, int ticket) -> Error { return static_cast<Store*>(store)->wait(ticket); },
      [] {
        const void* (*stream)(void*) = nullptr;
        if constexpr (requires(const Store& store) { store.stream(); })
          stream = [](void* store) -> const void* { return static_cast<Store*>(store)->stream(); };
        return stream;
      }()};

  void* object_ = nullptr;
  const Calls* calls_ = nullptr;
};

}}  // namespace adacc::v0_1
