// SPDX-License-Identifier: MIT
/// A net whose activations are worth sending, batches for it, and a store that is of no help.
#pragma once

#include <adacc/core/block.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/train/training.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

namespace offload_net {

using namespace adacc;

using Hidden = Sequential<Layer<Linear>, Layer<Gelu>>;
using Net = Network<Sequential<Repeat<Hidden>, Layer<Linear>>, MeanSquaredError>;
inline const Shape shape(256, 64);
inline const Net net{{{6, {{Linear{.out = 64}}, {}}}, {Linear{.out = 1}}}, {}};

struct Batch {
  std::vector<float> x = std::vector<float>(shape.elems()), y = std::vector<float>(256);
  explicit Batch(std::uint32_t number) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = 2 * unit_float(random_word({.seed = 5, .step = number}, i)) - 1;
    for (std::size_t r = 0; r < y.size(); ++r) y[r] = x[64 * r] * x[64 * r + 1];
  }
  View<const float> input() const { return {x.data(), shape}; }
  View<const float> targets() const { return {y.data(), Shape(256, 1)}; }
};

/// A store that does everything as late as it may, with room for all.
struct Hostile {
  Block<std::byte> memory = *Block<std::byte>::make(4 * MiB, "a store", huge_page);
  MemoryStore store{memory.view()};
  Hostile() { store.hostile = true; }
};

/// Whether both hold the same parameters.
inline bool same(Training<>& a, Training<>& b) {
  const View<float> x = a.params(), y = b.params();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

}  // namespace offload_net
