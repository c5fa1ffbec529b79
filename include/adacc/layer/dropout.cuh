// SPDX-License-Identifier: MIT
/// Dropout on a CUDA device: the same elements as dropout.hpp drops, and the same bits.
#pragma once

#include "../core/cuda.cuh"
#include "dropout.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A block of random words decides about four elements.
struct DropoutBody {
  RandomKey key;
  std::uint32_t threshold;
  float scale;
  template <unsigned count>
  __device__ void packet(std::size_t e, Packet<float, count>& to,
                         const Packet<float, count>& from) const {
    static_assert(count % 4 == 0);
#pragma unroll
    for (unsigned i = 0; i < count; i += 4) {
      const PhiloxBlock words = random_block(key, (e + i) / 4);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k)
        to.at[i + k] = from.at[i + k] * (words.word[k] < threshold ? 0 : scale);
    }
  }
};

}  // namespace detail

template <>
struct kernel<Dropout, Cuda> {
  template <class T>
  static void forward(const Dropout& f, Cuda& cuda, View<const T> x, View<T> y) {
    mask(f, cuda, x, y);
  }

  template <class T>
  static void backward(const Dropout& f, Cuda& cuda, View<const T> dy, View<T> dx) {
    mask(f, cuda, dy, dx);
  }

 private:
  template <class T>
  static void mask(const Dropout& f, Cuda& cuda, View<const T> from, View<T> to) {
    if (!cuda.training || !(f.rate > 0)) {
      if (from.data() != to.data()) cuda.copy(Dropout::name, from, to);
      return;
    }
    const RandomKey key = cuda.key.with_purpose(Purpose::dropout);
    cuda.map(Dropout::name, to,
             detail::DropoutBody{key, dropout_threshold(f.rate), 1 / (1 - f.rate)}, from.data());
  }
  static std::uint32_t dropout_threshold(float rate) {
    return static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
  }
};

}}  // namespace adacc::v0_1
