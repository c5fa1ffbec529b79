// SPDX-License-Identifier: MIT
/// How well a blob holds the rows of its tensor: a codec's own certificate of an encode.
///
/// A scale serves many rows. If one of these rows is a hundred times smaller than the others, the error is small
/// beside the tensor, and as large as this row. A layer that normalizes rows reads exactly this row. So an encode is
/// judged row by row, and the caller can keep a tensor in another form if rows are over the bound.
#pragma once

#include <cstdint>

namespace adacc { inline namespace v0_1 {

/// The result of a codec's row_errors().
struct RowErrors {
  std::uint64_t rows = 0;  ///< judged rows
  std::uint64_t over = 0;  ///< rows whose squared error exceeds row_bound times their square
  double worst = 0;        ///< the largest such ratio; rows far below the bound may not count

  friend constexpr RowErrors operator+(const RowErrors& a, const RowErrors& b) {
    return {a.rows + b.rows, a.over + b.over, a.worst < b.worst ? b.worst : a.worst};
  }
};

}}  // namespace adacc::v0_1
