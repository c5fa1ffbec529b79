/// How codecs that know no rows divide a tensor, and which tensors they can divide.
#pragma once

#include <cstddef>

#include "../core/bytes.hpp"
#include "../core/config.hpp"
#include "../core/cpu.hpp"
#include "../core/dtype.hpp"

namespace adacc::inline v0_1::detail {

/// rows * cols, if `dtype` is of floating-point numbers and such a tensor could be in memory at all
/// (2^60 elements); otherwise 0.
ADACC_HD constexpr std::size_t codable_elements(std::size_t rows, std::size_t cols, Dtype dtype) {
  std::size_t elements = 0;
  if (dtype == Dtype::i32 || !multiply(rows, cols, elements)) return 0;
  return elements > static_cast<std::size_t>(-1) / 16 ? 0 : elements;
}

/// Elements that go to one thread at a time: a constant, so that what is written does not depend on
/// the number of threads.
inline constexpr std::size_t elements_per_tile = 16384;

/// Calls tile(first element, how many) for all of n elements, in parallel.
template <class Tile>
void for_each_span(const Cpu& cpu, std::size_t n, const Tile& tile) {
  cpu.parallel(div_up(n, elements_per_tile), [&](std::size_t i, int) {
    const std::size_t first = i * elements_per_tile, left = n - first;
    tile(first, left < elements_per_tile ? left : elements_per_tile);
  });
}

}  // namespace adacc::inline v0_1::detail
