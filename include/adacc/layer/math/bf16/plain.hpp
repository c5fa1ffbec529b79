// SPDX-License-Identifier: MIT
/// Kernels of bf16 products in plain C++: for any processor, with the bits of the definition.
///
/// A product of two bf16 is exact in fp32 if its exponent is in range. Then a multiplication and an addition round once,
/// as the definition asks, with or without a fused instruction. If besides no sum can be denormal, the product runs on
/// widened pairs at the rate of fp32. Tiles with other numbers take the definition step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/bfloat16.hpp"
#include "../../../core/float_mode.hpp"
#include "blocks.hpp"
#include "definition.hpp"
#include "pack.hpp"
#include "widened.hpp"

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // pragmas that the host's compiler understands
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// The exponents, as stored, of numbers that are not zero.
struct ExponentRange {
  std::uint32_t low = 0x7F800000, high = 0;  // in place: bits 23 to 30

  /// Both numbers of a pair.
  void add(std::uint32_t pair) {
    add_bits(pair & 0xFFFF0000);
    add_bits(pair << 16);
  }
  void add_bits(std::uint32_t float_bits) {
    const std::uint32_t magnitude = float_bits & 0x7FFFFFFF, exponent = magnitude & 0x7F800000;
    const std::uint32_t lowest = magnitude == 0 ? 0x7F800000 : exponent;
    low = low < lowest ? low : lowest;
    high = high > exponent ? high : exponent;
  }
  int lowest() const { return static_cast<int>(low >> 23) - 127; }
  int highest() const { return static_cast<int>(high >> 23) - 127; }
};

struct PlainPairs : PlainPacking, WidenedTiles {
  template <class Out>
  static void multiply(const PairTile<Out>& tile) {
    if (in_range(tile)) multiply_widened<PlainPairs>(tile);
    else
      for (std::size_t j = 0; j < tile.cols; j += PairBlocks::panel)
        by_definition(tile.panel_at(j));
  }

  static void widen(const WidenedRows& part) {
    for (std::size_t r = 0; r < part.rows; ++r) {
      const std::byte* const from = part.from + r * part.from_stride;
      float* const to = part.to + r * part.to_stride;
      for (std::size_t w = 0; w < part.words; ++w)
        widen_word(from + 4 * w, to[w], to[part.lower + w]);
    }
  }

  [[gnu::noinline]] static void add(const WidenedGroup& group) {
    for (std::size_t row = 0; row < PairBlocks::kernel_rows; row += at_once)
      for (std::size_t col = 0; col < group.vectors * PairBlocks::width; col += 2 * V::width) {
        if (group.packed) add<true>(group, row, col);
        else add<false>(group, row, col);
      }
  }

 private:
  using V = Simd<float, 16>;
  // 8 sums of 4 numbers in 16 registers. With 32 registers there are 16 sums: enough for four units whose multiply-adds
  // take four cycles, and 10 loads instead of 12 for 16 multiply-adds.
  static constexpr std::size_t at_once = BuildTarget::registers >= 32 ? 8 : 4;

  template <bool Packed>
  static void add(const WidenedGroup& group, std::size_t row, std::size_t col) {
    constexpr std::size_t panel = PairBlocks::panel;
    using Steps = WidenedSteps<Packed>;
    const std::size_t sums_row = group.sums_row;
    const float* const a = group.a + row * Steps::row;
    float* const sums = group.sums + row * sums_row + col;
    // Vectors are copied one by one: arrays copied whole would lie in memory.
    typename V::type sum[at_once][2], right[2];
    const auto each_sum = [&](const auto& body) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < at_once; ++r)
#pragma GCC unroll 2
        for (std::size_t v = 0; v < 2; ++v) body(sum[r][v], sums + r * sums_row + v * V::width);
    };
    each_sum([](auto& to, const float* from) { std::memcpy(&to, from, sizeof to); });
    const float* b = group.b + col;
    for (std::size_t p = 0; p < group.pairs; ++p) {
#pragma GCC unroll 2
      for (std::size_t half = 0; half < 2; ++half, b += panel) {
        std::memcpy(&right[0], b, sizeof right[0]);
        std::memcpy(&right[1], b + V::width, sizeof right[1]);
#pragma GCC unroll 16
        for (std::size_t r = 0; r < at_once; ++r) {
          const float left = a[r * Steps::row + p * Steps::pair + half * Steps::lower];
          sum[r][0] += left * right[0];
          sum[r][1] += left * right[1];
        }
      }
    }
    each_sum([](const auto& from, float* to) { std::memcpy(to, &from, sizeof from); });
  }

  static std::uint32_t a_pair(const auto& tile, std::size_t i, std::size_t p) {
    constexpr std::size_t group = PairBlocks::kernel_rows;
    if (tile.packed_a != nullptr)
      return tile.packed_a[(i / group * tile.pairs() + p) * group + i % group];
    return pair_at(tile.a + i * tile.a_stride + 2 * p, tile.k - 2 * p);
  }

  /// Whether every product and every sum is normal or zero, and finite unless a sum overflows.
  template <class Out>
  static bool in_range(const PairTile<Out>& tile) {
    ExponentRange a, b, start;
    const std::size_t pairs = tile.pairs();
    for (std::size_t i = 0; i < tile.rows; ++i)
      for (std::size_t p = 0; p < pairs; ++p) a.add(a_pair(tile, i, p));
    float sum[PairBlocks::panel];
    for (std::size_t first = 0; first < tile.cols; first += PairBlocks::panel) {
      const PairTile<Out> part = tile.panel_at(first);
      for (std::size_t w = 0; w < pairs * part.wide(); ++w) b.add(part.b[w]);
      for (std::size_t i = 0; i < part.rows; ++i) {
        part.begin_row(i, sum);
        for (std::size_t j = 0; j < part.cols; ++j) start.add_bits(bits_as<std::uint32_t>(sum[j]));
      }
    }
    // Numbers are multiples of their last bit's value, and so are sums; 2^-126 is the least normal number.
    constexpr int bits = 7, float_bits = 23, least_normal = -126, beyond = 128;
    const bool finite = a.highest() < beyond && b.highest() < beyond && start.highest() < beyond;
    return finite && a.highest() + b.highest() + 2 < beyond &&
           a.lowest() + b.lowest() - 2 * bits >= least_normal &&
           start.lowest() - float_bits >= least_normal;
  }

  template <class Out>
  [[gnu::noinline]] static void by_definition(const PairTile<Out>& tile) {
    const FloatModeScope mode;
    const std::size_t wide = tile.wide();
    for (std::size_t i = 0; i < tile.rows; ++i) {
      float sum[PairBlocks::panel];
      tile.begin_row(i, sum);
      for (std::size_t p = 0; p < tile.pairs(); ++p) {
        const std::uint32_t pair = a_pair(tile, i, p);
        for (std::size_t j = 0; j < tile.cols; ++j)
          sum[j] = add_pair(sum[j], pair, tile.b[p * wide + j]);
      }
      tile.end_row(i, sum);
    }
  }
};

}}}  // namespace adacc::v0_1::detail

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
