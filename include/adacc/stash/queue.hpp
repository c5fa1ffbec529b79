// SPDX-License-Identifier: MIT
/// A stash's own work on bytes, done where the context's kernels run: at once on threads of the host,
/// queued behind earlier kernels on a device.
#pragma once

#include <cstring>

#include "../core/view.hpp"
#include "../step/memory_check.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Both have one size, and do not overlap.
template <class Context>
void copy_bytes(Context& context, ConstBytes from, Bytes to) {
  if constexpr (context_traits<Context>::own_memory) context.copy("stash", from, to);
  else std::memcpy(to.data(), from.data(), to.size());
}

template <class Context>
void fill_bytes(Context& context, Bytes to, unsigned char value) {
  if constexpr (context_traits<Context>::own_memory) context.set_bytes("stash", to, value);
  else std::memset(to.data(), value, to.size());
}

/// The first known failure of queued work. On the host nothing is queued.
template <class Context>
Error queue_fault(Context& context) {
  if constexpr (context_traits<Context>::own_memory) return context.take_any_error();
  else return static_cast<void>(context), Error();
}

}}}  // namespace adacc::v0_1::detail
