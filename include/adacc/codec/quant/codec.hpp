// SPDX-License-Identifier: MIT
/// The codec behind Int8Outlier and Int4Outlier, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../core/cpu.hpp"
#include "../../core/error.hpp"
#include "../../core/float_mode.hpp"
#include "../../core/view.hpp"
#include "../blob.hpp"
#include "../statistics.hpp"
#include "host/encoder.hpp"
#include "layout.hpp"
#include "quantize.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Decodes a block. Whatever its bytes are, nothing outside of it is read or written.
template <unsigned Bits, QuantOptions O, class T>
class QuantDecoder {
 public:
  /// The next_rows after the block are this thread's next.
  QuantDecoder(const QuantBlock& block, const std::byte* bytes, T* x, std::size_t next_rows)
      : block_(block), bytes_(bytes), x_(x), next_rows_(next_rows) {}

  void decode() {
    const std::size_t ahead = rows_ahead(block_.cols * sizeof(T));
    // Row by row, not tile by tile: memory likes to be written in order.
    for (std::size_t col = 0; col < block_.cols; col += piece) {
      const std::size_t left = block_.cols - col, n = left < piece ? left : piece;
      if constexpr (O.group == 0) load_groups(col, n);
      const auto* codes =
          static_cast<const std::uint8_t*>(static_cast<const void*>(bytes_ + block_.codes)) +
          (Bits == 8 ? col : col / 2);
      for (std::size_t r = 0; r < block_.rows; ++r, codes += block_.row_bytes) {
        if (r + ahead < block_.rows + next_rows_)
          open_page_to_write(x_ + (r + ahead) * block_.cols + col);
        if constexpr (Bits == 4) unpack_row(n, codes, row_);
        decode_piece(r, col, n, Bits == 8 ? codes : row_, x_ + r * block_.cols + col);
        if (O.group == 0 && any_marked_)
          for (std::size_t c = 0; c < n; ++c)
            if (is_marked(raw(block_.scales, col + c)))
              put_nans(1, (Bits == 8 ? codes : row_) + c, x_ + r * block_.cols + col + c);
      }
    }
    for (std::size_t tile = 0; tile < block_.tiles; ++tile) put_outliers(tile);
  }

 private:
  static constexpr std::size_t piece = 4 * tile_cols;

  bfloat16 raw(std::size_t array, std::size_t group) const {
    bfloat16 value = {0};
    std::memcpy(&value, bytes_ + array + 2 * group, 2);
    return value;
  }
  /// As quant_value_of takes it.
  static float shared(bfloat16 value) { return to_float(value) * quant_share<O.symmetric>; }

  void load_groups(std::size_t first, std::size_t n) {
    any_marked_ = (load(block_.scales + 2 * first, n, group_mark, scale_) & group_mark) != 0;
    if (!O.symmetric) load(block_.minima + 2 * first, n, 0, minimum_);
  }
  /// Without the bits of `cut`; returns which bits were set in any.
  unsigned load(std::size_t array, std::size_t n, std::uint16_t cut, float* __restrict to) {
    std::uint16_t bits[piece], any = 0;
    std::memcpy(bits, bytes_ + array, 2 * n);
    for (std::size_t i = 0; i < n; ++i) {
      any = static_cast<std::uint16_t>(any | bits[i]);
      to[i] = shared(bfloat16{static_cast<std::uint16_t>(bits[i] & ~cut)});
    }
    return any;
  }

  /// Of a marked group: NaN where codes say so.
  static void put_nans(std::size_t n, const std::uint8_t* codes, T* to) {
    for (std::size_t c = 0; c < n; ++c)
      if (codes[c] == nan_code<Bits, O.symmetric>) to[c] = quiet_nan<T>();
  }

  void decode_piece(std::size_t r, std::size_t col, std::size_t n, const std::uint8_t* codes,
                    T* to) const {
    if constexpr (O.group == 0) {
      decode_row<Bits, O.symmetric>(n, codes, scale_, minimum_, to);
    } else {
      constexpr std::size_t size = O.group == whole_row ? piece : O.group;
      for (std::size_t c = 0; c < n; c += size) {
        const std::size_t g = block_.template group_of<O>(r, col + c);
        const std::size_t left = n - c < size ? n - c : size;
        const bfloat16 scale = raw(block_.scales, g);
        decode_row<Bits, O.symmetric>(left, codes + c, shared(without_mark(scale)),
                                      O.symmetric ? 0.0F : shared(raw(block_.minima, g)), to + c);
        if (is_marked(scale)) put_nans(left, codes + c, to + c);
      }
    }
  }

  void put_outliers(std::size_t tile) const {
    const std::size_t cols = block_.cols_of_tile(tile);
    const QuantSection layout(O, block_.rows, cols, sizeof(T));
    if (layout.places == 0) return;
    const std::byte* from = bytes_ + block_.section(tile);
    T* x = x_ + tile * tile_cols;
    std::uint32_t used = 0;
    std::memcpy(&used, from, sizeof used);
    const std::size_t count = used < layout.places ? used : layout.places;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t index = 0;
      std::memcpy(&index, from + layout.indices + 2 * i, sizeof index);
      if constexpr (O.outliers == Outliers::channels) {
        if (index >= cols) continue;
        const std::byte* values = from + QuantSection::values + i * block_.rows * sizeof(T);
        for (std::size_t r = 0; r < block_.rows; ++r)
          std::memcpy(x + r * block_.cols + index, values + r * sizeof(T), sizeof(T));
      } else {
        const std::size_t r = index / tile_cols, c = index % tile_cols;
        if (r < block_.rows && c < cols)
          std::memcpy(x + r * block_.cols + c, from + QuantSection::values + i * sizeof(T),
                      sizeof(T));
      }
    }
  }

  const QuantBlock& block_;
  const std::byte* bytes_;
  T* x_;
  std::size_t next_rows_;
  bool any_marked_ = false;
  alignas(64) float scale_[piece];
  alignas(64) float minimum_[piece];
  alignas(64) std::uint8_t row_[piece];
};

}  // namespace detail

template <unsigned Bits, std::uint64_t Packed>
struct PackedQuantCodec;

/// Quantizes to `Bits` bits with scales per group; the format is in codec/quant/layout.hpp, the
/// arithmetic in codec/quant/quantize.hpp. The error of an element is at most half its group's
/// scale and 2^-14 of it (codes are rounded in fixed point), or a scale and 2^-14 of it with
/// stochastic rounding, plus one rounding of the sum; outliers with a place are exact; those
/// without widen their group's range, they are never clipped. NaNs and infinities come back as they were, or,
/// without a place, as NaN; numbers beyond 3.29e38 as they were, or, without a place, as 3.29e38 of their sign.
/// A number always decodes to a number.
template <unsigned Bits, QuantOptions O>
using QuantCodec = PackedQuantCodec<Bits, detail::packed_options(O)>;

/// The codec of the options that detail::packed_options() has packed.
template <unsigned Bits, std::uint64_t Packed>
struct PackedQuantCodec {
  static constexpr QuantOptions O = detail::unpacked_options(Packed);
  static_assert(Bits == 8 || Bits == 4, "adacc: a quantizing codec has codes of 8 or 4 bits");
  static_assert(O.group == 0 || O.group == 32 || O.group == 64 || O.group == 128 ||
                    O.group == 256 || O.group == whole_row,
                "adacc: QuantOptions::group is 0 (64 rows along a column), 32, 64, 128 or 256 "
                "elements along the row, or whole_row");
  static_assert(O.outliers_per_mille <= 1000,
                "adacc: QuantOptions::outliers_per_mille is at most 1000");
  static_assert(O.outlier_ratio >= 2 && O.outlier_ratio <= 1000,
                "adacc: QuantOptions::outlier_ratio is 2 to 1000");

  static constexpr detail::QuantName name_text{Bits, O};
  static constexpr const char* name = name_text.text;
  static constexpr unsigned bits = Bits;
  static constexpr bool draws_numbers = O.rounding == Rounding::stochastic;
  static constexpr QuantOptions options = O;

  /// 0 if there is nothing to encode, for integers, and if a size does not fit std::size_t.
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype dtype) {
    return detail::quant_bytes(Bits, O, rows, cols, dtype);
  }

  /// Blocks of 64 rows.
  static constexpr std::size_t split_items(std::size_t rows, std::size_t) {
    return div_up(rows, detail::block_rows);
  }
  static constexpr std::size_t item_elements(std::size_t cols) { return detail::block_rows * cols; }

  /// T is float, double or bfloat16; numbers are quantized as floats.
  template <class T>
  static Error encode(Cpu& cpu, View<const T> x, Bytes blob, Part part = {}) {
    const std::size_t bytes = encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = check_encode<T>(name, x, blob, bytes)) return error;
    const detail::FloatModeScope plain;
    const RandomKey stream = cpu.key.with_purpose(Purpose::rounding);
    const bool streamed = x.size() * sizeof(T) >= detail::least_streamed;
    for_each_block<T>(
        cpu, x.rows(), x.cols(), part,
        [&](const Block& block, std::size_t row, std::size_t start, std::size_t next_rows) {
          const std::size_t first = row * x.cols();
          detail::QuantEncoder<Bits, O, T>(block, x.data() + first, blob.data() + start, stream,
                                           first, next_rows, streamed)
              .encode();
        });
    write_blob_header(blob.data(), name, dtype_of<T>, x.rows(), x.cols());
    return {};
  }

  template <class T>
  static Error decode(Cpu& cpu, ConstBytes blob, View<T> x, Part part = {}) {
    const std::size_t bytes = encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = check_decode<T>(name, blob, x, bytes)) return error;
    const detail::FloatModeScope plain;
    for_each_block<T>(
        cpu, x.rows(), x.cols(), part,
        [&](const Block& block, std::size_t row, std::size_t start, std::size_t next_rows) {
          detail::QuantDecoder<Bits, O, T>(block, blob.data() + start, x.data() + row * x.cols(),
                                           next_rows)
              .decode();
        });
    return {};
  }

  /// All zeros if `blob` is none that this codec made of such a tensor.
  static CodecStatistics statistics(ConstBytes blob, std::size_t rows, std::size_t cols,
                                    Dtype dtype) {
    if (check_blob(blob, name, dtype, rows, cols, encoded_bytes(rows, cols, dtype))) return {};
    const Pieces headers = watched(rows, cols, dtype);
    return seen(blob.data() + headers.first, headers.stride, rows, cols);
  }

  /// The headers of the blocks.
  static constexpr Pieces watched(std::size_t rows, std::size_t cols, Dtype dtype) {
    const detail::QuantFormat format(Bits, O, rows, cols, bytes_of(dtype));
    return {format.start_of(0), sizeof(detail::BlockHeader), format.whole.bytes, format.blocks()};
  }
  static CodecStatistics seen(const std::byte* headers, std::size_t stride, std::size_t rows,
                              std::size_t cols) {
    CodecStatistics sum;
    sum.elements = rows * cols;
    for (std::size_t i = 0; i < div_up(rows, detail::block_rows); ++i) {
      detail::BlockHeader block;
      std::memcpy(&block, headers + i * stride, sizeof block);
      sum.outliers += block.flagged;
      sum.unplaced += block.unplaced;
      sum.nonfinite += block.nonfinite;
      sum.samples += block.samples;
      if (block.max_magnitude > sum.max_magnitude) sum.max_magnitude = block.max_magnitude;
      sum.bulk_noise += block.noise;
      sum.bulk_signal += block.signal;
    }
    return sum;
  }

 private:
  using Block = detail::QuantBlock;

  /// Calls run(block, its first row, its offset in the blob, rows of the block that this thread has
  /// next) for the blocks of `part`, spread over the threads by several blocks.
  template <class T, class Run>
  static void for_each_block(Cpu& cpu, std::size_t rows, std::size_t cols, Part part,
                             const Run& run) {
    const detail::QuantFormat format(Bits, O, rows, cols, sizeof(T));
    const std::size_t blocks = format.blocks();
    const Block last(Bits, O, format.rows_of(blocks - 1), cols, sizeof(T));
    const Part mine = part.of(blocks);
    if (mine.count == 0) return;
    const std::size_t stop = mine.first + mine.count;
    // As many as may be, since a block is read while the one before it is encoded.
    const auto workers = static_cast<std::size_t>(cpu.workers());
    const std::size_t together = workers == 1 ? mine.count : div_up(mine.count, 8 * workers);
    cpu.parallel(div_up(mine.count, together), [&](std::size_t tile, int) {
      const std::size_t begin = mine.first + tile * together;
      const std::size_t end = stop - begin < together ? stop : begin + together;
      for (std::size_t i = begin; i < end; ++i)
        run(i + 1 < blocks ? format.whole : last, i * detail::block_rows, format.start_of(i),
            i + 1 < end ? format.rows_of(i + 1) : 0);
    });
  }
};

}}  // namespace adacc::v0_1
