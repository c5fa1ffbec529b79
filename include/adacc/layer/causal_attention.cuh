// SPDX-License-Identifier: MIT
/// Causal attention on a CUDA device, tile by tile: no T x T matrix ever exists. cuda/attention_bf16.cuh has the
/// kernels for bfloat16.
///
/// The algorithm is the one of attention.hpp. Queries and keys come in tiles of 32; a block of threads holds a pair of
/// tiles in shared memory. Each of its four warps owns eight rows of one side, and its lanes are the rows of the other:
/// a product of two rows is a lane's own sum, maximum and sum over the other side are shuffles, and the numbers
/// gathered by a row from the other side are spread over the lanes by channels. Backward computes the scores twice:
/// once for the gradients of the queries, with queries owned, and once for those of keys and values, with keys owned.
/// So every gradient has one writer, which adds in a fixed order, and there are no atomic additions.
#pragma once

#include <cstddef>

#include "causal_attention.hpp"
#include "cuda/attention_bf16.cuh"
#include "cuda/attention_head.cuh"
#include "cuda/lent_attention.cuh"
#include "cuda/sums.cuh"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Sizes, by groups of 32 channels, one for each lane: heads have up to 32 * Groups.
template <unsigned Groups>
struct AttentionTile {
  static constexpr unsigned rows = 32, warps = 4, threads = warps * warp_size;
  static constexpr unsigned owned = rows / warps;  ///< rows of a warp
  /// Rows start 4 banks apart: lanes reading 16 bytes each, of a row of their own, do not collide.
  static constexpr unsigned stride = warp_size * Groups + 4;
  static constexpr unsigned elems = rows * stride;
};

/// The tile's rows from `first` on, factor * data[offset(position)], zeros beyond the sequence and
/// beyond the head's channels.
template <unsigned Groups, class T, class Offset>
__device__ void load_tile(Wide<T>* tile, const T* data, std::size_t first, std::size_t time,
                          std::size_t size, Wide<T> factor, const Offset& offset) {
  using Tile = AttentionTile<Groups>;
  constexpr unsigned width = warp_size * Groups;
  for (unsigned i = threadIdx.x; i < Tile::rows * width; i += Tile::threads) {
    const unsigned row = i / width, c = i % width;
    const bool inside = first + row < time && c < size;
    tile[row * Tile::stride + c] =
        inside ? factor * widened(data[offset(first + row) + c]) : Wide<T>(0);
  }
}

/// The inner product of two rows of tiles.
template <unsigned Groups>
__device__ float dot_rows(const float* a, const float* b) {
  float sum = 0;
#pragma unroll
  for (unsigned c = 0; c < warp_size * Groups; c += 4) {
    const float4 x = *reinterpret_cast<const float4*>(a + c);
    const float4 y = *reinterpret_cast<const float4*>(b + c);
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    sum = fmaf(x.w, y.w, sum);
  }
  return sum;
}

/// sum[g] += the tile's rows [begin, end), at the lane's channels, each times the weight in the lane of the row's
/// number.
template <unsigned Groups, class T>
__device__ void gather(T (&sum)[Groups], T weight, const T* tile, unsigned begin, unsigned end,
                       unsigned lane) {
  for (unsigned row = begin; row < end; ++row) {
    const T factor = __shfl_sync(~0U, weight, static_cast<int>(row));
#pragma unroll
    for (unsigned g = 0; g < Groups; ++g)
      sum[g] += factor * tile[row * AttentionTile<Groups>::stride + g * warp_size + lane];
  }
}

template <unsigned Groups, class T>
__device__ void store_row(const Wide<T> (&sum)[Groups], Wide<T> factor, T* to, std::size_t size,
                          unsigned lane) {
#pragma unroll
  for (unsigned g = 0; g < Groups; ++g)
    if (g * warp_size + lane < size) to[g * warp_size + lane] = narrowed<T>(factor * sum[g]);
}

/// out, and the logarithms of the sums of exponentials. Grid: tiles of queries, heads.
template <unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_forward_kernel(std::size_t time, std::size_t channels, std::size_t heads,
                             Wide<T> scale, const T* qkv, T* out, Wide<T>* sums) {
  using W = Wide<T>;
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  W* const queries = reinterpret_cast<W*>(attention_shared);
  W* const keys = queries + Tile::elems;
  W* const values = keys + Tile::elems;
  const AttentionHead head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  // The last queries see the most keys: they go first.
  const std::size_t first = (gridDim.x - 1 - blockIdx.x) * std::size_t{Tile::rows};
  load_tile<Groups>(queries, qkv, first, time, head.size, scale,
                    [&](std::size_t p) { return head.in(p, 0); });
  W maximum[Tile::owned], total[Tile::owned], sum[Tile::owned][Groups];
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    maximum[i] = -infinity_of<W>, total[i] = 0;
#pragma unroll
    for (unsigned g = 0; g < Groups; ++g) sum[i][g] = 0;
  }
  for (std::size_t key = 0; key <= first; key += Tile::rows) {
    __syncthreads();
    load_tile<Groups>(keys, qkv, key, time, head.size, W(1),
                      [&](std::size_t p) { return head.in(p, 1); });
    load_tile<Groups>(values, qkv, key, time, head.size, W(1),
                      [&](std::size_t p) { return head.in(p, 2); });
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned row = warp * Tile::owned + i;
      if (first + row >= time) continue;
      const bool seen = key + lane <= first + row;
      const W score =
          seen ? dot_rows<Groups>(queries + row * Tile::stride, keys + lane * Tile::stride)
               : -infinity_of<W>;
      const W before = maximum[i], highest = warp_maximum(score);
      const W top = before < highest ? highest : before;
      const W weight = seen ? exp(score - top) : W(0), shrink = exp(before - top);
      maximum[i] = top;
      total[i] = total[i] * shrink + warp_sum(weight);
#pragma unroll
      for (unsigned g = 0; g < Groups; ++g) sum[i][g] *= shrink;
      gather(sum[i], weight, values, 0, key == first ? row + 1 : Tile::rows, lane);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    const std::size_t position = first + warp * Tile::owned + i;
    if (position >= time) continue;
    store_row(sum[i], W(1) / total[i], out + head.out(position), head.size, lane);
    if (lane == 0) sums[blockIdx.y * time + position] = maximum[i] + log(total[i]);
  }
}

/// statistics[2 * (head, position)]: the logarithm of the sum of exponentials, and the sum over keys of probability
/// times its gradient. If out is null they are computed from qkv, in one more pass over the keys; otherwise the first
/// is `sums`, and the second dout . out.
template <unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_statistics_kernel(std::size_t time, std::size_t channels, std::size_t heads,
                                Wide<T> scale, const T* qkv, const T* out, const T* dout,
                                const Wide<T>* sums, Wide<T>* statistics) {
  using W = Wide<T>;
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  W* const queries = reinterpret_cast<W*>(attention_shared);
  W* const gradients = queries + Tile::elems;
  W* const keys = gradients + Tile::elems;
  W* const values = keys + Tile::elems;
  const AttentionHead head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t first = (gridDim.x - 1 - blockIdx.x) * std::size_t{Tile::rows};
  const auto note = [&](std::size_t position, W log_sum, W inner) {
    W* const to = statistics + 2 * (blockIdx.y * time + position);
    if (lane == 0) to[0] = log_sum, to[1] = inner;
  };
  if (out != nullptr) {
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const std::size_t position = first + warp * Tile::owned + i;
      if (position >= time) continue;
      const std::size_t at = head.out(position);
      W inner = 0;
      for (std::size_t c = lane; c < head.size; c += warp_size)
        inner += widened(out[at + c]) * widened(dout[at + c]);
      note(position, sums[blockIdx.y * time + position], warp_sum(inner));
    }
    return;
  }
  load_tile<Groups>(queries, qkv, first, time, head.size, scale,
                    [&](std::size_t p) { return head.in(p, 0); });
  load_tile<Groups>(gradients, dout, first, time, head.size, W(1),
                    [&](std::size_t p) { return head.out(p); });
  W maximum[Tile::owned], total[Tile::owned], inner[Tile::owned];
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) maximum[i] = -infinity_of<W>, total[i] = inner[i] = 0;
  for (std::size_t key = 0; key <= first; key += Tile::rows) {
    __syncthreads();
    load_tile<Groups>(keys, qkv, key, time, head.size, W(1),
                      [&](std::size_t p) { return head.in(p, 1); });
    load_tile<Groups>(values, qkv, key, time, head.size, W(1),
                      [&](std::size_t p) { return head.in(p, 2); });
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned row = warp * Tile::owned + i;
      if (first + row >= time) continue;
      const bool seen = key + lane <= first + row;
      W score = -infinity_of<W>, dweight = 0;
      if (seen) {
        score = dot_rows<Groups>(queries + row * Tile::stride, keys + lane * Tile::stride);
        dweight = dot_rows<Groups>(gradients + row * Tile::stride, values + lane * Tile::stride);
      }
      const W before = maximum[i], highest = warp_maximum(score);
      const W top = before < highest ? highest : before;
      const W weight = seen ? exp(score - top) : W(0), shrink = exp(before - top);
      maximum[i] = top;
      total[i] = total[i] * shrink + warp_sum(weight);
      inner[i] = inner[i] * shrink + warp_sum(weight * dweight);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    const std::size_t position = first + warp * Tile::owned + i;
    if (position < time) note(position, maximum[i] + log(total[i]), inner[i] / total[i]);
  }
}

/// The gradients of the queries (of_queries), or of keys and values. Grid: tiles of the owned side, heads.
template <bool of_queries, unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_backward_kernel(std::size_t time, std::size_t channels, std::size_t heads,
                              Wide<T> scale, const T* qkv, const T* dout, const Wide<T>* statistics,
                              T* dqkv) {
  using W = Wide<T>;
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  W* const queries = reinterpret_cast<W*>(attention_shared);
  W* const gradients = queries + Tile::elems;
  W* const keys = gradients + Tile::elems;
  W* const values = keys + Tile::elems;
  const AttentionHead head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t tile = of_queries ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const std::size_t first = tile * Tile::rows;
  const W* const of_head = statistics + 2 * blockIdx.y * time;
  const auto load_queries = [&](std::size_t from) {
    load_tile<Groups>(queries, qkv, from, time, head.size, W(1),
                      [&](std::size_t p) { return head.in(p, 0); });
    load_tile<Groups>(gradients, dout, from, time, head.size, W(1),
                      [&](std::size_t p) { return head.out(p); });
  };
  const auto load_keys = [&](std::size_t from) {
    load_tile<Groups>(keys, qkv, from, time, head.size, W(1),
                      [&](std::size_t p) { return head.in(p, 1); });
    load_tile<Groups>(values, qkv, from, time, head.size, W(1),
                      [&](std::size_t p) { return head.in(p, 2); });
  };
  if constexpr (of_queries) load_queries(first);
  else load_keys(first);
  W sum[Tile::owned][Groups], value_sum[of_queries ? 1 : Tile::owned][Groups];
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i)
#pragma unroll
    for (unsigned g = 0; g < Groups; ++g) {
      sum[i][g] = 0;
      if constexpr (!of_queries) value_sum[i][g] = 0;
    }
  // The other side: keys up to the queries, or queries from the keys on.
  const std::size_t begin = of_queries ? 0 : first, end = of_queries ? first + 1 : time;
  for (std::size_t other = begin; other < end; other += Tile::rows) {
    __syncthreads();
    if constexpr (of_queries) load_keys(other);
    else load_queries(other);
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned row = warp * Tile::owned + i;
      if (first + row >= time) continue;
      const unsigned query_row = of_queries ? row : lane, key_row = of_queries ? lane : row;
      const std::size_t query = (of_queries ? first : other) + query_row;
      const std::size_t key = (of_queries ? other : first) + key_row;
      W weight = 0, dscore = 0;
      if (key <= query && query < time) {
        const W score = scale * dot_rows<Groups>(queries + query_row * Tile::stride,
                                                 keys + key_row * Tile::stride);
        const W dweight =
            dot_rows<Groups>(gradients + query_row * Tile::stride, values + key_row * Tile::stride);
        weight = exp(score - of_head[2 * query]);
        dscore = weight * scale * (dweight - of_head[2 * query + 1]);
      }
      // On the diagonal half of the other side takes no part: these numbers may not be finite.
      const bool diagonal = other == first;
      if constexpr (of_queries) {
        gather(sum[i], dscore, keys, 0, diagonal ? row + 1 : Tile::rows, lane);
      } else {
        gather(sum[i], dscore, queries, diagonal ? row : 0, Tile::rows, lane);
        gather(value_sum[i], weight, gradients, diagonal ? row : 0, Tile::rows, lane);
      }
    }
  }
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    const std::size_t position = first + warp * Tile::owned + i;
    if (position >= time) continue;
    store_row(sum[i], W(1), dqkv + head.in(position, of_queries ? 0 : 1), head.size, lane);
    if constexpr (!of_queries)
      store_row(value_sum[i], W(1), dqkv + head.in(position, 2), head.size, lane);
  }
}

/// Calls call() with a type whose value is the number of groups of 32 channels for heads of this size.
template <unsigned value_>
struct AttentionGroups {
  static constexpr unsigned value = value_;
};
template <class Call>
void by_head_size(const CausalAttention& f, Shape in, const Call& call) {
  const std::size_t size = in.cols() / 3 / f.heads;
  if (size <= 32) call(AttentionGroups<1>{});
  else if (size <= 64) call(AttentionGroups<2>{});
  else if (size <= 96) call(AttentionGroups<3>{});
  else call(AttentionGroups<4>{});
}

// Functions of their own: a program of several sources can compile their kernels in one source (extern template).

template <class T>
void cuda_attention_forward(const CausalAttention& f, Cuda& cuda, View<const T> qkv, View<T> out,
                            Wide<T>* sums) {
  if constexpr (dtype_of<T> == Dtype::bf16) tensor_attention_forward(f, cuda, qkv, out, sums);
  else
    by_head_size(f, qkv.shape(), [&](auto groups) {
      constexpr unsigned g = decltype(groups)::value;
      using Tile = AttentionTile<g>;
      launch_attention<Tile::rows, Tile::threads, 3 * Tile::elems * sizeof(T)>(
          f, cuda, qkv.shape(), attention_forward_kernel<g, T>, qkv.data(), out.data(), sums);
    });
}

/// `out` is null if out, or qkv, is not exact.
template <class T>
void cuda_attention_backward(const CausalAttention& f, Cuda& cuda, View<const T> qkv, const T* out,
                             const T* dout, T* dqkv, const Wide<T>* sums, Wide<T>* statistics) {
  if constexpr (dtype_of<T> == Dtype::bf16)
    tensor_attention_backward(f, cuda, qkv, out, dout, dqkv, sums, statistics);
  else
    by_head_size(f, qkv.shape(), [&](auto groups) {
      constexpr unsigned g = decltype(groups)::value;
      using Tile = AttentionTile<g>;
      constexpr std::size_t shared = 4 * Tile::elems * sizeof(T);
      const Shape in = qkv.shape();
      launch_attention<Tile::rows, Tile::threads, shared>(
          f, cuda, in, attention_statistics_kernel<g, T>, qkv.data(), out, dout, sums, statistics);
      launch_attention<Tile::rows, Tile::threads, shared>(
          f, cuda, in, attention_backward_kernel<true, g, T>, qkv.data(), dout, statistics, dqkv);
      launch_attention<Tile::rows, Tile::threads, shared>(
          f, cuda, in, attention_backward_kernel<false, g, T>, qkv.data(), dout, statistics, dqkv);
    });
}

}  // namespace detail

template <>
struct kernel<CausalAttention, Cuda> {
  static constexpr std::size_t largest_head = 128;

  static constexpr Error examine(const CausalAttention& f, Shape in) {
    if (f.kv_heads != 0 && f.kv_heads != f.heads)
      return Error::say("attention on a CUDA device has as many heads of keys and values as of ",
                        "queries, and these are ", f.kv_heads, " and ", f.heads);
    if (in.cols() / 3 / f.heads > largest_head)
      return Error::say("attention on a CUDA device has heads of up to ", largest_head,
                        " channels, and these have ", in.cols() / 3 / f.heads);
    if (in[0] * f.heads > 65535)
      return Error::say("attention on a CUDA device has up to 65535 heads in a batch, and got ",
                        in[0] * f.heads);
    return {};
  }

  static constexpr LayerNeeds needs(const CausalAttention& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (needs.error) return needs;
    if (!detail::lent_takes(f, in, query)) needs.error = examine(f, in);
    if (!needs.error)
      needs.workspace = detail::with_lent_workspace(f, in, query, workspace_bytes(f, in, query));
    return needs;
  }

  /// In backward two numbers for each query of each head.
  static constexpr std::size_t workspace_bytes(const CausalAttention& f, Shape in,
                                               NeedsQuery query) {
    return query.pass == Pass::forward ? 0
                                       : 2 * in[0] * f.heads * in[1] * bytes_of(wide(query.scalar));
  }

  template <class T>
  static void forward(const CausalAttention& f, Cuda& cuda, const ForwardCall<T>& call) {
    if (detail::lent_forward(f, cuda, call)) return;
    if (const Error why = examine(f, call.x.shape())) return cuda.note(why);
    detail::cuda_attention_forward(f, cuda, call.x, call.y,
                                   reinterpret_cast<Wide<T>*>(call.aux.data()));
  }

  template <class T>
  static void backward(const CausalAttention& f, Cuda& cuda, const BackwardCall<T>& call) {
    if (detail::lent_backward(f, cuda, call)) return;
    if (const Error why = examine(f, call.x.shape())) return cuda.note(why);
    const T* const exact_out = call.exact_input && call.exact_output ? call.y.data() : nullptr;
    detail::cuda_attention_backward(f, cuda, call.x, exact_out, call.dy.data(), call.dx.data(),
                                    reinterpret_cast<const Wide<T>*>(call.aux.data()),
                                    reinterpret_cast<Wide<T>*>(call.workspace.data()));
  }
};

}}  // namespace adacc::v0_1
