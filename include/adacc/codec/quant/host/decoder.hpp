// SPDX-License-Identifier: MIT
/// Decodes one block of 64 rows of a quantizing codec (format: codec/quant/layout.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../../core/bfloat16.hpp"
#include "../../../core/vector_target.hpp"
#include "../../float_bits.hpp"
#include "../../read_ahead.hpp"
#include "../layout.hpp"
#include "../quantize.hpp"
#include "codes.hpp"

ADACC_TARGET_CODE_BEGIN
namespace adacc { inline namespace v0_1 { namespace detail {

/// Decodes a block. For any bytes of the block, nothing outside is read or written.
template <unsigned Bits, QuantOptions O, class T>
class QuantDecoder {
 public:
  /// The thread's next block has `next_rows` rows, right after this one.
  QuantDecoder(const QuantBlock& block, const std::byte* bytes, T* x, std::size_t next_rows)
      : block_(block), bytes_(bytes), x_(x), next_rows_(next_rows) {}

  void decode() {
    const std::size_t ahead = rows_ahead(block_.cols * sizeof(T));
    // Row by row, not tile by tile: memory is faster if written in order.
    for (std::size_t col = 0; col < block_.cols; col += piece) {
      const std::size_t left = block_.cols - col, n = left < piece ? left : piece;
      if constexpr (O.group == 0) load_groups(col, n);
      for (std::size_t r = 0; r < block_.rows; ++r) {
        if (r + ahead < block_.rows + next_rows_)
          open_page_to_write(x_ + (r + ahead) * block_.cols + col);
        decode_piece(r, col, n, x_ + r * block_.cols + col);
      }
    }
    for (std::size_t tile = 0; tile < block_.tiles; ++tile) put_outliers(tile);
  }

  /// Decodes columns col … col + n - 1 of row r to `to`, without outliers that have places; n <= piece. col is a
  /// multiple of `piece`.
  void decode_row(std::size_t r, std::size_t col, std::size_t n, T* to) {
    if constexpr (O.group == 0)
      if (loaded_ != col) load_groups(col, n);
    decode_piece(r, col, n, to);
  }

  static constexpr std::size_t piece = 4 * tile_cols;

  /// Calls visit(row, column in the tile, value) for the outliers of a tile that have places; for a column: row 0 and
  /// all its values.
  template <class Visit>
  void for_outliers(std::size_t tile, const Visit& visit) const {
    const std::size_t cols = block_.cols_of_tile(tile);
    const QuantSection layout(O, block_.rows, cols, sizeof(T));
    if (layout.places == 0) return;
    constexpr bool channels = O.outliers == Outliers::channels;
    const std::byte* const from = bytes_ + block_.section(tile);
    const std::size_t bytes = sizeof(T) * (channels ? block_.rows : 1);
    std::uint32_t used = 0;
    std::memcpy(&used, from, sizeof used);
    const std::size_t count = used < layout.places ? used : layout.places;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t index = 0;
      std::memcpy(&index, from + layout.indices + 2 * i, sizeof index);
      const std::size_t r = channels ? 0 : index / tile_cols,
                        c = channels ? index : index % tile_cols;
      if (r < block_.rows && c < cols) visit(r, c, from + QuantSection::values + i * bytes);
    }
  }

 private:
  bfloat16 raw(std::size_t array, std::size_t group) const {
    bfloat16 value = {0};
    std::memcpy(&value, bytes_ + array + 2 * group, 2);
    return value;
  }
  /// A scale or minimum in the form for quant_value_of.
  static float shared(bfloat16 value) { return to_float(value) * quant_share<O.symmetric>; }

  void load_groups(std::size_t first, std::size_t n) {
    loaded_ = first;
    any_marked_ = (load(block_.scales + 2 * first, n, group_mark, scale_) & group_mark) != 0;
    if (!O.symmetric) load(block_.minima + 2 * first, n, 0, minimum_);
  }
  /// Loads without the bits of `cut`; returns the bits that were set in any number.
  unsigned load(std::size_t array, std::size_t n, std::uint16_t cut, float* __restrict to) {
    std::uint16_t bits[piece], any = 0;
    std::memcpy(bits, bytes_ + array, 2 * n);
    for (std::size_t i = 0; i < n; ++i) {
      any = static_cast<std::uint16_t>(any | bits[i]);
      to[i] = shared(bfloat16{static_cast<std::uint16_t>(bits[i] & ~cut)});
    }
    return any;
  }

  /// Puts NaN where the codes of a marked group say so.
  static void put_nans(std::size_t n, const std::uint8_t* codes, T* to) {
    for (std::size_t c = 0; c < n; ++c)
      if (codes[c] == nan_code<Bits, O.symmetric>) to[c] = quiet_nan<T>();
  }

  void decode_piece(std::size_t r, std::size_t col, std::size_t n, T* to) {
    const auto* codes =
        static_cast<const std::uint8_t*>(static_cast<const void*>(bytes_ + block_.codes)) +
        r * block_.row_bytes + (Bits == 8 ? col : col / 2);
    if constexpr (Bits == 4) {
      unpack_row(n, codes, row_);
      codes = row_;
    }
    if constexpr (O.group == 0) {
      detail::decode_row<Bits, O.symmetric>(n, codes, scale_, minimum_, to);
      for (std::size_t c = 0; any_marked_ && c < n; ++c)
        if (is_marked(raw(block_.scales, col + c))) put_nans(1, codes + c, to + c);
    } else {
      constexpr std::size_t size = O.group == whole_row ? piece : O.group;
      for (std::size_t c = 0; c < n; c += size) {
        const std::size_t g = block_.template group_of<O>(r, col + c);
        const std::size_t left = n - c < size ? n - c : size;
        const bfloat16 scale = raw(block_.scales, g);
        detail::decode_row<Bits, O.symmetric>(left, codes + c, shared(without_mark(scale)),
                                              O.symmetric ? 0.0F : shared(raw(block_.minima, g)),
                                              to + c);
        if (is_marked(scale)) put_nans(left, codes + c, to + c);
      }
    }
  }

  void put_outliers(std::size_t tile) const {
    T* x = x_ + tile * tile_cols;
    for_outliers(tile, [&](std::size_t r, std::size_t c, const std::byte* values) {
      if constexpr (O.outliers == Outliers::channels)
        for (; r < block_.rows; ++r, values += sizeof(T))
          std::memcpy(x + r * block_.cols + c, values, sizeof(T));
      else std::memcpy(x + r * block_.cols + c, values, sizeof(T));
    });
  }

  const QuantBlock& block_;
  const std::byte* bytes_;
  T* x_;
  std::size_t next_rows_;
  std::size_t loaded_ = static_cast<std::size_t>(-1);  ///< the first of the loaded groups
  bool any_marked_ = false;
  alignas(64) float scale_[piece];
  alignas(64) float minimum_[piece];
  alignas(64) std::uint8_t row_[piece];
};

}}}  // namespace adacc::v0_1::detail
ADACC_TARGET_CODE_END
