// SPDX-License-Identifier: MIT
/// Shared by the kernels of attention on a CUDA device: places of the rows of one head, and launches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/cuda.cuh"
#include "../../core/shared_memory.cuh"
#include "../attention.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Attention as kernels know it, under either mask: sizes, and the lengths of shorter sequences.
struct AttentionSizes {
  unsigned batch = 0, time = 0, heads = 0, key_heads = 0, size = 0;
  unsigned group = 1;                     ///< query heads for each head of keys and values
  bool causal = true;                     ///< a query sees no later key
  const std::int32_t* lengths = nullptr;  ///< in device memory
  std::size_t length_count = 0;           ///< sequences beyond are full

  const char* name() const {
    return causal ? Attention<Mask::causal>::name : Attention<Mask::length>::name;
  }
};

/// Where one head of queries of one sequence lies, with its keys and values.
struct AttentionHead {
  unsigned size, room;  ///< channels; positions of the tensors
  unsigned time;        ///< valid positions: those from here on are padding
  unsigned seen;        ///< keys seen by every query
  unsigned in_channels, out_channels;
  std::size_t first_row;
  unsigned columns[3];  ///< in a row, of queries, keys and values
  std::size_t sums;     ///< offset of position 0 among numbers for each query of each head

  /// `head` counts heads of queries, sequence after sequence.
  __device__ AttentionHead(const AttentionSizes& of, unsigned head)
      : size(of.size), room(of.time), time(of.time),
        in_channels((of.heads + 2 * of.key_heads) * of.size), out_channels(of.heads * of.size),
        sums(std::size_t{head} * of.time) {
    const unsigned entry = head / of.heads, own = head % of.heads;
    if (entry < of.length_count) {
      const std::int32_t length = of.lengths[entry];
      time = length < 0 ? 0 : min(static_cast<unsigned>(length), room);
    }
    seen = of.causal ? 0 : time;
    first_row = std::size_t{entry} * of.time;
    columns[0] = own * size;
    columns[1] = (of.heads + own / of.group) * size;
    columns[2] = columns[1] + of.key_heads * size;
  }
  /// Offset among queries (0), keys (1) or values (2).
  __device__ std::size_t in(unsigned position, unsigned which) const {
    return (first_row + position) * in_channels + columns[which];
  }
  __device__ std::size_t out(unsigned position) const {
    return (first_row + position) * out_channels + columns[0];
  }

  /// The end of the keys seen by a query.
  __device__ unsigned keys_of(unsigned query) const { return min(max(query + 1, seen), time); }
  /// The end of the keys seen by some of the queries [first, first + count).
  __device__ unsigned keys_of(unsigned first, unsigned count) const {
    return first < time ? keys_of(first + count - 1) : 0;
  }
  /// The first query that sees a key, and the end of the queries that see some of the keys from `first` on.
  __device__ unsigned first_query(unsigned key) const { return key < seen ? 0 : key; }
  __device__ unsigned queries_end(unsigned first) const { return first < time ? time : 0; }
};

/// A block of `threads` threads for each `rows` rows of each head of queries, or of keys, with so many bytes of shared
/// memory. Grid: heads, tiles.
template <unsigned rows, unsigned threads, std::size_t shared, bool of_queries = true, class W,
          class... Numbers, class... Given>
void launch_attention(const AttentionSizes& of, Cuda& cuda,
                      void (*attention)(AttentionSizes, W, Numbers...), Given... given) {
  if constexpr (shared > 48 * 1024) {
    const Result<std::size_t> room = shared_room(attention);
    if (!room) return cuda.note(Error::say(of.name(), ": ", room.error.text()));
    if (*room < shared)
      return cuda.note(Error::say(of.name(), ": a block needs ", shared,
                                  " bytes of shared memory, and the device gives it ", *room));
  }
  const dim3 grid(of.batch * (of_queries ? of.heads : of.key_heads),
                  static_cast<unsigned>(div_up(of.time, rows)));
  const W scale = W(1) / sqrt(static_cast<W>(of.size));
  cuda.note(
      launch(of.name(), {grid, threads, cuda.stream(), shared}, attention, of, scale, given...));
}

}}}  // namespace adacc::v0_1::detail
