// SPDX-License-Identifier: MIT
/// Attention on a CUDA device, tile by tile: no T x T matrix ever exists. cuda/attention_bf16.cuh has the kernels for
/// bfloat16.
///
/// The algorithm is the one of attention.hpp. Queries and keys come in tiles of 32; a block of threads holds a pair of
/// tiles in shared memory. Each of its four warps owns eight rows of one side, and its lanes are the rows of the other:
/// a product of two rows is a lane's own sum, maximum and sum over the other side are shuffles, and the numbers
/// gathered by a row from the other side are spread over the lanes by channels. Backward computes the scores twice:
/// once for the gradients of the queries, with queries owned, and once for those of keys and values, with keys owned,
/// which meet the query heads of their group one after the other. So every gradient has one writer, which adds in a
/// fixed order, and there are no atomic additions.
///
/// One kernel serves both masks, full sequences and shorter ones: only the last key of a query differs.
#pragma once

#include <cstddef>

#include "attention.hpp"
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
__device__ void load_tile(Wide<T>* tile, const T* data, unsigned first, unsigned time,
                          unsigned size, Wide<T> factor, const Offset& offset) {
  using Tile = AttentionTile<Groups>;
  constexpr unsigned width = warp_size * Groups;
  for (unsigned i = threadIdx.x; i < Tile::rows * width; i += Tile::threads) {
    const unsigned row = i / width, c = i % width;
    const bool inside = first + row < time && c < size;
    tile[row * Tile::stride + c] =
        inside ? factor * widened(data[offset(first + row) + c]) : Wide<T>(0);
  }
}

/// Keys and values of the head, tiles of the rows from `first` on.
template <unsigned Groups, class T>
__device__ void load_keys(Wide<T>* keys, Wide<T>* values, const T* qkv, const AttentionHead& head,
                          unsigned first) {
  load_tile<Groups>(keys, qkv, first, head.time, head.size, Wide<T>(1),
                    [&](unsigned p) { return head.in(p, 1); });
  load_tile<Groups>(values, qkv, first, head.time, head.size, Wide<T>(1),
                    [&](unsigned p) { return head.in(p, 2); });
}

/// The softmax of a row whose scores come tile by tile, a score for each lane.
template <class W>
struct RowSoftmax {
  W maximum = -infinity_of<W>, total = 0;

  /// The lane's weight, relative to the largest score so far. Earlier sums of weights are to be multiplied by `shrink`.
  __device__ W add(W score, bool seen, W& shrink) {
    const W before = maximum, highest = warp_maximum(score);
    maximum = before < highest ? highest : before;
    const W weight = seen ? exp(score - maximum) : W(0);
    shrink = exp(before - maximum);
    total = total * shrink + warp_sum(weight);
    return weight;
  }
  __device__ W log_sum() const { return maximum + log(total); }
};

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
__device__ void store_row(const Wide<T> (&sum)[Groups], Wide<T> factor, T* to, unsigned size,
                          unsigned lane) {
#pragma unroll
  for (unsigned g = 0; g < Groups; ++g)
    if (g * warp_size + lane < size) to[g * warp_size + lane] = narrowed<T>(factor * sum[g]);
}

/// out, and the logarithms of the sums of exponentials. Grid: heads of queries, tiles.
template <unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_forward_kernel(AttentionSizes sizes, Wide<T> scale, const T* qkv, T* out,
                             Wide<T>* sums) {
  using W = Wide<T>;
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  W* const queries = reinterpret_cast<W*>(attention_shared);
  W* const keys = queries + Tile::elems;
  W* const values = keys + Tile::elems;
  const AttentionHead head(sizes, blockIdx.x);
  const unsigned time = head.time;
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  // Under a causal mask the last queries see the most keys: they go first.
  const unsigned first = (gridDim.y - 1 - blockIdx.y) * Tile::rows;
  load_tile<Groups>(queries, qkv, first, time, head.size, scale,
                    [&](unsigned p) { return head.in(p, 0); });
  RowSoftmax<W> softmax[Tile::owned];
  W sum[Tile::owned][Groups] = {};
  for (unsigned key = 0, end = head.keys_of(first, Tile::rows); key < end; key += Tile::rows) {
    __syncthreads();
    load_keys<Groups>(keys, values, qkv, head, key);
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned row = warp * Tile::owned + i;
      if (first + row >= time) continue;
      const unsigned visible = head.keys_of(first + row) - key;
      const bool seen = lane < visible;
      const W score =
          seen ? dot_rows<Groups>(queries + row * Tile::stride, keys + lane * Tile::stride)
               : -infinity_of<W>;
      W shrink;
      const W weight = softmax[i].add(score, seen, shrink);
#pragma unroll
      for (unsigned g = 0; g < Groups; ++g) sum[i][g] *= shrink;
      gather(sum[i], weight, values, 0, min(visible, Tile::rows), lane);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    const unsigned position = first + warp * Tile::owned + i;
    if (position >= head.room) continue;
    // Sums of padding are zeros.
    const bool valid = position < time;
    store_row(sum[i], valid ? W(1) / softmax[i].total : W(0), out + head.out(position), head.size,
              lane);
    if (lane == 0) sums[head.sums + position] = valid ? softmax[i].log_sum() : W(0);
  }
}

/// statistics[2 * (head, position)]: the logarithm of the sum of exponentials, and the sum over keys of probability
/// times its gradient. If out is null they are computed from qkv, in one more pass over the keys; otherwise the first
/// is `sums`, and the second dout . out.
template <unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_statistics_kernel(AttentionSizes sizes, Wide<T> scale, const T* qkv, const T* out,
                                const T* dout, const Wide<T>* sums, Wide<T>* statistics) {
  using W = Wide<T>;
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  W* const queries = reinterpret_cast<W*>(attention_shared);
  W* const gradients = queries + Tile::elems;
  W* const keys = gradients + Tile::elems;
  W* const values = keys + Tile::elems;
  const AttentionHead head(sizes, blockIdx.x);
  const unsigned time = head.time;
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const unsigned first = (gridDim.y - 1 - blockIdx.y) * Tile::rows;
  const auto note = [&](unsigned position, W log_sum, W inner) {
    W* const to = statistics + 2 * (head.sums + position);
    if (lane == 0) to[0] = log_sum, to[1] = inner;
  };
  if (out != nullptr) {
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned position = first + warp * Tile::owned + i;
      if (position >= time) continue;
      const std::size_t at = head.out(position);
      W inner = 0;
      for (unsigned c = lane; c < head.size; c += warp_size)
        inner += widened(out[at + c]) * widened(dout[at + c]);
      note(position, sums[head.sums + position], warp_sum(inner));
    }
    return;
  }
  load_tile<Groups>(queries, qkv, first, time, head.size, scale,
                    [&](unsigned p) { return head.in(p, 0); });
  load_tile<Groups>(gradients, dout, first, time, head.size, W(1),
                    [&](unsigned p) { return head.out(p); });
  RowSoftmax<W> softmax[Tile::owned];
  W inner[Tile::owned] = {};
  for (unsigned key = 0, end = head.keys_of(first, Tile::rows); key < end; key += Tile::rows) {
    __syncthreads();
    load_keys<Groups>(keys, values, qkv, head, key);
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned row = warp * Tile::owned + i;
      if (first + row >= time) continue;
      const unsigned visible = head.keys_of(first + row) - key;
      const bool seen = lane < visible;
      W score = -infinity_of<W>, dweight = 0;
      if (seen) {
        score = dot_rows<Groups>(queries + row * Tile::stride, keys + lane * Tile::stride);
        dweight = dot_rows<Groups>(gradients + row * Tile::stride, values + lane * Tile::stride);
      }
      W shrink;
      const W weight = softmax[i].add(score, seen, shrink);
      inner[i] = inner[i] * shrink + warp_sum(weight * dweight);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    const unsigned position = first + warp * Tile::owned + i;
    if (position < time) note(position, softmax[i].log_sum(), inner[i] / softmax[i].total);
  }
}

/// The gradients of the queries (of_queries), or of keys and values. Grid: heads of the owned side, tiles.
template <bool of_queries, unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_backward_kernel(AttentionSizes sizes, Wide<T> scale, const T* qkv, const T* dout,
                              const Wide<T>* statistics, T* dqkv) {
  using W = Wide<T>;
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  W* const queries = reinterpret_cast<W*>(attention_shared);
  W* const gradients = queries + Tile::elems;
  W* const keys = gradients + Tile::elems;
  W* const values = keys + Tile::elems;
  const unsigned members = of_queries ? 1 : sizes.group;  // query heads
  const AttentionHead head(sizes, blockIdx.x * members);
  const unsigned time = head.time;
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const unsigned first = (of_queries ? gridDim.y - 1 - blockIdx.y : blockIdx.y) * Tile::rows;
  const auto load_queries = [&](unsigned from, unsigned member) {
    load_tile<Groups>(queries, qkv + member * head.size, from, time, head.size, W(1),
                      [&](unsigned p) { return head.in(p, 0); });
    load_tile<Groups>(gradients, dout + member * head.size, from, time, head.size, W(1),
                      [&](unsigned p) { return head.out(p); });
  };
  if constexpr (of_queries) load_queries(first, 0);
  else load_keys<Groups>(keys, values, qkv, head, first);
  W sum[Tile::owned][Groups], value_sum[of_queries ? 1 : Tile::owned][Groups];
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i)
#pragma unroll
    for (unsigned g = 0; g < Groups; ++g) {
      sum[i][g] = 0;
      if constexpr (!of_queries) value_sum[i][g] = 0;
    }
  const unsigned begin = of_queries ? 0 : head.first_query(first);
  const unsigned end = of_queries ? head.keys_of(first, Tile::rows) : head.queries_end(first);
  for (unsigned member = 0; member < members; ++member) {
    const W* const of_head = statistics + 2 * (head.sums + std::size_t{member} * head.room);
    for (unsigned other = begin; other < end; other += Tile::rows) {
      __syncthreads();
      if constexpr (of_queries) load_keys<Groups>(keys, values, qkv, head, other);
      else load_queries(other, member);
      __syncthreads();
#pragma unroll
      for (unsigned i = 0; i < Tile::owned; ++i) {
        const unsigned row = warp * Tile::owned + i;
        if (first + row >= time) continue;
        const unsigned query_row = of_queries ? row : lane, key_row = of_queries ? lane : row;
        const unsigned query = (of_queries ? first : other) + query_row;
        const unsigned key = (of_queries ? other : first) + key_row;
        W weight = 0, dscore = 0;
        if (query < time && key < head.keys_of(query)) {
          const W score = scale * dot_rows<Groups>(queries + query_row * Tile::stride,
                                                   keys + key_row * Tile::stride);
          const W dweight = dot_rows<Groups>(gradients + query_row * Tile::stride,
                                             values + key_row * Tile::stride);
          weight = exp(score - of_head[2 * query]);
          dscore = weight * scale * (dweight - of_head[2 * query + 1]);
        }
        // On the diagonal half of the other side takes no part: these numbers may not be finite.
        if constexpr (of_queries) {
          gather(sum[i], dscore, keys, 0, min(head.keys_of(query) - other, Tile::rows), lane);
        } else {
          const unsigned from = max(head.first_query(first + row), other) - other;
          gather(sum[i], dscore, queries, from, Tile::rows, lane);
          gather(value_sum[i], weight, gradients, from, Tile::rows, lane);
        }
      }
    }
  }
  // Padding has gradients of zero.
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    const unsigned position = first + warp * Tile::owned + i;
    if (position >= head.room) continue;
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
void by_head_size(const AttentionSizes& of, const Call& call) {
  if (of.size <= 32) call(AttentionGroups<1>{});
  else if (of.size <= 64) call(AttentionGroups<2>{});
  else if (of.size <= 96) call(AttentionGroups<3>{});
  else call(AttentionGroups<4>{});
}

// Functions of their own: a program of several sources can compile their kernels in one source (extern template).

template <class T>
void cuda_attention_forward(const AttentionSizes& of, Cuda& cuda, const T* qkv, T* out,
                            Wide<T>* sums) {
  if constexpr (dtype_of<T> == Dtype::bf16) tensor_attention_forward(of, cuda, qkv, out, sums);
  else
    by_head_size(of, [&](auto groups) {
      constexpr unsigned g = decltype(groups)::value;
      using Tile = AttentionTile<g>;
      launch_attention<Tile::rows, Tile::threads, 3 * Tile::elems * sizeof(T)>(
          of, cuda, attention_forward_kernel<g, T>, qkv, out, sums);
    });
}

/// `out` is null if out, or qkv, is not exact.
template <class T>
void cuda_attention_backward(const AttentionSizes& of, Cuda& cuda, const T* qkv, const T* out,
                             const T* dout, T* dqkv, const Wide<T>* sums, Wide<T>* statistics) {
  if constexpr (dtype_of<T> == Dtype::bf16)
    tensor_attention_backward(of, cuda, qkv, out, dout, dqkv, sums, statistics);
  else
    by_head_size(of, [&](auto groups) {
      constexpr unsigned g = decltype(groups)::value;
      using Tile = AttentionTile<g>;
      constexpr std::size_t shared = 4 * Tile::elems * sizeof(T);
      launch_attention<Tile::rows, Tile::threads, shared>(
          of, cuda, attention_statistics_kernel<g, T>, qkv, out, dout, sums, statistics);
      launch_attention<Tile::rows, Tile::threads, shared>(
          of, cuda, attention_backward_kernel<true, g, T>, qkv, dout, statistics, dqkv);
      launch_attention<Tile::rows, Tile::threads, shared, false>(
          of, cuda, attention_backward_kernel<false, g, T>, qkv, dout, statistics, dqkv);
    });
}

}  // namespace detail

template <Mask mask>
struct kernel<Attention<mask>, Cuda> {
  using F = Attention<mask>;
  static constexpr std::size_t largest_head = 128;
  /// A launch has up to 65535 tiles, of 32 positions or more.
  static constexpr std::size_t longest_sequence = 65535 * 32;

  static constexpr Error examine(const F& f, Shape in) {
    if (f.head_size(in) > largest_head)
      return Error::say("attention on a CUDA device has heads of up to ", largest_head,
                        " channels, and these have ", f.head_size(in));
    if (in[1] > longest_sequence)
      return Error::say("attention on a CUDA device has sequences of up to ", longest_sequence,
                        " positions, and these have ", in[1]);
    if (in[0] > most_heads / f.heads)
      return Error::say("attention on a CUDA device has up to ", most_heads,
                        " heads in a batch, and got ", in[0], " times ", f.heads);
    return {};
  }

  static constexpr LayerNeeds needs(const F& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (needs.error) return needs;
    if (!detail::lent_takes(f, in, query)) needs.error = examine(f, in);
    if (!needs.error)
      needs.workspace = detail::with_lent_workspace(f, in, query, workspace_bytes(f, in, query));
    return needs;
  }

  /// In backward two numbers for each query of each head.
  static constexpr std::size_t workspace_bytes(const F& f, Shape in, NeedsQuery query) {
    return query.pass == Pass::forward ? 0
                                       : 2 * in[0] * f.heads * in[1] * bytes_of(wide(query.scalar));
  }

  template <class T>
  static void forward(const F& f, Cuda& cuda, const ForwardCall<T>& call) {
    if (detail::lent_forward(f, cuda, call)) return;
    if (const Error why = examine(f, call.x.shape())) return cuda.note(why);
    if (lengths_fault(cuda)) return;
    detail::cuda_attention_forward<T>(sizes(f, cuda, call.x.shape()), cuda, call.x.data(),
                                      call.y.data(), reinterpret_cast<Wide<T>*>(call.aux.data()));
  }

  template <class T>
  static void backward(const F& f, Cuda& cuda, const BackwardCall<T>& call) {
    if (detail::lent_backward(f, cuda, call)) return;
    if (const Error why = examine(f, call.x.shape())) return cuda.note(why);
    if (lengths_fault(cuda)) return;
    const T* const exact_out = call.exact_input && call.exact_output ? call.y.data() : nullptr;
    detail::cuda_attention_backward<T>(sizes(f, cuda, call.x.shape()), cuda, call.x.data(),
                                       exact_out, call.dy.data(), call.dx.data(),
                                       reinterpret_cast<const Wide<T>*>(call.aux.data()),
                                       reinterpret_cast<Wide<T>*>(call.workspace.data()));
  }

 private:
  static constexpr std::size_t most_heads = 0x7FFFFFFF;

  static detail::AttentionSizes sizes(const F& f, const Cuda& cuda, Shape in) {
    const auto number = [](std::size_t n) { return static_cast<unsigned>(n); };
    detail::AttentionSizes sizes;
    sizes.batch = number(in[0]), sizes.time = number(in[1]);
    sizes.heads = number(f.heads), sizes.key_heads = number(f.key_heads());
    sizes.size = number(f.head_size(in)), sizes.group = sizes.heads / sizes.key_heads;
    sizes.causal = F::causal;
    if (!F::causal) sizes.lengths = cuda.lengths.data(), sizes.length_count = cuda.lengths.size();
    return sizes;
  }

  /// Kernels read the lengths: they lie in device memory.
  static bool lengths_fault(Cuda& cuda) {
    if (F::causal || cuda.lengths.empty()) return false;
    const Error why = cuda.examine(F::name, {{"lengths of the sequences", cuda.lengths.data(),
                                              cuda.lengths.size() * sizeof(std::int32_t)}});
    cuda.note(why);
    return static_cast<bool>(why);
  }
};

}}  // namespace adacc::v0_1
