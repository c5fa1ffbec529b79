// SPDX-License-Identifier: MIT
/// What a stash itself does to bytes, done where its context's kernels run: at once on threads of the
/// host, queued behind the kernels before it on a device.
#pragma once

#include <cstring>

#include "../core/view.hpp"
#include "../step/memory_check.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Both of one size, and apart from each other.
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

/// The first thing of those queued so far that is known to have failed. On the host nothing is queued.
template <class Context>
Error queue_fault(Context& context) {
  if constexpr (context_traits<Context>::own_memory) return context.take_error();
  else return static_cast<void>(context), Error();
}

}}}  // namespace adacc::v0_1::detail
