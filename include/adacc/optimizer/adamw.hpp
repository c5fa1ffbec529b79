// SPDX-License-Identifier: MIT
/// AdamW: Adam with decoupled weight decay, as one pass over memory.
///
/// Bandwidth bounds the step: it reads parameters, gradients and both moments once, writes parameters and moments
/// once, and clears the gradients while they are in cache. Chunks follow from the size of the block alone, and
/// elements do not depend on each other, so the bits are the same for any number of threads.
///
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in llm.c's order of operations
/// (epsilon outside the root of the corrected second moment).
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

/// The terms of a step, shared by all elements.
template <class T>
struct AdamWTerms {
  T scale, beta1, fresh1, beta2, fresh2, correct1, correct2, epsilon, rate, decay;
};

ADACC_TARGET_CODE_BEGIN
/// Updates `count` elements, at most moment_lanes: so many roots are taken together that none is loaded from a store
/// in flight.
template <bool clear, class T>
void adamw_lanes(const AdamWTerms<T>& a, auto count, T* __restrict p, T* __restrict g,
                 T* __restrict m, T* __restrict v) {
  alignas(64) T root[moment_lanes];
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
  for (; i + moment_lanes <= count; i += moment_lanes)
    adamw_lanes<clear>(a, MomentLanes{}, p + i, g + i, m + i, v + i);
  if (i < count) adamw_lanes<clear>(a, count - i, p + i, g + i, m + i, v + i);
}
ADACC_TARGET_CODE_END

/// One update of the blocks of AdamWWith::step().
template <class Optimizer, class Context, class Table, class T>
void step_adamw(const Optimizer& adamw, Context& context, View<T> params, View<T> grads, View<T> m,
                View<T> v, const Table& table, const UpdateTerms& terms) {
  const std::size_t elems = params.size(), tile = update_tile;
  for_tiles(context, div_up(elems, tile), [&](std::size_t at, int) {
    const std::size_t begin = at * tile;
    const std::size_t end = begin + tile < elems ? begin + tile : elems;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto& parameter = table[i];
      const std::size_t last = parameter.offset + parameter.shape.elems();
      const std::size_t from = parameter.offset > begin ? parameter.offset : begin;
      const std::size_t to = last < end ? last : end;
      if (!parameter.owner || parameter.frozen || from >= to) continue;
      const auto update = [&]<bool clear> {
        call_at_level<adamw_range<clear, T>>(adamw.template terms_of<T>(parameter, terms),
                                             to - from, params.data() + from, grads.data() + from,
                                             m.data() + from, v.data() + from);
      };
      if (adamw.clear_gradients) update.template operator()<true>();
      else update.template operator()<false>();
    }
  });
}

}  // namespace detail

ADACC_TARGET_CODE_BEGIN
/// AdamW with moments in the forms `First` and `Second`.
template <class First = FullMoments, class Second = First>
struct AdamWWith {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0;       ///< applies if the parameter's spec says `decay`
  bool clear_gradients = true;  ///< in step(): leave zeros in `grads` for the next step

  static constexpr const char* name = "AdamW";
  static constexpr std::size_t state_count = 2;
  static constexpr bool elementwise = true;

  static constexpr StateSpec state(std::size_t i, const ParameterSpec& parameter) {
    const std::size_t elems = parameter.shape.elems();
    if (i == 0) return {"first moment", elems, First::form};
    return {"second moment", elems, Second::form, true};
  }

  template <class Visit>
  void each_option(const Visit& visit) const {
    visit("beta1", beta1);
    visit("beta2", beta2);
    visit("epsilon", epsilon);
    visit("weight decay", weight_decay);
  }
  constexpr const char* mistake() const {
    return epsilon > 0 ? detail::mistake_of_betas(beta1, beta2) : "epsilon must be above 0";
  }

  /// With g = scale * gradient, t = terms.number and lr = terms.rate:
  ///
  ///     m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
  ///     p -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p)
  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms& terms) const {
    const detail::AdamWTerms<T> own = terms_of<T>(range.parameter, terms);
    const std::size_t elems = range.elems();
    for_lanes<First, Second>(range, [&](std::size_t i, auto count, const auto& random) {
      alignas(64) T first[moment_lanes], second[moment_lanes];
      std::byte *const first_at = range.state(0), *const second_at = range.state(1);
      T* m = First::template open<false>(first_at, elems, i, count, first);
      T* v = Second::template open<true>(second_at, elems, i, count, second);
      detail::adamw_lanes<true>(own, count, range.values + i, range.gradient + i, m, v);
      First::template close<false, 0>(first_at, elems, i, count, m, random);
      Second::template close<true, 1>(second_at, elems, i, count, v, random);
    });
  }

  /// The terms of an update, shared by all elements of a parameter.
  template <class T>
  detail::AdamWTerms<T> terms_of(const ParameterSpec& parameter, const UpdateTerms& update) const {
    const double b1 = beta1, b2 = beta2, steps = static_cast<double>(update.number);
    detail::AdamWTerms<T> terms{};
    terms.scale = static_cast<T>(update.scale);
    terms.beta1 = static_cast<T>(b1);
    terms.fresh1 = static_cast<T>(1 - b1);
    terms.beta2 = static_cast<T>(b2);
    terms.fresh2 = static_cast<T>(1 - b2);
    terms.correct1 = static_cast<T>(1 / (1 - std::pow(b1, steps)));
    terms.correct2 = static_cast<T>(1 / (1 - std::pow(b2, steps)));
    terms.epsilon = static_cast<T>(epsilon);
    terms.rate = static_cast<T>(update.rate);
    terms.decay = parameter.decay ? static_cast<T>(weight_decay) : T{0};
    return terms;
  }

  /// One update of a trainer's own blocks. All four mirror the parameter table (an Array<Parameter>, or another type
  /// with size() and []); trained parameters must lie within them. t counts from 1. Tied duplicates share storage and
  /// are updated once; frozen parameters and padding are not touched.
  template <class Context, class Table, class T>
  void step(Context& context, View<T> params, View<T> grads, View<T> m, View<T> v,
            const Table& table, std::uint64_t t, double lr, double grad_scale = 1) const {
    static_assert(First::form == StateForm::full && Second::form == StateForm::full,
                  "adacc: AdamW::step() takes moments as they are; UpdateTable has other forms");
    detail::step_adamw(*this, context, params, grads, m, v, table, UpdateTerms{t, lr, grad_scale});
  }
};
ADACC_TARGET_CODE_END

using AdamW = AdamWWith<>;

}}  // namespace adacc::v0_1
