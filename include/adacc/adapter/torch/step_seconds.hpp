// SPDX-License-Identifier: MIT
/// Seconds of a plan's parts, by several measurements.
///
/// No libtorch in this file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "step_record.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// The least seconds of records of one kind: in longer ones, the machine has waited for something.
class StepSeconds {
 public:
  void add(const StepRecord& record) {
    if (blocks_.empty()) blocks_.assign(record.blocks.size(), record.seconds);
    step_ = step_ > 0 ? std::min(step_, record.seconds) : record.seconds;
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      blocks_[b] = std::min(blocks_[b], record.blocks[b].seconds);
  }
  /// Into `record`, which was added.
  void put_into(StepRecord& record) const {
    record.seconds = step_;
    for (std::size_t b = 0; b < blocks_.size(); ++b) record.blocks[b].seconds = blocks_[b];
  }

 private:
  double step_ = 0;
  std::vector<double> blocks_;
};

/// Seconds for `count` elements, by measurements of `few` and `some` elements, which may have a constant part. `few` is 0
/// for a single measurement.
inline double extended(double of_few, std::size_t few, double of_some, std::size_t some,
                       std::size_t count) {
  const auto number = [](std::size_t n) { return static_cast<double>(n); };
  const double each = of_some / number(some);
  const double more = few == 0 ? each : (of_some - of_few) / number(some - few);
  // The constant part is neither everything nor below zero.
  return of_some + (number(count) - number(some)) * std::clamp(more, each / 4, each);
}

}}}  // namespace adacc::v0_1::torch
