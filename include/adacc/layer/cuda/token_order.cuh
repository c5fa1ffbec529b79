// SPDX-License-Identifier: MIT
/// Places of tokens on a CUDA device, sorted by token: the rows of a token stand together, in order.
///
/// Tiles of rows are sorted apart, each by one block of threads, with CUB's stable radix sort. A warp then finds a token
/// in a tile by two reads of keys a lane. One sort of all rows would take a launch for each digit, and memory whose size
/// CUB knows at run time alone. Here the bytes follow from the number of rows, so peaks are known beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cub/block/block_radix_sort.cuh>

#include "../../core/cuda.cuh"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Rows sorted by key, tile by tile. Keys from `keys` of token_order() on belong to no token.
struct TokenOrder {
  static constexpr unsigned each = 8;                    ///< rows that a thread sorts
  static constexpr unsigned span = each * cuda_threads;  ///< rows of a tile
  static constexpr unsigned piece =
      span / warp_size;  ///< keys between two that a search reads first
  static_assert(span <= 0x10000, "adacc: a place in a tile has 16 bits");

  std::uint32_t* keys;    ///< of the rows of a tile, ascending
  std::uint16_t* places;  ///< of these rows in their tile; ascending where keys are equal
  std::size_t rows;

  /// A tile's sorted rows [begin, end).
  struct Range {
    unsigned begin, end;
  };

  static constexpr std::size_t bytes(std::size_t rows) {
    return align_up(rows * sizeof(std::uint32_t)) + rows * sizeof(std::uint16_t);
  }

  ADACC_HD std::size_t tiles() const { return div_up(rows, span); }

  /// The number of rows of a tile.
  __device__ unsigned count(std::size_t tile) const {
    const std::size_t left = rows - tile * span;
    return left < span ? static_cast<unsigned>(left) : span;
  }

  /// The rows of a key in a tile: for a warp together. The key is below ~0.
  __device__ Range find(std::size_t tile, std::uint32_t key) const {
    const std::uint32_t* const list = keys + tile * span;
    const unsigned all = count(tile), at = threadIdx.x % warp_size * piece;
    const std::uint32_t probe = at < all ? list[at] : ~std::uint32_t{0};
    const unsigned below = __popc(__ballot_sync(~0U, probe < key)),
                   most = __popc(__ballot_sync(~0U, probe <= key));
    return {bound(list, all, below, [key](std::uint32_t k) { return k < key; }),
            bound(list, all, most, [key](std::uint32_t k) { return k <= key; })};
  }

 private:
  /// The number of keys that pass a test. All of them stand first, and the first keys of `pieces` pieces pass.
  template <class Passes>
  __device__ static unsigned bound(const std::uint32_t* list, unsigned all, unsigned pieces,
                                   const Passes& passes) {
    if (pieces == 0) return 0;
    const unsigned begin = (pieces - 1) * piece;
    unsigned passed = begin;
#pragma unroll
    for (unsigned i = 0; i < piece; i += warp_size) {
      const unsigned at = begin + i + threadIdx.x % warp_size;
      passed += __popc(__ballot_sync(~0U, at < all && passes(list[at])));
    }
    return passed;
  }
};

/// Sorts one tile after the other. Known tokens, below `known`, have the key token % keys, all others the key `keys`.
static __global__ void __launch_bounds__(cuda_threads)
    token_order_kernel(const std::int32_t* tokens, std::size_t known, std::uint32_t keys, int bits,
                       const TokenOrder order) {
  constexpr unsigned each = TokenOrder::each;
  using Sort = cub::BlockRadixSort<std::uint32_t, cuda_threads, each, std::uint16_t>;
  __shared__ typename Sort::TempStorage storage;
  for (std::size_t tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
    const std::size_t first = tile * TokenOrder::span;
    const unsigned count = order.count(tile);
    std::uint32_t key[each];
    std::uint16_t place[each];
#pragma unroll
    for (unsigned i = 0; i < each; ++i) {
      const unsigned at = threadIdx.x * each + i;
      const auto token = at < count ? static_cast<std::size_t>(tokens[first + at]) : known;
      key[i] = token < known ? static_cast<std::uint32_t>(token) % keys : keys;
      place[i] = static_cast<std::uint16_t>(at);
    }
    // Rows behind the tile's end have the last key and the last places: they stay behind all others.
    Sort(storage).SortBlockedToStriped(key, place, 0, bits);
#pragma unroll
    for (unsigned i = 0; i < each; ++i) {
      const unsigned at = i * cuda_threads + threadIdx.x;
      if (at >= count) continue;
      order.keys[first + at] = key[i];
      order.places[first + at] = place[i];
    }
    __syncthreads();
  }
}

/// Sorts the rows of `tokens` in the memory at `workspace`, of TokenOrder::bytes().
inline TokenOrder token_order(Cuda& cuda, const char* name, View<const std::int32_t> tokens,
                              std::size_t known, std::uint32_t keys, Bytes workspace) {
  TokenOrder order{};
  order.rows = tokens.size();
  order.keys = carve<std::uint32_t>(workspace, order.rows).data();
  order.places = carve<std::uint16_t>(workspace, order.rows).data();
  int bits = 1;
  while (keys >> bits != 0) ++bits;
  cuda.launch(name, cuda_grid(order.tiles(), 1), cuda_threads, &token_order_kernel, tokens.data(),
              known, keys, bits, order);
  return order;
}

}}}  // namespace adacc::v0_1::detail
