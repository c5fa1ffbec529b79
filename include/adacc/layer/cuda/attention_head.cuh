// SPDX-License-Identifier: MIT
/// Shared by the kernels of attention on a CUDA device: places of the rows of one head, and launches.
#pragma once

#include <cstddef>

#include "../../core/cuda.cuh"
#include "../../core/shared_memory.cuh"
#include "../causal_attention.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Where one head of one sequence lies.
struct AttentionHead {
  std::size_t time, size, channels, first_row, column;

  __device__ AttentionHead(std::size_t head, std::size_t heads, std::size_t length,
                           std::size_t model)
      : time(length), size(model / heads), channels(model), first_row(head / heads * length),
        column(head % heads * size) {}
  /// Offset among queries (0), keys (1) or values (2).
  __device__ std::size_t in(std::size_t position, unsigned which) const {
    return (first_row + position) * 3 * channels + which * channels + column;
  }
  __device__ std::size_t out(std::size_t position) const {
    return (first_row + position) * channels + column;
  }
};

/// A block of `threads` threads for each `rows` rows of each head of qkv, whose shape is `in`, with so many
/// bytes of shared memory.
template <unsigned rows, unsigned threads, std::size_t shared, class W, class... Numbers,
          class... Given>
void launch_attention(const CausalAttention& f, Cuda& cuda, Shape in,
                      void (*attention)(std::size_t, std::size_t, std::size_t, W, Numbers...),
                      Given... given) {
  const std::size_t channels = in.cols() / 3;
  if constexpr (shared > 48 * 1024) {
    const Result<std::size_t> room = shared_room(attention);
    if (!room) return cuda.note(Error::say(CausalAttention::name, ": ", room.error.text()));
    if (*room < shared)
      return cuda.note(Error::say(CausalAttention::name, ": a block needs ", shared,
                                  " bytes of shared memory, and the device gives it ", *room));
  }
  const dim3 grid(static_cast<unsigned>(div_up(in[1], rows)),
                  static_cast<unsigned>(in[0] * f.heads));
  const W scale = W(1) / sqrt(static_cast<W>(channels / f.heads));
  attention<<<grid, threads, shared, cuda.stream()>>>(in[1], channels, f.heads, scale, given...);
  cuda.launched(CausalAttention::name);
}

}}}  // namespace adacc::v0_1::detail
