// SPDX-License-Identifier: MIT
/// RMS normalization on a CUDA device, with the formulas of rms_norm.hpp.
#pragma once

#include "cuda/norm.cuh"
#include "rms_norm.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<RmsNorm, Cuda> {
  static constexpr std::size_t workspace_bytes(const RmsNorm&, Shape in, Dtype scalar, int,
                                               Pass pass) {
    if (pass == Pass::forward) return 0;
    return detail::CudaChunks{in.rows()}.bytes(1, in.cols(), wide(scalar));
  }

  template <class T>
  static void forward(const RmsNorm& f, Cuda& cuda, const Params<const Wide<T>>& params,
                      const View<const T>& x, const View<T>& y, const Bytes& aux, const Bytes&) {
    detail::norm_forward<false, T>(cuda, RmsNorm::name, f.epsilon, params, x, y, aux);
  }

  template <class T>
  static void backward(const RmsNorm&, Cuda& cuda, const Params<const Wide<T>>& params,
                       const View<const T>& x, const View<const T>&, const View<const T>& dy,
                       const View<T>& dx, const Params<Wide<T>>& dparams, const ConstBytes& aux,
                       const Bytes& workspace) {
    detail::norm_backward<false, T>(cuda, RmsNorm::name, params, x, dy, dx, dparams, aux,
                                    workspace);
  }
};

}}  // namespace adacc::v0_1
