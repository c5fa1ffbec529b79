// SPDX-License-Identifier: MIT
/// Minimum and maximum, of two values or gathered value by value.
#pragma once

#include "config.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr double infinite = 1e300;  ///< seconds, bytes or errors beyond all others

template <class T>
constexpr void lower(T& least, T value) {
  if (value < least) least = value;
}
template <class T>
constexpr void raise(T& most, T value) {
  if (value > most) most = value;
}
template <class T>
ADACC_HD constexpr T smaller(T a, T b) {
  return a < b ? a : b;
}
template <class T>
ADACC_HD constexpr T larger(T a, T b) {
  return a > b ? a : b;
}

}}}  // namespace adacc::v0_1::detail
