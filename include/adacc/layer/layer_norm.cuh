// SPDX-License-Identifier: MIT
/// Layer normalization on a CUDA device, with the formulas of layer_norm.hpp.
#pragma once

#include "cuda/norm.cuh"
#include "layer_norm.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<LayerNorm, Cuda> {
  static constexpr bool adds_gradient = true, writes_gradients = true, sums_dx = true;

  static constexpr LayerNeeds needs(const LayerNorm& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (needs.error) return needs;
    needs.workspace = workspace_bytes(in, query);
    const std::size_t size = bytes_of(wide(query.scalar));
    needs.aux = detail::NormAux<float>::bytes(in.rows(), in.cols(), 2, size);
    return needs;
  }

  static constexpr std::size_t workspace_bytes(Shape in, NeedsQuery query) {
    if (query.pass == Pass::forward) return 0;
    return detail::CudaChunks{in.rows()}.bytes(3, in.cols(), wide(query.scalar));
  }

  template <class T>
  static void forward(const LayerNorm& f, Cuda& cuda, const ForwardCall<T>& call) {
    detail::norm_forward<true, T>(cuda, LayerNorm::name, f.epsilon, call.params, call.x, call.y,
                                  call.aux);
  }

  template <class T>
  static void backward(const LayerNorm&, Cuda& cuda, const BackwardCall<T>& call) {
    detail::norm_backward<true, T>(cuda, LayerNorm::name, call);
  }
};

}}  // namespace adacc::v0_1
