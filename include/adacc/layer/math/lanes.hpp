// SPDX-License-Identifier: MIT
/// Activations as vectors of a target: one source for float, double and bfloat16, and for every instruction level.
///
/// A row is taken in whole vectors from its first element on, and its last elements one by one, wherever the row lies in
/// memory. bfloat16 is widened to float when it is loaded, and rounded to the nearest when it is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../../core/bfloat16.hpp"
#include "../../core/cpu.hpp"
#include "../../core/vector_target.hpp"
#include "../../core/view.hpp"
#include "numbers.hpp"
#include "packet.hpp"
#include "rows.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

ADACC_TARGET_CODE_BEGIN
/// The activations at `from`, as many as V has lanes.
template <class V, class T>
V load_lanes(const T* from) {
  V to;
  if constexpr (in_place<T>) {
    to = V::load(from);
  } else if constexpr (V::lanes == 1) {
    to = V::all(to_float(*from));
  } else {
    using Words = typename Simd<std::uint32_t, V::lanes * 4>::type;
    typename Simd<std::uint16_t, V::lanes * 2>::type halves;
    std::memcpy(&halves, from, sizeof halves);
    const Words words = ADACC_CONVERT_LANES(halves, Words) << 16;
    std::memcpy(&to.raw, &words, sizeof words);
  }
  return to;
}

/// The nearest activations, as to_bfloat16() finds them.
template <class V, class T>
void store_lanes(const V& numbers, T* to) {
  if constexpr (in_place<T>) {
    numbers.store(to);
  } else if constexpr (V::lanes == 1) {
    float number;
    numbers.store(&number);
    *to = to_bfloat16(number);
  } else {
    using Words = typename Simd<std::int32_t, V::lanes * 4>::type;
    using Halves = typename Simd<std::int16_t, V::lanes * 2>::type;
    Words words;
    std::memcpy(&words, &numbers.raw, sizeof words);
    const Words nearest = words + (0x7FFF + (words >> 16 & 1)), quiet = words | 0x400000;
    const Words chosen = ADACC_CHOOSE_LANES((words & 0x7FFFFFFF) > 0x7F800000, quiet, nearest);
    const Halves halves = ADACC_CONVERT_LANES(chosen >> 16, Halves);
    std::memcpy(to, &halves, sizeof halves);
  }
}

/// Calls body.operator()<V>(i) for the vectors V of [0, n).
template <class W, class Target, class Body>
void each_vector(std::size_t n, const Body& body) {
  using V = Widest<W, Target>;
  std::size_t i = 0;
  for (; i + V::lanes <= n; i += V::lanes) body.template operator()<V>(i);
  for (; i < n; ++i) body.template operator()<VecOf<W, 1, Target>>(i);
}

/// The sum of body.operator()<V>(i) over the vectors of [0, n): two sums in turns, added up at the end.
template <class W, class Target, class Body>
W sum_vectors(std::size_t n, const Body& body) {
  using V = Widest<W, Target>;
  constexpr std::size_t lanes = V::lanes;
  const std::size_t whole = n / lanes * lanes, pairs = n / (2 * lanes) * (2 * lanes);
  W sum = 0;
  if (whole > 0) {
    V even = body.template operator()<V>(0);
    if (whole > lanes) {
      V odd = body.template operator()<V>(lanes);
      for (std::size_t i = 2 * lanes; i < pairs; i += 2 * lanes) {
        even = even + body.template operator()<V>(i);
        odd = odd + body.template operator()<V>(i + lanes);
      }
      even = even + odd;
      if (whole > pairs) even = even + body.template operator()<V>(pairs);
    }
    sum = even.sum();
  }
  for (std::size_t i = whole; i < n; ++i) {
    W number;
    body.template operator()<VecOf<W, 1, Target>>(i).store(&number);
    sum = i == 0 ? number : sum + number;
  }
  return sum;
}

/// to[i] = Op()(from[i]...) for i < n. `to` may be one of `from`.
template <class Op, class T, class Target, class... From>
void map_numbers_at(std::size_t n, T* to, const From*... from) {
  each_vector<Wide<T>, Target>(
      n, [&]<class V>(std::size_t i) { store_lanes(Op()(load_lanes<V>(from + i)...), to + i); });
}

/// to[i] = factor * from[i], rounded, for i < n. `to` may be `from`.
template <class T, class Target>
void scale_numbers(const Wide<T>* from, std::size_t n, Wide<T> factor, T* to) {
  each_vector<Wide<T>, Target>(
      n, [&]<class V>(std::size_t i) { store_lanes(V::load(from + i) * V::all(factor), to + i); });
}

/// to[i] = from[i], rounded, for i < n.
template <class T, class Target>
void round_numbers(const Wide<T>* from, std::size_t n, T* to) {
  each_vector<Wide<T>, Target>(
      n, [&]<class V>(std::size_t i) { store_lanes(V::load(from + i), to + i); });
}
ADACC_TARGET_CODE_END

/// map_numbers_at() on the context's threads and at the program's level.
template <class Op, class T, class... From>
void map_numbers(const Cpu& cpu, View<T> to, const From&... from) {
  const InstructionLevel level = target_level();
  for_each_piece(cpu, to.size(), tile_elems, [&](std::size_t first, std::size_t n) {
    with_target(level, [&]<class Target>(Target) {
      Target::template call<
          map_numbers_at<Op, T, Target, std::remove_cvref_t<decltype(from[0])>...>>(
          n, to.data() + first, from.data() + first...);
    });
  });
}

}}}  // namespace adacc::v0_1::detail
