// SPDX-License-Identifier: MIT
/// How well an encoded block of 64 rows holds each row (codec/row_errors.hpp).
///
/// Most rows are far below the bound. Their noise is known beforehand: rounding to a scale s adds s^2 / 12 to an
/// element, or twice as much if rounding is stochastic. The row's square is guessed from 32 neighbouring elements in
/// four pieces: the second smallest of the pieces' largest magnitudes is typical, and single outliers do not move it.
/// If the noise comes near the bound of this guess, the row is decoded and measured. So exact zeros, and rows with a
/// few large elements, are judged by measurement.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../read_ahead.hpp"
#include "../../row_errors.hpp"
#include "../layout.hpp"
#include "../quantize.hpp"
#include "../row_sums.hpp"
#include "decoder.hpp"
#include "encoder.hpp"
#include "extremes.hpp"
#include "row_extremes.hpp"
#include "vectors.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Sums of squares of numbers, in an order that no compiler changes. A float's square is exact in double.
class SquareSum {
 public:
  /// Adds the squares of sixteen differences x - y.
  void add(const Floats16& x, const Floats16& y) {
    add_half<0>(x, y, low_);
    add_half<8>(x, y, high_);
  }
  double value() const {
    const Doubles8 sums = low_ + high_;
    double lanes[8];
    std::memcpy(lanes, &sums, sizeof lanes);
    return sum_of_halves(lanes);
  }

 private:
  using Floats8 = Simd<float, 32>::type;
  using Doubles8 = Simd<double, 64>::type;

  template <int first>
  static void half(const Floats16& x, Doubles8& to) {
    const Floats8 part = ADACC_SHUFFLE_LANES(x, x, first, first + 1, first + 2, first + 3,
                                             first + 4, first + 5, first + 6, first + 7);
    to = ADACC_CONVERT_LANES(part, Doubles8);
  }
  template <int first>
  static void add_half(const Floats16& x, const Floats16& y, Doubles8& to) {
    Doubles8 a, b;
    half<first>(x, a);
    half<first>(y, b);
    a -= b;
    to += a * a;
  }

  Doubles8 low_ = {}, high_ = {};
};

template <unsigned Bits, QuantOptions O, class T>
class RowJudge {
 public:
  /// x: the block's first element; `bytes`: the start of the block in the blob.
  RowJudge(const QuantBlock& block, const T* x, const std::byte* bytes, double bound)
      : block_(block), x_(x), bytes_(bytes), bound_(bound), decoder_(block, bytes, nullptr, 0) {
    std::memcpy(&header_, bytes, sizeof header_);
  }

  RowErrors judge() {
    RowErrors result;
    result.rows = block_.rows;
    find_suspects();
    if (suspects_ == 0) return result;
    for_suspects([&](std::size_t r) { limits_[r] = bulk_limit(r); });
    for (std::size_t col = 0; col < block_.cols; col += piece) {
      const std::size_t n = smaller(block_.cols - col, piece);
      for_suspects([&](std::size_t r) { measure(r, col, n); });
    }
    for_suspects([&](std::size_t r) {
      const double ratio = sums_[r].ratio();
      if (ratio > bound_) ++result.over;
      if (ratio > result.worst) result.worst = ratio;
    });
    return result;
  }

 private:
  static constexpr std::size_t piece = QuantDecoder<Bits, O, T>::piece;
  static_assert(piece == judged_cols);

  template <class Visit>
  void for_suspects(const Visit& visit) const {
    for (std::uint64_t rows = suspects_; rows != 0; rows &= rows - 1)
      visit(static_cast<std::size_t>(std::countr_zero(rows)));
  }

  /// Finds the rows possibly over the bound.
  void find_suspects() {
    suspects_ = ~std::uint64_t{0} >> (block_rows - block_.rows);
    constexpr std::size_t seen = fewest_for_outliers;
    if (block_.cols < seen || (header_.nonfinite != 0 && header_.unplaced != 0)) return;
    GroupExtremes<block_rows> extremes;
    row_extremes<seen, false>(x_ + (block_.cols - seen) / 2, block_.cols, block_.rows, seen,
                              nullptr, nothing_, extremes);
    const double common = O.group == 0 ? sum_of_squares(0, block_.cols, 1) : 0;
    for (std::size_t r = 0; r < block_.rows; ++r) {
      const double squares = O.group == 0 ? common : squares_of_row(r);
      if (!is_suspect<O>(squares, bound_, block_.cols, extremes.second[r]))
        suspects_ &= ~(std::uint64_t{1} << r);
    }
  }

  double squares_of_row(std::size_t r) const {
    if constexpr (O.group == 0 || O.group == whole_row) return sum_of_squares(r, 1, 1);
    else return sum_of_squares(r, div_up(block_.cols, O.group), block_.rows);
  }
  /// Sum of scale^2 times elements of a row, over groups first, first + stride, ….
  double sum_of_squares(std::size_t first, std::size_t groups, std::size_t stride) const {
    double sums[8] = {};  // independent, so the processor adds them in parallel
    for (std::size_t k = 0; k < groups; ++k) {
      bfloat16 scale = {0};
      std::memcpy(&scale, bytes_ + block_.scales + 2 * (first + k * stride), sizeof scale);
      const double s = to_float(without_mark(scale));
      sums[k % 8] += s * s * elements_of_group<O>(block_, k);
    }
    return sum_of_neighbours(sums);
  }

  static std::int32_t magnitude(T x) { return magnitude_of(ordered(to_number(x))); }

  /// Adds columns col … col + n - 1 to the sums of row r.
  void measure(std::size_t r, std::size_t col, std::size_t n) {
    const T* const row = x_ + r * block_.cols + col;
    decoder_.decode_row(r, col, n, decoded_);
    RowSums& sums = sums_[r];
    for (std::size_t c = 0; c < n; ++c) x_here_[c] = row[c];
    for (std::size_t c = n; c % vector_lanes != 0; ++c) x_here_[c] = decoded_[c] = T{};
    std::size_t without = n;
    for_placed(r, col, n, [&](std::size_t c) {
      x_here_[c] = decoded_[c] = T{};
      --without;
    });
    add(n, sums.error, sums.signal);
    sums.elements += without;
    std::size_t beyond = 0;
    for (std::size_t c = 0; c < n; ++c) {
      if (magnitude(x_here_[c]) <= limits_[r]) continue;
      x_here_[c] = decoded_[c] = T{};
      ++beyond;
    }
    sums.bulk += without - beyond;
    add(n, sums.bulk_error, sums.bulk_signal);
  }
  void add(std::size_t n, double& error, double& signal) const {
    SquareSum off, own;
    for (std::size_t c = 0; c < n; c += vector_lanes) {
      Floats16 x, y;
      load_numbers(x_here_ + c, x);
      load_numbers(decoded_ + c, y);
      off.add(y, x);
      own.add(x, Floats16{});
    }
    error += off.value();
    signal += own.value();
  }

  /// Calls visit(c) for columns col + c of the row, c < n, that have a place.
  template <class Visit>
  void for_placed(std::size_t r, std::size_t col, std::size_t n, const Visit& visit) const {
    if (header_.flagged == header_.unplaced) return;
    for (std::size_t c = 0; c < n; c += tile_cols)
      decoder_.for_outliers((col + c) / tile_cols,
                            [&](std::size_t row, std::size_t in_tile, const std::byte*) {
                              if (O.outliers == Outliers::channels || row == r) visit(c + in_tile);
                            });
  }

  /// The limit of the bulk, far beyond the median of a row's magnitudes. A row that is mostly 0 is all bulk.
  std::int32_t bulk_limit(std::size_t r) const {
    std::uint32_t counts[256] = {};
    for (std::size_t c = 0; c < block_.cols; ++c)
      ++counts[magnitude(x_[r * block_.cols + c]) >> 23];
    return channel_threshold(counts, block_.cols, 256);
  }

  const QuantBlock& block_;
  const T* x_;
  const std::byte* bytes_;
  double bound_;
  QuantDecoder<Bits, O, T> decoder_;
  BlockHeader header_ = {};
  std::uint64_t suspects_ = 0;  ///< a bit for each row
  ReadAhead nothing_;
  RowSums sums_[block_rows] = {};
  std::int32_t limits_[block_rows];  ///< limits of the bulk of rows
  T decoded_[piece + vector_lanes];
  T x_here_[piece + vector_lanes];
};

}}}  // namespace adacc::v0_1::detail
