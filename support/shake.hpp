// SPDX-License-Identifier: MIT
/// Costs in which no two blocks are equal.
#pragma once

#include <adacc/cost/profile.hpp>

#include <random>

namespace support {

/// Scales every time of `profile` by 1 plus or minus at most `jitter`, each by its own draw: as if
/// equal blocks had been measured each by itself.
inline void shake(adacc::CostProfile& profile, double jitter) {
  std::mt19937 random(1);
  const auto shaken = [&](double& seconds) {
    const double unit = static_cast<double>(random() >> 8) / 8388608.0 - 1;
    seconds *= 1 + jitter * unit;
  };
  for (adacc::NodeCost& cost : profile.nodes)
    for (double* time : {&cost.forward, &cost.backward, &cost.add, &cost.add_gradient})
      shaken(*time);
  for (adacc::CodecCost& cost : profile.codec_costs)
    for (double* time : {&cost.encode, &cost.decode}) shaken(*time);
}

}  // namespace support
