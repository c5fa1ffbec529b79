// SPDX-License-Identifier: MIT
/// Policies for saved tensors: their input, and the ready ones.
///
/// A policy is a function from the facts known about a tensor to a form until backward. A policy is asked once for
/// each storage, after autograd alone holds the storage, and so knows all operators that have saved the storage or a
/// view.
///
/// An operator tolerates no loss unless the list of tolerance.hpp says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "../../codec/bf16.hpp"
#include "../../codec/int4_outlier.hpp"
#include "../../codec/int8_outlier.hpp"
#include "keep.hpp"
#include "signs.hpp"
#include "tolerance.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A tensor saved by autograd.
struct SavedTensor {
  std::vector<std::int64_t> sizes;  ///< the first saved tensor's; others may be views
  c10::ScalarType type = c10::ScalarType::Float;
  std::size_t bytes = 0;  ///< only the saved part of the storage
  /// The operators that saved the tensor, such as "aten::addmm"; "" if unknown. For an autograd.Function, the name of
  /// its class.
  std::vector<std::string> savers;
  /// The role of the tensor for each saver; "" if unknown:
  /// - the name of an argument ("mat1"); "whole_base" (of a power with a whole exponent); "weight" (also of a
  ///   product, if recognized)
  /// - "result", "statistic" (a result of fewer dimensions or columns than the first argument)
  /// - "block_input", "block_constant" (of a checkpoint; the latter needs no gradient)
  std::vector<std::string> roles;
  /// The module that saved the tensor first (module_name.hpp); empty if unknown.
  std::string module;
  /// The graph node producing the tensor, such as "AddmmBackward0"; empty if an operator saved a result, or if there
  /// is none.
  std::string producer;
  /// The operator that may run again in backward, such as "aten::gelu" (SavedOptions::again); empty: none is known.
  std::string made_by;
};

/// Whether the tensor is an operator's workspace in a private layout (oneDNN's, of recurrent layers): bytes made by
/// an operator. Bytes have no gradient, so operators save bytes for no other purpose.
inline bool is_opaque(const SavedTensor& tensor) {
  const auto made = [](const std::string& role) { return role == "result" || role == "statistic"; };
  return tensor.type == c10::ScalarType::Byte && !tensor.roles.empty() &&
         made(tensor.roles.front());
}

/// Runs while libtorch saves a tensor, on the saving thread, and calls no operators that save.
using ChoosingFunction = std::function<Keep(const SavedTensor&)>;

/// The losses tolerated by all savers of `tensor`.
inline Tolerated tolerance_of(const SavedTensor& tensor) {
  return tolerance_of(tensor.savers, tensor.roles);
}

namespace detail {

/// `lossy`, or a form with an exact gradient if the tensor tolerates no loss.
inline Keep lossy_unless_exact(const SavedTensor& tensor, Keep lossy) {
  switch (tolerance_of(tensor).tolerance) {
    case Tolerance::nothing: return {};
    case Tolerance::at_most_zero: return Keep::as<ReluSigns>();
    case Tolerance::above_zero: return Keep::as<LeakyReluSigns>();
    default: return lossy;
  }
}

}  // namespace detail

/// Ready policies. All of them keep without loss: tensors of other types than floating-point numbers, tensors of two
/// values, and tensors with any role outside the list of tolerance.hpp. A result saved by ReLU alone becomes the
/// sign, which gives the gradient the same bits.

/// Changes no bit of any gradient.
inline Keep lossless(const SavedTensor& tensor) {
  return reads_sign(tolerance_of(tensor).tolerance) ? detail::lossy_unless_exact(tensor, {})
                                                    : Keep{};
}
/// 16 bits an element.
inline Keep bf16(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, Keep::as<Bf16>());
}
/// 8 bits an element, outliers exactly.
inline Keep int8(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, Keep::as<Int8Outlier>());
}
/// 4 bits an element, outliers exactly; for networks seen to tolerate 4 bits.
inline Keep int4(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, Keep::as<Int4Outlier>());
}
/// 4 bits if every saver tolerates 4 bits (linear layers, norms, GELU), otherwise 8 if all tolerate 8.
inline Keep tolerated(const SavedTensor& tensor) {
  return detail::lossy_unless_exact(tensor, tolerance_of(tensor).tolerance == Tolerance::int4
                                                ? Keep::as<Int4Outlier>()
                                                : Keep::as<Int8Outlier>());
}

}}}  // namespace adacc::v0_1::torch
