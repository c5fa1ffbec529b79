// SPDX-License-Identifier: MIT
/// A stash on a CUDA device with an evolving plan: by budgets and, in device memory lent to bind(), by
/// statistics of codecs. The host reads these before the step behind the watched one, and waits for the
/// stream then, once in EvolutionOptions::check_every steps.
#pragma once

#include "../core/block.hpp"
#include "../core/device_block.cuh"

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc thinks the assignment of a Result ignored
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
