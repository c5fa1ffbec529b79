// SPDX-License-Identifier: MIT
/// Judges the rows of an encoded block by a block of threads (thread_block.hpp), as host/row_judge.hpp does.
///
/// Steps judge on devices only while they are watched, so the code is short rather than fast. Sixteen threads have a
/// row, and add up its columns in the order of the host's vectors. No register or memory of an encode is held for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../float_bits.hpp"
#include "../../row_errors.hpp"
#include "../row_sums.hpp"
#include "decode.hpp"
#include "tensor_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Shared memory of a judging block.
struct QuantJudgement {
  static constexpr std::size_t lanes = 16, teams = 16;  ///< a team has a row

  // First squares of scales, then the exponents in each team's row, at last the sums of each thread.
  union {
    double squares[tile_cols];
    std::uint32_t exponents[teams][256];
    double sums[4][lanes * teams];
  };
  std::uint32_t counts[2][lanes * teams];  ///< elements, and those of the bulk, of each thread
  double eighths[8];                       ///< sums of every eighth square
  std::uint32_t placed[block_rows][tile_cols / 32];  ///< a bit for each element with a place
  std::uint32_t is_suspect[block_rows];
  std::uint32_t suspects;           ///< number of rows possibly over the bound
  std::uint8_t rows[block_rows];    ///< these rows
  std::int32_t limits[block_rows];  ///< limits of the bulk of suspects
  RowSums of[block_rows];           ///< sums of suspects
};

/// 64 rows, and the block of threads that judges them.
template <unsigned Bits, QuantOptions O, class T, class ThreadBlock>
struct RowJury {
  using Shared = QuantJudgement;
  /// Rows of a team, one after the other.
  static constexpr std::size_t rounds = block_rows / Shared::teams;
  static constexpr std::size_t seen = fewest_for_outliers;

  /// A thread's share of the sums of its team's rows.
  struct Shares {
    double sums[rounds][4];
    std::uint32_t counts[rounds][2];
  };

  ThreadBlock& block;
  Shared& shared;
  const QuantBlock& format;
  const T* x;              ///< the first element of the rows
  const std::byte* bytes;  ///< the rows in the blob
  double bound;

  ADACC_HD float number(std::size_t r, std::size_t c) const {
    return to_number(x[r * format.cols + c]);
  }
  ADACC_HD std::int32_t magnitude(std::size_t r, std::size_t c) const {
    return magnitude_of(ordered(number(r, c)));
  }
  ADACC_HD bfloat16 parameter(std::size_t array, std::size_t group) const {
    return bfloat16{get<std::uint16_t>(bytes + array + 2 * group)};
  }
  ADACC_HD double square(std::size_t group) const {
    const double scale = to_float(without_mark(parameter(format.scales, group)));
    return scale * scale;
  }
  /// An element without a place, as decoded.
  ADACC_HD float decoded(std::size_t r, std::size_t c) const {
    const std::size_t g = format.template group_of<O>(r, c);
    const bfloat16 scale = parameter(format.scales, g);
    const std::uint32_t code =
        code_of<Bits>(bytes + format.codes + r * format.row_bytes, format.cols, c);
    if (is_marked(scale) && code == nan_code<Bits, O.symmetric>) return quiet_nan<float>();
    const float minimum = O.symmetric ? 0 : to_float(parameter(format.minima, g));
    return to_number(from_number<T>(
        decoded_value<Bits, O.symmetric>(code, to_float(without_mark(scale)), minimum)));
  }

  /// The sum of scale^2 over the elements of row r, if groups are along rows.
  ADACC_HD double squares_of_row(std::size_t r) const {
    const std::size_t groups = O.group == whole_row ? 1 : div_up(format.cols, O.group);
    double sums[8];
    ADACC_UNROLL for (std::size_t j = 0; j < 8; ++j) {
      sums[j] = 0;
      for (std::size_t k = j; k < groups; k += 8)
        sums[j] += square(r + k * format.rows) * elements_of_group<O>(format, k);
    }
    return sum_of_neighbours(sums);
  }
  /// Adds up the squares of scales if groups are columns.
  ADACC_HD void add_squares() {
    block.each([&](int me) {
      if (me < 8) shared.eighths[me] = 0;
    });
    for (std::size_t col = 0; col < format.cols; col += tile_cols) {
      const std::size_t left = format.cols - col, n = left < tile_cols ? left : tile_cols;
      block.each([&](int me) {
        const auto c = static_cast<std::size_t>(me);
        if (c < n) shared.squares[c] = square(col + c);
      });
      block.each([&](int me) {
        for (auto c = static_cast<std::size_t>(me); me < 8 && c < n; c += 8)
          shared.eighths[me] += shared.squares[c];
      });
    }
  }

  /// Finds the rows possibly over the bound.
  ADACC_HD void find_suspects() {
    const auto header = [&](std::size_t word) { return get<std::uint32_t>(bytes + 4 * word); };
    const bool all = format.cols < seen || (header(1) != 0 && header(2) != 0);
    if (O.group == 0 && !all) add_squares();
    block.each([&](int me) {
      const auto r = static_cast<std::size_t>(me);
      if (r >= format.rows) return;
      bool is = true;
      if (!all) {
        const std::size_t first = (format.cols - seen) / 2;
        std::int32_t most[4];
        ADACC_UNROLL for (std::size_t s = 0; s < 4; ++s) {
          most[s] = 0;
          for (std::size_t c = slice_begin(seen, s); c < slice_begin(seen, s + 1); ++c)
            most[s] = larger(most[s], magnitude(r, first + c));
        }
        double squares = 0;
        if constexpr (O.group == 0) squares = sum_of_neighbours(shared.eighths);
        else squares = squares_of_row(r);
        is = is_suspect<O>(squares, bound, format.cols,
                           second_smallest(most[0], most[1], most[2], most[3]));
      }
      shared.is_suspect[r] = is ? 1 : 0;
    });
    block.each([&](int me) {
      if (me != 0) return;
      shared.suspects = 0;
      for (std::size_t r = 0; r < format.rows; ++r)
        if (shared.is_suspect[r] != 0)
          shared.rows[shared.suspects++] = static_cast<std::uint8_t>(r);
    });
  }

  ADACC_HD static constexpr std::size_t team_of(int me) {
    return static_cast<std::size_t>(me) / Shared::lanes;
  }
  ADACC_HD static constexpr std::size_t lane_of(int me) {
    return static_cast<std::size_t>(me) % Shared::lanes;
  }

  /// Finds the limits of the bulk, far beyond the median of a row's magnitudes.
  ADACC_HD void find_limits() {
    for (std::size_t first = 0; first < shared.suspects; first += Shared::teams) {
      block.each([&](int me) {
        for (std::size_t e = lane_of(me); e < 256; e += Shared::lanes)
          shared.exponents[team_of(me)][e] = 0;
      });
      block.each([&](int me) {
        const std::size_t s = first + team_of(me);
        if (s >= shared.suspects) return;
        for (std::size_t c = lane_of(me); c < format.cols; c += Shared::lanes)
          ThreadBlock::add(shared.exponents[team_of(me)][magnitude(shared.rows[s], c) >> 23], 1);
      });
      block.each([&](int me) {
        const std::size_t s = first + team_of(me);
        if (s >= shared.suspects || lane_of(me) != 0) return;
        shared.limits[s] = channel_threshold(shared.exponents[team_of(me)], format.cols, 256);
        shared.of[s] = RowSums{};
      });
    }
  }

  /// Marks the elements of a tile that have a place.
  ADACC_HD void find_places(std::size_t tile) {
    const std::size_t cols = format.cols_of_tile(tile);
    const QuantSection layout(O, format.rows, cols, sizeof(T));
    constexpr std::size_t words_of_row = tile_cols / 32;
    block.each([&](int me) {
      for (auto i = static_cast<std::size_t>(me); i < block_rows * words_of_row;
           i += ThreadBlock::threads)
        shared.placed[i / words_of_row][i % words_of_row] = 0;
    });
    if (layout.places == 0) return;
    const std::byte* const from = bytes + format.section(tile);
    block.each([&](int me) {
      const std::size_t used = get<std::uint32_t>(from);
      const std::size_t count = used < layout.places ? used : layout.places;
      constexpr bool channels = O.outliers == Outliers::channels;
      const std::size_t values = channels ? count * format.rows : count;
      for (auto v = static_cast<std::size_t>(me); v < values; v += ThreadBlock::threads) {
        const std::size_t index =
            get<std::uint16_t>(from + layout.indices + 2 * (channels ? v / format.rows : v));
        const std::size_t row = channels ? v % format.rows : index / tile_cols;
        const std::size_t col = channels ? index : index % tile_cols;
        // Each place is there once, so adding is setting.
        if (row < format.rows && col < cols)
          ThreadBlock::add(shared.placed[row][col / 32], 1U << col % 32);
      }
    });
  }

  /// Adds the columns of a tile to the shares of thread `me`.
  ADACC_HD void add_tile(int me, std::size_t tile, Shares& own) const {
    const std::size_t cols = format.cols_of_tile(tile);
    ADACC_UNROLL for (std::size_t k = 0; k < rounds; ++k) {
      const std::size_t s = k * Shared::teams + team_of(me);
      if (s >= shared.suspects) continue;
      const std::size_t r = shared.rows[s];
      ADACC_ROLL for (std::size_t c = lane_of(me); c < cols; c += Shared::lanes) {
        if ((shared.placed[r][c / 32] >> c % 32 & 1) != 0) continue;
        const std::size_t col = tile * tile_cols + c;
        const double is = number(r, col), off = decoded(r, col) - is;
        own.sums[k][0] += off * off, own.sums[k][1] += is * is;
        ++own.counts[k][0];
        if (magnitude(r, col) > shared.limits[s]) continue;
        own.sums[k][2] += off * off, own.sums[k][3] += is * is;
        ++own.counts[k][1];
      }
    }
  }

  /// Adds the shares of all threads to the sums of rows, and clears the shares.
  template <class PerThread>
  ADACC_HD void add_shares(PerThread& own) {
    ADACC_UNROLL for (std::size_t k = 0; k < rounds; ++k) {
      if (k * Shared::teams >= shared.suspects) continue;
      block.each([&](int me) {
        ADACC_UNROLL for (std::size_t q = 0; q < 4; ++q) {
          shared.sums[q][me] = own[me].sums[k][q];
          own[me].sums[k][q] = 0;
        }
        ADACC_UNROLL for (std::size_t q = 0; q < 2; ++q) {
          shared.counts[q][me] = own[me].counts[k][q];
          own[me].counts[k][q] = 0;
        }
      });
      block.each([&](int me) {
        const std::size_t s = k * Shared::teams + team_of(me);
        if (s >= shared.suspects || lane_of(me) != 0) return;
        double sums[4];
        ADACC_UNROLL for (std::size_t q = 0; q < 4; ++q) {
          double lanes[8];
          ADACC_UNROLL for (int i = 0; i < 8; ++i) lanes[i] =
              shared.sums[q][me + i] + shared.sums[q][me + 8 + i];
          sums[q] = sum_of_halves(lanes);
        }
        RowSums& of = shared.of[s];
        of.error += sums[0], of.signal += sums[1];
        of.bulk_error += sums[2], of.bulk_signal += sums[3];
        for (int i = 0; i < static_cast<int>(Shared::lanes); ++i)
          of.elements += shared.counts[0][me + i], of.bulk += shared.counts[1][me + i];
      });
    }
  }

  ADACC_HD void measure() {
    typename ThreadBlock::template PerThread<Shares> own;
    block.each([&](int me) { own[me] = Shares{}; });
    for (std::size_t tile = 0; tile < format.tiles; ++tile) {
      find_places(tile);
      block.each([&](int me) { add_tile(me, tile, own[me]); });
      constexpr std::size_t together = judged_cols / tile_cols;
      if ((tile + 1) % together == 0 || tile + 1 == format.tiles) add_shares(own);
    }
  }

  ADACC_HD void judge(RowErrors& to) {
    find_suspects();
    if (shared.suspects != 0) {
      find_limits();
      measure();
    }
    block.each([&](int me) {
      if (me != 0) return;
      RowErrors result{format.rows, 0, 0};
      for (std::size_t s = 0; s < shared.suspects; ++s) {
        const double ratio = shared.of[s].ratio();
        if (ratio > bound) ++result.over;
        result.worst = larger(result.worst, ratio);
      }
      to = result;
    });
  }
};

/// Judges the 64 rows of block i, by one block of threads. Without rows if the blob is another codec's.
template <unsigned Bits, QuantOptions O, class T, class Block>
ADACC_HD void quant_judge_rows(Block& block, QuantJudgement& shared, std::size_t i,
                               const QuantJob<T>& job, const std::byte* blob, double bound,
                               RowErrors* to) {
  if (!header_is(block, blob, job.header)) {
    block.each([&](int me) {
      if (me == 0) to[i] = RowErrors{};
    });
    return;
  }
  const QuantBlock& format = job.block(i);
  RowJury<Bits, O, T, Block>{
      block, shared, format, job.x + i * block_rows * format.cols, blob + job.format.start_of(i),
      bound}
      .judge(to[i]);
}

}}}  // namespace adacc::v0_1::detail
