// SPDX-License-Identifier: MIT
/// Layer normalization on a CUDA device, with the formulas of layer_norm.hpp.
#pragma once

#include "cuda/norm.cuh"
#include "layer_norm.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<LayerNorm, Cuda> {
  static constexpr std::size_t workspace_bytes(const LayerNorm&, Shape in, Dtype scalar, int,
                                               Pass pass) {
    if (pass == Pass::forward) return 0;
    return detail::CudaChunks{in.rows()}.bytes(2, in.cols(), wide(scalar));
  }

  template <class T>
  static void forward(const LayerNorm& f, Cuda& cuda, const Params<const Wide<T>>& params,
                      const View<const T>& x, const View<T>& y, const Bytes& aux, const Bytes&) {
    detail::norm_forward<true, T>(cuda, LayerNorm::name, f.epsilon, params, x, y, aux);
  }

  template <class T>
  static void backward(const LayerNorm&, Cuda& cuda, const Params<const Wide<T>>& params,
                       const View<const T>& x, const View<const T>&, const View<const T>& dy,
                       const View<T>& dx, const Params<Wide<T>>& dparams, const ConstBytes& aux,
                       const Bytes& workspace) {
    detail::norm_backward<true, T>(cuda, LayerNorm::name, params, x, dy, dx, dparams, aux,
                                   workspace);
  }
};

}}  // namespace adacc::v0_1
