// SPDX-License-Identifier: MIT
/// The common part of watches of speeds: medians of some steps, and when a median is off.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "options.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Empties `seen` and returns its median; for an even number, the upper of the two in the middle. `seen` must have
/// elements.
inline double take_median(Array<double>& seen) {
  sort(seen, [](double a, double b) { return a < b; });
  const double median = seen[seen.size() / 2];
  seen.clear();
  return median;
}

/// Whether a measured time, over the expected one, means another speed.
inline bool is_off(double ratio, const EvolutionOptions& options) {
  const double limit = 1 + options.drift;
  return ratio > limit || ratio * limit < 1;
}

}}}  // namespace adacc::v0_1::detail
