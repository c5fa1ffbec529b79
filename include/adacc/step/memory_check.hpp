// SPDX-License-Identifier: MIT
/// Checks of the memory and the store lent to a step, with errors in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../core/bytes.hpp"
#include "../core/context.hpp"
#include "../core/error.hpp"
#include "../store/store.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// A block of memory for a step, with the bytes used by the step.
struct LentMemory {
  const char* name;
  const void* data;
  std::size_t bytes;
  std::size_t boundary = alignment;
};

/// The bytes shared by two blocks.
inline std::size_t shared_bytes(const LentMemory& a, const LentMemory& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data);
  const auto second = reinterpret_cast<std::uintptr_t>(b.data);
  const std::uintptr_t begin = first < second ? second : first;
  const std::uintptr_t end =
      first + a.bytes < second + b.bytes ? first + a.bytes : second + b.bytes;
  return begin < end ? end - begin : 0;
}

/// The fault of some blocks: one is missing or begins at an odd place, or two overlap.
inline Error fault_of(std::initializer_list<LentMemory> blocks) {
  for (const LentMemory& block : blocks) {
    if (block.bytes == 0) continue;
    if (block.data == nullptr)
      return Error::say("the ", block.name, " have no address; ", shown(block.bytes),
                        " are needed");
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(block.data) % block.boundary;
    if (beyond != 0)
      return Error::say("the ", block.name, " must start ", block.boundary,
                        "-byte aligned, and they start ", beyond, " bytes behind such an address");
  }
  for (const LentMemory& a : blocks)
    for (const LentMemory& b : blocks) {
      if (&a >= &b) continue;
      if (const std::size_t shared = shared_bytes(a, b))
        return Error::say("the ", a.name, " (", shown(a.bytes), ") and the ", b.name, " (",
                          shown(b.bytes), ") overlap by ", shown(shared),
                          "; each needs memory of its own");
    }
  return {};
}

/// This fault as a mistake of the calling code, which lent the blocks.
inline Error check_memory(std::initializer_list<LentMemory> blocks) {
  if (const Error why = fault_of(blocks)) return Error::misuse(why.text());
  return {};
}

/// While the object lives, functions of a context need not look at the memory of their arguments.
template <class Context>
class MemoryIsChecked {
  static constexpr bool looks = context_traits<Context>::looks_at_memory;

 public:
  explicit MemoryIsChecked([[maybe_unused]] Context& context) : context_(context) {
    if constexpr (looks) {
      before_ = context.memory_is_checked;
      context.memory_is_checked = true;
    }
  }
  ~MemoryIsChecked() {
    if constexpr (looks) context_.memory_is_checked = before_;
  }
  MemoryIsChecked(const MemoryIsChecked&) = delete;
  MemoryIsChecked& operator=(const MemoryIsChecked&) = delete;

 private:
  Context& context_;
  bool before_ = false;
};

/// The fault of a block's address, for kernels of a context.
template <class Context>
Error check_place(const LentMemory& block) {
  if constexpr (context_traits<Context>::own_memory)
    if (block.bytes != 0) return Context::memory_fault(block.name, block.data, block.bytes);
  return {};
}

/// The fault of a store, if there is one, that is to take `bytes` bytes of a context's memory.
template <class Context>
Error check_reach(const StoreRef& store, std::size_t bytes) {
  if (!context_traits<Context>::own_memory || bytes == 0 || !store || store.reaches_devices())
    return {};
  return Error::misuse(
      "the plan sends activations to a store, and this one reads the host's memory alone, while "
      "the "
      "arena is in a device's: lend one that reaches devices (PinnedHost)");
}

/// The fault of a store, if there is one, whose transfers and a context's kernels are to share an order.
template <class Context>
Error check_order([[maybe_unused]] const Context& context, [[maybe_unused]] const StoreRef& store) {
  if constexpr (context_traits<Context>::own_memory && context_traits<Context>::has_stream)
    if (store && store.stream() != context.stream())
      return Error::misuse(
          "the store's transfers are ordered with another stream than the one that the step runs "
          "on: make the store for the context's, PinnedHost::make(bytes, context.stream())");
  return {};
}

}}}  // namespace adacc::v0_1::detail
