// SPDX-License-Identifier: MIT
/// Whether a saved tensor is a parameter: those live on anyway, and encoding them would only lose.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// True for leaves that ask for a gradient, their views (`weight.t()`), and what a cast made of
/// them (autocast's copy of a weight in 16 bits, which is neither leaf nor view).
inline bool is_parameter(const at::Tensor& tensor) {
  if (tensor.is_leaf()) return tensor.requires_grad();
  if (tensor.is_view()) {
    const auto& base = tensor._base();
    if (base.is_leaf()) return base.requires_grad();
  }
  static constexpr std::array<std::string_view, 8> casts_and_views = {
      "ToCopyBackward0", "TBackward0",      "TransposeBackward0",    "PermuteBackward0",
      "ViewBackward0",   "ExpandBackward0", "ReshapeAliasBackward0", "UnsafeViewBackward0"};
  const ::torch::autograd::Node* node = tensor.grad_fn().get();
  while (node != nullptr && node->num_outputs() == 1) {
    if (std::find(casts_and_views.begin(), casts_and_views.end(), node->name()) ==
        casts_and_views.end())
      return false;
    const ::torch::autograd::Node* next = node->next_edge(0).function.get();
    if (next != nullptr && next->num_outputs() == 0)
      return std::string_view(next->name()).ends_with("AccumulateGrad");
    node = next;
  }
  return false;
}

}}}  // namespace adacc::v0_1::torch
