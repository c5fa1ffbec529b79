// SPDX-License-Identifier: MIT
/// Adapters of a ready-made network.
#pragma once

#include <cstddef>

#include "../layer/lora_linear.hpp"

namespace adacc { inline namespace v0_1 {

/// Adapters beside the linear layers (layer/lora_linear.hpp), with all else frozen.
struct Lora {
  std::size_t rank = 0;  ///< 0: there are none
  float alpha = 16;
  bool train_a = true;

  /// A linear layer with an adapter.
  constexpr LoraLinear linear(std::size_t out, bool bias, float init_stddev) const {
    return {.out = out,
            .bias = bias,
            .init_stddev = init_stddev,
            .rank = rank,
            .alpha = alpha,
            .train_a = train_a};
  }
};

}}  // namespace adacc::v0_1
