// SPDX-License-Identifier: MIT
/// Copies between tensors of which one has longer sequences than the other.
#pragma once

#include <cstddef>
#include <cstring>

#include "../core/shape.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Copies the beginning of each sequence of `from` to the beginning of a sequence of `to`. The shapes differ in one extent
/// at most, the length of a sequence; the shorter length counts. `bytes`: of an element.
inline void copy_beginnings(const void* from, Shape from_shape, void* to, Shape to_shape,
                            std::size_t bytes) {
  int axis = 0;
  while (axis < from_shape.rank() - 1 && from_shape[axis] == to_shape[axis]) ++axis;
  if (from_shape.elems() == 0 || to_shape.elems() == 0) return;
  std::size_t sequences = 1, row = bytes;
  for (int i = 0; i < axis; ++i) sequences *= from_shape[i];
  for (int i = axis + 1; i < from_shape.rank(); ++i) row *= from_shape[i];
  const std::size_t from_row = from_shape[axis] * row, to_row = to_shape[axis] * row;
  for (std::size_t i = 0; i < sequences; ++i)
    std::memcpy(static_cast<std::byte*>(to) + i * to_row,
                static_cast<const std::byte*>(from) + i * from_row,
                from_row < to_row ? from_row : to_row);
}

}}}  // namespace adacc::v0_1::detail
