// SPDX-License-Identifier: MIT
/// Causal attention in bfloat16 on the tensor cores of a CUDA device, tile by tile.
///
/// The algorithm is that of causal_attention.cuh: a block of threads owns rows of one side and meets those
/// of the other tile by tile; backward computes the scores once with queries owned and once with keys
/// owned, so that every gradient has one writer. Here a warp owns 16 rows and multiplies by mma, which
/// takes 16 x 16 and 16 x 8 numbers of bfloat16 and adds to 16 x 8 of fp32. How these lie in registers is
/// in the PTX manual (mma.m16n8k16): with g = lane / 4 and t = lane % 4, a lane has of the left operand rows
/// g and g + 8, of the right one column g, of the sum rows g and g + 8, and everywhere columns (of the
/// right operand: rows) 2 t and 2 t + 1, of operands also 8 further. So a sum, rounded to pairs, is the
/// left operand of the next product: weights never leave the registers.
///
/// Scores, exponentials and sums are fp32; weights and gradients of scores are rounded to bfloat16 for
/// their products. Weights of positions that a query does not see are 0, and in the tile on the diagonal
/// they are multiplied as well: what is not finite there makes the rows of that tile not finite, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "causal_attention.hpp"
#include "cuda_attention_head.cuh"
#include "cuda_sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Sizes, for heads of up to `Channels`.
template <unsigned Channels>
struct TensorTile {
  static constexpr unsigned warps = 4, threads = warps * warp_size;
  static constexpr unsigned own_rows = 16 * warps, other_rows = 32;
  static constexpr unsigned blocks = other_rows / 8;    ///< sums of 16 x 8 for a warp's scores
  static constexpr unsigned out_blocks = Channels / 8;  ///< and for what it gathers
  /// Rows start 4 words, or 20, apart, so that the 32 pairs of an operand are in 32 banks.
  static constexpr unsigned stride = Channels + 8, turned_stride = other_rows + 8;
  static constexpr unsigned own_elems = own_rows * stride, other_elems = other_rows * stride;
  static constexpr unsigned turned_elems = Channels * turned_stride;

  using Scores = float[blocks][4];
  using Gathered = float[out_blocks][4];
};

__device__ inline std::uint32_t pair_at(const bfloat16* at) {
  return *reinterpret_cast<const std::uint32_t*>(at);
}
__device__ inline std::uint32_t pair_of(float low, float high) {
  std::uint32_t pair = 0;
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
}

/// sum += left * right.
__device__ inline void multiply_tile(float (&sum)[4], const std::uint32_t (&left)[4],
                                     const std::uint32_t (&right)[2]) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#endif
}

/// The part of a right operand that a lane has: rows of `tile` are its columns.
template <unsigned stride>
__device__ void load_right(std::uint32_t (&right)[2], const bfloat16* tile, unsigned column,
                           unsigned row, unsigned lane) {
  const bfloat16* const at = tile + (column + lane / 4) * stride + row + lane % 4 * 2;
  right[0] = pair_at(at), right[1] = pair_at(at + 8);
}

/// The inner products of a warp's 16 rows of `mine` with all rows of `other`.
template <unsigned Channels>
__device__ void inner_products(typename TensorTile<Channels>::Scores& scores, const bfloat16* mine,
                               const bfloat16* other, unsigned lane) {
  using Tile = TensorTile<Channels>;
#pragma unroll
  for (unsigned n = 0; n < Tile::blocks; ++n)
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) scores[n][i] = 0;
  const bfloat16* const from = mine + lane / 4 * Tile::stride + lane % 4 * 2;
#pragma unroll
  for (unsigned c = 0; c < Channels; c += 16) {
    const std::uint32_t left[4] = {pair_at(from + c), pair_at(from + 8 * Tile::stride + c),
                                   pair_at(from + c + 8), pair_at(from + 8 * Tile::stride + c + 8)};
#pragma unroll
    for (unsigned n = 0; n < Tile::blocks; ++n) {
      std::uint32_t right[2];
      load_right<Tile::stride>(right, other, 8 * n, c, lane);
      multiply_tile(scores[n], left, right);
    }
  }
}

/// sum += weights * rows of the other side, which lie `turned`: channel by channel.
template <unsigned Channels>
__device__ void add_rows(typename TensorTile<Channels>::Gathered& sum,
                         const typename TensorTile<Channels>::Scores& weights,
                         const bfloat16* turned, unsigned lane) {
  using Tile = TensorTile<Channels>;
#pragma unroll
  for (unsigned k = 0; k < Tile::blocks; k += 2) {
    const std::uint32_t left[4] = {pair_of(weights[k][0], weights[k][1]),
                                   pair_of(weights[k][2], weights[k][3]),
                                   pair_of(weights[k + 1][0], weights[k + 1][1]),
                                   pair_of(weights[k + 1][2], weights[k + 1][3])};
#pragma unroll
    for (unsigned n = 0; n < Tile::out_blocks; ++n) {
      std::uint32_t right[2];
      load_right<Tile::turned_stride>(right, turned, 8 * n, 8 * k, lane);
      multiply_tile(sum[n], left, right);
    }
  }
}

/// Rows [first, first + rows) of one head to `tile` and, if it is not null, to `turned`; zeros beyond the
/// sequence and beyond the head's channels.
template <unsigned Channels, unsigned rows, class Offset>
__device__ void load_rows(bfloat16* tile, bfloat16* turned, const bfloat16* data, std::size_t first,
                          const AttentionHead& head, const Offset& offset) {
  using Tile = TensorTile<Channels>;
  constexpr unsigned pairs = Channels / 2;
  const bool whole = head.size % 2 == 0;  // then pairs are aligned
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < rows * pairs; i += Tile::threads) {
    const unsigned row = i / pairs, c = i % pairs * 2;
    std::uint32_t pair = 0;
    if (first + row < head.time && c < head.size) {
      const bfloat16* const at = data + offset(first + row) + c;
      if (whole) pair = pair_at(at);
      else
        pair =
            std::uint32_t{at[0].bits} | (c + 1 < head.size ? std::uint32_t{at[1].bits} << 16 : 0);
    }
    if (tile != nullptr) *reinterpret_cast<std::uint32_t*>(tile + row * Tile::stride + c) = pair;
    if (turned == nullptr) continue;
    turned[c * Tile::turned_stride + row] = {static_cast<std::uint16_t>(pair)};
    turned[(c + 1) * Tile::turned_stride + row] = {static_cast<std::uint16_t>(pair >> 16)};
  }
}

/// Over the four lanes that have a row in common.
template <class Combine>
__device__ float of_row(float value, const Combine& combine) {
  value = combine(value, __shfl_xor_sync(~0U, value, 1));
  return combine(value, __shfl_xor_sync(~0U, value, 2));
}
__device__ inline float row_sum(float value) {
  return of_row(value, [](float a, float b) { return a + b; });
}

/// The softmax of rows that come tile by tile: of a lane's two rows the maximum and its share of the sum.
struct RunningSoftmax {
  float top[2], total[2];

  __device__ RunningSoftmax() : top{-infinity_of<float>, -infinity_of<float>}, total{0, 0} {}

  /// Scores become weights; `shrink` is what sums of weights so far are multiplied by. Of the first tile
  /// every row sees something.
  template <unsigned blocks>
  __device__ void add(float (&scores)[blocks][4], float (&shrink)[2]) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      float highest = top[h];
#pragma unroll
      for (unsigned n = 0; n < blocks; ++n)
        highest = fmaxf(highest, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
      highest = of_row(highest, [](float a, float b) { return fmaxf(a, b); });
      shrink[h] = exp(top[h] - highest);
      top[h] = highest;
      total[h] *= shrink[h];
#pragma unroll
      for (unsigned n = 0; n < blocks; ++n)
#pragma unroll
        for (unsigned i = 2 * h; i < 2 * h + 2; ++i) {
          scores[n][i] = exp(scores[n][i] - highest);
          total[h] += scores[n][i];
        }
    }
  }
};

/// Of element i of block n of a warp's scores, the rows that meet: on the own side, and on the other.
struct Meeting {
  std::size_t mine, other;
  __device__ Meeting(std::size_t first, std::size_t other_first, unsigned n, unsigned i,
                     unsigned lane)
      : mine(first + lane / 4 + i / 2 * 8), other(other_first + 8 * n + lane % 4 * 2 + i % 2) {}
};

/// Scores of queries with keys, or -infinity where they do not meet.
template <unsigned blocks>
__device__ void mask_scores(float (&scores)[blocks][4], float scale, std::size_t first,
                            std::size_t key, unsigned lane) {
#pragma unroll
  for (unsigned n = 0; n < blocks; ++n)
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const Meeting at(first, key, n, i, lane);
      scores[n][i] = at.other <= at.mine ? scale * scores[n][i] : -infinity_of<float>;
    }
}

/// A warp's 16 rows from `first` on, row(position) in memory, of which factor[0] is of the upper 8.
template <unsigned blocks, class Row>
__device__ void store_rows(const float (&sum)[blocks][4], const float (&factor)[2],
                           const AttentionHead& head, std::size_t first, unsigned lane,
                           const Row& row) {
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const std::size_t position = first + lane / 4 + i / 2 * 8;
    if (position >= head.time) continue;
    bfloat16* const to = row(position);
#pragma unroll
    for (unsigned n = 0; n < blocks; ++n) {
      const unsigned c = 8 * n + lane % 4 * 2 + i % 2;
      if (c < head.size) to[c] = narrowed<bfloat16>(factor[i / 2] * sum[n][i]);
    }
  }
}

/// As attention_forward_kernel.
template <unsigned Channels>
static __global__ void __launch_bounds__(128)
    tensor_attention_forward_kernel(std::size_t time, std::size_t channels, std::size_t heads,
                                    float scale, const bfloat16* qkv, bfloat16* out, float* sums) {
  using Tile = TensorTile<Channels>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  auto* const queries = reinterpret_cast<bfloat16*>(attention_shared);
  bfloat16* const keys = queries + Tile::own_elems;
  bfloat16* const values = keys + Tile::other_elems;
  const AttentionHead head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  // The last queries see the most keys: they go first.
  const std::size_t first = (gridDim.x - 1 - blockIdx.x) * std::size_t{Tile::own_rows};
  const std::size_t own = first + 16 * warp;
  load_rows<Channels, Tile::own_rows>(queries, nullptr, qkv, first, head,
                                      [&](std::size_t p) { return head.in(p, 0); });
  RunningSoftmax softmax;
  typename Tile::Gathered sum = {};
  const std::size_t end = first + Tile::own_rows < time ? first + Tile::own_rows : time;
  for (std::size_t key = 0; key < end; key += Tile::other_rows) {
    __syncthreads();
    load_rows<Channels, Tile::other_rows>(keys, nullptr, qkv, key, head,
                                          [&](std::size_t p) { return head.in(p, 1); });
    load_rows<Channels, Tile::other_rows>(nullptr, values, qkv, key, head,
                                          [&](std::size_t p) { return head.in(p, 2); });
    __syncthreads();
    typename Tile::Scores scores;
    float shrink[2];
    inner_products<Channels>(scores, queries + 16 * warp * Tile::stride, keys, lane);
    mask_scores(scores, scale, own, key, lane);
    softmax.add(scores, shrink);
#pragma unroll
    for (unsigned n = 0; n < Tile::out_blocks; ++n)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) sum[n][i] *= shrink[i / 2];
    add_rows<Channels>(sum, scores, values, lane);
  }
  float reciprocal[2];
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    const float total = row_sum(softmax.total[h]);
    const std::size_t position = own + lane / 4 + 8 * h;
    reciprocal[h] = 1.0F / total;
    if (lane % 4 == 0 && position < time)
      sums[blockIdx.y * time + position] = softmax.top[h] + log(total);
  }
  store_rows(sum, reciprocal, head, own, lane, [&](std::size_t p) { return out + head.out(p); });
}

/// As attention_statistics_kernel.
template <unsigned Channels>
static __global__ void __launch_bounds__(128)
    tensor_attention_statistics_kernel(std::size_t time, std::size_t channels, std::size_t heads,
                                       float scale, const bfloat16* qkv, const bfloat16* out,
                                       const bfloat16* dout, const float* sums, float* statistics) {
  using Tile = TensorTile<Channels>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  auto* const queries = reinterpret_cast<bfloat16*>(attention_shared);
  bfloat16* const gradients = queries + Tile::own_elems;
  bfloat16* const keys = gradients + Tile::own_elems;
  bfloat16* const values = keys + Tile::other_elems;
  const AttentionHead head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t first = (gridDim.x - 1 - blockIdx.x) * std::size_t{Tile::own_rows};
  const std::size_t own = first + 16 * warp;
  const auto note = [&](std::size_t position, float log_sum, float inner) {
    float* const to = statistics + 2 * (blockIdx.y * time + position);
    to[0] = log_sum, to[1] = inner;
  };
  if (out != nullptr) {
    for (std::size_t position = own; position < own + 16 && position < time; ++position) {
      const std::size_t at = head.out(position);
      float inner = 0;
      for (std::size_t c = lane; c < head.size; c += warp_size)
        inner += widened(out[at + c]) * widened(dout[at + c]);
      inner = warp_sum(inner);
      if (lane == 0) note(position, sums[blockIdx.y * time + position], inner);
    }
    return;
  }
  load_rows<Channels, Tile::own_rows>(queries, nullptr, qkv, first, head,
                                      [&](std::size_t p) { return head.in(p, 0); });
  load_rows<Channels, Tile::own_rows>(gradients, nullptr, dout, first, head,
                                      [&](std::size_t p) { return head.out(p); });
  RunningSoftmax softmax;
  float inner[2] = {};
  const std::size_t end = first + Tile::own_rows < time ? first + Tile::own_rows : time;
  for (std::size_t key = 0; key < end; key += Tile::other_rows) {
    __syncthreads();
    load_rows<Channels, Tile::other_rows>(keys, nullptr, qkv, key, head,
                                          [&](std::size_t p) { return head.in(p, 1); });
    load_rows<Channels, Tile::other_rows>(values, nullptr, qkv, key, head,
                                          [&](std::size_t p) { return head.in(p, 2); });
    __syncthreads();
    typename Tile::Scores scores, dweights;
    float shrink[2];
    inner_products<Channels>(scores, queries + 16 * warp * Tile::stride, keys, lane);
    inner_products<Channels>(dweights, gradients + 16 * warp * Tile::stride, values, lane);
    mask_scores(scores, scale, own, key, lane);
    softmax.add(scores, shrink);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      inner[h] *= shrink[h];
#pragma unroll
      for (unsigned n = 0; n < Tile::blocks; ++n)
        inner[h] +=
            scores[n][2 * h] * dweights[n][2 * h] + scores[n][2 * h + 1] * dweights[n][2 * h + 1];
    }
  }
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    const float total = row_sum(softmax.total[h]), all = row_sum(inner[h]);
    const std::size_t position = own + lane / 4 + 8 * h;
    if (lane % 4 == 0 && position < time) note(position, softmax.top[h] + log(total), all / total);
  }
}

/// As attention_backward_kernel.
template <bool of_queries, unsigned Channels>
static __global__ void __launch_bounds__(128)
    tensor_attention_backward_kernel(std::size_t time, std::size_t channels, std::size_t heads,
                                     float scale, const bfloat16* qkv, const bfloat16* dout,
                                     const float* statistics, bfloat16* dqkv) {
  using Tile = TensorTile<Channels>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  // Queries and their gradients are on one side, keys and values on the other.
  auto* const own_in = reinterpret_cast<bfloat16*>(attention_shared);
  bfloat16* const own_out = own_in + Tile::own_elems;
  bfloat16* const other_in = own_out + Tile::own_elems;
  bfloat16* const other_out = other_in + Tile::other_elems;
  bfloat16* const turned_in = other_out + Tile::other_elems;
  bfloat16* const turned_out = of_queries ? nullptr : turned_in + Tile::turned_elems;
  const AttentionHead head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t tile = of_queries ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const std::size_t first = tile * Tile::own_rows, own = first + 16 * warp;
  const float* const of_head = statistics + 2 * blockIdx.y * time;
  const auto row_of_queries = [&](std::size_t p) { return head.in(p, 0); };
  const auto row_of_gradients = [&](std::size_t p) { return head.out(p); };
  const auto row_of_keys = [&](std::size_t p) { return head.in(p, 1); };
  const auto row_of_values = [&](std::size_t p) { return head.in(p, 2); };
  if constexpr (of_queries) {
    load_rows<Channels, Tile::own_rows>(own_in, nullptr, qkv, first, head, row_of_queries);
    load_rows<Channels, Tile::own_rows>(own_out, nullptr, dout, first, head, row_of_gradients);
  } else {
    load_rows<Channels, Tile::own_rows>(own_in, nullptr, qkv, first, head, row_of_keys);
    load_rows<Channels, Tile::own_rows>(own_out, nullptr, qkv, first, head, row_of_values);
  }
  typename Tile::Gathered sum = {};
  [[maybe_unused]] typename Tile::Gathered value_sum = {};
  const std::size_t past = first + Tile::own_rows < time ? first + Tile::own_rows : time;
  // The other side: keys up to the queries, or queries from the keys on.
  const std::size_t begin = of_queries ? 0 : first, end = of_queries ? past : time;
  for (std::size_t other = begin; other < end; other += Tile::other_rows) {
    __syncthreads();
    if constexpr (of_queries) {
      load_rows<Channels, Tile::other_rows>(other_in, turned_in, qkv, other, head, row_of_keys);
      load_rows<Channels, Tile::other_rows>(other_out, nullptr, qkv, other, head, row_of_values);
    } else {
      load_rows<Channels, Tile::other_rows>(other_in, turned_in, qkv, other, head, row_of_queries);
      load_rows<Channels, Tile::other_rows>(other_out, turned_out, dout, other, head,
                                            row_of_gradients);
    }
    __syncthreads();
    typename Tile::Scores weights, dscores;
    inner_products<Channels>(weights, own_in + 16 * warp * Tile::stride, other_in, lane);
    inner_products<Channels>(dscores, own_out + 16 * warp * Tile::stride, other_out, lane);
#pragma unroll
    for (unsigned n = 0; n < Tile::blocks; ++n)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const Meeting at(own, other, n, i, lane);
        const std::size_t query = of_queries ? at.mine : at.other;
        const std::size_t key = of_queries ? at.other : at.mine;
        float weight = 0, dscore = 0;
        if (key <= query && query < time) {
          weight = exp(scale * weights[n][i] - of_head[2 * query]);
          dscore = weight * scale * (dscores[n][i] - of_head[2 * query + 1]);
        }
        weights[n][i] = weight, dscores[n][i] = dscore;
      }
    add_rows<Channels>(sum, dscores, turned_in, lane);
    if constexpr (!of_queries) add_rows<Channels>(value_sum, weights, turned_out, lane);
  }
  constexpr float ones[2] = {1, 1};
  store_rows(sum, ones, head, own, lane,
             [&](std::size_t p) { return dqkv + head.in(p, of_queries ? 0 : 1); });
  if constexpr (!of_queries)
    store_rows(value_sum, ones, head, own, lane,
               [&](std::size_t p) { return dqkv + head.in(p, 2); });
}

/// With so many elements of shared memory.
template <unsigned elems, class Kernel, class... Given>
void launch_tensor_attention(const CausalAttention& f, Cuda& cuda, Shape in, Kernel attention,
                             Given... given) {
  using Tile = TensorTile<32>;  // of any size
  launch_attention<Tile::own_rows, Tile::threads, elems * sizeof(bfloat16)>(f, cuda, in, attention,
                                                                            given...);
}

/// call() with the channels, as a type, that heads are held in.
template <class Call>
void by_tensor_size(const CausalAttention& f, Shape in, const Call& call) {
  const std::size_t size = in.cols() / 3 / f.heads;
  if (size <= 32) call(TensorTile<32>{}, std::integral_constant<unsigned, 32>{});
  else if (size <= 64) call(TensorTile<64>{}, std::integral_constant<unsigned, 64>{});
  else call(TensorTile<128>{}, std::integral_constant<unsigned, 128>{});
}

/// T is bfloat16.
template <class T>
void tensor_attention_forward(const CausalAttention& f, Cuda& cuda, View<const T> qkv, View<T> out,
                              float* sums) {
  by_tensor_size(f, qkv.shape(), [&](auto tile, auto size) {
    using Tile = decltype(tile);
    constexpr unsigned channels = decltype(size)::value;
    launch_tensor_attention<Tile::own_elems + Tile::other_elems + Tile::turned_elems>(
        f, cuda, qkv.shape(), tensor_attention_forward_kernel<channels>, qkv.data(), out.data(),
        sums);
  });
}

template <class T>
void tensor_attention_backward(const CausalAttention& f, Cuda& cuda, View<const T> qkv,
                               const T* out, const T* dout, T* dqkv, const float* sums,
                               float* statistics) {
  by_tensor_size(f, qkv.shape(), [&](auto tile, auto size) {
    using Tile = decltype(tile);
    constexpr unsigned channels = decltype(size)::value;
    constexpr unsigned rows = 2 * (Tile::own_elems + Tile::other_elems);
    const Shape in = qkv.shape();
    launch_tensor_attention<rows>(f, cuda, in, tensor_attention_statistics_kernel<channels>,
                                  qkv.data(), out, dout, sums, statistics);
    launch_tensor_attention<rows + Tile::turned_elems>(
        f, cuda, in, tensor_attention_backward_kernel<true, channels>, qkv.data(), dout, statistics,
        dqkv);
    launch_tensor_attention<rows + 2 * Tile::turned_elems>(
        f, cuda, in, tensor_attention_backward_kernel<false, channels>, qkv.data(), dout,
        statistics, dqkv);
  });
}

}}}  // namespace adacc::v0_1::detail
