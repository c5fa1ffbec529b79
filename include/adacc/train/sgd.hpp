// SPDX-License-Identifier: MIT
/// Stochastic gradient descent with momentum and decoupled weight decay.
///
/// Source: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the
/// form of Sutskever, Martens, Dahl, Hinton, ICML 2013; the decay is kept out of the velocity as in
/// Loshchilov and Hutter, ICLR 2019.
#pragma once

#include <cstddef>

#include "../core/context.hpp"
#include "optimizer.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
void sgd_range(std::size_t count, T scale, T momentum, T rate, T decay, T* __restrict p,
               T* __restrict g, T* __restrict v) {
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] + scale * g[i];
    p[i] -= rate * (v[i] + decay * p[i]);
    g[i] = 0;
  }
}

}  // namespace detail

struct Sgd {
  float momentum = 0.9F;
  float weight_decay = 0;  ///< applies if the parameter's spec says `decay`

  static constexpr const char* name = "SGD";
  static constexpr std::size_t state_blocks = 1;  ///< the velocity

  /// Elements in one tile of work.
  static constexpr std::size_t chunk_elems = 32768;

  /// With g = scale * gradients:
  ///
  ///     v = momentum v + g          p -= rate (v + weight_decay p)
  template <class Context, class Table, class T>
  void update(Context& context, const Table& table, const UpdateBlocks<T>& blocks,
              const UpdateTerms& terms) const {
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto& parameter = table[i];
      if (!parameter.owner) continue;
      const std::size_t first = parameter.offset, elems = parameter.shape.elems();
      const T decay = parameter.decay ? static_cast<T>(weight_decay) : T{0};
      for_tiles(context, div_up(elems, chunk_elems), [&](std::size_t tile, int) {
        const std::size_t begin = tile * chunk_elems, left = elems - begin;
        detail::sgd_range(left < chunk_elems ? left : chunk_elems, static_cast<T>(terms.scale),
                          static_cast<T>(momentum), static_cast<T>(terms.rate), decay,
                          blocks.params.data() + first + begin,
                          blocks.gradients.data() + first + begin,
                          blocks.state[0].data() + first + begin);
      });
    }
  }
};

}}  // namespace adacc::v0_1
