// SPDX-License-Identifier: MIT
/// A block of layers, repeated; the number of copies may be known only at run time.
///
/// Every copy has parameters and activations of its own; the plan may treat copies differently. The block must return
/// the shape of the input.
#pragma once

#include "sequential.hpp"

namespace adacc { inline namespace v0_1 {

template <class Block>
struct Repeat {
  static_assert(is_model_part<Block>,
                "adacc: Repeat takes a block made of Layer, Sequential, Residual and Repeat");
  using last_layer = typename detail::LastLayer<Block>::type;

  int count = 1;
  Block block{};

  template <class Visitor>
  constexpr void visit(Visitor& visitor) const {
    visitor.repeat(count, block);
  }
};

/// repeat(12, block)
template <class Block>
constexpr Repeat<Block> repeat(int count, const Block& block) {
  return {count, block};
}

}}  // namespace adacc::v0_1
