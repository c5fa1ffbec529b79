// SPDX-License-Identifier: MIT
/// A gradient in 256 numbers, which tell the distance of two gradients.
///
/// Each element is added, with a random sign, to one of 256 sums, drawn at random (Charikar, Chen, Farach-Colton,
/// "Finding frequent items in data streams", 2002; Thorup and Zhang, SODA 2004). The sketch is linear,
/// S(g') - S(g) = S(g' - g), and the sum of its squares has the mean |g|^2 and a variance of at most 2 / 256 |g|^4:
/// distances are told within 9 % (standard deviation), without holding a second gradient. One random number serves
/// 64 elements, so a sketch costs little more than reading the gradient.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "../core/context.hpp"
#include "../core/error.hpp"
#include "../core/random.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

struct GradientSketch {
  static constexpr std::size_t size = 256;

  double sums[size] = {};
  double squared_norm = 0;  ///< the gradient's, exact

  /// Adds the sketch of another part of the same gradient.
  constexpr void add(const GradientSketch& part) {
    for (std::size_t i = 0; i < size; ++i) sums[i] += part.sums[i];
    squared_norm += part.squared_norm;
  }

  /// An unbiased estimate of |g' - g|^2, if both were sketched with one key.
  friend constexpr double squared_distance(const GradientSketch& a, const GradientSketch& b) {
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double difference = a.sums[i] - b.sums[i];
      sum += difference * difference;
    }
    return sum;
  }
};

namespace detail {

/// The signs for four bits.
struct SignTable {
  double of[16][4] = {};
  constexpr SignTable() {
    for (int bits = 0; bits < 16; ++bits)
      for (int i = 0; i < 4; ++i) of[bits][i] = (bits >> i & 1) != 0 ? -1 : 1;
  }
};
inline constexpr SignTable sign_table{};

/// Adds elements [begin, end) of `gradient` to `sketch`; begin is a multiple of 64.
template <class T>
void add_to_sketch(const T* gradient, std::size_t begin, std::size_t end, const RandomKey& key,
                   GradientSketch& sketch) {
  constexpr std::size_t lanes = 8;
  double sums[GradientSketch::size + lanes] = {};  // sums past the end are folded to the start
  double squares[lanes] = {};
  for (std::size_t at = begin; at < end; at += 64) {
    const PhiloxBlock random = random_block(key, at / 64);
    T tail[64] = {};
    const T* from = gradient + at;
    if (end - at < 64) {
      for (std::size_t i = 0; i < end - at; ++i) tail[i] = from[i];
      from = tail;
    }
    for (std::size_t v = 0; v < 8; ++v, from += lanes) {
      // Half a word for eight elements: eight signs, and the first of eight consecutive sums. So elements in one sum
      // have independent signs.
      const std::uint32_t bits = random.word[v / 2] >> (v % 2 * 16);
      const double* low = sign_table.of[bits & 15];
      const double* high = sign_table.of[bits >> 4 & 15];
      double* to = sums + (bits >> 8 & 255);
      for (std::size_t i = 0; i < 4; ++i) {
        const double x = from[i], y = from[i + 4];
        to[i] += low[i] * x;
        to[i + 4] += high[i] * y;
        squares[i] += x * x;
        squares[i + 4] += y * y;
      }
    }
  }
  for (std::size_t i = 0; i < GradientSketch::size + lanes; ++i)
    sketch.sums[i % GradientSketch::size] += sums[i];
  for (const double square : squares) sketch.squared_norm += square;
}

}  // namespace detail

/// The sketch of a block of gradients, whose padding holds zeros, under `key`: equal keys give
/// comparable sketches. The bits do not depend on the number of threads.
template <class Context, class T>
GradientSketch sketch_of(Context& context, View<T> gradient, RandomKey key) {
  constexpr std::size_t most_chunks = 16, least_elems = 32768;
  key.purpose = Purpose::probe;
  const std::size_t elems = gradient.size();
  std::size_t chunk = div_up(div_up(elems, most_chunks), 64) * 64;
  if (chunk < least_elems) chunk = least_elems;
  const std::size_t chunks = div_up(elems, chunk);
  GradientSketch partial[most_chunks];
  for_tiles(context, chunks, [&](std::size_t tile, int) {
    const std::size_t begin = tile * chunk;
    const std::size_t end = elems - begin < chunk ? elems : begin + chunk;
    detail::add_to_sketch(gradient.data(), begin, end, key, partial[tile]);
  });
  GradientSketch sum;
  for (std::size_t c = 0; c < chunks; ++c) sum.add(partial[c]);
  return sum;
}

/// sketch_of() for contexts that sum in memory of their own, like devices (gradient_sketch.cuh): the caller lends
/// this memory for the call. The host needs none.
template <class Context, class T>
Result<GradientSketch> sketch_in(Bytes, Context& context, View<T> gradient, RandomKey key) {
  return sketch_of(context, gradient, key);
}

/// The sketch of a gradient in several blocks.
template <class Context, class T>
GradientSketch sketch_of(Context& context, const Array<View<T>>& gradients, RandomKey key) {
  GradientSketch sum;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    key.activation = static_cast<std::uint32_t>(i);  // a stream for each
    sum.add(sketch_of(context, gradients[i], key));
  }
  return sum;
}

}}  // namespace adacc::v0_1
