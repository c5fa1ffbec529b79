// SPDX-License-Identifier: MIT
/// Encodes one block of 64 rows of a quantizing codec (format: codec/quant/layout.hpp).
///
/// Memory bounds the time. A copy moves 8 bytes of every float; codes of 8 bits move 5 (4 read, 1 written past the
/// caches) or 6 (if caches read a line before it is written): at the full speed of memory 0.63 or 0.75 of the copy's
/// time. So a block comes into cache while the block before is encoded (codec/read_ahead.hpp), all steps find it
/// there, outliers are looked for only in groups whose range exceeds the threshold, and codes are always clamped,
/// which costs less than knowing where to clamp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../../../core/random.hpp"
#include "../../../core/vector_target.hpp"
#include "../../read_ahead.hpp"
#include "../layout.hpp"
#include "../quantize.hpp"
#include "codes.hpp"
#include "extremes.hpp"
#include "groups.hpp"
#include "places.hpp"
#include "row_extremes.hpp"
#include "transpose.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

template <unsigned Bits, QuantOptions O, class T>
class QuantEncoder {
 public:
  /// `first` is the index, in the tensor, of the block's first element. The thread's next block has `next_rows` rows,
  /// right after this one, which may be brought into cache. streamed: codes are written past the caches, see
  /// store_vector.
  QuantEncoder(const QuantBlock& block, const T* x, std::byte* bytes, const RandomKey& stream,
               std::uint64_t first, std::size_t next_rows, bool streamed)
      : block_(block), x_(x), next_rows_(next_rows),
        streamed_(streamed && block.row_bytes % cache_line == 0), bytes_(bytes), first_(first),
        random_(stream) {}

  void encode() {
    if constexpr (O.group == whole_row) encode_rows();
    else encode_chunks();
    finish();
  }

 private:
  static constexpr bool channels = O.outliers == Outliers::channels;
  static constexpr bool elements = O.outliers == Outliers::elements;
  static constexpr bool stochastic = O.rounding == Rounding::stochastic;
  /// Codes made at a time: as many as there are random numbers, or few enough that 4-bit codes stay in the
  /// first-level cache until they are packed.
  static constexpr std::size_t most_codes = stochastic ? tile_cols : chunk_cols;
  static constexpr std::size_t most_groups =
      O.group == 0 ? chunk_cols : block_rows * (O.group == whole_row ? 1 : chunk_cols / O.group);

  /// Columns that are encoded together; per_row: groups in each row of them.
  struct Chunk {
    std::size_t col, cols, per_row;
  };
  /// in_chunk: the tile's first column, counted in its chunk.
  struct Tile {
    std::size_t index, col, cols, in_chunk = 0, per_row = 1;
  };
  Tile tile(std::size_t index) const {
    return {index, index * tile_cols, block_.cols_of_tile(index)};
  }
  const T* at(const Tile& tile, std::size_t row) const { return x_ + row * block_.cols + tile.col; }
  static std::int32_t order(T x) { return ordered(to_number(x)); }

  // Code that differs with the direction of groups. Groups are numbered from the first of the chunk; groups of whole
  // rows belong to all chunks.

  void encode_chunks() {
    for (std::size_t col = 0; col < block_.cols; col += chunk_cols) {
      const Chunk chunk = chunk_at(col);
      read_ahead(chunk);
      const std::size_t groups = O.group == 0 ? chunk.cols : block_.rows * chunk.per_row;
      const std::size_t size = O.group == 0 ? block_.rows : O.group;
      if constexpr (O.group == 0)
        column_extremes(x_ + col, block_.cols, block_.rows, chunk.cols, next_, extremes_);
      if constexpr (channels) {
        if constexpr (O.group != 0) find_magnitudes(chunk);
        else
          for (std::size_t c = 0; c < chunk.cols; ++c)
            columns_[c] = larger(magnitude_of(extremes_.lo[c]), magnitude_of(extremes_.hi[c]));
        for_tiles(chunk, [&](const Tile& t) { find_outlier_channels(t); });
      }
      if constexpr (O.group != 0)
        row_extremes<O.group, channels>(x_ + col, block_.cols, block_.rows, chunk.cols, columns_,
                                        next_, extremes_);
      if constexpr (!channels) {
        const bool any = find_limits(groups, size);
        for_tiles(chunk, [&](const Tile& t) {
          if (any) find_outlier_elements(t);
          else clear_section(t);
        });
      } else if constexpr (O.group == 0) {
        for (std::size_t c = 0; c < chunk.cols; ++c)
          if (columns_[c] != 0) extremes_.lo[c] = empty_lo, extremes_.hi[c] = empty_hi;
      }
      if constexpr (channels) saturate_groups(chunk, groups, extremes_);
      finish_groups(groups);
      if constexpr (O.group == 0) store_groups(col, groups);
      else store_groups_of_rows(col / O.group, chunk.per_row);
      encode_codes(col, chunk.cols);
    }
  }

  void encode_rows() {
    read_ahead({0, block_.cols, 1});
    if constexpr (channels) {
      for (std::size_t r = 0; r < block_.rows; ++r)
        extremes_.lo[r] = empty_lo, extremes_.hi[r] = empty_hi;
      for (std::size_t col = 0; col < block_.cols; col += chunk_cols) {
        const Chunk chunk = chunk_at(col);
        find_magnitudes(chunk);
        for_tiles(chunk, [&](const Tile& t) { find_outlier_channels(t); });
        GroupExtremes<most_groups> part;
        row_extremes<O.group, true>(x_ + col, block_.cols, block_.rows, chunk.cols, columns_, next_,
                                    part);
        saturate_groups(chunk, block_.rows, part);
        for (std::size_t r = 0; r < block_.rows; ++r) {
          extremes_.lo[r] = smaller(extremes_.lo[r], part.lo[r]);
          extremes_.hi[r] = larger(extremes_.hi[r], part.hi[r]);
        }
      }
    } else {
      row_extremes<O.group, false>(x_, block_.cols, block_.rows, block_.cols, nullptr, next_,
                                   extremes_);
      const bool any = find_limits(block_.rows, block_.cols);
      // A row is affected in all tiles or in none.
      if (any) gather_affected(0, 1, 1);
      for (std::size_t i = 0; i < block_.tiles; ++i) {
        if (any) place_elements(tile(i));
        else clear_section(tile(i));
      }
    }
    finish_groups(block_.rows);
    store_groups(0, block_.rows);
    encode_codes(0, block_.cols);
  }

  Chunk chunk_at(std::size_t col) const {
    const std::size_t left = block_.cols - col, n = left < chunk_cols ? left : chunk_cols;
    return {col, n, O.group == 0 || O.group == whole_row ? 1 : div_up(n, O.group)};
  }
  /// While `chunk` is encoded, the next chunk comes into cache: of this block, or of the next one.
  void read_ahead(const Chunk& chunk) {
    const std::size_t after = chunk.col + chunk.cols;
    const Chunk next = chunk_at(after < block_.cols ? after : 0);
    const bool same_block = after < block_.cols;
    const std::size_t cols = chunk.cols == block_.cols ? block_.cols : next.cols;
    next_ =
        ReadAhead(x_ + (same_block ? 0 : block_.rows * block_.cols) + next.col,
                  same_block ? block_.rows : next_rows_, cols * sizeof(T), block_.cols * sizeof(T));
  }
  template <class Visit>
  void for_tiles(const Chunk& chunk, const Visit& visit) const {
    for (std::size_t c = 0; c < chunk.cols; c += tile_cols) {
      Tile t = tile((chunk.col + c) / tile_cols);
      t.in_chunk = c;
      t.per_row = chunk.per_row;
      visit(t);
    }
  }

  /// Calls visit(row, first column, columns) for the pieces of group g that lie in the tile.
  template <class Visit>
  void for_group(const Tile& t, std::size_t g, const Visit& visit) const {
    if constexpr (O.group == 0) {
      for (std::size_t r = 0; r < block_.rows; ++r) visit(r, g - t.in_chunk, std::size_t{1});
    } else if constexpr (O.group == whole_row) {
      visit(g, std::size_t{0}, t.cols);
    } else {
      const std::size_t c = g % t.per_row * O.group - t.in_chunk, left = t.cols - c;
      visit(g / t.per_row, c, left < O.group ? left : O.group);
    }
  }
  std::size_t group_of(const Tile& t, std::size_t row, std::size_t col) const {
    if constexpr (O.group == 0) return t.in_chunk + col;
    else if constexpr (O.group == whole_row) return row;
    else return row * t.per_row + (t.in_chunk + col) / O.group;
  }

  // Outliers.

  std::byte* section(const Tile& t) const { return bytes_ + block_.section(t.index); }
  QuantSection section_layout(const Tile& t) const {
    return QuantSection(O, block_.rows, t.cols, sizeof(T));
  }
  void clear_section(const Tile& t) const { std::memset(section(t), 0, section_layout(t).bytes); }

  /// Turns extremes_.second into thresholds; returns whether any group has something beyond its own.
  bool find_limits(std::size_t groups, std::size_t size) {
    if constexpr (!elements)  // only magnitudes beyond largest_magnitude
      for (std::size_t g = 0; g < groups; ++g) extremes_.second[g] = 0;
    return find_thresholds(groups, size, O.outlier_ratio, extremes_.lo, extremes_.hi,
                           extremes_.second, largest_);
  }

  void find_outlier_elements(const Tile& t) {
    if constexpr (O.group == 0) gather_affected(t.in_chunk, t.cols, 0);
    else gather_affected(t.in_chunk / O.group, div_up(t.cols, O.group), t.per_row);
    if (affected_count_ == 0) clear_section(t);
    else place_elements(t);
  }

  /// Gathers the groups with something beyond their threshold, among groups first … first + n - 1 (of all rows, if
  /// groups are along rows), and starts their extremes anew.
  void gather_affected(std::size_t first, std::size_t n, std::size_t per_row) {
    std::int32_t *lo = extremes_.lo, *hi = extremes_.hi;
    affected_count_ = 0;
    for (std::size_t r = 0; r < (O.group == 0 ? 1 : block_.rows); ++r)
      for (std::size_t g = r * per_row + first; g < r * per_row + first + n; ++g) {
        if (larger(magnitude_of(lo[g]), magnitude_of(hi[g])) <= extremes_.second[g]) continue;
        affected_[affected_count_++] = static_cast<std::uint16_t>(g);
        lo[g] = empty_lo, hi[g] = empty_hi;
      }
  }

  static void widen(std::int32_t& lo, std::int32_t& hi, std::int32_t order) {
    lo = smaller(lo, order);
    hi = larger(hi, order);
  }

  void place_elements(const Tile& t) {
    std::int32_t *lo = extremes_.lo, *hi = extremes_.hi;
    const std::int32_t* threshold = extremes_.second;
    TileMarks marks;
    OutlierLevels levels;
    for (std::size_t i = 0; i < affected_count_; ++i) {
      const std::size_t g = affected_[i];
      const std::int32_t limit = threshold[g];
      for_group(t, g, [&](std::size_t r, std::size_t first, std::size_t n) {
        const T* from = at(t, r) + first;
        std::int32_t bulk_lo = empty_lo, bulk_hi = empty_hi;
        widen_by_bulk(from, n, limit, bulk_lo, bulk_hi, [&](std::size_t c) {
          const std::int32_t m = magnitude_of(order(from[c]));
          levels.count(outlier_level(m, limit));
          marks.mark(r, first + c);
          ++header_.flagged;
          if (m <= largest_magnitude) largest_ = larger(largest_, m);
          else ++header_.nonfinite;
        });
        if (bulk_lo > bulk_hi) return;
        widen(lo[g], hi[g], bulk_lo);
        widen(lo[g], hi[g], bulk_hi);
        largest_ = larger(largest_, larger(magnitude_of(bulk_lo), magnitude_of(bulk_hi)));
      });
    }
    const QuantSection layout = section_layout(t);
    const std::size_t taken = levels.share(layout.places);
    std::byte* to = section(t);
    std::size_t used = 0;
    if (layout.places != 0) {
      std::memset(to, 0, layout.bytes);
      const auto count = static_cast<std::uint32_t>(taken);
      std::memcpy(to, &count, sizeof count);
    }
    marks.for_each([&](std::size_t r, std::size_t c) {
      const T value = at(t, r)[c];
      const std::size_t g = group_of(t, r, c);
      const std::int32_t o = order(value);
      if (levels.take(outlier_level(magnitude_of(o), threshold[g]))) {
        const auto position = static_cast<std::uint16_t>(r * tile_cols + c);
        std::memcpy(to + QuantSection::values + used * sizeof(T), &value, sizeof value);
        std::memcpy(to + layout.indices + 2 * used, &position, sizeof position);
        ++used;
      } else {
        widen_or_mark(extremes_, g, o);
        ++header_.unplaced;
      }
    });
  }

  /// Widens group g, in `of`, by an element without a place; a NaN or an infinity marks the group.
  template <std::size_t N>
  void widen_or_mark(GroupExtremes<N>& of, std::size_t g, std::int32_t order) {
    if (!is_nonfinite(magnitude_of(order))) return widen(of.lo[g], of.hi[g], saturated(order));
    if (!any_marked_) std::memset(marked_, 0, sizeof marked_);
    any_marked_ = true;
    marked_[g] = 1;
  }

  /// Finds the extremes again for groups of the chunk with something beyond largest_magnitude. Columns with a place
  /// do not count.
  template <std::size_t N>
  void saturate_groups(const Chunk& chunk, std::size_t groups, GroupExtremes<N>& of) {
    const Tile all = {0, chunk.col, chunk.cols, 0, chunk.per_row};
    for (std::size_t g = 0; g < groups; ++g) {
      const bool beyond =
          larger(magnitude_of(of.lo[g]), magnitude_of(of.hi[g])) > largest_magnitude;
      if (!beyond || of.lo[g] > of.hi[g]) continue;
      of.lo[g] = empty_lo, of.hi[g] = empty_hi;
      for_group(all, g, [&](std::size_t r, std::size_t first, std::size_t n) {
        for (std::size_t c = first; c < first + n; ++c)
          if (columns_[c] == 0) widen_or_mark(of, g, order(at(all, r)[c]));
      });
    }
  }

  /// columns_[c] becomes the largest magnitude of column c of the chunk.
  void find_magnitudes(const Chunk& chunk) {
    std::memset(columns_, 0, sizeof columns_);
    column_magnitudes(x_ + chunk.col, block_.cols, block_.rows, chunk.cols, next_, columns_);
  }

  /// Places columns by the largest magnitudes in columns_, and leaves 1 there if a column has a place, 0 elsewhere.
  void find_outlier_channels(const Tile& t) {
    std::int32_t* largest = columns_ + t.in_chunk;
    const QuantSection layout = section_layout(t);
    clear_section(t);
    std::uint16_t counts[256] = {};
    for (std::size_t c = 0; c < t.cols; ++c) ++counts[largest[c] >> 23];
    const std::int32_t threshold = channel_threshold(counts, t.cols, O.outlier_ratio);
    OutlierLevels levels;
    std::size_t flagged = 0;
    for (std::size_t c = 0; c < t.cols; ++c) {
      if (largest[c] <= threshold) {
        largest_ = larger(largest_, largest[c]);
        continue;
      }
      levels.count(outlier_level(largest[c], threshold));
      ++flagged;
      for (std::size_t r = 0; r < block_.rows; ++r) {
        const std::int32_t m = magnitude_of(order(at(t, r)[c]));
        if (m <= largest_magnitude) largest_ = larger(largest_, m);
        else ++header_.nonfinite;
      }
    }
    const std::size_t taken = levels.share(layout.places);
    header_.flagged += static_cast<std::uint32_t>(flagged * block_.rows);
    header_.unplaced += static_cast<std::uint32_t>((flagged - taken) * block_.rows);
    if (layout.places != 0) {
      const auto count = static_cast<std::uint32_t>(taken);
      std::memcpy(section(t), &count, sizeof count);
    }
    std::byte* values = section(t) + QuantSection::values;
    std::byte* indices = section(t) + layout.indices;
    for (std::size_t c = 0; c < t.cols; ++c) {
      const std::int32_t m = largest[c];
      largest[c] = m > threshold && levels.take(outlier_level(m, threshold)) ? 1 : 0;
      if (largest[c] == 0) continue;
      const auto index = static_cast<std::uint16_t>(c);
      std::memcpy(indices, &index, sizeof index);
      indices += sizeof index;
      for (std::size_t r = 0; r < block_.rows; ++r, values += sizeof(T))
        std::memcpy(values, at(t, r) + c, sizeof(T));
    }
  }

  // Scales and codes.

  void finish_groups(std::size_t groups) {
    detail::finish_groups<Bits, O.symmetric>(groups, extremes_.lo, extremes_.hi, scales_, minima_,
                                             base_, inverse_);
    for (std::size_t g = 0; any_marked_ && g < groups; ++g) {
      if (marked_[g] == 0) continue;
      const QuantGroup group =
          quant_group<Bits, O.symmetric, true>(extremes_.lo[g], extremes_.hi[g]);
      const QuantCoder coder = quant_coder<O.symmetric>(group);
      scales_[g] = group.scale.bits, minima_[g] = group.minimum.bits;
      base_[g] = coder.base, inverse_[g] = coder.inverse;
    }
    if constexpr (O.positive) {
      unsigned zeros = 0;
      for (std::size_t g = 0; g < groups; ++g) zeros |= minima_[g] == 0 ? 1U : 0U;
      any_from_zero_ = zeros != 0;
    }
  }

  /// Stores the first n groups here as groups first … first + n - 1 of the block.
  void store_groups(std::size_t first, std::size_t n) {
    std::memcpy(bytes_ + block_.scales + 2 * first, scales_, 2 * n);
    if (!O.symmetric) std::memcpy(bytes_ + block_.minima + 2 * first, minima_, 2 * n);
  }
  /// Stores the groups of a chunk, `per_row` in each row, from group `first` of each row on.
  void store_groups_of_rows(std::size_t first, std::size_t per_row) {
    const auto store = [&](std::size_t array, const std::uint16_t* from) {
      transpose_halves(block_.rows, per_row,
                       static_cast<const std::byte*>(static_cast<const void*>(from)), 2 * per_row,
                       bytes_ + array + 2 * first * block_.rows, 2 * block_.rows);
    };
    store(block_.scales, scales_);
    if (!O.symmetric) store(block_.minima, minima_);
  }

  void encode_codes(std::size_t col, std::size_t cols) {
    auto* codes = static_cast<std::uint8_t*>(static_cast<void*>(bytes_ + block_.codes)) +
                  (Bits == 8 ? col : col / 2);
    const std::size_t per_row = O.group == 0 || O.group == whole_row ? 1 : div_up(cols, O.group);
    const std::size_t lines = div_up(next_.left(), block_.rows);
    const std::size_t ahead = rows_ahead(block_.row_bytes);
    for (std::size_t r = 0; r < block_.rows; ++r, codes += block_.row_bytes) {
      next_.more(lines);
      if (r + ahead < block_.rows) open_page_to_write(codes + ahead * block_.row_bytes);
      for (std::size_t c = 0; c < cols; c += most_codes) {
        const std::size_t n = cols - c < most_codes ? cols - c : most_codes;
        const std::size_t place = r * block_.cols + col + c;
        encode_piece(r, c, n, per_row, x_ + place, first_ + place, codes + (Bits == 8 ? c : c / 2));
      }
    }
    if (any_marked_) mark_codes(col, cols, per_row);
    any_marked_ = false;
  }

  /// NaNs and infinities of marked groups get nan_code; no other element gets this code.
  void mark_codes(std::size_t col, std::size_t cols, std::size_t per_row) {
    for (std::size_t r = 0; r < block_.rows; ++r)
      for (std::size_t c = 0; c < cols; ++c) {
        std::size_t g = O.group == 0 ? c : r;
        if constexpr (O.group != 0 && O.group != whole_row) g = r * per_row + c / O.group;
        if (marked_[g] == 0) continue;
        const CodePlace place = code_place(Bits, block_.cols, col + c);
        std::byte& byte = bytes_[block_.codes + r * block_.row_bytes + place.byte];
        const unsigned mask = (1U << Bits) - 1, all = std::to_integer<unsigned>(byte);
        const auto code =
            marked_code<Bits, O.symmetric>(order(x_[r * block_.cols + col + c]),
                                           static_cast<std::int32_t>(all >> place.shift & mask));
        byte = static_cast<std::byte>((all & ~(mask << place.shift)) | static_cast<unsigned>(code)
                                                                           << place.shift);
      }
  }

  /// Encodes columns c … c + n - 1, counted as the coders are; per_row: groups in a row of a chunk.
  void encode_piece(std::size_t r, std::size_t c, std::size_t n, std::size_t per_row, const T* x,
                    std::uint64_t element, std::uint8_t* codes) {
    const std::uint16_t* random = nullptr;
    if constexpr (stochastic) random = random_.row(element, n);
    const auto encode = [&](auto positive, auto streamed, std::uint8_t* to) {
      encode_piece<decltype(positive)::value, decltype(streamed)::value>(r, c, n, per_row, x,
                                                                         random, to);
    };
    const auto encode_to = [&](auto streamed, std::uint8_t* to) {
      if constexpr (O.positive)
        if (any_from_zero_) return encode(std::true_type{}, streamed, to);
      encode(std::false_type{}, streamed, to);
    };
    if constexpr (Bits == 4) {
      encode_to(std::false_type{}, row_);
      if (streamed_) pack_row<true>(n, row_, codes);
      else pack_row<false>(n, row_, codes);
    } else if (streamed_) {
      encode_to(std::true_type{}, codes);
    } else {
      encode_to(std::false_type{}, codes);
    }
  }
  template <bool Positive, bool Streamed>
  void encode_piece(std::size_t r, std::size_t c, std::size_t n, std::size_t per_row, const T* x,
                    const std::uint16_t* random, std::uint8_t* to) {
    if constexpr (O.group == 0) {
      encode_row<Bits, O.symmetric, stochastic, Positive, Streamed>(
          n, x, ColumnCoders{base_ + c, inverse_ + c}, random, to);
    } else {
      constexpr std::size_t size = O.group == whole_row ? most_codes : O.group;
      std::size_t g = r * per_row + (O.group == whole_row ? 0 : c / size);
      for (std::size_t i = 0; i < n; i += size, ++g)
        encode_row<Bits, O.symmetric, stochastic, Positive, Streamed>(
            n - i < size ? n - i : size, x + i, RowCoder{{base_[g], inverse_[g]}},
            stochastic ? random + i : nullptr, to + i);
    }
  }

  // The header, and zeros in unused bytes.

  void finish() {
    const std::size_t minima_end = block_.minima + (O.symmetric ? 0 : 2 * block_.groups);
    const Tile last = tile(block_.tiles - 1);
    const std::size_t sections_end = block_.section(last.index) + section_layout(last).bytes;
    const std::size_t codes_end = block_.codes + block_.rows * block_.row_bytes;
    std::memset(bytes_ + minima_end, 0, block_.sections - minima_end);
    std::memset(bytes_ + sections_end, 0, block_.codes - sections_end);
    std::memset(bytes_ + codes_end, 0, block_.bytes - codes_end);
    header_.max_magnitude = bits_as<float>(largest_);
    add_samples();
    std::memcpy(bytes_, &header_, sizeof header_);
    if (streamed_) stream_end();
  }

  /// Codes of samples are computed again: codes written past the caches would be slow to read.
  void add_samples() {
    const std::uint32_t count = sample_count(block_.rows, block_.cols);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::size_t r = sample_row(i, count, block_.rows), c = sample_col(i, block_.cols);
      const std::size_t g = block_.template group_of<O>(r, c);
      QuantGroup group = {{0}, {0}};
      std::memcpy(&group.scale, bytes_ + block_.scales + 2 * g, 2);
      if (!O.symmetric) std::memcpy(&group.minimum, bytes_ + block_.minima + 2 * g, 2);
      const QuantCoder coder = quant_coder<O.symmetric>(group);
      const std::size_t place = r * block_.cols + c;
      const float x = to_number(x_[place]);
      std::int32_t rounding = half_code;
      if constexpr (stochastic) rounding = random_.at(first_ + place);
      const std::int32_t code =
          quant_code<Bits, O.symmetric>(x, coder.base, coder.inverse, rounding);
      if (add_sample<Bits, O.symmetric>(x, code, group, header_.noise, header_.signal))
        ++header_.samples;
    }
  }

  const QuantBlock& block_;
  const T* x_;
  std::size_t next_rows_;
  ReadAhead next_;
  bool streamed_;
  std::byte* bytes_;
  std::uint64_t first_;
  BlockHeader header_ = {};
  std::int32_t largest_ = 0;
  QuantRandom random_;
  std::size_t affected_count_ = 0;
  bool any_marked_ = false;
  bool any_from_zero_ = false;  ///< some of the current groups have a minimum of 0
  GroupExtremes<most_groups> extremes_;
  alignas(64) float base_[most_groups];
  alignas(64) float inverse_[most_groups];
  alignas(64) std::uint16_t scales_[most_groups];
  alignas(64) std::uint16_t minima_[most_groups];
  alignas(64) std::int32_t columns_[chunk_cols];
  std::uint16_t affected_[most_groups];
  std::uint8_t marked_[most_groups];  ///< valid if any_marked_
  alignas(64) std::uint8_t row_[most_codes];
};

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
