// SPDX-License-Identifier: MIT
/// Policies for saved tensors: what is asked of one, and those that are ready.
///
/// A policy is a function from what is known of a tensor to the form in which it waits. It is asked
/// once for each storage, when nobody but autograd holds it any more, and so knows all operators
/// that have saved it or a view of it.
///
/// What operators tolerate, as the relative squared error of the gradient under 4 bits, measured on a
/// GPT (docs/codecs.md): q, k and v of attention 0.50, all of them together under 8 bits two orders
/// of magnitude less; inputs of linear layers, norms and GELU 0.003 to 0.009. So attention's are
/// sensitive. If backward divides by what was saved, or takes a root or a logarithm of it, a
/// small number that decodes to 0 makes an infinity: those are kept without loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "../../codec/bf16.hpp"
#include "../../codec/bit_mask.hpp"
#include "../../codec/int4_outlier.hpp"
#include "../../codec/int8_outlier.hpp"
#include "keep.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A tensor that autograd saves.
struct SavedTensor {
  std::vector<std::int64_t> sizes;  ///< of the one that was saved first; others may be views of it
  c10::ScalarType type = c10::ScalarType::Float;
  std::size_t bytes = 0;  ///< of the storage, as far as anybody saved it
  /// The operators that saved it, such as "aten::addmm"; "" if one is not known.
  std::vector<std::string> savers;
  /// The node of the graph that made it, such as "AddmmBackward0"; empty if an operator saved its
  /// own output, or if it has none.
  std::string producer;
};

/// Runs while libtorch saves a tensor, on the thread that does, and calls no operators that save.
using Policy = std::function<Keep(const SavedTensor&)>;

/// What the backward of an operator makes of saved tensors that lost something, least tolerant first.
enum class Tolerance : std::uint8_t {
  nothing,  ///< it divides by them, or worse
  int8,
  int4,
  sign,  ///< it asks of its output whether it is positive, and nothing else
};

/// Of an operator by its name, "aten::gelu"; int8 if it is not in the table.
inline Tolerance tolerance_of(std::string_view name) {
  struct Row {
    std::string_view prefix;  // in-place variants have the same and a '_'
    Tolerance tolerance;
  };
  using enum Tolerance;
  static constexpr Row rows[] = {
      // Before the shorter prefixes.
      {"log_softmax", int8},
      {"logsumexp", int8},
      {"logaddexp", int8},
      {"log_sigmoid", int8},
      {"native_layer_norm", int4},
      {"native_group_norm", int4},
      {"native_batch_norm", int8},
      {"_scaled_dot_product", int8},
      // Roots, quotients, logarithms and what has a pole.
      {"div", nothing},
      {"true_divide", nothing},
      {"addcdiv", nothing},
      {"log", nothing},
      {"sqrt", nothing},
      {"rsqrt", nothing},
      {"reciprocal", nothing},
      {"float_power", nothing},
      {"norm", nothing},
      {"linalg_", nothing},
      {"cdist", nothing},
      {"_cdist", nothing},
      {"atan2", nothing},
      {"acos", nothing},
      {"asin", nothing},
      {"atanh", nothing},
      {"erfinv", nothing},
      {"lgamma", nothing},
      {"digamma", nothing},
      {"polygamma", nothing},
      {"xlogy", nothing},
      {"hypot", nothing},
      {"prod", nothing},
      {"cumprod", nothing},
      {"std", nothing},
      {"_weight_norm", nothing},
      {"renorm", nothing},
      // What a gradient hardly notices.
      {"addmm", int4},
      {"mm", int4},
      {"linear", int4},
      {"gelu", int4},
      {"silu", int4},
      {"layer_norm", int4},
      {"group_norm", int4},
      {"rms_norm", int4},
      {"_fused_rms_norm", int4},
      // The sign alone.
      {"relu", sign},
  };
  if (const std::size_t colons = name.rfind(':'); colons != std::string_view::npos)
    name.remove_prefix(colons + 1);
  for (const Row& row : rows) {
    if (!name.starts_with(row.prefix)) continue;
    const std::string_view rest = name.substr(row.prefix.size());
    // "mm" is no prefix of "mm_of_something", but "norm" is one of "norm_except_dim".
    const bool whole = rest.empty() || rest == "_" || row.tolerance == nothing ||
                       row.prefix.front() == '_' || row.prefix.starts_with("native_");
    if (whole) return row.tolerance;
  }
  return int8;
}

/// What all operators that save `tensor` tolerate.
inline Tolerance tolerance_of(const SavedTensor& tensor) {
  bool all = !tensor.savers.empty();
  auto least = Tolerance::int4;
  for (const std::string& saver : tensor.savers) {
    const Tolerance mine = tolerance_of(std::string_view(saver));
    all = all && mine == Tolerance::sign;
    const Tolerance limit = mine == Tolerance::sign ? Tolerance::int8 : mine;
    if (limit < least) least = limit;
  }
  return all ? Tolerance::sign : tensor.savers.empty() ? Tolerance::int8 : least;
}

namespace detail {

/// The form for values that may lose something, and what is never lossy beside it.
inline Keep lossy_unless_exact(const SavedTensor& tensor, Keep lossy) {
  switch (tolerance_of(tensor)) {
    case Tolerance::nothing: return {};
    case Tolerance::sign: return Keep::as<BitMask>();
    default: return lossy;
  }
}

}  // namespace detail

/// Ready policies. All keep without loss what is no floating-point number, what has two values only,
/// and what an operator divides by; what ReLU alone saves of its output becomes its sign, from which
/// its gradient has the same bits.

/// Nothing changes a bit of any gradient.
inline Keep lossless(const SavedTensor& tensor) {
  return tolerance_of(tensor) == Tolerance::sign ? Keep::as<BitMask>() : Keep{};
}
/// 16 bits an element.
inline Keep bf16(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, Keep::as<Bf16>());
}
/// 8 bits an element, outliers exactly.
inline Keep int8(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, Keep::as<Int8Outlier>());
}
/// 4 bits an element, outliers exactly; for networks that were seen to stand it.
inline Keep int4(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, Keep::as<Int4Outlier>());
}
/// 4 bits if every operator that saved it tolerates them (linear layers, norms, GELU), else 8.
inline Keep tolerated(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, tolerance_of(tensor) == Tolerance::int4
                                                ? Keep::as<Int4Outlier>()
                                                : Keep::as<Int8Outlier>());
}

}}}  // namespace adacc::v0_1::torch
