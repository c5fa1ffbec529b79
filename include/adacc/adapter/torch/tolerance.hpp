// SPDX-License-Identifier: MIT
/// The losses tolerated by the backward of operators: a list by operator and by saved argument. Without an entry in
/// the list, no loss is tolerated.
///
/// Measured on a GPT (docs/codecs.md), as the relative squared error of the gradient under 4 bits: 0.50 for q, k and
/// v of attention (all of them together under 8 bits: two orders of magnitude less), and 0.003 to 0.009 for inputs of
/// linear layers, norms and GELU. A generated test (python/tests/operators_of_torch.py) runs every operator
/// differentiated by torch, with ordinary and with hard inputs.
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
  nothing,  ///< backward divides by the saved values, compares them, or is unknown
  int8,
  int4,
  at_most_zero,  ///< backward reads only whether a value is at most 0
  above_zero,    ///< backward reads only whether a value is above 0
};

/// Whether a bit is enough (signs.hpp).
constexpr bool reads_sign(Tolerance tolerance) { return tolerance >= Tolerance::at_most_zero; }

/// Requirements on an encoding, beside an error that is small against the whole tensor.
struct Demands {
  /// The error of each row is small against the row, because backward divides by a measure of the row. Rows are the
  /// innermost dimension if there are this many elements, otherwise the codec's (128 or more). 0: not required.
  std::uint16_t rows = 0;
  /// Positive values stay positive, and zero stays zero.
  bool gates = false;
  /// The error is small against x (1 - x): the gradient of a saturated softmax depends on 1 - x.
  bool complement = false;
  /// The largest mean square of a row: larger queries and keys saturate the softmax, and the gradient is a small
  /// difference of large terms. 0: any.
  float mean_square = 0;
  /// The largest distance of two neighbouring codes: backward computes a function of the saved values that bends
  /// within such distances. 0: any.
  float step = 0;
};

struct Tolerated {
  Tolerance tolerance = Tolerance::nothing;
  Demands demands;
};

namespace detail {

/// The list. The demands of a row tell where data can be hard: an encoding that does not meet them is replaced by a
/// milder one (encoding_error.hpp).
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
    // Linear layers. The other factor is "weight" (roles.hpp) unless computed from an input.
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
    {"_scaled_dot_product_flash_attention", "query", Tolerance::int8, of_scores},
    {"_scaled_dot_product_flash_attention", "key", Tolerance::int8, of_scores},
    {"_scaled_dot_product_flash_attention", "value", Tolerance::int8, by_rows},
    {"_scaled_dot_product_flash_attention", "result", Tolerance::int8, by_rows},
    {"_scaled_dot_product_efficient_attention", "query", Tolerance::int8, of_scores},
    {"_scaled_dot_product_efficient_attention", "key", Tolerance::int8, of_scores},
    {"_scaled_dot_product_efficient_attention", "value", Tolerance::int8, by_rows},
    {"_scaled_dot_product_efficient_attention", "result", Tolerance::int8, by_rows},
    {"_scaled_dot_product_cudnn_attention", "query", Tolerance::int8, of_scores},
    {"_scaled_dot_product_cudnn_attention", "key", Tolerance::int8, of_scores},
    {"_scaled_dot_product_cudnn_attention", "value", Tolerance::int8, by_rows},
    {"_scaled_dot_product_cudnn_attention", "result", Tolerance::int8, by_rows},
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
    // A sign.
    {"relu", "result", Tolerance::at_most_zero},
    {"leaky_relu", "self", Tolerance::above_zero},
};

}  // namespace detail

/// Whether `name` saves the inputs of a block that runs again: adacc's checkpoint, or one of torch's two.
inline bool is_checkpoint(std::string_view name) {
  return name == "adacc::checkpoint" || name == "_NoopSaveInputs" || name == "CheckpointFunction";
}

/// The tolerance of a tensor saved by operator `name` as `role`, see SavedTensor.
inline Tolerated tolerance_of(std::string_view name, std::string_view role) {
  if (is_checkpoint(name)) {
    // An input without gradient may be a bias of scores, whose differences count.
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

/// The tolerance of a tensor saved by savers[0] as roles[0], by savers[1] as roles[1] …
inline Tolerated tolerance_of(const std::vector<std::string>& savers,
                              const std::vector<std::string>& roles) {
  if (savers.empty()) return {};
  Tolerance sign = Tolerance::nothing;  // of all savers
  Tolerated all{Tolerance::int4, {}};
  for (std::size_t i = 0; i < savers.size(); ++i) {
    const std::string_view role = i < roles.size() ? std::string_view(roles[i]) : "";
    const Tolerated rule = tolerance_of(savers[i], role);
    if (i == 0 && reads_sign(rule.tolerance)) sign = rule.tolerance;
    if (rule.tolerance != sign) sign = Tolerance::nothing;
    Tolerance limit = rule.tolerance;
    if (reads_sign(limit)) {
      // Codes keep the sign of values that are never negative, but not of values on both sides of zero.
      limit = role == "result" ? Tolerance::int8 : Tolerance::nothing;
      all.demands.gates = true;
    }
    all.tolerance = std::min(all.tolerance, limit);
    all.demands.complement = all.demands.complement || rule.demands.complement;
    if (rule.demands.rows > 0 && (all.demands.rows == 0 || rule.demands.rows < all.demands.rows))
      all.demands.rows = rule.demands.rows;
    if (rule.demands.mean_square > 0) all.demands.mean_square = rule.demands.mean_square;
    if (rule.demands.step > 0 && (all.demands.step == 0 || rule.demands.step < all.demands.step))
      all.demands.step = rule.demands.step;
  }
  if (sign != Tolerance::nothing) return {sign, {}};
  return all;
}

}}}  // namespace adacc::v0_1::torch
