// SPDX-License-Identifier: MIT
/// Products of pairs by fp32 multiply-adds, for processors without an instruction for pairs.
///
/// A pair is widened to two floats, the odd k first, in the order of the definition. Rows of A and a panel of B are
/// widened 64 pairs at a time into scratch, and used there by several panels and all rows, so the kernel is one of fp32
/// products. Sums wait in
/// scratch between. The thread treats denormal numbers as zeros meanwhile, as the definition asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/bfloat16.hpp"
#include "../../../core/float_mode.hpp"
#include "blocks.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Rows of words to widen: word w of row r goes to to[r * to_stride + w] (upper half) and `lower` floats further.
struct WidenedRows {
  std::size_t rows, words;
  const std::byte* from;
  std::size_t from_stride;  // bytes
  float* to;
  std::size_t to_stride, lower;
};

/// Sums of kernel rows over some widened pairs: rows of A as in WidenedSteps; rows of B have a panel's length.
struct WidenedGroup {
  std::size_t vectors, pairs;  // vectors of 16 columns
  const float* a;
  bool packed;
  const float* b;
  float* sums;
  std::size_t sums_row;  // floats from one row of sums to the next
};

/// Steps from one row of widened A to the next, from pair to pair, and from upper to lower halves: of rows in place, or
/// of packed groups.
template <bool Packed>
struct WidenedSteps {
  static constexpr std::size_t most = PairBlocks::widened_pairs, group = PairBlocks::kernel_rows;
  static constexpr std::size_t row = Packed ? 1 : 2 * most, pair = Packed ? 2 * group : 1,
                               lower = Packed ? group : most;
};

/// Tiles of kernels that widen pairs.
struct WidenedTiles {
  static constexpr std::size_t in_place_rows = PairBlocks::max_rows;
  static constexpr std::size_t panels_at_once = PairBlocks::widened_panels;

  /// The two numbers of the word at `from`.
  static void widen_word(const std::byte* from, float& upper, float& lower) {
    std::uint32_t pair;
    std::memcpy(&pair, from, sizeof pair);
    upper = bits_as<float>(pair & 0xFFFF0000);
    lower = bits_as<float>(pair << 16);
  }
};

template <class Kernels, class Out>
void multiply_widened(const PairTile<Out>& tile) {
  using Blocks = PairBlocks;
  constexpr std::size_t panel = Blocks::panel, group = Blocks::kernel_rows;
  constexpr std::size_t most = Blocks::widened_pairs;
  const FloatModeScope mode(FloatMode::without_subnormals());
  float* const a = tile.scratch;
  const std::size_t sums_row = Blocks::sums_stride(tile.cols);
  const std::size_t rows = round_up(tile.rows, group);
  float* const sums = a + 2 * most * rows;
  float* const b = sums + rows * sums_row;
  const std::size_t pairs = tile.pairs();
  const bool packed = tile.packed_a != nullptr;
  for (std::size_t i = 0; i < tile.rows; ++i) tile.begin_row(i, sums + i * sums_row);
  const auto bytes = [](const void* at) { return static_cast<const std::byte*>(at); };
  for (std::size_t p0 = 0; p0 < pairs; p0 += most) {
    const std::size_t count = least(most, pairs - p0);
    if (packed)
      for (std::size_t i = 0; i < tile.rows; i += group)
        Kernels::widen({count, group, bytes(tile.packed_a + i * pairs + p0 * group),
                        group * sizeof(std::uint32_t), a + i * 2 * most, 2 * group, group});
    else {
      const std::size_t whole = least(count, tile.k / 2 - p0);
      Kernels::widen({tile.rows, whole, bytes(tile.a + 2 * p0), tile.a_stride * sizeof(bfloat16), a,
                      2 * most, most});
      for (std::size_t i = 0; i < tile.rows && whole != count; ++i) {
        a[i * 2 * most + whole] = 0;
        a[i * 2 * most + most + whole] = to_float(tile.a[i * tile.a_stride + tile.k - 1]);
      }
    }
    for (std::size_t j = 0; j < tile.cols; j += panel) {
      const PairTile<Out> part = tile.panel_at(j);
      const std::size_t wide = part.wide();
      Kernels::widen({count, wide, bytes(part.b + p0 * wide), wide * sizeof(std::uint32_t), b,
                      2 * panel, panel});
      for (std::size_t i = 0; i < tile.rows; i += group)
        Kernels::add({wide / Blocks::width, count, a + i * 2 * most, packed, b,
                      sums + i * sums_row + j, sums_row});
    }
  }
  for (std::size_t i = 0; i < tile.rows; ++i) tile.end_row(i, sums + i * sums_row);
}

}}}  // namespace adacc::v0_1::detail
