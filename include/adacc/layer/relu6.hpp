// SPDX-License-Identifier: MIT
/// ReLU6: from 0 to 6 what comes in, below and above that the bound; networks for phones have it.
///
/// Backward reads a mask alone, one bit an element in aux, as MobileTL (Chuang et al., 2023) has it: what
/// goes in and what comes out need not be kept for it.
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
