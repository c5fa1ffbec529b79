// SPDX-License-Identifier: MIT
/// Which outliers of a tile get a place.
///
/// Non-finite ones come first, then the farthest out, by doublings; within the doubling that does not fit as a whole,
/// position decides. All outliers are counted before any is placed, so the choice depends on nothing but the tile.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "../../../core/vector_target.hpp"
#include "../quantize.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

class OutlierLevels {
 public:
  constexpr void count(unsigned level) { ++counts_[level]; }
  constexpr std::size_t counted(unsigned level) const { return counts_[level]; }

  /// After counting: shares out `places`; returns how many are taken.
  constexpr std::size_t share(std::size_t places) {
    std::size_t taken = 0;
    for (unsigned level = outlier_levels; level-- > 0;) {
      const std::size_t left = places - taken;
      allowed_[level] = counts_[level] < left ? counts_[level] : left;
      taken += allowed_[level];
      if (allowed_[level] < counts_[level]) break;  // lower levels get none
    }
    return taken;
  }

  /// After sharing, once for each counted outlier: whether it has a place.
  constexpr bool take(unsigned level) {
    if (allowed_[level] == 0) return false;
    --allowed_[level];
    return true;
  }

 private:
  std::size_t counts_[outlier_levels] = {};
  std::size_t allowed_[outlier_levels] = {};
};

/// A set of elements of a tile, visited row by row.
class TileMarks {
 public:
  void mark(std::size_t row, std::size_t col) {
    rows_ |= std::uint64_t{1} << row;
    words_[row][col / 64] |= std::uint64_t{1} << col % 64;
  }

  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::uint64_t rows = rows_; rows != 0; rows &= rows - 1) {
      const std::size_t row = lowest(rows);
      for (std::size_t w = 0; w < tile_cols / 64; ++w)
        for (std::uint64_t word = words_[row][w]; word != 0; word &= word - 1)
          visit(row, w * 64 + lowest(word));
    }
  }

 private:
  static std::size_t lowest(std::uint64_t bits) {
    return static_cast<std::size_t>(std::countr_zero(bits));
  }

  std::uint64_t rows_ = 0;
  std::uint64_t words_[block_rows][tile_cols / 64] = {};
};

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
