// SPDX-License-Identifier: MIT
/// Policies for saved tensors: what is asked of one, and those that are ready.
///
/// A policy is a function from what is known of a tensor to the form in which it waits. It is asked
/// once for each storage, when nobody but autograd holds it any more, and so knows all operators
/// that have saved it or a view of it.
///
/// What is not known to stand a loss has none: tolerance.hpp has the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "../../codec/bf16.hpp"
#include "../../codec/bit_mask.hpp"
#include "../../codec/int4_outlier.hpp"
#include "../../codec/int8_outlier.hpp"
#include "keep.hpp"
#include "tolerance.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A tensor that autograd saves.
struct SavedTensor {
  std::vector<std::int64_t> sizes;  ///< of the one that was saved first; others may be views of it
  c10::ScalarType type = c10::ScalarType::Float;
  std::size_t bytes = 0;  ///< of the storage, as far as anybody saved it
  /// The operators that saved it, such as "aten::addmm"; "" if one is not known. An autograd.Function
  /// has its own name.
  std::vector<std::string> savers;
  /// As what each of them did: the name of an argument ("mat1"), "whole_base" (of a power whose exponent
  /// is a whole number), "weight" (also of a product, as far as that can be told), "result", "statistic"
  /// (a result of fewer dimensions or columns than the first argument), "block_input" or
  /// "block_constant" (of a checkpoint; the latter asks for no gradient); "" if that is not known.
  std::vector<std::string> roles;
  /// The module that it was saved in first (module_name.hpp); empty if nobody said so.
  std::string module;
  /// The node of the graph that made it, such as "AddmmBackward0"; empty if an operator saved its
  /// own output, or if it has none.
  std::string producer;
};

/// Whether it is an operator's workspace in a layout of its own (oneDNN's, of recurrent layers): bytes that
/// an operator made. No gradient is asked of bytes, so nothing else is saved so.
inline bool is_opaque(const SavedTensor& tensor) {
  const auto made = [](const std::string& role) { return role == "result" || role == "statistic"; };
  return tensor.type == c10::ScalarType::Byte && !tensor.roles.empty() &&
         made(tensor.roles.front());
}

/// Runs while libtorch saves a tensor, on the thread that does, and calls no operators that save.
using Policy = std::function<Keep(const SavedTensor&)>;

/// What all that save `tensor` tolerate.
inline Tolerated tolerance_of(const SavedTensor& tensor) {
  return tolerance_of(tensor.savers, tensor.roles);
}

namespace detail {

/// The form for values that may lose something, and what is never lossy beside it.
inline Keep lossy_unless_exact(const SavedTensor& tensor, Keep lossy) {
  switch (tolerance_of(tensor).tolerance) {
    case Tolerance::nothing: return {};
    case Tolerance::sign: return Keep::as<BitMask>();
    default: return lossy;
  }
}

}  // namespace detail

/// Ready policies. All keep without loss what is no floating-point number, what has two values only,
/// and what is not in the list of tolerance.hpp in all roles in which it was saved; what ReLU alone
/// saves of its output becomes its sign, from which its gradient has the same bits.

/// Nothing changes a bit of any gradient.
inline Keep lossless(const SavedTensor& tensor) {
  return tolerance_of(tensor).tolerance == Tolerance::sign ? Keep::as<BitMask>() : Keep{};
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
/// 4 bits if every operator that saved it tolerates them (linear layers, norms, GELU), else 8 if all
/// tolerate those.
inline Keep tolerated(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, tolerance_of(tensor).tolerance == Tolerance::int4
                                                ? Keep::as<Int4Outlier>()
                                                : Keep::as<Int8Outlier>());
}

}}}  // namespace adacc::v0_1::torch
