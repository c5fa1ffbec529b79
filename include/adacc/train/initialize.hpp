// SPDX-License-Identifier: MIT
/// Draws the initial parameters of a model.
///
/// Element e of parameter i is a function of (seed, i, e) alone, so the values depend neither on
/// threads nor on the parameter's place in memory. Normal numbers come from the
/// transform of Box and Muller, "A note on the generation of random normal deviates", Ann. Math.
/// Stat. 29 (1958), computed in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/bfloat16.hpp"
#include "../core/context.hpp"
#include "../core/random.hpp"
#include "../core/view.hpp"
#include "../model/parameter.hpp"

namespace adacc { inline namespace v0_1 {

/// Four independent numbers of the standard normal distribution from four random words.
struct NormalBlock {
  double value[4];
};

inline NormalBlock normal_block(const PhiloxBlock& random) {
  constexpr double unit = 1.0 / 4294967296.0, tau = 6.28318530717958647692;
  NormalBlock normal{};
  for (int i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log((random.word[i] + 0.5) * unit));
    const double angle = tau * unit * random.word[i + 1];
    normal.value[i] = radius * std::cos(angle);
    normal.value[i + 1] = radius * std::sin(angle);
  }
  return normal;
}

/// Fills the block `params`, with the offsets of `table`, from each owner's `Init`; padding is zeroed. `first`:
/// number of the table's first parameter in the network, if the network is cut (Graph::first_parameter).
template <class Context, class Table, class T>
void initialize_parameters(Context& context, const Table& table, View<T> params, std::uint64_t seed,
                           std::size_t first = 0) {
  constexpr std::size_t chunk = 16384;
  // A model without parameters has a block without an address, which memset may not be given.
  if (params.size() != 0) std::memset(params.data(), 0, params.size() * sizeof(T));
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto& parameter = table[i];
    if (!parameter.owner || parameter.init.kind == Init::Kind::zeros) continue;
    const RandomKey key = RandomKey{.seed = seed}
                              .with_purpose(Purpose::initialization)
                              .with_activation(static_cast<std::uint32_t>(first + i));
    T* const values = params.data() + parameter.offset;
    const double scale = parameter.init.scale;
    const std::size_t elems = parameter.shape.elems();
    for_tiles(context, div_up(elems, chunk), [&](std::size_t tile, int) {
      const std::size_t end = (tile + 1) * chunk < elems ? (tile + 1) * chunk : elems;
      for (std::size_t e = tile * chunk; e < end; e += 4) {
        const PhiloxBlock random = random_block(key, e / 4);
        NormalBlock drawn{};
        if (parameter.init.kind == Init::Kind::normal) drawn = normal_block(random);
        for (std::size_t j = 0; j < 4 && e + j < end; ++j) {
          double value = 1;
          if (parameter.init.kind == Init::Kind::normal) value = drawn.value[j];
          if (parameter.init.kind == Init::Kind::uniform)
            value = 2.0 * unit_float(random.word[j]) - 1;
          values[e + j] = detail::rounded<T>(scale * value);
        }
      }
    });
  }
}

}}  // namespace adacc::v0_1
