// SPDX-License-Identifier: MIT
/// AdamW: Adam with decoupled weight decay, as one pass over memory.
///
/// The step is bound by bandwidth: it reads parameters, gradients and both moments once, writes
/// parameters and moments once, and clears the gradients while they are in cache. Chunks are cut
/// from the size of the block alone and an element depends on no other, so the bits are the same
/// for any number of threads.
///
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in the order
/// of operations that llm.c uses (epsilon outside the root of the corrected second moment).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../core/context.hpp"
#include "../core/view.hpp"
#include "optimizer.hpp"
#include "square_root.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// What every element of a step shares.
template <class T>
struct AdamWTerms {
  T scale, beta1, fresh1, beta2, fresh2, correct1, correct2, epsilon, rate, decay;
};

/// Elements whose roots are taken together: enough that none is loaded from a store in flight.
inline constexpr std::size_t adamw_lanes = 128;

/// `count` is at most adamw_lanes.
template <bool clear, class T>
inline void adamw_lanes_step(const AdamWTerms<T>& a, std::size_t count, T* __restrict p,
                             T* __restrict g, T* __restrict m, T* __restrict v) {
  alignas(64) T root[adamw_lanes];
  for (std::size_t i = 0; i < count; ++i) {
    const T gradient = a.scale * g[i];
    m[i] = a.beta1 * m[i] + a.fresh1 * gradient;
    v[i] = a.beta2 * v[i] + a.fresh2 * gradient * gradient;
    root[i] = v[i] * a.correct2;
    if constexpr (clear) g[i] = 0;
  }
  square_roots(root, count);
  for (std::size_t i = 0; i < count; ++i)
    p[i] -= a.rate * (m[i] * a.correct1 / (root[i] + a.epsilon) + a.decay * p[i]);
}

template <bool clear, class T>
void adamw_range(const AdamWTerms<T>& a, std::size_t count, T* __restrict p, T* __restrict g,
                 T* __restrict m, T* __restrict v) {
  std::size_t i = 0;
  for (; i + adamw_lanes <= count; i += adamw_lanes)
    adamw_lanes_step<clear>(a, adamw_lanes, p + i, g + i, m + i, v + i);
  if (i < count) adamw_lanes_step<clear>(a, count - i, p + i, g + i, m + i, v + i);
}

}  // namespace detail

struct AdamW {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0;       ///< applies if the parameter's spec says `decay`
  bool clear_gradients = true;  ///< leave zeros in `grads`, ready for the next step

  static constexpr const char* name = "AdamW";
  static constexpr std::size_t state_blocks = 2;  ///< first and second moments

  /// Elements in one tile of work.
  static constexpr std::size_t chunk_elems = 32768;

  /// For a Training (optimizer.hpp): a step that leaves zeros in the gradients.
  template <class Context, class Table, class T>
  void update(Context& context, const Table& table, const UpdateBlocks<T>& blocks,
              const UpdateTerms& terms) const {
    AdamW clearing = *this;
    clearing.clear_gradients = true;
    clearing.step(context, blocks.params, blocks.gradients, blocks.state[0], blocks.state[1], table,
                  terms.number, terms.rate, terms.scale);
  }

  /// What all elements of update `t` share, but for `decay`.
  template <class T>
  detail::AdamWTerms<T> terms_of(std::uint64_t t, double lr, double grad_scale) const {
    const double b1 = beta1, b2 = beta2, steps = static_cast<double>(t);
    detail::AdamWTerms<T> terms{};
    terms.scale = static_cast<T>(grad_scale);
    terms.beta1 = static_cast<T>(b1);
    terms.fresh1 = static_cast<T>(1 - b1);
    terms.beta2 = static_cast<T>(b2);
    terms.fresh2 = static_cast<T>(1 - b2);
    terms.correct1 = static_cast<T>(1 / (1 - std::pow(b1, steps)));
    terms.correct2 = static_cast<T>(1 / (1 - std::pow(b2, steps)));
    terms.epsilon = static_cast<T>(epsilon);
    terms.rate = static_cast<T>(lr);
    return terms;
  }

  /// One update, with g = grad_scale * grads:
  ///
  ///     m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
  ///     p -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p)
  ///
  /// All four blocks mirror the parameter table (an Array<Parameter>, or whatever has size() and
  /// []), which must lie within them. t counts from 1. Tied duplicates share storage and are
  /// updated once; padding is not touched.
  template <class Context, class Table, class T>
  void step(Context& context, View<T> params, View<T> grads, View<T> m, View<T> v,
            const Table& table, std::uint64_t t, double lr, double grad_scale = 1) const {
    const detail::AdamWTerms<T> terms = terms_of<T>(t, lr, grad_scale);
    const std::size_t elems = params.size();
    for_tiles(context, div_up(elems, chunk_elems), [&](std::size_t tile, int) {
      const std::size_t begin = tile * chunk_elems;
      const std::size_t end = begin + chunk_elems < elems ? begin + chunk_elems : elems;
      for (std::size_t i = 0; i < table.size(); ++i) {
        const auto& parameter = table[i];
        const std::size_t last = parameter.offset + parameter.shape.elems();
        const std::size_t from = parameter.offset > begin ? parameter.offset : begin;
        const std::size_t to = last < end ? last : end;
        if (!parameter.owner || from >= to) continue;
        detail::AdamWTerms<T> own = terms;
        own.decay = parameter.decay ? static_cast<T>(weight_decay) : T{0};
        const auto range =
            clear_gradients ? detail::adamw_range<true, T> : detail::adamw_range<false, T>;
        range(own, to - from, params.data() + from, grads.data() + from, m.data() + from,
              v.data() + from);
      }
    });
  }
};

}}  // namespace adacc::v0_1
