// SPDX-License-Identifier: MIT
/// RMS normalization on a CUDA device, with the formulas of rms_norm.hpp.
#pragma once

#include "cuda/norm.cuh"
#include "rms_norm.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<RmsNorm, Cuda> {
  static constexpr bool adds_gradient = true, writes_gradients = true, sums_dx = true;

  static constexpr LayerNeeds needs(const RmsNorm& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (needs.error) return needs;
    needs.workspace = workspace_bytes(in, query);
    const std::size_t size = bytes_of(wide(query.scalar));
    needs.aux = detail::NormAux<float>::bytes(in.rows(), in.cols(), 1, size);
    return needs;
  }

  static constexpr std::size_t workspace_bytes(Shape in, NeedsQuery query) {
    if (query.pass == Pass::forward) return 0;
    return detail::CudaChunks{in.rows()}.bytes(2, in.cols(), wide(query.scalar));
  }

  template <class T>
  static void forward(const RmsNorm& f, Cuda& cuda, const ForwardCall<T>& call) {
    detail::norm_forward<false, T>(cuda, RmsNorm::name, f.epsilon, call.params, call.x, call.y,
                                   call.aux);
  }

  template <class T>
  static void backward(const RmsNorm&, Cuda& cuda, const BackwardCall<T>& call) {
    detail::norm_backward<false, T>(cuda, RmsNorm::name, call);
  }
};

}}  // namespace adacc::v0_1
