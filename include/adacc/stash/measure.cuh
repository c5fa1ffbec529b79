// SPDX-License-Identifier: MIT
/// Measuring a stash on a CUDA device: with samples in device memory.
///
///     StreamClock clock(stream);
///     auto profile = measure_stash(model, cuda, scratch, {.clock = clock});   // of device memory
#pragma once

#include "../core/cuda.cuh"
#include "../cost/measure.cuh"
#include "measure.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct StashSampleBody {
  RandomKey key;
  template <class Number, unsigned count>
  __device__ void packet(std::size_t e, Packet<Number, count>& to) const {
    for (unsigned i = 0; i < count; ++i)
      to.at[i] = static_cast<Number>(2 * unit_float(random_word(key, e + i)) - 1);
  }
};

/// The numbers of the host's StashSample.
template <>
struct StashSample<Cuda> {
  template <class T>
  static void fill(Cuda& cuda, View<T> values) {
    cuda.map("sample", values, StashSampleBody{});
  }
};

}}}  // namespace adacc::v0_1::detail
