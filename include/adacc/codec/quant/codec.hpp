// SPDX-License-Identifier: MIT
/// The codec behind Int8Outlier and Int4Outlier, on the host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../core/cpu.hpp"
#include "../../core/error.hpp"
#include "../../core/float_mode.hpp"
#include "../../core/vector_target.hpp"
#include "../../core/view.hpp"
#include "../blob.hpp"
#include "../row_errors.hpp"
#include "../statistics.hpp"
#include "host/decoder.hpp"
#include "host/encoder.hpp"
#include "host/row_judge.hpp"
#include "layout.hpp"
#include "quantize.hpp"

namespace adacc { inline namespace v0_1 {

template <unsigned Bits, std::uint64_t Packed>
struct PackedQuantCodec;

namespace detail {

/// Columns of 64 rows share their scales by default: 64 elements of a row share one here, so a blob has as many
/// scales where there are whole groups of columns.
constexpr QuantOptions for_unlike_rows(QuantOptions o) {
  o.group = block_rows;
  return o;
}

/// for_unlike_rows of a codec with these options: nothing if scales serve one row each anyway.
template <unsigned Bits, QuantOptions O>
struct QuantForUnlikeRows {};
template <unsigned Bits, QuantOptions O>
  requires(O.group == 0)
struct QuantForUnlikeRows<Bits, O> {
  using for_unlike_rows = PackedQuantCodec<Bits, packed_options(detail::for_unlike_rows(O))>;
};

/// tolerated_as of a codec with these options: a ReLU asks for positive numbers, other readers of the
/// output do not mind.
template <unsigned Bits, QuantOptions O>
struct QuantToleratedAs {};
template <unsigned Bits, QuantOptions O>
  requires(O.positive)
struct QuantToleratedAs<Bits, O> {
  static constexpr QuantOptions plain = [] {
    QuantOptions o = O;
    o.positive = false;
    return o;
  }();
  using tolerated_as = PackedQuantCodec<Bits, packed_options(plain)>;
};

ADACC_TARGET_CODE_BEGIN
template <unsigned Bits, std::uint64_t Packed, class T>
void encode_block(const QuantBlock& block, const T* x, std::byte* bytes, const RandomKey& stream,
                  std::uint64_t first, std::size_t next_rows, bool streamed) {
  QuantEncoder<Bits, unpacked_options(Packed), T>(block, x, bytes, stream, first, next_rows,
                                                  streamed)
      .encode();
}
template <unsigned Bits, std::uint64_t Packed, class T>
void decode_block(const QuantBlock& block, const std::byte* bytes, T* x, std::size_t next_rows) {
  QuantDecoder<Bits, unpacked_options(Packed), T>(block, bytes, x, next_rows).decode();
}
ADACC_TARGET_CODE_END

}  // namespace detail

/// Quantizes to `Bits` bits with scales per group; the format is in codec/quant/layout.hpp, the
/// arithmetic in codec/quant/quantize.hpp. The error of an element is at most half the scale of its group and 2^-14 of
/// the scale (codes are rounded in fixed point), with stochastic rounding a scale and 2^-14 of it, plus one rounding
/// of the sum. Outliers with a place are exact; outliers without widen the range of their group and are never
/// clipped. NaNs and infinities come back unchanged or, without a place, as NaN; numbers beyond 3.29e38 unchanged or,
/// without a place, as 3.29e38 of their sign. A number always decodes to a number.
template <unsigned Bits, QuantOptions O>
using QuantCodec = PackedQuantCodec<Bits, detail::packed_options(O)>;

/// The codec with the options packed by detail::packed_options().
template <unsigned Bits, std::uint64_t Packed>
struct PackedQuantCodec : detail::QuantForUnlikeRows<Bits, detail::unpacked_options(Packed)>,
                          detail::QuantToleratedAs<Bits, detail::unpacked_options(Packed)> {
  static constexpr QuantOptions O = detail::unpacked_options(Packed);
  static_assert(Bits == 8 || Bits == 4, "adacc: a quantizing codec has codes of 8 or 4 bits");
  static_assert(O.group == 0 || O.group == 32 || O.group == 64 || O.group == 128 ||
                    O.group == 256 || O.group == whole_row,
                "adacc: QuantOptions::group is 0 (64 rows along a column), 32, 64, 128 or 256 "
                "elements along the row, or whole_row");
  static_assert(O.outliers_per_mille <= 1000,
                "adacc: QuantOptions::outliers_per_mille is at most 1000");
  static_assert(!O.positive || (!O.symmetric && O.rounding == Rounding::nearest),
                "adacc: QuantOptions::positive is for scales that are not symmetric, and rounding "
                "to nearest");
  static_assert(O.outlier_ratio >= 2 && O.outlier_ratio <= 1000,
                "adacc: QuantOptions::outlier_ratio is 2 to 1000");

  static constexpr detail::QuantName name_text{Bits, O};
  static constexpr const char* name = name_text.text;
  static constexpr unsigned bits = Bits;
  static constexpr bool draws_numbers = O.rounding == Rounding::stochastic;
  static constexpr QuantOptions options = O;

  /// 0 for tensors without elements, for integers, and if a size does not fit std::size_t.
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype dtype) {
    return detail::quant_bytes(Bits, O, rows, cols, dtype);
  }

  /// Items are blocks of 64 rows.
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
          detail::call_at_level<detail::encode_block<Bits, Packed, T>>(
              block, x.data() + first, blob.data() + start, stream, first, next_rows, streamed);
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
          detail::call_at_level<detail::decode_block<Bits, Packed, T>>(
              block, blob.data() + start, x.data() + row * x.cols(), next_rows);
        });
    return {};
  }

  /// A tenth, or for 8 bits a five hundredth, of a row's square: some ten and seventy times the rounding error of
  /// normal numbers in rows that are alike.
  static constexpr double row_bound = Bits == 4 ? 0.1 : 0.002;

  /// The errors of the rows of `part`; all zeros if this codec did not make `blob` from such a tensor.
  template <class T>
  static RowErrors row_errors(Cpu& cpu, View<const T> x, ConstBytes blob, Part part = {}) {
    if (check_blob(blob, name, dtype_of<T>, x.rows(), x.cols(),
                   encoded_bytes(x.rows(), x.cols(), dtype_of<T>)))
      return {};
    const detail::FloatModeScope plain;
    std::atomic<std::uint64_t> judged{0}, over{0}, worst{0};
    for_each_block<T>(cpu, x.rows(), x.cols(), part,
                      [&](const Block& block, std::size_t row, std::size_t start, std::size_t) {
                        const RowErrors of =
                            detail::RowJudge<Bits, O, T>(block, x.data() + row * x.cols(),
                                                         blob.data() + start, row_bound)
                                .judge();
                        judged.fetch_add(of.rows, std::memory_order_relaxed);
                        over.fetch_add(of.over, std::memory_order_relaxed);
                        // For numbers that are not negative, the larger has the larger bits.
                        const auto ratio_bits = detail::bits_as<std::uint64_t>(of.worst);
                        for (std::uint64_t now = worst.load(std::memory_order_relaxed);
                             ratio_bits > now && !worst.compare_exchange_weak(
                                                     now, ratio_bits, std::memory_order_relaxed);) {
                        }
                      });
    return {judged, over, detail::bits_as<double>(worst.load(std::memory_order_relaxed))};
  }

  /// All zeros if this codec did not make `blob` from such a tensor.
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

  /// Calls run(block, first row, offset in the blob, rows of the thread's next block) for the blocks of `part`; each
  /// thread gets several blocks at a time.
  template <class T, class Run>
  static void for_each_block(Cpu& cpu, std::size_t rows, std::size_t cols, Part part,
                             const Run& run) {
    const detail::QuantFormat format(Bits, O, rows, cols, sizeof(T));
    const std::size_t blocks = format.blocks();
    const Block last(Bits, O, format.rows_of(blocks - 1), cols, sizeof(T));
    const Part items = part.of(blocks);
    if (items.count == 0) return;
    const std::size_t stop = items.first + items.count;
    // Tiles are as long as possible, since a block is read while the block before is encoded.
    const auto workers = static_cast<std::size_t>(cpu.workers());
    const std::size_t together = workers == 1 ? items.count : div_up(items.count, 8 * workers);
    cpu.parallel(div_up(items.count, together), [&](std::size_t tile, int) {
      const std::size_t begin = items.first + tile * together;
      const std::size_t end = stop - begin < together ? stop : begin + together;
      for (std::size_t i = begin; i < end; ++i)
        run(i + 1 < blocks ? format.whole : last, i * detail::block_rows, format.start_of(i),
            i + 1 < end ? format.rows_of(i + 1) : 0);
    });
  }
};

}}  // namespace adacc::v0_1
