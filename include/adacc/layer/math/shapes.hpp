// SPDX-License-Identifier: MIT
/// Checks and derivations of shapes, without arithmetic on data: shared by layers on Eigen and plain layers.
#pragma once

#include <cstddef>

#include "../../core/error.hpp"
#include "../../core/shape.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// 1 / sqrt(x) for x >= 1, also in constant expressions; Newton's method from above.
constexpr float reciprocal_root(double x) {
  double root = x;
  while (root * root > x * (1 + 1e-12)) root = (root + x / root) / 2;
  return static_cast<float>(1 / root);
}

/// The error of `in` as the input of a layer on rows of channels, if any.
constexpr Error check_rows(const char* layer, Shape in) {
  if (in.rank() > 0 && in.elems() > 0) return {};
  return Error::say(layer, ": the input has rank ", in.rank(),
                    in.rank() == 0 ? " and no elements"
                                   : " and an extent of 0, or more elements "
                                     "than fit std::size_t",
                    "; expected (..., channels), each at least 1");
}

/// The shape of one number per row: without the last extent.
constexpr Shape without_cols(Shape in) {
  switch (in.rank()) {
    case 2: return Shape(in[0]);
    case 3: return Shape(in[0], in[1]);
    case 4: return Shape(in[0], in[1], in[2]);
    default: return Shape();
  }
}

/// The error of `in` as the rows of a loss over classes, if any.
constexpr Error check_loss_rows(const char* loss, Shape in) {
  if (in.rank() < 2)
    return Error::say(loss, ": the input has rank ", in.rank(),
                      "; expected rows of channels, rank 2 to 4");
  return check_rows(loss, in);
}

}}}  // namespace adacc::v0_1::detail
