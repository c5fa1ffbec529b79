// SPDX-License-Identifier: MIT
/// Frozen parameters that stay where a file has them, in the file's form: rows of blocks of a few bits an element.
///
/// The network's block of parameters has no room for such a parameter. A kernel decodes elements when it reads them:
/// a product while it packs its operand, a lookup row by row. So a model of 4-bit weights takes 4 bits a weight, and
/// none but the decoded elements of the moment are ever there in full.
///
/// One parameter may be several tensors of a file, one below the other (queries, keys and values), and rows may lie in
/// another order.
///
/// Rows of a file may be streamed: whoever has read rows releases them, and their pages leave the process until they are
/// read again. Products, copies and lookups do so.
#pragma once

#include <cstddef>
#include <type_traits>

#include "../core/array.hpp"
#include "../core/bfloat16.hpp"
#include "../core/error.hpp"
#include "../core/extremes.hpp"
#include "../core/instruction_level.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// How elements are stored: in blocks, which are decoded whole.
struct BlockFormat {
  static constexpr std::size_t most_elems = 256;

  const char* name = "";
  std::size_t elems = 1, bytes = 4;  ///< of a block
  void (*decode)(const std::byte* from, std::size_t blocks, float* to) = nullptr;
  /// sums[j] += the sum over p of a[p * a_step] * element p of row j, of `rows` rows of whole blocks, each product added
  /// to the sum of all before; null: there are products of decoded rows alone.
  void (*add_products)(InstructionLevel level, const std::byte* const* at, std::size_t rows,
                       std::size_t blocks, const float* a, std::size_t a_step,
                       float* sums) = nullptr;
};

/// Some rows of a parameter, one behind the other.
struct StoredRows {
  const BlockFormat* format = nullptr;
  const std::byte* data = nullptr;
  std::size_t rows = 0;
  /// Not 0: rows lie in groups of so many, and the two halves of a group take turns (row 2 j + h is row j of half h).
  std::size_t turns = 0;
  /// Takes the pages of `part`, which was read, out of the process until they are read again; null: they stay.
  void (*release)(ConstBytes file, ConstBytes part) = nullptr;
  ConstBytes file{};  ///< mapped, with these rows in it: for `release`

  /// The place of row `r` among the stored rows.
  constexpr std::size_t place(std::size_t r) const {
    if (turns == 0) return r;
    const std::size_t in_group = r % turns, half = turns / 2;
    return r - in_group + in_group % half * 2 + in_group / half;
  }
  /// The row at a place.
  constexpr std::size_t row_at(std::size_t place) const {
    if (turns == 0) return place;
    const std::size_t in_group = place % turns;
    return place - in_group + in_group % 2 * (turns / 2) + in_group / 2;
  }
};

/// Linux maps up to so many bytes before and behind a byte that is read: 64 KiB, and the whole of each piece of its page
/// cache among them, of 2 MiB at most.
inline constexpr std::size_t most_fault_bytes = 65536 + 2097152;

/// A parameter in a file. Its memory is lent, and outlives every graph that reads it.
struct StoredParameter {
  static constexpr std::size_t most_pieces = 3;

  Shape shape{};
  StoredRows pieces[most_pieces]{};
  std::size_t count = 0;  ///< of pieces

  /// A vector is one row.
  constexpr std::size_t cols() const { return shape.cols(); }
  /// Bytes in the file.
  constexpr std::size_t bytes() const {
    std::size_t all = 0;
    for (std::size_t i = 0; i < count; ++i) all += pieces[i].rows * row_bytes(pieces[i]);
    return all;
  }

  /// Whether pages of the parameter leave the process.
  constexpr bool streams() const {
    for (std::size_t i = 0; i < count; ++i)
      if (pieces[i].release != nullptr) return true;
    return false;
  }
  /// Most bytes of the process that are read before they are released: so many rows, one behind the other.
  constexpr std::size_t bytes_of_rows(std::size_t rows) const {
    const std::byte *begin = pieces[0].data, *end = begin;
    std::size_t most = 0;
    bool one_file = true;
    for (std::size_t i = 0; i < count; ++i) {
      const StoredRows& piece = pieces[i];
      const std::byte* const past = piece.data + piece.rows * row_bytes(piece);
      most += detail::smaller(rows, piece.rows) * row_bytes(piece) + 2 * most_fault_bytes;
      begin = piece.data < begin ? piece.data : begin;
      end = past < end ? end : past;
      one_file = one_file && piece.file.data() == pieces[0].file.data();
    }
    // Neighbours in a file have most of these bytes in common.
    const auto span = static_cast<std::size_t>(end - begin) + 2 * most_fault_bytes;
    return one_file ? detail::smaller(most, span) : most;
  }
  /// Rows [first, first + rows) were read, and are not needed soon.
  void release(std::size_t first, std::size_t rows) const {
    for (const StoredRows* piece = pieces; rows != 0; ++piece) {
      const std::size_t here = first < piece->rows ? detail::smaller(rows, piece->rows - first) : 0;
      if (here != 0 && piece->release != nullptr) {
        // Rows that take turns are anywhere in their group.
        const std::size_t group = piece->turns == 0 ? 1 : piece->turns;
        const std::size_t begin = first / group * group;
        const std::size_t end = (first + here + group - 1) / group * group;
        const std::size_t bytes = row_bytes(*piece);
        piece->release(piece->file, {piece->data + begin * bytes, Shape((end - begin) * bytes)});
      }
      first = here == 0 ? first - piece->rows : 0;
      rows -= here;
    }
  }

  struct Found {
    const BlockFormat* format;
    std::size_t rows;
  };
  /// The places of rows from r on, at most `most`, that have one format.
  Found find_rows(std::size_t r, std::size_t most, const std::byte** at) const {
    const StoredRows* piece = pieces;
    for (; r >= piece->rows; ++piece) r -= piece->rows;
    const std::size_t rows = detail::smaller(most, piece->rows - r), bytes = row_bytes(*piece);
    for (std::size_t i = 0; i < rows; ++i) at[i] = piece->data + piece->place(r + i) * bytes;
    return {piece->format, rows};
  }

  /// Decodes elements [first, first + n) of `rows` rows from r on, `step` elements apart.
  template <class T>
  void decode_rows(std::size_t r, std::size_t rows, std::size_t first, std::size_t n, T* to,
                   std::size_t step) const {
    while (rows != 0) {
      const StoredRows* piece = pieces;
      std::size_t inside = r;
      for (; inside >= piece->rows; ++piece) inside -= piece->rows;
      const BlockFormat& format = *piece->format;
      const std::size_t here = detail::smaller(rows, piece->rows - inside);
      const std::size_t bytes = row_bytes(*piece), blocks = n / format.elems;
      const std::size_t skipped = first / format.elems;
      // Divisions are once for all rows where blocks are whole.
      const bool whole =
          is_float<T> && blocks * format.elems == n && skipped * format.elems == first;
      const std::byte* const from = piece->data + skipped * format.bytes;
      for (std::size_t i = 0; i < here; ++i, to += step)
        if (whole)
          format.decode(from + piece->place(inside + i) * bytes, blocks,
                        static_cast<float*>(static_cast<void*>(to)));
        else decode(r + i, first, n, to);
      r += here;
      rows -= here;
    }
  }

  /// Decodes elements [first, first + n) of row r.
  template <class T>
  void decode(std::size_t r, std::size_t first, std::size_t n, T* to) const {
    const StoredRows* piece = pieces;
    for (; r >= piece->rows; ++piece) r -= piece->rows;
    const BlockFormat& format = *piece->format;
    const std::byte* const row = piece->data + piece->place(r) * row_bytes(*piece);
    while (n != 0) {
      const std::byte* const from = row + first / format.elems * format.bytes;
      const std::size_t skipped = first % format.elems;
      std::size_t decoded = n / format.elems * format.elems;
      if (is_float<T> && skipped == 0 && decoded != 0) {
        format.decode(from, decoded / format.elems, static_cast<float*>(static_cast<void*>(to)));
      } else {
        float block[BlockFormat::most_elems];
        format.decode(from, 1, block);
        decoded = detail::smaller(format.elems - skipped, n);
        for (std::size_t i = 0; i < decoded; ++i) to[i] = detail::rounded<T>(block[skipped + i]);
      }
      first += decoded;
      n -= decoded;
      to += decoded;
    }
  }

 private:
  template <class T>
  static constexpr bool is_float = std::is_same_v<T, float>;

  constexpr std::size_t row_bytes(const StoredRows& piece) const {
    return cols() / piece.format->elems * piece.format->bytes;
  }
};

/// The stored parameters of a network, by layer (-1: the loss), copy of a repeated block, and index among the layer's
/// parameters (GraphOptions::stored). A trained parameter among them is in the block of parameters all the same, as is
/// each one of which nothing is said here.
class StoredParameters {
 public:
  struct Place {
    int layer = 0, copy = 0, index = 0;

    friend constexpr bool operator==(const Place&, const Place&) = default;
  };

  /// Adds a parameter; no two have one place.
  void add(const Place& place, const StoredParameter& parameter) {
    places_.push_back(place);
    parameters_.push_back(parameter);
  }
  constexpr std::size_t size() const { return parameters_.size(); }
  constexpr const Place& place(std::size_t i) const { return places_[i]; }
  constexpr const StoredParameter& parameter(std::size_t i) const { return parameters_[i]; }

  /// Null if there is none.
  constexpr const StoredParameter* find(const Place& place) const {
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (places_[i] == place) return &parameters_[i];
    return nullptr;
  }

 private:
  Array<Place> places_;
  Array<StoredParameter> parameters_;
};

}}  // namespace adacc::v0_1
