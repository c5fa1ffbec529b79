// SPDX-License-Identifier: MIT
/// Rows kept exactly by a device, behind a codec's bytes: the encoding of these rows does not meet the demands.
///
/// No libtorch in this file: the host and the kernels (check_rows.cuh) share these types. Behind the bytes of a codec lie
///
///     0                32           SideRows::Header
///     32               4 room       u32 numbers of the rows, in any order
///     E                room rows    their elements, unchanged; E is the end before, rounded up to a multiple of 64
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../codec/quant/layout.hpp"
#include "../../core/bytes.hpp"
#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// The outcome of a storage's check, written by the kernel to pinned memory of the host; `stamp` comes last.
struct RowReport {
  double noise, square;  ///< sums over the rows without failure
  std::uint32_t failed;  ///< rows, with or without a place
  std::uint32_t stamp;   ///< of the check
};

struct SideRows {
  struct Header {
    double noise, square;           ///< of RowReport
    std::uint32_t failed, arrived;  ///< rows; finished blocks of threads
    std::uint64_t zero;
  };
  static_assert(sizeof(Header) == 32);

  std::size_t room = 0;      ///< rows; 0: no row is kept
  std::size_t elements = 0;  ///< the offset of the first one's elements
  std::size_t bytes = 0;

  constexpr SideRows() = default;
  /// A row of each block of 64 has a place, and at least one.
  constexpr SideRows(std::size_t rows, std::size_t row_bytes)
      : room(rows < adacc::detail::block_rows ? 1 : rows / adacc::detail::block_rows),
        elements(align_up(sizeof(Header) + 4 * room)), bytes(elements + room * row_bytes) {}
};

/// Where a codec's blob has its scales: one in `group` neighbouring columns of a row, or of all rows of a block.
struct RowScales {
  std::size_t start = 0, stride = 0;  ///< of the blocks of 64 rows
  std::size_t group = 0;              ///< 0: there are no scales
  bool shared = false;                ///< by the rows of a block

  /// Rows of a block of threads: without scales, 64 rows are judged together; else few, for many such blocks.
  ADACC_HD constexpr std::size_t rows_at_once() const {
    return group == 0 ? adacc::detail::block_rows : adacc::detail::block_rows / 4;
  }
};

/// The largest square of a row: with larger ones, a sum of products is near the end of floats.
inline constexpr double largest_square = 1e36;

/// A row fails if one of its numbers is above one of these, or its square is not below largest_square. 0: there is no
/// such limit.
struct RowLimits {
  double error = 0;        ///< squared, by the square
  float step = 0;          ///< distance of neighbouring codes
  double mean_square = 0;  ///< of a row, or if there are no scales of a block of 64 rows
};

/// The kernel's arguments: freshly encoded rows.
template <class T>
struct RowCheck {
  const T* x;
  const std::byte* blob;
  std::size_t rows, cols;  ///< fewer than 2^31 columns
  std::size_t part;        ///< a limit's row, in neighbouring elements: a part of the columns
  RowScales scales;
  RowLimits limits;
  SideRows side;
  std::byte* kept;             ///< the side's memory
  const std::uint16_t* exact;  ///< the rows in the form to keep
  std::size_t words;           ///< of two bytes, of such a row
  std::size_t first;           ///< the number of the first row
  std::uint32_t blocks;        ///< of threads, of all checks of the storage
  std::uint32_t stamp;
  RowReport* report;  ///< null: nobody asks
};

}}}  // namespace adacc::v0_1::torch
