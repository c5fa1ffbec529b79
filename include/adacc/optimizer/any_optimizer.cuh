// SPDX-License-Identifier: MIT
/// An optimizer chosen at run time on a CUDA device: one of those that have kernels, in every form of moments.
#pragma once

#include "adafactor.cuh"
#include "adamw.cuh"
#include "any_optimizer.hpp"
#include "elementwise.cuh"

namespace adacc { inline namespace v0_1 {

template <>
struct optimizer_kernel<AnyOptimizer, Cuda> {
  /// Why an optimizer has no kernels; empty if it has.
  static Error refusal(const AnyOptimizer& any) {
    if (visit(any, [](const auto&) {})) return {};
    return Error::say("the optimizer ", any.name,
                      " has no kernels for a device in this form: AdamW, SGD and Lion have, with "
                      "moments of one form, and Adafactor");
  }

  template <class Table>
  static void update(const AnyOptimizer& any, Cuda& cuda, const UpdateTable& state,
                     const Table& table, const UpdateMemory<float>& memory,
                     const CudaUpdateTerms& terms) {
    const bool known = visit(any, [&]<class Optimizer>(const Optimizer& optimizer) {
      optimizer_kernel<Optimizer, Cuda>::update(optimizer, cuda, state, table, memory, terms);
    });
    if (!known) cuda.note(refusal(any));
  }

 private:
  template <class Visit>
  static bool visit(const AnyOptimizer& any, const Visit& use) {
    return visit_if<AdamW, AdamWWith<Bf16Moments>, AdamWWith<Int8Moments>, Sgd,
                    SgdWith<Bf16Moments>, SgdWith<Int8Moments>, Lion, LionWith<Bf16Moments>,
                    LionWith<Int8Moments>, Adafactor>(any, use);
  }
  template <class... Optimizers, class Visit>
  static bool visit_if(const AnyOptimizer& any, const Visit& use) {
    return (call<Optimizers>(any, use) || ...);
  }
  template <class Optimizer, class Visit>
  static bool call(const AnyOptimizer& any, const Visit& use) {
    const Optimizer* const optimizer = any.get<Optimizer>();
    if (optimizer != nullptr) use(*optimizer);
    return optimizer != nullptr;
  }
};

}}  // namespace adacc::v0_1
