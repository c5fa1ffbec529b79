// SPDX-License-Identifier: MIT
/// A stash on a CUDA device that evolves: by budgets and, in device memory lent to bind(), by what codecs
/// saw, which the host reads before the step behind the one that was watched; it waits for the stream
/// then, once in EvolutionOptions::check_every steps.
#pragma once

#include "../core/block.hpp"
#include "../core/device_block.cuh"

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include "evolving_stash.hpp"
#pragma nv_diagnostic pop

namespace adacc { inline namespace v0_1 { namespace detail {

template <>
struct WatchedCopy<Cuda> {
  template <class Use>
  static Error read(Cuda& cuda, ConstBytes seen, const Use& use) {
    auto copy = Block<std::byte>::make(seen.size(), "a copy for the host");
    if (!copy) return copy.error;
    if (const Error why = copy_to_host(cuda, seen, copy->view())) return why;
    use(ConstBytes(copy->data(), seen.shape()));
    return {};
  }
};

}}}  // namespace adacc::v0_1::detail
