// SPDX-License-Identifier: MIT
/// The format of Int8Outlier and Int4Outlier: options, and where every byte of a blob lies.
///
/// Sizes and offsets depend on rows, columns, element type and options alone: a plan knows them beforehand, and a
/// decoder reads none from a blob. All scales, outliers and their bounds are local to blocks of 64 rows: encoding
/// reads a block from memory once and then from cache, and threads take whole blocks.
///
/// A blob is the header of codec/blob.hpp (64 bytes), then the blocks of 64 rows (the last one may
/// have fewer), each a multiple of 64 bytes. T is the tensor's element type, E its bytes, numbers
/// are little-endian. A block of r rows and C columns:
///
///     offset         bytes        contents
///     0              4            u32 elements flagged as outliers (all of a flagged channel)
///     4              4            u32 flagged elements without a place
///     8              4            u32 flagged elements beyond 0x1.Fp127 in magnitude, or NaN
///     12             4            u32 elements in the sample of the two sums below
///     16             4            f32 largest magnitude up to 0x1.Fp127
///     20             4            zeros
///     24             8            f64 sum over the sample of (decoded - x)^2
///     32             8            f64 sum over the sample of x^2
///     40             24           zeros
///     64             2 G          bfloat16 scale of each group, negative if the group is marked
///     64 + 2 G       2 M          bfloat16 minimum of every group (M = G, or 0 if symmetric)
///     S              …            outlier sections, one for every tile of 256 columns (the last
///                                 one may have fewer); none if there are no places
///     Q              r R          codes, row by row; R = C for 8 bits; for 4 bits
///                                 R = 16 floor(C / 32) + ceil((C mod 32) / 2)
///     B                           the next block
///
/// S, Q and B are the ends of the parts before, rounded up to a multiple of 64. Unused bytes are 0.
///
/// Groups: with group = 0, a group is a column of the block, G = C. With group = g, G = r * ceil(C / g), and group k
/// of row i has number i + r k, so the groups of a tile lie together; whole_row is g = C.
///
/// The section of a tile of n columns, a multiple of 16 bytes; K is its number of places:
///
///     0              4            u32 places in use, at most K
///     4              4            zeros
///     8              E V          T values, unchanged
///     8 + E V        2 K          u16 places
///
///     Outliers::elements: K = ceil(r n outliers_per_mille / 1000), V = K; a place is
///         256 * row in block + column in tile; they ascend.
///     Outliers::channels: K = ceil(n outliers_per_mille / 1000), V = r K; a place is a column in
///         the tile, they ascend; value i of place k is at i + r k.
///
/// Codes of 4 bits lie in strips of 32 columns of 16 bytes (the last one, of n columns, has h = ceil(n / 2) bytes):
/// byte j has column j of the strip in the low half and column h + j, if there is one, in the high half.
///
/// To decode: minimum + scale * code, or scale * (code - 128) if symmetric (8 for 4 bits), with the magnitude of the
/// scale; see codec/quant/quantize.hpp. In a marked group one code is NaN: the last one, or 0 if symmetric. Then the
/// values of the places in use overwrite elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/bytes.hpp"
#include "../../core/config.hpp"
#include "../../core/dtype.hpp"
#include "../blob.hpp"

namespace adacc { inline namespace v0_1 {

/// The elements that a codec keeps exactly, besides the quantized bulk.
enum class Outliers : std::uint8_t {
  elements,  ///< single elements that stand out of their group
  channels,  ///< columns that stand out of their tile: for groups along the row
  none
};

enum class Rounding : std::uint8_t {
  nearest,    ///< ties to the upper code
  stochastic  ///< unbiased: by the stream of Cpu::key with Purpose::rounding
};

/// QuantOptions::group for scales of whole rows.
inline constexpr std::size_t whole_row = static_cast<std::size_t>(-1);

/// Options of Int8Outlier and Int4Outlier.
struct QuantOptions {
  /// Elements along a row that share a scale: 32, 64, 128, 256 or whole_row; 0: the 64 rows of a
  /// block along a column.
  std::size_t group = 0;
  Outliers outliers = Outliers::elements;
  /// Places in 1000 elements (channels) of 64 rows x 256 columns, 0 to 1000, rounded up.
  unsigned outliers_per_mille = 2;
  /// How many times the typical magnitude of the group (the tile) makes an outlier, 2 to 1000.
  unsigned outlier_ratio = 6;
  /// Zero is exact and minima are not stored; this costs about 1 dB (6 on GELU's output).
  bool symmetric = false;
  Rounding rounding = Rounding::nearest;
  /// In groups whose smallest element is 0, positive numbers stay positive: the backward of a ReLU needs the signs of
  /// its output. Numbers below half a step become one step: with many small numbers, as in rows of softmax, this
  /// costs more than it gives. Not with symmetric scales or stochastic rounding.
  bool positive = false;

  friend constexpr bool operator==(const QuantOptions&, const QuantOptions&) = default;
};
using Int8Options = QuantOptions;
using Int4Options = QuantOptions;

namespace detail {

// Options as a number. nvcc prints a template argument of class type, such as QuantOptions, in a form that no host
// compiler reads, if the template is itself an argument; so types and kernels carry this number. Options that do not
// fit the bits are invalid, and stay invalid.

ADACC_HD constexpr std::uint64_t packed_options(const QuantOptions& o) {
  constexpr std::uint64_t most = 0xFFFF;
  const std::uint64_t group = o.group == whole_row ? 257 : o.group == 257 ? most : o.group;
  const std::uint64_t places = o.outliers_per_mille, ratio = o.outlier_ratio;
  return (group < most ? group : most) | static_cast<std::uint64_t>(o.outliers) << 16 |
         static_cast<std::uint64_t>(o.rounding) << 20 | std::uint64_t{o.symmetric} << 24 |
         std::uint64_t{o.positive} << 25 | (places < most ? places : most) << 32 |
         (ratio < most ? ratio : most) << 48;
}
ADACC_HD constexpr QuantOptions unpacked_options(std::uint64_t n) {
  QuantOptions o;
  o.group = (n & 0xFFFF) == 257 ? whole_row : static_cast<std::size_t>(n & 0xFFFF);
  o.outliers = static_cast<Outliers>(n >> 16 & 0xF);
  o.rounding = static_cast<Rounding>(n >> 20 & 0xF);
  o.symmetric = (n >> 24 & 1) != 0;
  o.positive = (n >> 25 & 1) != 0;
  o.outliers_per_mille = static_cast<unsigned>(n >> 32 & 0xFFFF);
  o.outlier_ratio = static_cast<unsigned>(n >> 48);
  return o;
}

inline constexpr std::size_t block_rows = 64;
inline constexpr std::size_t tile_cols = 256;
inline constexpr std::size_t strip_cols = 32;  ///< strips of 4-bit codes

/// The 64 bytes at the start of a block.
struct BlockHeader {
  std::uint32_t flagged, unplaced, nonfinite, samples;
  float max_magnitude;
  std::uint32_t zero;
  double noise, signal;
  std::uint64_t zeros[3];
};
static_assert(sizeof(BlockHeader) == 64);

/// Offsets in the outlier section of a tile.
struct QuantSection {
  static constexpr std::size_t count = 0, values = 8;
  std::size_t places;  ///< K
  std::size_t indices, bytes;

  ADACC_HD constexpr QuantSection(const QuantOptions& o, std::size_t rows, std::size_t cols,
                                  std::size_t element_bytes)
      : places(places_of(o, rows, cols)),
        indices(values + element_bytes * places * (o.outliers == Outliers::channels ? rows : 1)),
        bytes(places == 0 ? 0 : (indices + 2 * places + 15) / 16 * 16) {}

 private:
  ADACC_HD static constexpr std::size_t places_of(const QuantOptions& o, std::size_t rows,
                                                  std::size_t cols) {
    if (o.outliers == Outliers::none) return 0;
    const std::size_t of = o.outliers == Outliers::channels ? cols : rows * cols;
    return (of * o.outliers_per_mille + 999) / 1000;
  }
};

/// Bytes of the codes of `cols` columns of a row, from the start of a strip.
ADACC_HD constexpr std::size_t code_bytes(unsigned bits, std::size_t cols) {
  return bits == 8 ? cols : cols / strip_cols * (strip_cols / 2) + div_up(cols % strip_cols, 2);
}

/// Offsets in a block of `rows` x `cols`, from its start.
struct QuantBlock {
  std::size_t rows, cols;
  std::size_t groups;
  std::size_t tiles;
  std::size_t section_bytes;  ///< bytes per tile; the last tile may have fewer
  std::size_t row_bytes;      ///< bytes of a row of codes
  std::size_t scales, minima, sections, codes, bytes;

  ADACC_HD constexpr QuantBlock(unsigned bits, const QuantOptions& o, std::size_t row_count,
                                std::size_t col_count, std::size_t element_bytes)
      : rows(row_count), cols(col_count),
        groups(o.group == 0           ? cols
               : o.group == whole_row ? rows
                                      : rows * div_up(cols, o.group)),
        tiles(div_up(cols, tile_cols)),
        section_bytes(QuantSection(o, rows, tile_cols, element_bytes).bytes),
        row_bytes(code_bytes(bits, cols)), scales(sizeof(BlockHeader)), minima(scales + 2 * groups),
        sections(align_up(minima + (o.symmetric ? 0 : 2 * groups))),
        codes(align_up(sections + (tiles - 1) * section_bytes +
                       QuantSection(o, rows, cols - (tiles - 1) * tile_cols, element_bytes).bytes)),
        bytes(align_up(codes + rows * row_bytes)) {}

  ADACC_HD constexpr std::size_t cols_of_tile(std::size_t tile) const {
    return tile + 1 < tiles ? tile_cols : cols - tile * tile_cols;
  }
  ADACC_HD constexpr std::size_t section(std::size_t tile) const {
    return sections + tile * section_bytes;
  }
  /// The group of an element.
  template <QuantOptions O>
  ADACC_HD constexpr std::size_t group_of(std::size_t row, std::size_t col) const {
    if constexpr (O.group == 0) return col;
    else if constexpr (O.group == whole_row) return row;
    else return col / O.group * rows + row;
  }
};

/// The place of a column's code in a row of codes: a byte, and a shift to the left within the byte.
struct CodePlace {
  std::size_t byte;
  unsigned shift;
};
ADACC_HD constexpr CodePlace code_place(unsigned bits, std::size_t cols, std::size_t col) {
  if (bits == 8) return {col, 0};
  const std::size_t strip = col / strip_cols, in = col % strip_cols;
  const std::size_t left = cols - strip * strip_cols;
  const std::size_t half = left < strip_cols ? div_up(left, 2) : strip_cols / 2;
  return {strip * (strip_cols / 2) + in % half, in < half ? 0U : 4U};
}

/// The blocks of a blob.
struct QuantFormat {
  /// With more columns, sizes of a block could overflow std::size_t.
  static constexpr std::size_t most_cols = static_cast<std::size_t>(-1) >> 14;

  std::size_t rows, cols;
  QuantBlock whole;  ///< a block of 64 rows

  ADACC_HD constexpr QuantFormat(unsigned bits, const QuantOptions& o, std::size_t row_count,
                                 std::size_t col_count, std::size_t element_bytes)
      : rows(row_count), cols(col_count), whole(bits, o, block_rows, col_count, element_bytes) {}

  ADACC_HD constexpr std::size_t blocks() const { return div_up(rows, block_rows); }
  ADACC_HD constexpr std::size_t rows_of(std::size_t block) const {
    const std::size_t left = rows - block * block_rows;
    return left < block_rows ? left : block_rows;
  }
  ADACC_HD constexpr std::size_t start_of(std::size_t block) const {
    return blob_header_bytes + block * whole.bytes;
  }
};

/// 0 if the tensor has no elements, the dtype is not quantized, or the size does not fit std::size_t.
constexpr std::size_t quant_bytes(unsigned bits, const QuantOptions& o, std::size_t rows,
                                  std::size_t cols, Dtype dtype) {
  if (rows == 0 || cols == 0 || cols > QuantFormat::most_cols || dtype == Dtype::i32) return 0;
  const std::size_t element = bytes_of(dtype);
  const QuantFormat format(bits, o, rows, cols, element);
  std::size_t most = 0;  // encoded and decoded
  if (!multiply(rows / block_rows + 2, format.whole.bytes, most)) return 0;
  if (!multiply(cols * element, rows, most)) return 0;
  const std::size_t last = format.blocks() - 1;
  return format.start_of(last) + QuantBlock(bits, o, format.rows_of(last), cols, element).bytes;
}

/// "int8_outlier", and the options that differ from the default.
struct QuantName {
  char text[96] = {};

  constexpr QuantName(unsigned bits, const QuantOptions& o) {
    constexpr QuantOptions usual;
    append(bits == 8 ? "int8_outlier" : "int4_outlier");
    if (o.group == whole_row) append("_rows");
    else if (o.group != usual.group) append("_group", o.group);
    if (o.outliers == Outliers::channels) append("_channels");
    if (o.outliers == Outliers::none) append("_none");
    if (o.outliers_per_mille != usual.outliers_per_mille) append("_places", o.outliers_per_mille);
    if (o.outlier_ratio != usual.outlier_ratio) append("_ratio", o.outlier_ratio);
    if (o.symmetric) append("_symmetric");
    if (o.rounding == Rounding::stochastic) append("_stochastic");
    if (o.positive) append("_positive");
  }

 private:
  constexpr void append(const char* word) {
    std::size_t end = 0;
    while (text[end] != '\0') ++end;
    while (*word != '\0') text[end++] = *word++;
  }
  constexpr void append(const char* word, std::size_t number) {
    append(word);
    char digits[24] = {};
    std::size_t i = sizeof digits - 1;
    do digits[--i] = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    append(&digits[i]);
  }
};

}  // namespace detail

}}  // namespace adacc::v0_1
