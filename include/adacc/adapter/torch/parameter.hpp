// SPDX-License-Identifier: MIT
/// Whether a saved tensor is a parameter: parameters live on, and encoding them would only lose.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// The leaf that needs a gradient and is `tensor`, or the base of the view (`weight.t()`), or the source of the cast
/// (autocast's copy of a weight in 16 bits, which is neither leaf nor view); undefined: there is none.
inline at::Tensor parameter_of(const at::Tensor& tensor) {
  const auto asking = [](const at::TensorBase& leaf) {
    return leaf.requires_grad() ? at::Tensor(leaf) : at::Tensor();
  };
  if (tensor.is_leaf()) return asking(tensor);
  if (tensor.is_view()) {
    const auto& base = tensor._base();
    if (base.is_leaf()) return asking(base);
  }
  static constexpr std::array<std::string_view, 8> casts_and_views = {
      "ToCopyBackward0", "TBackward0",      "TransposeBackward0",    "PermuteBackward0",
      "ViewBackward0",   "ExpandBackward0", "ReshapeAliasBackward0", "UnsafeViewBackward0"};
  const ::torch::autograd::Node* node = tensor.grad_fn().get();
  while (node != nullptr && node->num_outputs() == 1) {
    if (std::find(casts_and_views.begin(), casts_and_views.end(), node->name()) ==
        casts_and_views.end())
      return {};
    const ::torch::autograd::Node* next = node->next_edge(0).function.get();
    if (next != nullptr && next->num_outputs() == 0) {
      const auto* const leaf = dynamic_cast<const ::torch::autograd::AccumulateGrad*>(next);
      return leaf != nullptr ? leaf->variable : at::Tensor();
    }
    node = next;
  }
  return {};
}

inline bool is_parameter(const at::Tensor& tensor) { return parameter_of(tensor).defined(); }

}}}  // namespace adacc::v0_1::torch
