// SPDX-License-Identifier: MIT
/// Softmax cross-entropy on a CUDA device; the loss lands in device memory.
#pragma once

#include "cuda/softmax.cuh"
#include "softmax_cross_entropy.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<SoftmaxCrossEntropy, Cuda> {
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
    double* const losses = carve<double>(workspace, call.x.rows()).data();
    const std::size_t all_rows = call.part.of(call.x.rows()).whole;
    detail::softmax_loss(cuda, name, call.x.rows(), call.x.cols(), call.x.cols(), call.x.data(),
                         call.targets.data(), all_rows, losses, call.dx.data());
    detail::add_losses(cuda, name, call.x.rows(), losses, all_rows, into);
  }
};

}}  // namespace adacc::v0_1
