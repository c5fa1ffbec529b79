// SPDX-License-Identifier: MIT
/// Softmax cross-entropy on a CUDA device; the loss lands in device memory.
#pragma once

#include "cuda/softmax.cuh"
#include "softmax_cross_entropy.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<SoftmaxCrossEntropy, Cuda> {
  template <class T>
  static void loss(const SoftmaxCrossEntropy&, Cuda& cuda, const Params<const Wide<T>>&,
                   const View<const T>& x, const View<const std::int32_t>& targets,
                   const Bytes& workspace, Cuda::Loss& into) {
    run(cuda, x, targets, View<T>(), workspace, into);
  }

  template <class T>
  static void loss_gradient(const SoftmaxCrossEntropy&, Cuda& cuda, const Params<const Wide<T>>&,
                            const View<const T>& x, const View<const std::int32_t>& targets,
                            const View<T>& dx, const Params<Wide<T>>&, const Bytes& workspace,
                            Cuda::Loss& into) {
    run(cuda, x, targets, dx, workspace, into);
  }

 private:
  template <class T>
  static void run(Cuda& cuda, View<const T> x, View<const std::int32_t> targets, View<T> dx,
                  Bytes workspace, Cuda::Loss& into) {
    constexpr const char* name = SoftmaxCrossEntropy::name;
    double* const losses = carve<double>(workspace, x.rows()).data();
    const std::size_t all_rows = detail::cuda_mean_rows(cuda, x.rows());
    detail::softmax_loss(cuda, name, x.rows(), x.cols(), x.cols(), x.data(), targets.data(),
                         all_rows, losses, dx.data());
    detail::add_losses(cuda, name, x.rows(), losses, all_rows, into);
  }
};

}}  // namespace adacc::v0_1
