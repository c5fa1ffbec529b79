// SPDX-License-Identifier: MIT
/// The store contract: where a step may keep activations outside of its arena.
///
/// A store is any object with
///
///     std::size_t bytes() const;       // that it has room for, constant
///     std::size_t alignment() const;   // a power of 2, at least 64, constant: offsets, addresses and
///                                      // sizes of transfers are multiples of it
///     Error prepare(int tickets, Bytes memory);
///     void  begin(int ticket, StoreTransfer what);
///     bool  done(int ticket);          // const or not
///     Error wait(int ticket);
///
/// and, if transfers may be from and to memory of a device's, too,
///
///     const void* stream() const;      // of the device: transfers are ordered with its work, constant
///
/// prepare() belongs to set-up, may take time and memory, and says for how many tickets transfers
/// will begin and in which memory they all lie; it is called again when either changes, and never
/// while a transfer is under way. The rest belongs to the step: it neither allocates nor throws.
///
/// begin() starts a transfer under `ticket`, 0 <= ticket < tickets, and returns at once. Until
/// wait() for that ticket has returned, a write may read its memory, and a read may have put
/// anything into it. Transfers may end in any order; whoever wants one to begin behind another waits
/// in between. done() says whether wait() would return at once. wait() returns once the transfer has
/// ended, with the reason if it failed; then the ticket is free for another. After an error the store
/// can be used on: what was lost is the bytes of that transfer.
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

/// A reference to the caller's store; by default there is none.
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
  void begin(int ticket, const StoreTransfer& what) const { calls_->begin(object_, ticket, what); }
  bool done(int ticket) const { return calls_->done(object_, ticket); }
  Error wait(int ticket) const { return calls_->wait(object_, ticket); }
  bool reaches_devices() const { return calls_->stream != nullptr; }
  /// Of a store that reaches devices.
  const void* stream() const { return calls_->stream(object_); }

 private:
  struct Calls {
    std::size_t (*bytes)(void*);
    std::size_t (*alignment)(void*);
    Error (*prepare)(void*, int, Bytes);
    void (*begin)(void*, int, const StoreTransfer&);
    bool (*done)(void*, int);
    Error (*wait)(void*, int);
    const void* (*stream)(void*);  ///< none: it does not reach devices
  };
  template <class Store>
  static constexpr Calls calls_of{
      [](void* store) -> std::size_t { return static_cast<Store*>(store)->bytes(); },
      [](void* store) -> std::size_t { return static_cast<Store*>(store)->alignment(); },
      [](void* store, int tickets, Bytes memory) -> Error {
        return static_cast<Store*>(store)->prepare(tickets, memory);
      },
      [](void* store, int ticket, const StoreTransfer& what) {
        static_cast<Store*>(store)->begin(ticket, what);
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
