// SPDX-License-Identifier: MIT
/// Causal attention on a CUDA device, tile by tile: no T x T matrix ever exists.
///
/// The algorithm is that of attention.hpp. Queries and keys come in tiles of 32, of which a
/// block of threads holds a pair in shared memory. Each of its four warps owns eight rows of one
/// side, and its lanes are the rows of the other: a product of two rows is a lane's own sum, maximum
/// and sum over the other side are shuffles, and what a row gathers from the other side is spread
/// over the lanes by channels. Backward computes the scores twice: once for the gradients of the
/// queries, with queries owned, and once for those of keys and values, with keys owned. So every
/// gradient has one writer, which adds in a fixed order, and there are no atomic additions.
#pragma once

#include <cstddef>

#include "causal_attention.hpp"
#include "cuda_sums.cuh"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Sizes, by the 32 channels that a lane has one of: heads have up to 32 * Groups.
template <unsigned Groups>
struct AttentionTile {
  static constexpr unsigned rows = 32, warps = 4, threads = warps * warp_size;
  static constexpr unsigned owned = rows / warps;  ///< rows of a warp
  /// Rows start 4 banks apart: lanes that each read 16 bytes of a row of their own do not collide.
  static constexpr unsigned stride = warp_size * Groups + 4;
  static constexpr unsigned elems = rows * stride;
};

/// Where one head of one sequence lies.
template <class T>
struct AttentionHead {
  std::size_t time, size, channels, in_row, out_row, column;

  __device__ AttentionHead(std::size_t head, std::size_t heads, std::size_t length,
                           std::size_t model)
      : time(length), size(model / heads), channels(model), in_row(head / heads * length),
        out_row(in_row), column(head % heads * size) {}
  /// Of queries (0), keys (1) or values (2).
  __device__ std::size_t in(std::size_t position, unsigned which) const {
    return (in_row + position) * 3 * channels + which * channels + column;
  }
  __device__ std::size_t out(std::size_t position) const {
    return (out_row + position) * channels + column;
  }
};

/// The tile's rows from `first` on, factor * data[offset(position)], zeros beyond the sequence and
/// beyond the head's channels.
template <unsigned Groups, class T, class Offset>
__device__ void load_tile(T* tile, const T* data, std::size_t first, std::size_t time,
                          std::size_t size, T factor, const Offset& offset) {
  using Tile = AttentionTile<Groups>;
  constexpr unsigned width = warp_size * Groups;
  for (unsigned i = threadIdx.x; i < Tile::rows * width; i += Tile::threads) {
    const unsigned row = i / width, c = i % width;
    const bool inside = first + row < time && c < size;
    tile[row * Tile::stride + c] = inside ? factor * data[offset(first + row) + c] : T(0);
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

/// sum[g] += the tile's rows [begin, end), at the lane's channels, each times the weight that the
/// lane of that number has.
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
__device__ void store_row(const T (&sum)[Groups], T factor, T* to, std::size_t size,
                          unsigned lane) {
#pragma unroll
  for (unsigned g = 0; g < Groups; ++g)
    if (g * warp_size + lane < size) to[g * warp_size + lane] = factor * sum[g];
}

/// out, and the logarithms of the sums of exponentials. Grid: tiles of queries, heads.
template <unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_forward_kernel(std::size_t time, std::size_t channels, std::size_t heads, T scale,
                             const T* qkv, T* out, T* sums) {
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  T* const queries = reinterpret_cast<T*>(attention_shared);
  T* const keys = queries + Tile::elems;
  T* const values = keys + Tile::elems;
  const AttentionHead<T> head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  // The last queries see the most keys: they go first.
  const std::size_t first = (gridDim.x - 1 - blockIdx.x) * std::size_t{Tile::rows};
  load_tile<Groups>(queries, qkv, first, time, head.size, scale,
                    [&](std::size_t p) { return head.in(p, 0); });
  T maximum[Tile::owned], total[Tile::owned], sum[Tile::owned][Groups];
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) {
    maximum[i] = -infinity_of<T>, total[i] = 0;
#pragma unroll
    for (unsigned g = 0; g < Groups; ++g) sum[i][g] = 0;
  }
  for (std::size_t key = 0; key <= first; key += Tile::rows) {
    __syncthreads();
    load_tile<Groups>(keys, qkv, key, time, head.size, T(1),
                      [&](std::size_t p) { return head.in(p, 1); });
    load_tile<Groups>(values, qkv, key, time, head.size, T(1),
                      [&](std::size_t p) { return head.in(p, 2); });
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned row = warp * Tile::owned + i;
      if (first + row >= time) continue;
      const bool seen = key + lane <= first + row;
      const T score =
          seen ? dot_rows<Groups>(queries + row * Tile::stride, keys + lane * Tile::stride)
               : -infinity_of<T>;
      const T before = maximum[i], highest = warp_maximum(score);
      const T top = before < highest ? highest : before;
      const T weight = seen ? exp(score - top) : T(0), shrink = exp(before - top);
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
    store_row(sum[i], T(1) / total[i], out + head.out(position), head.size, lane);
    if (lane == 0) sums[blockIdx.y * time + position] = maximum[i] + log(total[i]);
  }
}

/// statistics[2 * (head, position)]: the logarithm of the sum of exponentials, and the sum over keys
/// of probability times its gradient. If out is null they are computed from qkv, in one more pass
/// over the keys; otherwise the first is `sums`, and the second dout . out.
template <unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_statistics_kernel(std::size_t time, std::size_t channels, std::size_t heads, T scale,
                                const T* qkv, const T* out, const T* dout, const T* sums,
                                T* statistics) {
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  T* const queries = reinterpret_cast<T*>(attention_shared);
  T* const gradients = queries + Tile::elems;
  T* const keys = gradients + Tile::elems;
  T* const values = keys + Tile::elems;
  const AttentionHead<T> head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t first = (gridDim.x - 1 - blockIdx.x) * std::size_t{Tile::rows};
  const auto note = [&](std::size_t position, T log_sum, T inner) {
    T* const to = statistics + 2 * (blockIdx.y * time + position);
    if (lane == 0) to[0] = log_sum, to[1] = inner;
  };
  if (out != nullptr) {
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const std::size_t position = first + warp * Tile::owned + i;
      if (position >= time) continue;
      const std::size_t at = head.out(position);
      T inner = 0;
      for (std::size_t c = lane; c < head.size; c += warp_size) inner += out[at + c] * dout[at + c];
      note(position, sums[blockIdx.y * time + position], warp_sum(inner));
    }
    return;
  }
  load_tile<Groups>(queries, qkv, first, time, head.size, scale,
                    [&](std::size_t p) { return head.in(p, 0); });
  load_tile<Groups>(gradients, dout, first, time, head.size, T(1),
                    [&](std::size_t p) { return head.out(p); });
  T maximum[Tile::owned], total[Tile::owned], inner[Tile::owned];
#pragma unroll
  for (unsigned i = 0; i < Tile::owned; ++i) maximum[i] = -infinity_of<T>, total[i] = inner[i] = 0;
  for (std::size_t key = 0; key <= first; key += Tile::rows) {
    __syncthreads();
    load_tile<Groups>(keys, qkv, key, time, head.size, T(1),
                      [&](std::size_t p) { return head.in(p, 1); });
    load_tile<Groups>(values, qkv, key, time, head.size, T(1),
                      [&](std::size_t p) { return head.in(p, 2); });
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < Tile::owned; ++i) {
      const unsigned row = warp * Tile::owned + i;
      if (first + row >= time) continue;
      const bool seen = key + lane <= first + row;
      T score = -infinity_of<T>, dweight = 0;
      if (seen) {
        score = dot_rows<Groups>(queries + row * Tile::stride, keys + lane * Tile::stride);
        dweight = dot_rows<Groups>(gradients + row * Tile::stride, values + lane * Tile::stride);
      }
      const T before = maximum[i], highest = warp_maximum(score);
      const T top = before < highest ? highest : before;
      const T weight = seen ? exp(score - top) : T(0), shrink = exp(before - top);
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

/// The gradients of the queries (of_queries), or of keys and values. Grid: tiles of what is owned,
/// heads.
template <bool of_queries, unsigned Groups, class T>
static __global__ void __launch_bounds__(128)
    attention_backward_kernel(std::size_t time, std::size_t channels, std::size_t heads, T scale,
                              const T* qkv, const T* dout, const T* statistics, T* dqkv) {
  using Tile = AttentionTile<Groups>;
  extern __shared__ __align__(16) unsigned char attention_shared[];
  T* const queries = reinterpret_cast<T*>(attention_shared);
  T* const gradients = queries + Tile::elems;
  T* const keys = gradients + Tile::elems;
  T* const values = keys + Tile::elems;
  const AttentionHead<T> head(blockIdx.y, heads, time, channels);
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::size_t tile = of_queries ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const std::size_t first = tile * Tile::rows;
  const T* const of_head = statistics + 2 * blockIdx.y * time;
  const auto load_queries = [&](std::size_t from) {
    load_tile<Groups>(queries, qkv, from, time, head.size, T(1),
                      [&](std::size_t p) { return head.in(p, 0); });
    load_tile<Groups>(gradients, dout, from, time, head.size, T(1),
                      [&](std::size_t p) { return head.out(p); });
  };
  const auto load_keys = [&](std::size_t from) {
    load_tile<Groups>(keys, qkv, from, time, head.size, T(1),
                      [&](std::size_t p) { return head.in(p, 1); });
    load_tile<Groups>(values, qkv, from, time, head.size, T(1),
                      [&](std::size_t p) { return head.in(p, 2); });
  };
  if constexpr (of_queries) load_queries(first);
  else load_keys(first);
  T sum[Tile::owned][Groups], value_sum[of_queries ? 1 : Tile::owned][Groups];
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
      T weight = 0, dscore = 0;
      if (key <= query && query < time) {
        const T score = scale * dot_rows<Groups>(queries + query_row * Tile::stride,
                                                 keys + key_row * Tile::stride);
        const T dweight =
            dot_rows<Groups>(gradients + query_row * Tile::stride, values + key_row * Tile::stride);
        weight = exp(score - of_head[2 * query]);
        dscore = weight * scale * (dweight - of_head[2 * query + 1]);
      }
      // On the diagonal half of the other side takes no part: it may not be finite.
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
    store_row(sum[i], T(1), dqkv + head.in(position, of_queries ? 0 : 1), head.size, lane);
    if constexpr (!of_queries)
      store_row(value_sum[i], T(1), dqkv + head.in(position, 2), head.size, lane);
  }
}

}  // namespace detail

template <>
struct kernel<CausalAttention, Cuda> {
  static constexpr std::size_t largest_head = 128;

  static constexpr Error validate(const CausalAttention& f, Shape in) {
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

  /// In backward two numbers for each query of each head.
  static constexpr std::size_t workspace_bytes(const CausalAttention& f, Shape in, Dtype scalar,
                                               int, Pass pass) {
    return pass == Pass::forward ? 0 : 2 * in[0] * f.heads * in[1] * bytes_of(scalar);
  }

  template <class T>
  static void forward(const CausalAttention& f, Cuda& cuda, const Params<const T>&,
                      const View<const T>& qkv, const View<T>& out, const Bytes& aux,
                      const Bytes&) {
    by_size(f, qkv.shape(), [&](auto groups) {
      constexpr unsigned g = decltype(groups)::value;
      launch<g, 3>(f, cuda, qkv.shape(), detail::attention_forward_kernel<g, T>, qkv.data(),
                   out.data(), reinterpret_cast<T*>(aux.data()));
    });
  }

  template <class T>
  static void backward(const CausalAttention& f, Cuda& cuda, const Params<const T>&,
                       const View<const T>& qkv, const View<const T>& out,
                       const View<const T>& dout, const View<T>& dqkv, const Params<T>&,
                       const ConstBytes& aux, const Bytes& workspace) {
    T* const statistics = reinterpret_cast<T*>(workspace.data());
    const T* const sums = reinterpret_cast<const T*>(aux.data());
    const T* const exact_out = cuda.exact_input && cuda.exact_output ? out.data() : nullptr;
    by_size(f, qkv.shape(), [&](auto groups) {
      constexpr unsigned g = decltype(groups)::value;
      const Shape in = qkv.shape();
      launch<g, 4>(f, cuda, in, detail::attention_statistics_kernel<g, T>, qkv.data(), exact_out,
                   dout.data(), sums, statistics);
      launch<g, 4>(f, cuda, in, detail::attention_backward_kernel<true, g, T>, qkv.data(),
                   dout.data(), statistics, dqkv.data());
      launch<g, 4>(f, cuda, in, detail::attention_backward_kernel<false, g, T>, qkv.data(),
                   dout.data(), statistics, dqkv.data());
    });
  }

 private:
  template <unsigned value_>
  struct Groups {
    static constexpr unsigned value = value_;
  };

  template <class Call>
  static void by_size(const CausalAttention& f, Shape in, const Call& call) {
    const std::size_t size = in.cols() / 3 / f.heads;
    if (size <= 32) call(Groups<1>{});
    else if (size <= 64) call(Groups<2>{});
    else if (size <= 96) call(Groups<3>{});
    else call(Groups<4>{});
  }

  /// A block of threads for each tile of each head, with `tiles` tiles of shared memory.
  template <unsigned groups, unsigned tiles, class T, class... Numbers, class... Given>
  static void launch(const CausalAttention& f, Cuda& cuda, Shape in,
                     void (*attention)(std::size_t, std::size_t, std::size_t, T, Numbers...),
                     Given... given) {
    using Tile = detail::AttentionTile<groups>;
    constexpr int shared = tiles * Tile::elems * sizeof(T);
    const std::size_t channels = in.cols() / 3;
    if constexpr (shared > 48 * 1024) {
      // What a kernel may have without being told.
      const cudaError_t status =
          cudaFuncSetAttribute(reinterpret_cast<const void*>(attention),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
      if (status != cudaSuccess)
        return cuda.note(Error::say(CausalAttention::name, ": the device gives a kernel no ",
                                    shared,
                                    " bytes of shared memory: ", cudaGetErrorString(status)));
    }
    const dim3 grid(static_cast<unsigned>(div_up(in[1], Tile::rows)),
                    static_cast<unsigned>(in[0] * f.heads));
    const T scale = T(1) / sqrt(static_cast<T>(channels / f.heads));
    attention<<<grid, Tile::threads, shared, cuda.stream()>>>(in[1], channels, f.heads, scale,
                                                              given...);
    cuda.launched(CausalAttention::name);
  }
};

}}  // namespace adacc::v0_1
