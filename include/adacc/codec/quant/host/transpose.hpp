// SPDX-License-Identifier: MIT
/// Scales of groups along rows, from the order of rows to the order of a blob: the transpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/vector_target.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

using Halves8 = Simd<std::uint16_t, 16>::type;

/// Transposes eight rows of eight: three times, rows i and i + 4 become two rows with their numbers in turn.
inline void transpose_eight(const std::byte* from, std::size_t from_stride, std::byte* to,
                            std::size_t to_stride) {
  Halves8 rows[8];
  for (std::size_t i = 0; i < 8; ++i) std::memcpy(&rows[i], from + i * from_stride, 16);
  for (int round = 0; round < 3; ++round) {
    Halves8 next[8];
    for (std::size_t i = 0; i < 4; ++i) {
      next[2 * i] = ADACC_SHUFFLE_LANES(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = ADACC_SHUFFLE_LANES(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::memcpy(rows, next, sizeof rows);
  }
  for (std::size_t i = 0; i < 8; ++i) std::memcpy(to + i * to_stride, &rows[i], 16);
}

/// `rows` x `cols` numbers of 16 bits become `cols` x `rows`. Strides, of a row each, are in bytes.
inline void transpose_halves(std::size_t rows, std::size_t cols, const std::byte* from,
                             std::size_t from_stride, std::byte* to, std::size_t to_stride) {
  const std::size_t whole_rows = rows / 8 * 8, whole_cols = cols / 8 * 8;
  for (std::size_t c = 0; c < whole_cols; c += 8)
    for (std::size_t r = 0; r < whole_rows; r += 8)
      transpose_eight(from + r * from_stride + 2 * c, from_stride, to + c * to_stride + 2 * r,
                      to_stride);
  for (std::size_t c = 0; c < cols; ++c)
    for (std::size_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r)
      std::memcpy(to + c * to_stride + 2 * r, from + r * from_stride + 2 * c, 2);
}

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
