// SPDX-License-Identifier: MIT
/// What watches of speeds have in common: medians of some steps, and when one of them is off.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "options.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Takes `seen`, which is not empty, and returns its median; of an even number, the upper of the two
/// in the middle.
inline double take_median(Array<double>& seen) {
  sort(seen, [](double a, double b) { return a < b; });
  const double median = seen[seen.size() / 2];
  seen.clear();
  return median;
}

/// Whether a time over what was expected of it is that of another speed.
inline bool is_off(double ratio, const EvolutionOptions& options) {
  const double limit = 1 + options.drift;
  return ratio > limit || ratio * limit < 1;
}

}}}  // namespace adacc::v0_1::detail
