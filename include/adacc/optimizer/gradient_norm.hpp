// SPDX-License-Identifier: MIT
/// The L2 norm of all gradients, and clipping by it.
///
/// Partial sums live on the stack: the block is cut into at most 256 chunks by its size alone, squares are added in
/// double in fixed lanes, and partial sums in order, so the bits do not depend on the number of threads.
#pragma once

#include <cmath>
#include <cstddef>

#include "../core/context.hpp"
#include "../core/error.hpp"
#include "../core/vector_target.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

ADACC_TARGET_CODE_BEGIN
template <class T>
double sum_of_squares(const T* x, std::size_t count) {
  constexpr std::size_t lanes = 32;
  double sum[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double value = x[i + lane];
      sum[lane] += value * value;
    }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    const double value = x[i];
    sum[lane] += value * value;
  }
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
  return sum[0];
}

template <class T>
void write_sum_of_squares(const T* x, std::size_t count, double& sum) {
  sum = sum_of_squares(x, count);
}
ADACC_TARGET_CODE_END

}  // namespace detail

/// The square root of the sum of squares over the whole block. Padding must hold zeros; tied parameters are stored,
/// and counted, once. Not finite if a gradient is not.
template <class Context, class T>
double gradient_norm(Context& context, View<T> grads) {
  constexpr std::size_t most_chunks = 256, least_elems = 32768;
  const std::size_t elems = grads.size();
  std::size_t chunk = div_up(div_up(elems, most_chunks), 64) * 64;
  if (chunk < least_elems) chunk = least_elems;
  const std::size_t chunks = div_up(elems, chunk);
  double partial[most_chunks];
  for_tiles(context, chunks, [&](std::size_t tile, int) {
    const std::size_t begin = tile * chunk;
    detail::call_at_level<detail::write_sum_of_squares<T>>(
        grads.data() + begin, elems - begin < chunk ? elems - begin : chunk, partial[tile]);
  });
  double sum = 0;
  for (std::size_t i = 0; i < chunks; ++i) sum += partial[i];
  return std::sqrt(sum);
}

/// The norm by which gradients are clipped.
enum class ClipBy : unsigned char {
  this_step,  ///< the norm of these gradients: all must be there before the first update
  previous,   ///< the norm of the step before; the first step of a training is not clipped
};

/// To what gradients are scaled down, and by which norm.
struct Clipping {
  double norm = 0;  ///< the L2 norm that they have at most; 0 is off
  ClipBy by = ClipBy::this_step;

  constexpr Clipping() = default;
  constexpr Clipping(double most, ClipBy whose = ClipBy::this_step)  // implicit: `clip = 1`
      : norm(most), by(whose) {}

  /// Whether nothing is updated before the last gradient is known.
  constexpr bool before_all() const { return norm > 0 && by == ClipBy::this_step; }
};

namespace detail {

inline Error check_clip(double norm) {
  if (norm >= 0) return {};
  return Error::say("the norm that gradients are clipped to must be 0 (off) or more, and not NaN");
}

}  // namespace detail

/// The factor that brings gradients of this norm down to the norm `clip`: min(1, clip / norm), and
/// 1 if clip is 0 (off). A norm that is not a number gives 1: check it before the step.
inline double clip_scale(double norm, double clip) {
  return clip > 0 && norm > clip ? clip / norm : 1.0;
}

}}  // namespace adacc::v0_1
