// SPDX-License-Identifier: MIT
/// ReLU6: the input, clamped to [0, 6]; networks for phones have this layer.
///
/// Backward reads a mask alone, one bit an element in aux, as in MobileTL (Chuang et al., 2023): neither input nor
/// output need be kept.
#pragma once

#include "mask.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

struct Relu6Curve {
  template <class T>
  static T value(T x) {
    return x < 0 ? T(0) : x > 6 ? T(6) : x;
  }
  template <class T>
  static bool passes(T x) {
    return x > 0 && x < 6;
  }
};

}  // namespace detail

/// Any shape, elementwise. A NaN stays a NaN in forward; the slope there, and at 0 and 6, is 0.
struct Relu6 : detail::Masked<detail::Relu6Curve> {
  static constexpr const char* name = "relu6";
};

}}  // namespace adacc::v0_1
