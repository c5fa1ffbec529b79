/// Encodes tiles of the split codecs by a block of threads (thread_block.hpp).
///
/// Three steps, each a kernel: split_prepare() clears the headers of the blob's blocks; TileEncoder
/// encodes tiles, which add what they counted to these headers (integer sums and maxima: the order
/// does not matter); split_sample() completes them. Where the scale is of a whole row, a block of
/// threads has all tiles of 64 rows and reads them again for each step, otherwise it has one tile
/// and reads it once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "split_block.hpp"

namespace adacc::inline v0_1::detail {

/// Block `part` of threads: of the words of all block headers and that of the blob.
template <class Block, class T>
ADACC_HD void split_prepare(Block& block, std::size_t part, const SplitJob<T>& job) {
  block.each([&](int me) {
    const std::size_t word = part * Block::threads + static_cast<std::size_t>(me);
    if (word < 16) write_header_word(job.blob, job.header, static_cast<int>(word));
    if (word / 16 < job.format.blocks()) put(job.bytes(word / 16) + word % 16 * 4, 0U);
  });
}

template <unsigned Bits, SplitOptions O, class T, class Block>
class TileEncoder {
  static constexpr bool elements = O.outliers == Outliers::elements;
  static constexpr bool channels = O.outliers == Outliers::channels;
  static constexpr bool by_column = O.group == 0;
  static constexpr bool by_row = O.group == whole_row;
  static constexpr std::size_t slots_per_row = [] {
    if constexpr (by_column || by_row) return std::size_t{1};
    else return tile_cols / O.group;
  }();
  static constexpr std::size_t threads = Block::threads;
  using Thread = TileThread<T>;
  static constexpr std::size_t R = Thread::most_rows, P = Thread::packet;

  /// Extremes of a thread's rows.
  struct Rows {
    std::int32_t lo[R], hi[R];
  };

 public:
  ADACC_HD TileEncoder(Block& block, SplitShared& shared, const SplitJob<T>& job)
      : block_(block), s_(shared), job_(job) {}

  /// How many pieces of work there are.
  ADACC_HD static std::size_t parts(const SplitFormat& format) {
    return format.blocks() * (by_row ? 1 : format.whole.tiles);
  }

  ADACC_HD void encode(std::size_t part) {
    const std::size_t tiles = job_.format.whole.tiles;
    const std::size_t i = by_row ? part : part / tiles, first = by_row ? 0 : part % tiles;
    const std::size_t end = by_row ? tiles : first + 1;
    b_ = &job_.block(i);
    bytes_ = job_.bytes(i);
    row_ = i * block_rows;
    clear(first == 0);

    for (std::size_t tile = first; tile < end; ++tile) {
      load(tile);
      if constexpr (channels) place_columns();
      if constexpr (elements) reduce_slices();
      else widen_groups();
    }
    if constexpr (elements) {
      const bool any = find_thresholds();
      if (any) restart_groups();
      for (std::size_t tile = first; tile < end; ++tile) {
        if (by_row && any) load(tile);
        else set_tile(tile);
        if (any) {
          place_elements();
          widen_groups();
        } else {
          clear_section();
        }
      }
    }
    if constexpr (!elements) count_numbers(first, end);
    finish_groups();
    for (std::size_t tile = first; tile < end; ++tile) {
      if (by_row) load(tile);
      encode_codes();
    }
    block_.each([&](int me) {
      if (me != 0) return;
      std::uint32_t* const header = words(bytes_);
      if (s_.flagged != 0) Block::add(header[0], s_.flagged);
      if (s_.flagged != s_.used) Block::add(header[1], s_.flagged - s_.used);
      if (s_.nonfinite != 0) Block::add(header[2], s_.nonfinite);
      Block::maximum(header[4], s_.largest);
    });
  }

 private:
  static ADACC_HD std::uint32_t* words(std::byte* at) {
    return static_cast<std::uint32_t*>(static_cast<void*>(at));
  }
  static ADACC_HD std::int32_t order(float x) { return ordered(x); }

  ADACC_HD Thread thread_of(int me) const { return Thread(static_cast<std::size_t>(me), b_->rows); }
  ADACC_HD SplitSection section_layout() const {
    return SplitSection(O, b_->rows, cols_, sizeof(T));
  }
  ADACC_HD std::byte* section() const { return bytes_ + b_->section(tile_); }
  ADACC_HD const T& element(std::size_t row, std::size_t col) const {
    return job_.x[(row_ + row) * b_->cols + tile_ * tile_cols + col];
  }
  ADACC_HD static std::size_t slot_of(std::size_t row, std::size_t col) {
    if constexpr (by_column) return col;
    else if constexpr (by_row) return row;
    else return row * slots_per_row + col / O.group;
  }
  /// Whether a slot has a group in the tile, and of how many elements (of the whole row by_row).
  ADACC_HD std::size_t size_of(std::size_t slot) const {
    if constexpr (by_column) {
      return slot < cols_ ? b_->rows : 0;
    } else if constexpr (by_row) {
      return slot < b_->rows ? b_->cols : 0;
    } else {
      const std::size_t row = slot / slots_per_row, col = slot % slots_per_row * O.group;
      if (row >= b_->rows || col >= cols_) return 0;
      return cols_ - col < O.group ? cols_ - col : O.group;
    }
  }
  ADACC_HD std::size_t group_of(std::size_t slot) const {
    if constexpr (by_column) return tile_ * tile_cols + slot;
    else if constexpr (by_row) return slot;
    else
      return slot / slots_per_row * b_->groups_per_row + tile_ * slots_per_row +
             slot % slots_per_row;
  }

  template <class Each>
  ADACC_HD static void strided(int me, std::size_t n, const Each& each) {
    for (std::size_t i = static_cast<std::size_t>(me); i < n; i += threads) each(i);
  }

  ADACC_HD void set_tile(std::size_t tile) {
    tile_ = tile;
    cols_ = b_->cols_of_tile(tile);
  }

  /// Starts ranges and counts, and writes the zeros between the sections of a block.
  ADACC_HD void clear(bool padding) {
    block_.each([&](int me) {
      strided(me, SplitShared::slots, [&](std::size_t i) {
        s_.lo[i] = empty_lo, s_.hi[i] = empty_hi;
        s_.placed[i] = 0, s_.partly[i] = 0;
      });
      if constexpr (elements)
        strided(me, 4 * SplitShared::slots,
                [&](std::size_t i) { s_.slice.lo[i] = empty_lo, s_.slice.hi[i] = empty_hi; });
      if (me == 0) s_.used = s_.flagged = s_.nonfinite = s_.largest = 0;
      if (!padding) return;
      const std::size_t minima_end = b_->minima + (O.symmetric ? 0 : 2 * b_->groups);
      const std::size_t last = b_->tiles - 1;
      const std::size_t sections_end =
          b_->section(last) + SplitSection(O, b_->rows, b_->cols_of_tile(last), sizeof(T)).bytes;
      const std::size_t codes_end = b_->codes + b_->rows * b_->row_bytes;
      fill_zeros(me, minima_end, b_->sections);
      fill_zeros(me, sections_end, b_->codes);
      fill_zeros(me, codes_end, b_->bytes);
    });
  }
  ADACC_HD void fill_zeros(int me, std::size_t begin, std::size_t end) {
    strided(me, end - begin, [&](std::size_t i) { bytes_[begin + i] = std::byte{0}; });
  }

  ADACC_HD void load(std::size_t tile) {
    set_tile(tile);
    const bool aligned = b_->cols * sizeof(T) % 16 == 0 && cols_ % P == 0;
    block_.each([&](int me) {
      const Thread t = thread_of(me);
      const T* from = job_.x + (row_ + t.row) * b_->cols + tile_ * tile_cols + t.col;
      part_[me].load(from, b_->cols, t.count, t.columns(cols_), aligned);
    });
  }

  // Ranges.

  /// Extremes of every slice of every group.
  ADACC_HD void reduce_slices() {
    if constexpr (by_column) {
      block_.each([&](int me) {
        const Thread t = thread_of(me);
        const auto& part = part_[me];
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
          std::int32_t lo = empty_lo, hi = empty_hi;
          ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
            if (i >= t.count) continue;
            const std::int32_t o = order(part.at(i, j));
            lo = smaller_of(lo, o), hi = larger_of(hi, o);
          }
          s_.slice.lo[t.band * tile_cols + t.col + j] = lo;
          s_.slice.hi[t.band * tile_cols + t.col + j] = hi;
        }
      });
    } else if constexpr (by_row) {
      for (std::size_t slice = 0; slice < 4; ++slice)
        reduce_stretch(slice_begin(b_->cols, slice), slice_begin(b_->cols, slice + 1),
                       tile_ * tile_cols, 0, slice);
    } else {
      constexpr std::size_t quarter = O.group / 4;
      const std::size_t full = cols_ / O.group * O.group;
      typename Block::template PerThread<Rows> rows;
      reduce_rows(rows, 0, full);
      block_.template lanes<static_cast<int>(quarter / P)>(
          [&](int me) -> auto& { return rows[me].lo; },
          [](std::int32_t a, std::int32_t b) { return smaller_of(a, b); });
      block_.template lanes<static_cast<int>(quarter / P)>(
          [&](int me) -> auto& { return rows[me].hi; },
          [](std::int32_t a, std::int32_t b) { return larger_of(a, b); });
      block_.each([&](int me) {
        const Thread t = thread_of(me);
        if (t.col % quarter != 0 || t.col >= full) return;
        ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
          if (i >= t.count) continue;
          const std::size_t slice = (t.row + i) * (4 * slots_per_row) + t.col / quarter;
          s_.slice.lo[slice] = rows[me].lo[i], s_.slice.hi[slice] = rows[me].hi[i];
        }
      });
      if (full == cols_) return;
      for (std::size_t slice = 0; slice < 4; ++slice)
        reduce_stretch(full + slice_begin(cols_ - full, slice),
                       full + slice_begin(cols_ - full, slice + 1), 0, full / O.group, slice);
    }
  }

  /// Extremes of a thread's rows over columns begin … end - 1 of the tile.
  template <class All>
  ADACC_HD void reduce_rows(All& rows, std::size_t begin, std::size_t end) {
    block_.each([&](int me) {
      const Thread t = thread_of(me);
      const auto& part = part_[me];
      ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
        std::int32_t lo = empty_lo, hi = empty_hi;
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
          const std::int32_t o = order(part.at(i, j));
          const bool in = i < t.count && t.col + j >= begin && t.col + j < end;
          lo = in ? smaller_of(lo, o) : lo, hi = in ? larger_of(hi, o) : hi;
        }
        rows[me].lo[i] = lo, rows[me].hi[i] = hi;
      }
    });
  }

  /// Widens slice `slice` of group k of every row by columns begin … end - 1, counted from `origin`
  /// to the left of the tile.
  ADACC_HD void reduce_stretch(std::size_t begin, std::size_t end, std::size_t origin,
                               std::size_t k, std::size_t slice) {
    begin = begin < origin ? 0 : begin - origin;
    end = end < origin ? 0 : end - origin;
    end = end < cols_ ? end : cols_;
    if (begin >= end) return;
    typename Block::template PerThread<Rows> rows;
    reduce_rows(rows, begin, end);
    merge_lanes<32>(rows);
    block_.each([&](int me) {
      const Thread t = thread_of(me);
      if (me % 32 != 0) return;
      ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
        if (i >= t.count) continue;
        const std::size_t at = ((t.row + i) * slots_per_row + k) * 4 + slice;
        Block::minimum(s_.slice.lo[at], rows[me].lo[i]);
        Block::maximum(s_.slice.hi[at], rows[me].hi[i]);
      }
    });
  }
  template <int width, class All>
  ADACC_HD void merge_lanes(All& rows) {
    block_.template lanes<width>(
        [&](int me) -> auto& { return rows[me].lo; },
        [](std::int32_t a, std::int32_t b) { return smaller_of(a, b); });
    block_.template lanes<width>(
        [&](int me) -> auto& { return rows[me].hi; },
        [](std::int32_t a, std::int32_t b) { return larger_of(a, b); });
  }

  /// Which of a thread's columns have places, as bits.
  ADACC_HD std::uint32_t placed_in(std::size_t row, std::size_t col) const {
    if constexpr (O.outliers == Outliers::none) return 0;
    const std::size_t word = (elements ? row * 8 : 0) + col / 32;
    return s_.placed[word] >> col % 32;
  }

  /// Widens the groups by what has no place.
  ADACC_HD void widen_groups() {
    if constexpr (by_column) {
      block_.each([&](int me) {
        const Thread t = thread_of(me);
        const auto& part = part_[me];
        const std::size_t columns = t.columns(cols_);
        std::int32_t lo[P], hi[P];
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) lo[j] = empty_lo, hi[j] = empty_hi;
        ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
          if (i >= t.count) continue;
          const std::uint32_t placed = placed_in(t.row + i, t.col);
          ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
            const std::int32_t o = order(part.at(i, j));
            const bool in = (placed >> j & 1) == 0;
            lo[j] = in ? smaller_of(lo[j], o) : lo[j], hi[j] = in ? larger_of(hi[j], o) : hi[j];
          }
        }
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
          if (j >= columns) continue;
          Block::minimum(s_.lo[t.col + j], lo[j]);
          Block::maximum(s_.hi[t.col + j], hi[j]);
        }
      });
    } else {
      constexpr std::size_t wanted = by_row ? 32 : O.group / P;
      constexpr std::size_t width = wanted < 32 ? wanted : 32;
      typename Block::template PerThread<Rows> rows;
      block_.each([&](int me) {
        const Thread t = thread_of(me);
        const auto& part = part_[me];
        const std::size_t columns = t.columns(cols_);
        ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
          std::int32_t lo = empty_lo, hi = empty_hi;
          const std::uint32_t placed = i < t.count ? placed_in(t.row + i, t.col) : 0;
          ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
            const std::int32_t o = order(part.at(i, j));
            const bool in = i < t.count && j < columns && (placed >> j & 1) == 0;
            lo = in ? smaller_of(lo, o) : lo, hi = in ? larger_of(hi, o) : hi;
          }
          rows[me].lo[i] = lo, rows[me].hi[i] = hi;
        }
      });
      merge_lanes<static_cast<int>(width)>(rows);
      block_.each([&](int me) {
        const Thread t = thread_of(me);
        if (static_cast<std::size_t>(me) % width != 0 || t.col >= cols_) return;
        ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
          if (i >= t.count) continue;
          Block::minimum(s_.lo[slot_of(t.row + i, t.col)], rows[me].lo[i]);
          Block::maximum(s_.hi[slot_of(t.row + i, t.col)], rows[me].hi[i]);
        }
      });
    }
  }

  // Outliers.

  /// From the slices: ranges and thresholds. Whether anything is beyond its threshold.
  ADACC_HD bool find_thresholds() {
    typename Block::template PerThread<bool> beyond;
    block_.each([&](int me) {
      beyond[me] = false;
      std::int32_t largest = 0;
      strided(me, SplitShared::slots, [&](std::size_t slot) {
        const std::size_t size = size_of(slot);
        if (size == 0) return;
        std::int32_t m[4], lo = empty_lo, hi = empty_hi;
        ADACC_UNROLL for (std::size_t slice = 0; slice < 4; ++slice) {
          std::int32_t l = empty_lo, h = empty_hi;
          if constexpr (by_column) {
            constexpr std::size_t bands = Thread::bands / 4;
            ADACC_UNROLL for (std::size_t band = 0; band < bands; ++band) {
              const std::size_t at = (slice * bands + band) * tile_cols + slot;
              l = smaller_of(l, s_.slice.lo[at]), h = larger_of(h, s_.slice.hi[at]);
            }
          } else {
            l = s_.slice.lo[slot * 4 + slice], h = s_.slice.hi[slot * 4 + slice];
          }
          m[slice] = larger_of(magnitude_of(l), magnitude_of(h));
          lo = smaller_of(lo, l), hi = larger_of(hi, h);
        }
        const std::int32_t limit = group_threshold(m[0], m[1], m[2], m[3], size, O.outlier_ratio);
        const std::int32_t most = larger_of(magnitude_of(lo), magnitude_of(hi));
        s_.lo[slot] = lo, s_.hi[slot] = hi, s_.threshold[slot] = limit;
        if (most > limit) beyond[me] = true;
        else largest = larger_of(largest, most);
      });
      if (largest != 0) Block::maximum(s_.largest, static_cast<std::uint32_t>(largest));
    });
    return block_.any([&](int me) { return beyond[me]; });
  }

  /// Starts ranges anew, because some of what they hold will get places.
  ADACC_HD void restart_groups() {
    block_.each([&](int me) {
      strided(me, SplitShared::slots,
              [&](std::size_t i) { s_.lo[i] = empty_lo, s_.hi[i] = empty_hi; });
    });
  }

  ADACC_HD void clear_section() {
    block_.each([&](int me) {
      std::uint32_t* const to = words(section());
      strided(me, section_layout().bytes / 4, [&](std::size_t i) { to[i] = 0; });
    });
  }

  /// The level of which only some get places, and how many; all above get theirs.
  struct Cut {
    int level;
    std::uint32_t left;
  };
  ADACC_HD Cut cut(std::size_t places) const {
    Cut cut = {outlier_levels - 1, static_cast<std::uint32_t>(places)};
    for (; cut.level >= 0 && s_.levels[cut.level] <= cut.left; --cut.level)
      cut.left -= s_.levels[cut.level];
    return cut;
  }

  /// Marks what has a place, writes the section, counts.
  ADACC_HD void place_elements() {
    const SplitSection layout = section_layout();
    std::byte* const to = section();
    typename Block::template PerThread<std::uint64_t> flags;
    block_.each([&](int me) {
      strided(me, SplitShared::slots, [&](std::size_t i) { s_.placed[i] = s_.partly[i] = 0; });
      strided(me, layout.bytes / 4, [&](std::size_t i) { words(to)[i] = 0; });
      if (me < static_cast<int>(outlier_levels)) s_.levels[me] = 0;
    });
    block_.each([&](int me) {
      const Thread t = thread_of(me);
      const auto& part = part_[me];
      const std::size_t columns = t.columns(cols_);
      std::int32_t largest = 0;
      std::uint64_t own = 0;
      ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
          if (i >= t.count || j >= columns) continue;
          const std::int32_t m = magnitude_of(order(part.at(i, j)));
          largest = larger_of(largest, m <= largest_magnitude ? m : 0);
          if (m > s_.threshold[slot_of(t.row + i, t.col + j)])
            own |= std::uint64_t{1} << (i * P + j);
        }
      }
      flags[me] = own;
      if (largest != 0) Block::maximum(s_.largest, static_cast<std::uint32_t>(largest));
      for_flags(t, own, [&](std::size_t, std::size_t, std::int32_t m, unsigned level) {
        Block::add(s_.levels[level], 1);
        Block::add(s_.flagged, 1);
        if (m > largest_magnitude) Block::add(s_.nonfinite, 1);
      });
    });
    block_.each([&](int me) {
      const Cut limit = cut(layout.places);
      for_flags(thread_of(me), flags[me],
                [&](std::size_t row, std::size_t col, std::int32_t, unsigned level) {
                  const std::uint32_t bit = 1U << col % 32;
                  const std::size_t word = row * 8 + col / 32;
                  // Each bit is set once, so adding is setting.
                  if (static_cast<int>(level) > limit.level) Block::add(s_.placed[word], bit);
                  else if (static_cast<int>(level) == limit.level) Block::add(s_.partly[word], bit);
                });
    });
    // Of each thread two words, row by row; placed ones are counted in the lower half of the sum.
    block_.exclusive_sum(
        [&](int me) {
          const auto w = static_cast<std::size_t>(2 * me);
          return bits_set(s_.placed[w]) + bits_set(s_.placed[w + 1]) +
                 ((bits_set(s_.partly[w]) + bits_set(s_.partly[w + 1])) << 16);
        },
        [&](int me, std::uint32_t before, std::uint32_t total) {
          const std::uint32_t left = cut(layout.places).left;
          const auto few = [&](std::uint32_t n) { return n < left ? n : left; };
          std::uint32_t partly = before >> 16;
          std::uint32_t at = (before & 0xFFFF) + few(partly);
          for (std::size_t w = static_cast<std::size_t>(2 * me);
               w < static_cast<std::size_t>(2 * me) + 2; ++w) {
            std::uint32_t placed = s_.placed[w];
            for (std::uint32_t some = s_.partly[w]; some != 0 && partly < left; some &= some - 1) {
              placed |= some & (0U - some);
              ++partly;
            }
            // Later ones of the level have no place: what is counted of them does not matter.
            s_.placed[w] = placed;
            for (; placed != 0; placed &= placed - 1, ++at) {
              const std::size_t row = w / 8, col = w % 8 * 32 + lowest_bit(placed);
              put(to + SplitSection::values + at * sizeof(T), element(row, col));
              put(to + layout.indices + 2 * at, static_cast<std::uint16_t>(row * tile_cols + col));
            }
          }
          if (me != 0) return;
          const std::uint32_t used = (total & 0xFFFF) + few(total >> 16);
          if (layout.places != 0) put(to, used);
          s_.used += used;
        });
  }

  /// Calls visit(row, column, magnitude, level) for a thread's flagged elements. They are few, and
  /// registers have no index: they are read once more.
  template <class Visit>
  ADACC_HD void for_flags(const Thread& t, std::uint64_t flags, const Visit& visit) const {
    for (; flags != 0; flags &= flags - 1) {
      const std::size_t bit = lowest_bit(flags), row = t.row + bit / P, col = t.col + bit % P;
      const std::int32_t m = magnitude_of(order(to_number(element(row, col))));
      visit(row, col, m, outlier_level(m, s_.threshold[slot_of(row, col)]));
    }
  }

  /// The same for columns: their largest magnitudes decide.
  ADACC_HD void place_columns() {
    const SplitSection layout = section_layout();
    std::byte* const to = section();
    block_.each([&](int me) {
      s_.column[me] = 0;
      s_.exponents[me] = 0;
      if (me < 8) s_.placed[me] = 0;
      if (me < static_cast<int>(outlier_levels)) s_.levels[me] = 0;
      if (me == 0) s_.channel_limit = largest_magnitude;
      strided(me, layout.bytes / 4, [&](std::size_t i) { words(to)[i] = 0; });
    });
    block_.each([&](int me) {
      const Thread t = thread_of(me);
      const auto& part = part_[me];
      ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
        std::int32_t most = 0;
        ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) if (i < t.count) most =
            larger_of(most, magnitude_of(order(part.at(i, j))));
        Block::maximum(s_.column[t.col + j], most);
      }
    });
    block_.each([&](int me) {
      if (static_cast<std::size_t>(me) < cols_) Block::add(s_.exponents[s_.column[me] >> 23], 1);
    });
    // channel_threshold(), all exponents at once.
    block_.exclusive_sum([&](int me) { return s_.exponents[me]; },
                         [&](int me, std::uint32_t before, std::uint32_t) {
                           const bool median = 2 * (before + s_.exponents[me]) >= cols_ &&
                                               (me == 0 || 2 * std::size_t{before} < cols_);
                           if (median && me > 0 && me < 254 && cols_ >= fewest_for_outliers)
                             s_.channel_limit = outlier_threshold((me + 1) << 23, O.outlier_ratio);
                         });
    block_.each([&](int me) {
      const std::int32_t m = s_.column[me];
      if (static_cast<std::size_t>(me) >= cols_ || m <= s_.channel_limit) return;
      Block::add(s_.levels[outlier_level(m, s_.channel_limit)], 1);
      Block::add(s_.flagged, static_cast<std::uint32_t>(b_->rows));
    });
    block_.exclusive_sum(
        [&](int me) {
          const Cut limit = cut(layout.places);
          const int level = column_level(me);
          return (level > limit.level ? 1U : 0U) +
                 (level >= 0 && level == limit.level ? 1U << 16 : 0U);
        },
        [&](int me, std::uint32_t before, std::uint32_t total) {
          const Cut limit = cut(layout.places);
          const auto few = [&](std::uint32_t n) { return n < limit.left ? n : limit.left; };
          const int level = column_level(me);
          const std::uint32_t at = (before & 0xFFFF) + few(before >> 16);
          const bool placed = level > limit.level ||
                              (level >= 0 && level == limit.level && before >> 16 < limit.left);
          if (placed) {
            s_.places[at] = static_cast<std::uint16_t>(me);
            Block::add(s_.placed[me / 32], 1U << me % 32);
            put(to + layout.indices + 2 * at, static_cast<std::uint16_t>(me));
          }
          if (me != 0) return;
          const std::uint32_t used = (total & 0xFFFF) + few(total >> 16);
          s_.exponents[0] = used;
          s_.used += used * static_cast<std::uint32_t>(b_->rows);
          if (layout.places != 0) put(to, used);
        });
    block_.each([&](int me) {
      const std::size_t rows = b_->rows;
      strided(me, s_.exponents[0] * rows, [&](std::size_t i) {
        put(to + SplitSection::values + i * sizeof(T), element(i % rows, s_.places[i / rows]));
      });
      // Elements that are no numbers, and the largest that is one: of columns that are all
      // numbers, it is known.
      if (static_cast<std::size_t>(me) >= cols_) return;
      std::int32_t largest = s_.column[me];
      if (largest > largest_magnitude) {
        largest = 0;
        for (std::size_t row = 0; row < rows; ++row) {
          const std::int32_t m =
              magnitude_of(order(to_number(element(row, static_cast<std::size_t>(me)))));
          if (m <= largest_magnitude) largest = larger_of(largest, m);
          else Block::add(s_.nonfinite, 1);
        }
      }
      if (largest != 0) Block::maximum(s_.largest, static_cast<std::uint32_t>(largest));
    });
  }
  /// -1 where the column is not flagged.
  ADACC_HD int column_level(int me) const {
    const std::int32_t m = s_.column[me];
    if (static_cast<std::size_t>(me) >= cols_ || m <= s_.channel_limit) return -1;
    return static_cast<int>(outlier_level(m, s_.channel_limit));
  }

  /// Outliers::none: counts what is no number, and finds the largest that is.
  ADACC_HD void count_numbers(std::size_t first, std::size_t end) {
    if constexpr (channels) {
      (void)first, (void)end;
    } else {
      const bool odd = block_.any([&](int me) {
        bool some = false;
        std::int32_t largest = 0;
        strided(me, SplitShared::slots, [&](std::size_t slot) {
          if (size_of(slot) == 0) return;
          const std::int32_t m = larger_of(magnitude_of(s_.lo[slot]), magnitude_of(s_.hi[slot]));
          if (m > largest_magnitude) some = true;
          else largest = larger_of(largest, m);
        });
        if (largest != 0) Block::maximum(s_.largest, static_cast<std::uint32_t>(largest));
        return some;
      });
      for (std::size_t tile = first; odd && tile < end; ++tile) {
        if (by_row) load(tile);
        block_.each([&](int me) {
          const Thread t = thread_of(me);
          const auto& part = part_[me];
          const std::size_t columns = t.columns(cols_);
          std::int32_t largest = 0;
          std::uint32_t count = 0;
          ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
            ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
              if (i >= t.count || j >= columns) continue;
              const std::int32_t m = magnitude_of(order(part.at(i, j)));
              largest = larger_of(largest, m <= largest_magnitude ? m : 0);
              count += m > largest_magnitude ? 1U : 0U;
            }
          }
          if (largest != 0) Block::maximum(s_.largest, static_cast<std::uint32_t>(largest));
          if (count == 0) return;
          Block::add(s_.flagged, count);
          Block::add(s_.nonfinite, count);
        });
      }
    }
  }

  // Scales and codes.

  ADACC_HD void finish_groups() {
    block_.each([&](int me) {
      strided(me, SplitShared::slots, [&](std::size_t slot) {
        if (size_of(slot) == 0) return;
        const std::int32_t lo = s_.lo[slot], hi = s_.hi[slot];
        const bool empty = lo > hi;
        const bool numbers =
            empty || larger_of(magnitude_of(lo), magnitude_of(hi)) <= largest_magnitude;
        SplitGroup group = no_numbers();
        if (numbers) group = split_group<Bits, O.symmetric>(empty ? 0 : lo, empty ? 0 : hi);
        const SplitCoder coder = split_coder<O.symmetric>(group);
        s_.base[slot] = coder.base, s_.inverse[slot] = coder.inverse;
        const std::size_t g = group_of(slot);
        put(bytes_ + b_->scales + 2 * g, group.scale.bits);
        if (!O.symmetric) put(bytes_ + b_->minima + 2 * g, group.minimum.bits);
      });
    });
  }

  ADACC_HD void encode_codes() {
    constexpr bool stochastic = O.rounding == Rounding::stochastic;
    block_.each([&](int me) {
      const Thread t = thread_of(me);
      const auto& part = part_[me];
      float base[P], inverse[P];
      if constexpr (by_column) {
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) base[j] = s_.base[t.col + j],
                                                         inverse[j] = s_.inverse[t.col + j];
      }
      const bool whole_blocks = b_->cols % 8 == 0;
      ADACC_UNROLL for (std::size_t i = 0; i < R; ++i) {
        if (i >= t.count) continue;
        if constexpr (!by_column) {
          const std::size_t slot = slot_of(t.row + i, t.col);
          ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) base[j] = s_.base[slot],
                                                           inverse[j] = s_.inverse[slot];
        }
        SmallPacket<std::uint8_t, P> out;
        [[maybe_unused]] const std::uint64_t first =
            (row_ + t.row + i) * b_->cols + tile_ * tile_cols + t.col;
        [[maybe_unused]] PhiloxBlock random = {};
        if constexpr (stochastic) {
          if (whole_blocks) random = random_block(job_.stream, first / 8);
        }
        ADACC_UNROLL for (std::size_t j = 0; j < P; ++j) {
          std::int32_t add = half_code;
          if constexpr (stochastic)
            add = whole_blocks ? half_of(random, first, j) : random_half(job_.stream, first + j);
          out.at[j] = static_cast<std::uint8_t>(
              split_code<Bits, O.symmetric>(part.at(i, j), base[j], inverse[j], add));
        }
        store_packet(&s_.codes[t.row + i][t.col], out);
      }
    });
    block_.each([&](int me) { store_codes(me); });
  }
  /// Halfword of element first + j, where first is a multiple of P; without an index that is only
  /// known at run time, for the sake of registers.
  ADACC_HD static std::int32_t half_of(const PhiloxBlock& random, std::uint64_t first,
                                       std::size_t j) {
    std::uint32_t word = random.word[j / 2];
    if (P == 4 && first % 8 != 0) word = random.word[j / 2 + 2 - P / 8 * 2];
    return static_cast<std::int32_t>(j % 2 == 0 ? word & 0xFFFF : word >> 16);
  }

  ADACC_HD void store_codes(int me) {
    const std::size_t from = Bits == 8 ? tile_ * tile_cols : tile_ * (tile_cols / 2);
    std::byte* const to = bytes_ + b_->codes + from;
    const std::size_t stride = b_->row_bytes;
    const std::size_t bytes =  // of a row of the tile
        Bits == 8 ? cols_ : cols_ / strip_cols * 16 + div_up(cols_ % strip_cols, 2);
    if (stride % 16 == 0 && bytes % 16 == 0) {
      const std::size_t packets = bytes / 16;
      strided(me, b_->rows * packets, [&](std::size_t i) {
        const std::size_t row = i / packets, p = i % packets;
        using Codes = Packet16<std::uint8_t>;
        if constexpr (Bits == 8) {
          store_packet(to + row * stride + 16 * p, load_packet<Codes>(&s_.codes[row][16 * p]));
        } else if (32 * (p + 1) <= cols_) {
          using Four = Packet16<std::uint32_t>;
          const Four low = load_packet<Four>(&s_.codes[row][32 * p]);
          const Four high = load_packet<Four>(&s_.codes[row][32 * p + 16]);
          Four out;
          ADACC_UNROLL for (std::size_t w = 0; w < 4; ++w) out.at[w] = low.at[w] | high.at[w] << 4;
          store_packet(to + row * stride + 16 * p, out);
        } else {  // a strip of 31 columns
          for (std::size_t j = 16 * p; j < 16 * (p + 1); ++j)
            to[row * stride + j] = packed_byte(row, j);
        }
      });
    } else {
      strided(me, b_->rows * bytes, [&](std::size_t i) {
        to[i / bytes * stride + i % bytes] = packed_byte(i / bytes, i % bytes);
      });
    }
  }
  /// Byte j of a row of the tile.
  ADACC_HD std::byte packed_byte(std::size_t row, std::size_t j) const {
    if constexpr (Bits == 8) {
      return std::byte{s_.codes[row][j]};
    } else {
      const std::size_t strip = j / 16 * strip_cols, left = cols_ - strip;
      const std::size_t n = left < strip_cols ? left : strip_cols, half = div_up(n, 2);
      const std::size_t low = strip + j % 16, high = low + half;
      const unsigned upper = j % 16 + half < n ? s_.codes[row][high] : 0U;
      return static_cast<std::byte>(s_.codes[row][low] | upper << 4);
    }
  }

  Block& block_;
  SplitShared& s_;
  const SplitJob<T>& job_;
  const SplitBlock* b_ = nullptr;
  std::byte* bytes_ = nullptr;
  std::size_t row_ = 0, tile_ = 0, cols_ = 0;
  typename Block::template PerThread<TilePart<T>> part_;
};

/// Completes the headers of four blocks: part `part` of the tensor's. One thread adds the samples
/// of a block, in their order.
struct SampleShared {
  float x[256], scale[256], minimum[256];
  std::int32_t code[256];
};
template <unsigned Bits, SplitOptions O, class T, class Block>
ADACC_HD void split_sample(Block& block, SampleShared& s, std::size_t part,
                           const SplitJob<T>& job) {
  block.each([&](int me) {
    const std::size_t i = part * 4 + static_cast<std::size_t>(me) / 64;
    if (i >= job.format.blocks()) return;
    const SplitBlock& b = job.block(i);
    const std::byte* const bytes = job.bytes(i);
    const auto k = static_cast<std::uint32_t>(me % 64), count = sample_count(b.rows, b.cols);
    if (k >= count) return;
    const std::size_t r = sample_row(k, count, b.rows), c = sample_col(k, b.cols);
    std::size_t g = c;
    if constexpr (O.group == whole_row) g = r;
    else if constexpr (O.group != 0) g = r * b.groups_per_row + c / O.group;
    const CodePlace place = code_place(Bits, b.cols, c);
    const auto byte = get<std::uint8_t>(bytes + b.codes + r * b.row_bytes + place.byte);
    s.x[me] = to_number(job.x[(i * block_rows + r) * b.cols + c]);
    s.code[me] = byte >> place.shift & ((1 << Bits) - 1);
    s.scale[me] = to_float(bfloat16{get<std::uint16_t>(bytes + b.scales + 2 * g)});
    s.minimum[me] = 0;
    if (!O.symmetric)
      s.minimum[me] = to_float(bfloat16{get<std::uint16_t>(bytes + b.minima + 2 * g)});
  });
  block.each([&](int me) {
    const std::size_t i = part * 4 + static_cast<std::size_t>(me) / 64;
    if (me % 64 != 0 || i >= job.format.blocks()) return;
    const SplitBlock& b = job.block(i);
    std::byte* const bytes = job.bytes(i);
    const std::uint32_t count = sample_count(b.rows, b.cols);
    double noise = 0, signal = 0;
    std::uint32_t samples = 0;
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::size_t at = static_cast<std::size_t>(me) + k;
      const SplitGroup group = {to_bfloat16(s.scale[at]), to_bfloat16(s.minimum[at])};
      if (add_sample<Bits, O.symmetric>(s.x[at], s.code[at], group, noise, signal)) ++samples;
    }
    put(bytes + 12, samples);
    put(bytes + 24, noise);
    put(bytes + 32, signal);
  });
}

}  // namespace adacc::inline v0_1::detail
