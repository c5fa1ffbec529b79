// SPDX-License-Identifier: MIT
/// Cuts of a layer's work into parts, so that a step may stop within a layer.
///
/// A game with two milliseconds of a frame for training cannot wait for a layer of five. Rows of most layers do not
/// depend on each other: forward on some rows is forward on all of them, restricted, and backward adds up parameter
/// gradients row after row. So a layer with the declaration
///
///     static constexpr auto split = adacc::Split::rows;
///
/// is called once for every run of rows, with views, aux and workspace of those rows alone, and needs no other code.
/// The cut is fixed with the graph, from shapes alone. A whole step is cut in the same way, so stops between parts
/// change no bit, and parameter gradients add up in one order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/bytes.hpp"
#include "../core/dtype.hpp"
#include "../core/shape.hpp"

namespace adacc { inline namespace v0_1 {

enum class Split : std::uint8_t {
  none,   ///< the layer runs whole
  rows,   ///< calls with x (n, cols) for any n rows; output and targets have as many rows
  batch,  ///< calls with x (n, …) for any n of the first extent; output and targets also have n
  own  ///< calls with whole tensors; `part` of the call names a run of LayerNeeds::split_items items
};
/// A layer with Split::own and entry_items among its needs makes a promise: so many items touch one entry of the first
/// extent of input and output each, and no other. If called for whole entries, the layer needs nothing else of its
/// tensors in memory, and may take part in loops over rows (program/passes/loops.hpp).

constexpr const char* name_of(Split split) {
  constexpr const char* names[] = {"none", "rows", "batch", "own"};
  return names[static_cast<int>(split)];
}

/// The number of items into which `split` cuts a tensor of shape `in`, unless the layer gives a number.
constexpr std::size_t items_of(Split split, Shape in) {
  return split == Split::rows ? in.rows() : split == Split::batch ? in[0] : 1;
}

/// A layer's work, cut: runs of `part_items` items, the last of which may be shorter.
struct Cut {
  Split split = Split::none;
  std::size_t items = 1;
  std::size_t part_items = 1;
  std::size_t entry_items =
      0;  ///< for Split::own: items of an entry of the first extent; 0: unknown

  friend constexpr bool operator==(const Cut&, const Cut&) = default;

  constexpr std::size_t parts() const { return div_up(items, part_items); }
  constexpr std::size_t first(std::size_t part) const { return part * part_items; }
  constexpr std::size_t count(std::size_t part) const {
    return items - first(part) < part_items ? items - first(part) : part_items;
  }

  /// The shape of `count` items of a tensor of shape `whole`.
  constexpr Shape shape(Shape whole, std::size_t count) const {
    if (parts() == 1) return whole;
    if (split == Split::rows) return Shape(count, whole.cols());
    if (split == Split::batch) return whole.with_first(count);
    return whole;
  }

  /// Where item `first` begins in a tensor of `elems` elements.
  constexpr std::size_t offset(std::size_t elems, std::size_t first) const {
    return split == Split::own ? 0 : elems / items * first;
  }
};

/// Rows added up together by layers, before they are added to the sums of all: if parts begin at multiples of so many
/// rows, our layers give the same bits in parts as whole.
inline constexpr std::size_t summed_rows = 32;

/// Parts of rows are multiples of so many. Products of bfloat16 add up rows in pairs, which no cut divides.
constexpr std::size_t row_unit(Dtype scalar) { return scalar == Dtype::bf16 ? 2 : 1; }

/// Cuts `items` into at most `parts` runs, equally long but for the last. Each begins 64-byte aligned in tensors with
/// `in_bytes` and `out_bytes` an item; 0: alignment does not matter.
///
/// With Split::rows each run is a multiple of summed_rows, if there are so many rows for each part. But runs of whole
/// entries of the first extent, of `entry_rows` each, remain so: a layer cut by entries, like attention, shares loops
/// only with layers cut in the same way. Each run is a multiple of `unit` items, a power of two.
constexpr Cut make_cut(Split split, std::size_t items, std::size_t parts, std::size_t in_bytes,
                       std::size_t out_bytes, std::size_t entry_rows = 1, std::size_t unit = 1) {
  Cut cut{split, items, items};
  if (split == Split::none || parts < 2 || items < 2) return {split, items, items};
  while (in_bytes % alignment * unit % alignment != 0 ||
         out_bytes % alignment * unit % alignment != 0)
    unit *= 2;
  const auto up_to = [](std::size_t count, std::size_t of) { return div_up(count, of) * of; };
  cut.part_items = up_to(div_up(items, parts), unit);
  const bool whole_entries = entry_rows > 1 && cut.part_items % entry_rows == 0;
  if (split == Split::rows && items / parts >= summed_rows && !whole_entries)
    cut.part_items = up_to(cut.part_items, unit > summed_rows ? unit : summed_rows);
  if (cut.part_items > items) cut.part_items = items;
  return cut;
}

/// Rows of an entry of the first extent of a tensor of shape `in`.
constexpr std::size_t entry_rows_of(Shape in) { return in.rows() / in[0]; }

}}  // namespace adacc::v0_1
