// SPDX-License-Identifier: MIT
/// A row times blocks, or numbers of 16 or 32 bits, of GGUF files: decoded in registers, and decoded into tiles first.
///
///     build/release/bench/block_products
///
/// The shape is that of a layer of a model with 1536 channels; one thread, processor time, both ways in turn, medians.
/// Bound: 2.4 M multiply-adds for numbers, and as many for sums, in 16 lanes twice a cycle are 0.05 ms at 3 GHz.
#include <adacc/core/random.hpp>
#include <adacc/io/weights/gguf_stored.hpp>
#include <adacc/layer/math/row_product.hpp>
#include <support/processor_seconds.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

int main() {
  using namespace adacc;
  constexpr std::size_t rows = 1536, cols = 1536, rounds = 41, at_once = 4;
  std::vector<float> a(cols), sums(rows), tile(detail::stored_tile_elems(rows * cols));
  for (std::size_t i = 0; i < cols; ++i) a[i] = unit_float(random_word({.seed = 1}, i)) - 0.5F;
  Cpu cpu;
  std::printf("blocks   bits a weight   registers ms   tiles ms   ratio\n");
  for (const GgufType type : {GgufType::q4_0, GgufType::q4_1, GgufType::q5_0, GgufType::q5_1,
                              GgufType::q8_0, GgufType::q4_k, GgufType::q5_k, GgufType::q6_k,
                              GgufType::f16, GgufType::bf16, GgufType::f32}) {
    const BlockFormat& blocks = block_format(type);
    std::vector<std::byte> bytes(rows * cols / blocks.elems * blocks.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(random_word({.seed = 2}, i) & 0x3B);  // scales are finite
    // Numbers like weights: no subnormal ones, which processors multiply slowly.
    if (blocks.elems == 1)
      for (std::size_t i = blocks.bytes - 1; i < bytes.size(); i += blocks.bytes)
        bytes[i] = std::byte{0x3B};
    BlockFormat in_tiles = blocks;
    in_tiles.add_products = nullptr;
    std::vector<double> times[2];
    for (std::size_t round = 0; round < rounds; ++round)
      for (const bool tiles : {false, true}) {
        const StoredParameter matrix{
            Shape(rows, cols), {{tiles ? &in_tiles : &blocks, bytes.data(), rows, 0}}, 1};
        ParameterMatrix<float> stored;
        stored.stored = &matrix;
        stored.tiles = tile.data();
        const double start = support::processor_seconds();
        for (std::size_t i = 0; i < at_once; ++i)
          detail::row_product(detail::target_level(), cpu, rows, cols, a.data(), 1,
                              detail::RowsStored<float>{stored, cols}, sums.data(), Accumulate::no,
                              static_cast<const float*>(nullptr));
        times[tiles].push_back((support::processor_seconds() - start) / at_once);
      }
    for (std::vector<double>& each : times) std::sort(each.begin(), each.end());
    const double registers = times[0][rounds / 2], decoded = times[1][rounds / 2];
    std::printf("%-6s   %13.2f   %12.3f   %8.3f   %5.2f\n", blocks.name,
                8.0 * static_cast<double>(blocks.bytes) / static_cast<double>(blocks.elems),
                1e3 * registers, 1e3 * decoded, registers / decoded);
  }
  return 0;
}
