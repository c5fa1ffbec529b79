// SPDX-License-Identifier: MIT
/// Softmax cross-entropy on a CUDA device; the loss lands in device memory.
#pragma once

#include "cuda/softmax.cuh"
#include "softmax_cross_entropy.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<SoftmaxCrossEntropy, Cuda> {
  /// One number more than on the host: the divisor.
  static constexpr LayerNeeds needs(const SoftmaxCrossEntropy& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (!needs.error) needs.workspace += sizeof(double);
    return needs;
  }

  template <class T>
  static void forward(const SoftmaxCrossEntropy&, Cuda& cuda, const LossCall<T, std::int32_t>& call,
                      Cuda::Loss& into) {
    run(cuda, call, into);
  }

  template <class T>
  static void forward_backward(const SoftmaxCrossEntropy&, Cuda& cuda,
                               const LossCall<T, std::int32_t>& call, Cuda::Loss& into) {
    run(cuda, call, into);
  }

 private:
  template <class T>
  static void run(Cuda& cuda, const LossCall<T, std::int32_t>& call, Cuda::Loss& into) {
    Bytes workspace = call.workspace;
    constexpr const char* name = SoftmaxCrossEntropy::name;
    const std::size_t rows = call.x.rows();
    double* const losses = carve<double>(workspace, rows + 1).data();
    double* const divisor = losses + rows;
    detail::count_targets(cuda, name, call, call.x.cols(), divisor, into);
    detail::softmax_loss(cuda, name, rows, call.x.cols(), call.x.cols(), call.x.data(),
                         call.targets.data(), divisor, losses, call.dx.data());
    detail::add_losses(cuda, name, rows, losses, divisor, into);
  }
};

}}  // namespace adacc::v0_1
