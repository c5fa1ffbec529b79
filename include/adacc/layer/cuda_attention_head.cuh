// SPDX-License-Identifier: MIT
/// Where the rows of one head lie, for the kernels of attention on a CUDA device.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 { namespace detail {

/// Where one head of one sequence lies.
struct AttentionHead {
  std::size_t time, size, channels, first_row, column;

  __device__ AttentionHead(std::size_t head, std::size_t heads, std::size_t length,
                           std::size_t model)
      : time(length), size(model / heads), channels(model), first_row(head / heads * length),
        column(head % heads * size) {}
  /// Of queries (0), keys (1) or values (2).
  __device__ std::size_t in(std::size_t position, unsigned which) const {
    return (first_row + position) * 3 * channels + which * channels + column;
  }
  __device__ std::size_t out(std::size_t position) const {
    return (first_row + position) * channels + column;
  }
};

}}}  // namespace adacc::v0_1::detail
