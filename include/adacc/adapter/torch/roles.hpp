// SPDX-License-Identifier: MIT
/// The role of a tensor saved by an operator: which argument, or a result; and which tensors are weights.
///
/// A linear layer's weight is known by name. A product has no name for a weight, and a factor may be computed from
/// one: frozen and cast by autocast, scaled, merged with an adapter's product. So a factor counts as a weight if no
/// gradient is needed, or if the factor was computed from parameters alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "blocks.hpp"
#include "operators.hpp"
#include "tolerance.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// Whether a tensor was computed from parameters by these operations: sums and products by element (also with a
/// tensor that needs no gradient), products of matrices (if both need one), views and casts.
inline bool is_made_of_parameters(const ::torch::autograd::Node* node, int& left) {
  static constexpr std::array<std::string_view, 12> elementwise = {
      "ToCopyBackward0",     "TBackward0",     "TransposeBackward0",
      "PermuteBackward0",    "ViewBackward0",  "ReshapeAliasBackward0",
      "UnsafeViewBackward0", "CloneBackward0", "AddBackward0",
      "SubBackward0",        "MulBackward0",   "DivBackward0"};
  static constexpr std::array<std::string_view, 3> products = {"MmBackward0", "BmmBackward0",
                                                               "AddmmBackward0"};
  if (node == nullptr || --left < 0) return false;
  const std::string& name = node->name();
  if (std::string_view(name).ends_with("AccumulateGrad")) return true;
  const bool product = std::find(products.begin(), products.end(), name) != products.end();
  if (!product && std::find(elementwise.begin(), elementwise.end(), name) == elementwise.end())
    return false;
  bool any = false;
  for (const auto& edge : node->next_edges()) {
    if (edge.function == nullptr && !product) continue;
    if (!is_made_of_parameters(edge.function.get(), left)) return false;
    any = true;
  }
  return any;
}

inline bool may_be_weight(const at::Tensor& factor) {
  if (!factor.requires_grad()) return true;
  int left = 32;
  return is_made_of_parameters(factor.grad_fn().get(), left);
}

/// Whether argument `role` of operator `name` is a factor of a product.
inline bool is_factor(std::string_view name, std::string_view role) {
  constexpr std::array<std::string_view, 5> products = {"aten::mm", "aten::addmm", "aten::bmm",
                                                        "aten::baddbmm", "aten::_grouped_mm"};
  constexpr std::array<std::string_view, 5> factors = {"self", "mat1", "mat2", "batch1", "batch2"};
  return std::find(products.begin(), products.end(), name) != products.end() &&
         std::find(factors.begin(), factors.end(), role) != factors.end();
}

/// The saver of a tensor saved now: the innermost operator, or a checkpoint.
inline std::string_view saver() {
  return saving_as() != nullptr ? "adacc::checkpoint" : RunningOperators::innermost();
}

/// The role in which saver() saves the plain `tensor`; "" if unknown. If several arguments share a storage: the least
/// tolerant one.
inline std::string role_of(const at::Tensor& tensor) {
  const std::string_view name = saver();
  if (saving_as() != nullptr) return saving_as();
  if (is_checkpoint(name)) return block_role(tensor);
  std::vector<std::string> roles = RunningOperators::roles_of(tensor);
  std::string least;
  for (std::string& role : roles) {
    if (is_factor(name, role) && !RunningOperators::in_linear() && may_be_weight(tensor))
      role = "weight";
    if (least.empty() || tolerance_of(name, role).tolerance < tolerance_of(name, least).tolerance)
      least = std::move(role);
  }
  return least;
}

}}}}  // namespace adacc::v0_1::torch::detail
