// SPDX-License-Identifier: MIT
// Products of a row with blocks decoded in registers have the bits of products of decoded rows, which may be in bfloat16.
#include "adacc/io/weights/block_products.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "adacc/core/random.hpp"
#include "adacc/io/weights/gguf_stored.hpp"
#include "adacc/io/weights/weight_forms.hpp"
#include "adacc/layer/math/product.hpp"
#include "adacc/testing/permuted_executor.hpp"

namespace block_products_test {
namespace {

using namespace adacc;

struct Format {
  const BlockFormat* blocks;
  std::size_t half_scales;  ///< scales in fp16; 0: one in fp32
  std::size_t at = 0;       ///< where they are in a block
};

const Format formats[] = {
    {&block_format(GgufType::q4_0), 1}, {&block_format(GgufType::q4_1), 2},
    {&block_format(GgufType::q8_0), 1}, {&block_format(GgufType::q5_0), 1},
    {&block_format(GgufType::q5_1), 2}, {&block_format(GgufType::q4_k), 2},
    {&block_format(GgufType::q5_k), 2}, {&block_format(GgufType::q6_k), 1, 208},
    {&detail::int8_format.format, 0},   {&detail::nf4_format<1>.format, 0},
    {&detail::nf4_format<3>.format, 0}, {&detail::nf4_format<4>.format, 0},
    {&block_format(GgufType::f32), 0},  {&block_format(GgufType::f16), 1},
    {&block_format(GgufType::bf16), 1}};

/// Whole blocks; numbers without blocks end within a piece of 16 bytes.
std::size_t cols_of(const Format& format) {
  return format.blocks->elems == 1 ? 43 : 3 * format.blocks->elems;
}

/// Rows of blocks of chance. Scales are finite: zeros, subnormal ones, and those of both signs among them.
std::vector<std::byte> rows_of(const Format& format, std::size_t rows, std::size_t cols,
                               std::uint32_t seed) {
  const BlockFormat& blocks = *format.blocks;
  std::vector<std::byte> bytes(rows * cols / blocks.elems * blocks.bytes);
  std::uint32_t at = 0;
  const auto next = [&] { return random_word({.seed = seed}, at++); };
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(next() & 255);
  for (std::size_t b = 0; b < bytes.size(); b += blocks.bytes) {
    const float scale = unit_float(next()) - 0.5F;
    if (format.half_scales == 0) std::memcpy(&bytes[b], &scale, sizeof scale);
    for (std::size_t i = 0; i < format.half_scales; ++i) {
      const std::uint32_t kind = next() % 8;
      std::uint32_t half = next() & 0xBBFF;            // below 1
      if (kind == 0) half &= 0x8000;                   // a zero
      if (kind == 1) half &= 0x83FF;                   // subnormal
      if (kind == 2) half = (half & 0x83FF) | 0x7800;  // the largest exponent
      const auto code = static_cast<std::uint16_t>(half);
      std::memcpy(&bytes[b + format.at + 2 * i], &code, sizeof code);
    }
  }
  return bytes;
}

/// The product of a row with the matrix at a level, by its blocks or by decoded rows.
std::vector<float> product(InstructionLevel level, const StoredParameter& matrix, std::size_t first,
                           std::size_t rows, const std::vector<float>& a, std::size_t a_step,
                           bool decoded) {
  testing::PermutedExecutor executor(3, 7);
  Cpu cpu(executor);
  const std::size_t k = matrix.cols();
  std::vector<float> sums(rows + 1, 0.25F), full(rows * k);
  if (decoded) {
    matrix.decode_rows(first, rows, 0, k, full.data(), k);
    detail::row_product(level, cpu, rows, k, a.data(), a_step,
                        detail::RowsInPlace<float>{full.data(), k, k}, sums.data(), Accumulate::yes,
                        static_cast<const float*>(nullptr));
  } else {
    ParameterMatrix<float> stored;
    stored.stored = &matrix;  // and no tile: nothing may be decoded
    stored.first = first;
    detail::row_product(level, cpu, rows, k, a.data(), a_step, detail::RowsStored<float>{stored, k},
                        sums.data(), Accumulate::yes, static_cast<const float*>(nullptr));
  }
  CHECK(sums[rows] == 0.25F);
  return sums;
}

void check(const StoredParameter& matrix, std::size_t first, std::size_t rows, std::size_t a_step) {
  std::vector<float> a(matrix.cols() * a_step);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = unit_float(random_word({.seed = 9}, i)) - 0.5F;
  for (const InstructionLevel level : instruction_levels) {
    if (!has_level(level)) continue;
    CAPTURE(name_of(level));
    const auto want = product(level, matrix, first, rows, a, a_step, true);
    const auto got = product(level, matrix, first, rows, a, a_step, false);
    CHECK(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0);
  }
}

}  // namespace

TEST_CASE("products of blocks have the bits of products of decoded rows, at every level") {
  for (const Format& format : formats)
    for (const std::size_t rows : {1U, 31U, 32U, 77U, 1000U}) {
      CAPTURE(format.blocks->name);
      CAPTURE(rows);
      const std::size_t cols = cols_of(format);
      auto bytes = rows_of(format, rows, cols, static_cast<std::uint32_t>(rows));
      bytes.insert(bytes.begin(), std::byte{0});  // files do not align their rows
      StoredParameter matrix{Shape(rows, cols), {{format.blocks, bytes.data() + 1, rows, 0}}, 1};
      check(matrix, 0, rows, 1);
      check(matrix, rows / 3, rows - rows / 3, 2);
    }
}

TEST_CASE("rows of several tensors, in another order and another format, are multiplied in place") {
  const std::size_t cols = 128;
  const auto queries = rows_of(formats[1], 80, cols, 1), keys = rows_of(formats[0], 40, cols, 2),
             values = rows_of(formats[2], 40, cols, 3);
  StoredParameter matrix{Shape(160, cols),
                         {{formats[1].blocks, queries.data(), 80, 20},
                          {formats[0].blocks, keys.data(), 40, 20},
                          {formats[2].blocks, values.data(), 40, 0}},
                         3};
  check(matrix, 0, 160, 1);
  check(matrix, 70, 60, 1);
}

TEST_CASE("rows decoded into bfloat16 are the nearest to those in fp32") {
  for (const Format& format : formats) {
    CAPTURE(format.blocks->name);
    const std::size_t rows = 3, cols = cols_of(format);
    const auto bytes = rows_of(format, rows, cols, 5);
    const StoredParameter matrix{Shape(rows, cols), {{format.blocks, bytes.data(), rows, 0}}, 1};
    std::vector<float> full(rows * cols);
    std::vector<bfloat16> half(rows * cols);
    matrix.decode_rows(0, rows, 0, cols, full.data(), cols);
    matrix.decode_rows(0, rows, 0, cols, half.data(), cols);
    for (std::size_t i = 0; i < full.size(); ++i) REQUIRE(half[i] == to_bfloat16(full[i]));
  }
}

}  // namespace block_products_test
