// SPDX-License-Identifier: MIT
/// How codecs without rows divide a tensor, and which tensors they can divide.
#pragma once

#include <cstddef>

#include "../core/bytes.hpp"
#include "../core/config.hpp"
#include "../core/cpu.hpp"
#include "../core/dtype.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// rows * cols, if `dtype` is a floating-point type and such a tensor could be in memory at all (2^60 elements);
/// otherwise 0.
ADACC_HD constexpr std::size_t codable_elements(std::size_t rows, std::size_t cols, Dtype dtype) {
  std::size_t elements = 0;
  if (dtype == Dtype::i32 || !multiply(rows, cols, elements)) return 0;
  return elements > static_cast<std::size_t>(-1) / 16 ? 0 : elements;
}

/// Elements of one thread at a time: a constant, so the output does not depend on the number of threads.
inline constexpr std::size_t elements_per_tile = 16384;

/// The tiles of a tensor: items into which these codecs can be cut for steps in slices.
constexpr std::size_t span_count(std::size_t rows, std::size_t cols) {
  return div_up(rows * cols, elements_per_tile);
}

/// Calls tile(first element, how many) in parallel, for the elements of n that are in `part` of span_count().
template <class Tile>
void for_each_span(const Cpu& cpu, std::size_t n, Part part, const Tile& tile) {
  const Part spans = part.of(span_count(n, 1));
  cpu.parallel(spans.count, [&](std::size_t i, int) {
    const std::size_t first = (spans.first + i) * elements_per_tile, left = n - first;
    tile(first, left < elements_per_tile ? left : elements_per_tile);
  });
}

}}}  // namespace adacc::v0_1::detail
