// SPDX-License-Identifier: MIT
/// What the backward of operators makes of saved tensors that lost something: a list of what is known
/// to stand it, by operator and by the argument that was saved. What is not in the list stands nothing.
///
/// Measured on a GPT (docs/codecs.md), as the relative squared error of the gradient under 4 bits: q, k
/// and v of attention 0.50, all of them together under 8 bits two orders of magnitude less; inputs of
/// linear layers, norms and GELU 0.003 to 0.009. A generated test (python/tests/operators_of_torch.py) runs
/// every operator that torch differentiates, with ordinary and with hard inputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Least tolerant first.
enum class Tolerance : std::uint8_t {
  nothing,  ///< backward divides by what was saved, compares it, or is not known
  int8,
  int4,
  sign,  ///< backward asks whether it is positive, and nothing else
};

/// What an encoding has to hold, beside an error that is small against all of the tensor.
struct Demands {
  /// In each row the error is small against that row: backward divides by what a row is like. Rows are
  /// the innermost dimension if that has so many elements, else the codec's (128 or more). 0: not so.
  std::uint16_t rows = 0;
  /// What is positive stays so, and zero stays zero.
  bool gates = false;
  /// The error is small against x (1 - x): of a saturated softmax it is 1 - x that a gradient is made of.
  bool complement = false;
  /// The mean square of a row is at most so much: of larger queries and keys the softmax is saturated, and
  /// its gradient is what is left of differences. 0: any.
  float mean_square = 0;
  /// The largest distance of two neighbouring codes: backward takes a function of what was saved that
  /// bends within such distances. 0: any.
  float step = 0;
};

struct Tolerated {
  Tolerance tolerance = Tolerance::nothing;
  Demands demands;
};

namespace detail {

/// The list. The demands of a row say where data can be hard: an encoding that does not meet them is
/// given up for a milder one (encoding_error.hpp).
struct ToleratedArgument {
  std::string_view name, argument;
  Tolerance tolerance;
  Demands demands = {};
};

inline constexpr Demands in_norm{.rows = 8}, by_rows{.rows = 64}, of_shares{.complement = true},
    of_scores{.rows = 64, .mean_square = 16};
constexpr Demands steps_of(float step, std::uint16_t rows = 0) {
  return {.rows = rows, .step = step};
}

inline constexpr ToleratedArgument tolerated_arguments[] = {
    // Linear layers. The other factor is "weight" (roles.hpp) unless it depends on an input.
    {"linear", "input", Tolerance::int4},
    {"addmm", "mat1", Tolerance::int4},
    {"addmm", "mat2", Tolerance::int4},
    {"mm", "self", Tolerance::int4},
    {"mm", "mat2", Tolerance::int4},
    {"_grouped_mm", "self", Tolerance::int4},
    // Other products.
    {"bmm", "self", Tolerance::int8},
    {"bmm", "mat2", Tolerance::int8},
    {"baddbmm", "batch1", Tolerance::int8},
    {"baddbmm", "batch2", Tolerance::int8},
    {"convolution", "input", Tolerance::int8},
    {"mkldnn_rnn_layer", "input", Tolerance::int8},
    {"mkldnn_rnn_layer", "result", Tolerance::int8},
    {"mul", "self", Tolerance::int8, by_rows},
    {"mul", "other", Tolerance::int8, by_rows},
    {"addcmul", "tensor1", Tolerance::int8, by_rows},
    {"addcmul", "tensor2", Tolerance::int8, by_rows},
    {"pow", "whole_base", Tolerance::int8, by_rows},
    // Norms.
    {"native_layer_norm", "input", Tolerance::int4, in_norm},
    {"native_group_norm", "input", Tolerance::int4, in_norm},
    {"_fused_rms_norm", "input", Tolerance::int4, in_norm},
    {"native_batch_norm", "input", Tolerance::int8},
    {"_native_batch_norm_legit", "input", Tolerance::int8},
    {"_batch_norm_with_update", "input", Tolerance::int8},
    // Attention.
    {"_scaled_dot_product_flash_attention_for_cpu", "query", Tolerance::int8, of_scores},
    {"_scaled_dot_product_flash_attention_for_cpu", "key", Tolerance::int8, of_scores},
    {"_scaled_dot_product_flash_attention_for_cpu", "value", Tolerance::int8, by_rows},
    {"_scaled_dot_product_flash_attention_for_cpu", "result", Tolerance::int8, by_rows},
    {"_softmax", "result", Tolerance::int8, of_shares},
    {"_safe_softmax", "result", Tolerance::int8, of_shares},
    {"_log_softmax", "result", Tolerance::int8, steps_of(0.25F)},
    // Elementwise.
    {"gelu", "self", Tolerance::int4, steps_of(2)},
    {"silu", "self", Tolerance::int4, steps_of(2)},
    {"glu", "self", Tolerance::int8, steps_of(0.5F)},
    {"hardswish", "self", Tolerance::int8, steps_of(0.25F)},
    {"softplus", "self", Tolerance::int8, steps_of(0.25F)},
    {"tanh", "result", Tolerance::int8},
    {"sigmoid", "result", Tolerance::int8, of_shares},
    {"exp", "result", Tolerance::int8, by_rows},
    {"sin", "self", Tolerance::int8, steps_of(0.25F)},
    {"cos", "self", Tolerance::int8, steps_of(0.25F)},
    // Backward reads no more of these than their sizes.
    {"avg_pool2d", "self", Tolerance::int4},
    {"max_pool2d_with_indices", "self", Tolerance::int4},
    {"_adaptive_avg_pool2d", "self", Tolerance::int4},
    {"nll_loss_forward", "self", Tolerance::int4},
    {"nll_loss2d_forward", "self", Tolerance::int4},
    // The sign alone.
    {"relu", "result", Tolerance::sign},
    {"leaky_relu", "self", Tolerance::sign},
};

}  // namespace detail

/// Whether `name` saves the inputs of a block that runs again: ours, and both of torch's.
inline bool is_checkpoint(std::string_view name) {
  return name == "adacc::checkpoint" || name == "_NoopSaveInputs" || name == "CheckpointFunction";
}

/// Of what the operator `name` saves as `role`, see SavedTensor.
inline Tolerated tolerance_of(std::string_view name, std::string_view role) {
  if (is_checkpoint(name)) {
    // What asks for no gradient may be a bias of scores, in which it is differences that count.
    if (role == "block_input") return {Tolerance::int8, detail::by_rows};
    if (role == "block_constant") return {Tolerance::int8, detail::steps_of(0.05F, 64)};
  }
  constexpr std::string_view library = "aten::";
  if (!name.starts_with(library)) return {};
  name.remove_prefix(library.size());
  if (name.ends_with('_')) name.remove_suffix(1);  // in place
  for (const detail::ToleratedArgument& row : detail::tolerated_arguments)
    if (row.name == name && row.argument == role) return {row.tolerance, row.demands};
  return {};
}

/// Of what saved a tensor first as roles[0], then as roles[1] …
inline Tolerated tolerance_of(const std::vector<std::string>& savers,
                              const std::vector<std::string>& roles) {
  if (savers.empty()) return {};
  bool signs = true;
  Tolerated all{Tolerance::int4, {}};
  for (std::size_t i = 0; i < savers.size(); ++i) {
    const std::string_view role = i < roles.size() ? std::string_view(roles[i]) : "";
    const Tolerated mine = tolerance_of(savers[i], role);
    signs = signs && mine.tolerance == Tolerance::sign;
    Tolerance limit = mine.tolerance;
    if (limit == Tolerance::sign) {
      // Of what is never negative codes can keep the sign; of what is on both sides of zero, not.
      limit = role == "result" ? Tolerance::int8 : Tolerance::nothing;
      all.demands.gates = true;
    }
    all.tolerance = std::min(all.tolerance, limit);
    all.demands.complement = all.demands.complement || mine.demands.complement;
    if (mine.demands.rows > 0 && (all.demands.rows == 0 || mine.demands.rows < all.demands.rows))
      all.demands.rows = mine.demands.rows;
    if (mine.demands.mean_square > 0) all.demands.mean_square = mine.demands.mean_square;
    if (mine.demands.step > 0 && (all.demands.step == 0 || mine.demands.step < all.demands.step))
      all.demands.step = mine.demands.step;
  }
  if (signs) return {Tolerance::sign, {}};
  return all;
}

}}}  // namespace adacc::v0_1::torch
