// SPDX-License-Identifier: MIT
/// Dropout on a CUDA device: the same elements as dropout.hpp drops, and the same bits.
#pragma once

#include "../core/cuda.cuh"
#include "dropout.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Four elements, which one block of random words decides about.
template <class T>
struct DropoutBody {
  const T* from;
  T* to;
  std::size_t elems;
  RandomKey key;
  std::uint32_t threshold;
  Wide<T> scale;
  __device__ void operator()(std::size_t block) const {
    const PhiloxBlock words = random_block(key, block);
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t e = 4 * block + i;
      if (e < elems)
        to[e] = narrowed<T>(widened(from[e]) * (words.word[i] < threshold ? Wide<T>(0) : scale));
    }
  }
};

}  // namespace detail

template <>
struct kernel<Dropout, Cuda> {
  template <class T>
  static void forward(const Dropout& f, Cuda& cuda, const Params<const Wide<T>>&,
                      const View<const T>& x, const View<T>& y, const Bytes&, const Bytes&) {
    mask(f, cuda, x, y);
  }

  template <class T>
  static void backward(const Dropout& f, Cuda& cuda, const Params<const Wide<T>>&,
                       const View<const T>&, const View<const T>&, const View<const T>& dy,
                       const View<T>& dx, const Params<Wide<T>>&, const ConstBytes&, const Bytes&) {
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
    cuda.each_element(
        Dropout::name, div_up(from.size(), 4),
        detail::DropoutBody<T>{from.data(), to.data(), from.size(), key, dropout_threshold(f.rate),
                               1 / (1 - static_cast<Wide<T>>(f.rate))});
  }
  static std::uint32_t dropout_threshold(float rate) {
    return static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
  }
};

}}  // namespace adacc::v0_1
