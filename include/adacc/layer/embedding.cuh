// SPDX-License-Identifier: MIT
/// Token and position embedding on a CUDA device.
///
/// The gradient of a token's row is the sum over the rows of dy where it stands, in their order: a
/// block of threads for each row of dy looks whether its token stood before, and if not, adds up all
/// rows that have it. That compares each row's token with all others, which is nothing beside the
/// rest of a step, and needs neither atomic additions nor scratch.
#pragma once

#include <cstdint>

#include "cuda_sums.cuh"
#include "embedding.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
struct EmbeddingBody {
  const std::int32_t* tokens;
  const Wide<T>*words, *positions;
  std::size_t vocab, time, channels;
  T* y;
  __device__ void operator()(std::size_t e) const {
    const std::size_t row = e / channels, c = e % channels;
    const auto token = static_cast<std::size_t>(tokens[row]);  // negative: beyond any vocabulary
    y[e] = narrowed<T>(token < vocab
                           ? words[token * channels + c] + positions[row % time * channels + c]
                           : quiet_nan_of<Wide<T>>);
  }
};

/// Gradients of the positions.
template <class T>
struct PositionBody {
  const std::int32_t* tokens;
  std::size_t rows, vocab, time, channels;
  const T* dy;
  Wide<T>* positions;
  __device__ void operator()(std::size_t e) const {
    Wide<T> sum = 0;
    for (std::size_t row = e / channels; row < rows; row += time)
      if (static_cast<std::size_t>(tokens[row]) < vocab)
        sum += widened(dy[row * channels + e % channels]);
    positions[e] += sum;
  }
};

template <class T>
static __global__ void __launch_bounds__(cuda_threads)
    embedding_backward_kernel(const std::int32_t* tokens, std::size_t rows, std::size_t vocab,
                              std::size_t channels, const T* dy, Wide<T>* words) {
  for (std::size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int32_t token = tokens[row];
    bool before = static_cast<std::size_t>(token) >= vocab;
    for (std::size_t r = threadIdx.x; r < row && !before; r += cuda_threads)
      before = tokens[r] == token;
    if (__syncthreads_or(before ? 1 : 0) != 0) continue;
    for (std::size_t c = threadIdx.x; c < channels; c += cuda_threads) {
      Wide<T> sum = 0;
      for (std::size_t r = row; r < rows; ++r)
        if (tokens[r] == token) sum += widened(dy[r * channels + c]);
      words[static_cast<std::size_t>(token) * channels + c] += sum;
    }
  }
}

}  // namespace detail

template <>
struct kernel<Embedding, Cuda> {
  static constexpr Error validate(const Embedding& f, Shape) {
    if (f.positions && f.types == 0) return {};
    return Error::say(
        "embedding on a CUDA device adds tokens and learned positions; token types, or tokens "
        "alone, are not supported there");
  }

  template <class T>
  static void forward(const Embedding& f, Cuda& cuda, const Params<const Wide<T>>& params,
                      const View<const std::int32_t>& x, const View<T>& y, const Bytes&,
                      const Bytes&) {
    cuda.each_element(Embedding::name, y.size(),
                      detail::EmbeddingBody<T>{x.data(), params[0].data(), params[1].data(),
                                               f.vocab, x.cols(), f.channels, y.data()});
  }

  template <class T>
  static void backward(const Embedding& f, Cuda& cuda, const Params<const Wide<T>>&,
                       const View<const std::int32_t>& x, const View<const T>&,
                       const View<const T>& dy, const View<T>&, const Params<Wide<T>>& dparams,
                       const ConstBytes&, const Bytes&) {
    if (!dparams[0].empty()) {
      detail::embedding_backward_kernel<<<detail::cuda_grid(x.size(), 1), detail::cuda_threads, 0,
                                          cuda.stream()>>>(x.data(), x.size(), f.vocab, f.channels,
                                                           dy.data(), dparams[0].data());
      cuda.launched(Embedding::name);
    }
    if (dparams[1].empty()) return;
    cuda.each_element(Embedding::name, x.cols() * f.channels,
                      detail::PositionBody<T>{x.data(), x.size(), f.vocab, x.cols(), f.channels,
                                              dy.data(), dparams[1].data()});
  }
};

}}  // namespace adacc::v0_1
