// SPDX-License-Identifier: MIT
/// Attention in bfloat16 on the tensor cores of a CUDA device, tile by tile.
///
/// The algorithm is the one of attention.cuh: a block of threads owns rows of one side and meets rows of the
/// other tile by tile; backward computes the scores once with queries owned and once with keys owned, so that every
/// gradient has one writer, which adds in a fixed order. Here a warp owns 16 or 32 rows, whose operands stay in
/// registers, as weights do; the next tile of the other side is copied while one is multiplied (attention_tiles.cuh).
///
/// Scores, exponentials and sums are fp32; weights and gradients of scores are rounded to bfloat16 for their products.
/// Exponentials are powers of two: their factor log2(e) is one with the scale of scores. Weights of positions hidden
/// from a query are 0, and are multiplied as well in tiles crossed by the diagonal: a number there that is not finite
/// makes its row not finite, too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention_head.cuh"
#include "attention_tiles.cuh"
#include "functions.cuh"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The first row of a block in its head. Under a causal mask, blocks whose rows meet many rows of the other side start
/// first, over all heads, so that no processor ends alone with them: with queries owned, blocks of the last rows.
template <bool of_queries, class Tile>
__device__ unsigned first_of_block() {
  return (of_queries ? gridDim.y - 1 - blockIdx.y : blockIdx.y) * Tile::own_rows;
}

/// Scores of a warp whose rows begin at `own` with the other side's rows from `other` on become -infinity if the query
/// does not see the key.
template <bool of_queries, class Tile>
__device__ void mask_scores(typename Tile::Scores& scores, const AttentionHead& head, unsigned own,
                            unsigned other, unsigned lane) {
#pragma unroll
  for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
    for (unsigned n = 0; n < Tile::wide / 8; ++n)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned mine = own + 16 * m + lane / 4 + i / 2 * 8;
        const unsigned its = other + 8 * n + lane % 4 * 2 + i % 2;
        if (of_queries ? its >= head.keys_of(mine) : its < head.first_query(mine))
          scores[m][n][i] = -infinity_of<float>;
      }
}

/// Whether a warp whose rows begin at `own` meets any of the rows [other, other + wide), and whether some of them are
/// hidden.
template <bool of_queries, class Tile>
__device__ bool meets(const AttentionHead& head, unsigned own, unsigned other) {
  if (of_queries) return other < head.keys_of(own + Tile::warp_rows - 1);
  return own < head.keys_of(other + Tile::wide - 1);
}
template <bool of_queries, class Tile>
__device__ bool hides(const AttentionHead& head, unsigned own, unsigned other) {
  if (of_queries) return other + Tile::wide > head.keys_of(own);
  return own + Tile::warp_rows > head.keys_of(other);
}

/// The softmax of rows that come tile by tile. Weights are powers of two, 2^(factor * score - top), where `top` is
/// factor times a score of the row: the largest one, or one that the largest exceeds by less than `slack`, so that
/// earlier sums are seldom multiplied. Each lane has a share of the sum.
template <class Tile>
struct RunningSoftmax {
  static constexpr float slack = 8;
  typename Tile::RowNumbers top, total;

  __device__ RunningSoftmax() {
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) top[m][h] = -infinity_of<float>, total[m][h] = 0;
  }

  /// Scores become weights. If true, earlier sums of weights have to be multiplied by `shrink`. Every row sees something
  /// of the first tile.
  __device__ bool add(typename Tile::Scores& scores, float factor,
                      typename Tile::RowNumbers& shrink) {
    typename Tile::RowNumbers reached;
    bool passes = false;
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        float highest = -infinity_of<float>;
#pragma unroll
        for (unsigned n = 0; n < Tile::wide / 8; ++n)
          highest = fmaxf(highest, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
        highest = of_row(highest, [](float a, float b) { return fmaxf(a, b); });
        reached[m][h] = factor * highest;
        passes |= reached[m][h] > top[m][h] + slack;
      }
    const bool shrinks = __any_sync(~0U, passes);
    if (shrinks) {
#pragma unroll
      for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
        for (unsigned h = 0; h < 2; ++h) {
          const float before = top[m][h];
          if (reached[m][h] > before + slack) top[m][h] = reached[m][h];
          shrink[m][h] = fast_power_of_2(before - top[m][h]);
          total[m][h] *= shrink[m][h];
        }
    }
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
      for (unsigned h = 0; h < 2; ++h)
#pragma unroll
        for (unsigned n = 0; n < Tile::wide / 8; ++n)
#pragma unroll
          for (unsigned i = 2 * h; i < 2 * h + 2; ++i) {
            scores[m][n][i] = fast_power_of_2(fmaf(factor, scores[m][n][i], -top[m][h]));
            total[m][h] += scores[m][n][i];
          }
    return shrinks;
  }
};

/// Keys and values of a head, tile by tile from position 0 on: a pair of tiles is read while the next pair is copied.
template <class Tile>
class KeyStages {
 public:
  /// `room`: shared memory for two pairs.
  __device__ KeyStages(const AttentionHead& head, const bfloat16* qkv, bfloat16* room)
      : keys_(rows_in(head, qkv, 1)), values_(rows_in(head, qkv, 2)), stage_(room),
        next_(room + 2 * Tile::other_elems) {}

  /// Copies the first pair, and waits for the pair and for all copies before.
  __device__ void begin() {
    load(stage_, 0);
    wait_for_copies();
    __syncthreads();
  }
  /// Begins to copy the pair from `key` on, if `key` is before `end`.
  __device__ void load_next(unsigned key, unsigned end) {
    if (key < end) load(next_, key);
  }
  /// Goes on to the copied pair.
  __device__ void advance() {
    wait_for_copies();
    __syncthreads();
    bfloat16* const free = stage_;
    stage_ = next_, next_ = free;
  }
  __device__ const bfloat16* keys() const { return stage_; }
  __device__ const bfloat16* values() const { return stage_ + Tile::other_elems; }

 private:
  __device__ void load(bfloat16* to, unsigned key) const {
    keys_.template copy<Tile::other_rows>(to, key);
    values_.template copy<Tile::other_rows>(to + Tile::other_elems, key);
  }

  const RowCopies<Tile> keys_, values_;
  bfloat16 *stage_, *next_;
};

/// The scores of queries and the keys from `key` on, -infinity where the mask hides a key.
template <class Tile>
__device__ void masked_scores(typename Tile::Scores& scores, const OwnRows<Tile>& queries,
                              const bfloat16* keys, const AttentionHead& head, unsigned own,
                              unsigned key, unsigned lane) {
  inner_products<Tile>(scores, queries, keys, lane);
  if (hides<true, Tile>(head, own, key)) mask_scores<true, Tile>(scores, head, own, key, lane);
}

/// For tensor cores: see attention_forward_kernel.
template <class Tile>
static __global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    tensor_attention_forward_kernel(AttentionSizes sizes, float scale, const bfloat16* qkv,
                                    bfloat16* out, float* sums) {
  static_assert(Tile::wide == Tile::other_rows);
  extern __shared__ __align__(16) unsigned char attention_shared[];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  auto* const shared = reinterpret_cast<bfloat16*>(attention_shared);
  using Room = TileRoom<Tile, 1>;
  bfloat16* const own_tiles = shared + Room::own_at;
  bfloat16* const own_tile = own_tiles + warp * Tile::warp_rows * Tile::stride;
  const AttentionHead head(sizes, blockIdx.x);
  KeyStages<Tile> stages(head, qkv, shared + Room::stage_at);
  const unsigned first = first_of_block<true, Tile>(), own = first + warp * Tile::warp_rows;
  const unsigned end = head.keys_of(first, Tile::own_rows);
  RowCopies<Tile>(rows_in(head, qkv, 0)).template copy<Tile::own_rows>(own_tiles, first);
  stages.begin();
  const OwnRows<Tile> queries(own_tile, lane);
  Room::release_own();
  RunningSoftmax<Tile> softmax;
  typename Tile::Gathered sum = {};
  const float factor = scale * log2_e;
#pragma unroll 1
  for (unsigned key = 0; key < end; key += Tile::other_rows) {
    stages.load_next(key + Tile::other_rows, end);
    if (meets<true, Tile>(head, own, key)) {
      typename Tile::Scores scores;
      typename Tile::RowNumbers shrink;
      masked_scores<Tile>(scores, queries, stages.keys(), head, own, key, lane);
      if (softmax.add(scores, factor, shrink)) {
#pragma unroll
        for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
          for (unsigned n = 0; n < Tile::channels / 8; ++n)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) sum[m][n][i] *= shrink[m][i / 2];
      }
      add_rows<Tile>(sum, scores, stages.values(), lane);
    }
    stages.advance();
  }
  typename Tile::RowNumbers reciprocal;
#pragma unroll
  for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const float total = row_sum(softmax.total[m][h]);
      const unsigned position = own + 16 * m + 8 * h + lane / 4;
      reciprocal[m][h] = 1.0F / total;
      if (lane % 4 == 0 && position < head.room)
        sums[head.sums + position] =
            position < head.time ? softmax.top[m][h] / log2_e + log(total) : 0.0F;
    }
  store_rows<Tile>(own_tile, sum, reciprocal, rows_out(head, out), own, lane);
}

/// Statistics of a warp's own queries, from the output of forward: the logarithm to the base of 2 of the sum of
/// exponentials, and the negative sum over keys of probability times its gradient, here dout . out. A lane multiplies eight
/// channels of a row. All of the output is on its way before the warp waits for its tiles, so one latency covers both.
template <class Tile>
class OutputStatistics {
 public:
  /// Begins to read rows of `out`, and logarithms of sums, from the query `own` on.
  __device__ OutputStatistics(const AttentionHead& head, const bfloat16* out, const float* sums,
                              unsigned own, unsigned lane) {
    const HeadRows rows = rows_out(head, out);
#pragma unroll
    for (unsigned k = 0; k < count; ++k) {
      const unsigned query = own + k * at_once + lane / parts;
      const std::size_t at = query < head.time ? query : 0;
      outputs_[k] = eight_numbers(rows, rows.data + at * head.out_channels, lane % parts * 8);
    }
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const unsigned query = own + 16 * m + 8 * h + lane / 4;
        log_sums_[m][h] = query < head.time ? log2_e * sums[head.sums + query] : 0.0F;
      }
  }

  /// The statistics of this lane's queries, by the warp's rows of dout in a tile; zeros behind the sequence. They are also
  /// written to statistics[2 * (head, query)].
  __device__ void finish(const AttentionHead& head, const bfloat16* dout, unsigned own,
                         unsigned lane, float2* statistics, typename Tile::RowNumbers& log_sums,
                         typename Tile::RowNumbers& inner) const {
    float of_row[count];
#pragma unroll
    for (unsigned k = 0; k < count; ++k) {
      const bfloat16* const row = dout + (k * at_once + lane / parts) * Tile::stride;
      const uint4 a = outputs_[k];
      const uint4 b = *reinterpret_cast<const uint4*>(row + lane % parts * 8);
      const std::uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
      float sum = 0;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        sum = fmaf(__uint_as_float(x[i] << 16), __uint_as_float(y[i] << 16), sum);
        sum = fmaf(__uint_as_float(x[i] & 0xFFFF0000), __uint_as_float(y[i] & 0xFFFF0000), sum);
      }
#pragma unroll
      for (unsigned other = parts / 2; other > 0; other /= 2)
        sum += __shfl_xor_sync(~0U, sum, static_cast<int>(other));
      of_row[k] = sum;
    }
    // From the lanes of a row's channels to those of its products.
    const unsigned group = lane / 4;
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const unsigned query = own + 16 * m + 8 * h + group;
        float mine = 0;
#pragma unroll
        for (unsigned j = 0; j < 8 / at_once; ++j) {
          const float sum = __shfl_sync(~0U, of_row[(16 * m + 8 * h) / at_once + j],
                                        static_cast<int>(group % at_once * parts));
          if (group / at_once == j) mine = -sum;
        }
        log_sums[m][h] = log_sums_[m][h];
        inner[m][h] = query < head.time ? mine : 0.0F;
        if (lane % 4 == 0 && query < head.time)
          statistics[head.sums + query] = {log_sums[m][h], mine};
      }
  }

 private:
  static constexpr unsigned parts = Tile::channels / 8, at_once = warp_size / parts;
  static constexpr unsigned count = Tile::warp_rows / at_once;
  static_assert(at_once <= 8);

  uint4 outputs_[count];
  typename Tile::RowNumbers log_sums_;
};

/// These statistics from qkv, in one more pass over the keys.
template <class Tile>
static __global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    tensor_attention_statistics_kernel(AttentionSizes sizes, float scale, const bfloat16* qkv,
                                       const bfloat16* dout, float* statistics) {
  static_assert(Tile::wide == Tile::other_rows);
  extern __shared__ __align__(16) unsigned char attention_shared[];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  auto* const shared = reinterpret_cast<bfloat16*>(attention_shared);
  using Room = TileRoom<Tile, 2>;
  bfloat16* const own_in = shared + Room::own_at;
  bfloat16* const own_out = own_in + Tile::own_rows * Tile::stride;
  const AttentionHead head(sizes, blockIdx.x);
  KeyStages<Tile> stages(head, qkv, shared + Room::stage_at);
  const unsigned first = first_of_block<true, Tile>(), own = first + warp * Tile::warp_rows;
  const unsigned end = head.keys_of(first, Tile::own_rows);
  RowCopies<Tile>(rows_in(head, qkv, 0)).template copy<Tile::own_rows>(own_in, first);
  RowCopies<Tile>(rows_out(head, dout)).template copy<Tile::own_rows>(own_out, first);
  stages.begin();
  const OwnRows<Tile> queries(own_in + warp * Tile::warp_rows * Tile::stride, lane);
  const OwnRows<Tile> gradients(own_out + warp * Tile::warp_rows * Tile::stride, lane);
  Room::release_own();
  RunningSoftmax<Tile> softmax;
  typename Tile::RowNumbers inner = {};
  const float factor = scale * log2_e;
#pragma unroll 1
  for (unsigned key = 0; key < end; key += Tile::other_rows) {
    stages.load_next(key + Tile::other_rows, end);
    if (meets<true, Tile>(head, own, key)) {
      typename Tile::Scores scores;
      typename Tile::RowNumbers shrink;
      masked_scores<Tile>(scores, queries, stages.keys(), head, own, key, lane);
      if (softmax.add(scores, factor, shrink)) {
#pragma unroll
        for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
          for (unsigned h = 0; h < 2; ++h) inner[m][h] *= shrink[m][h];
      }
      // The gradients of half of the weights at a time: all of them, beside the weights, would not stay in registers.
      constexpr unsigned eights = Tile::wide / 16;
#pragma unroll
      for (unsigned first_eight = 0; first_eight < 2 * eights; first_eight += eights) {
        float dweights[Tile::tall][eights][4];
        inner_products<Tile>(dweights, gradients, stages.values() + 8 * first_eight * Tile::stride,
                             lane);
#pragma unroll
        for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
          for (unsigned n = 0; n < eights; ++n)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
              inner[m][i / 2] =
                  fmaf(scores[m][first_eight + n][i], dweights[m][n][i], inner[m][i / 2]);
      }
    }
    stages.advance();
  }
#pragma unroll
  for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const float total = row_sum(softmax.total[m][h]), all = row_sum(inner[m][h]);
      const unsigned position = own + 16 * m + 8 * h + lane / 4;
      if (lane % 4 == 0 && position < head.time)
        reinterpret_cast<float2*>(statistics)[head.sums + position] = {
            softmax.top[m][h] + log2(total), -all / total};
    }
}

/// For tensor cores: see attention_backward_kernel. If `out` is not null, the kernel of queries first writes the
/// statistics of its own rows, which the kernel of keys reads behind it.
template <bool of_queries, class Tile>
static __global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    tensor_attention_backward_kernel(AttentionSizes sizes, float scale, const bfloat16* qkv,
                                     const bfloat16* dout, float* statistics, bfloat16* dqkv,
                                     const bfloat16* out, const float* sums) {
  extern __shared__ __align__(16) unsigned char attention_shared[];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  // Queries and their gradients are on one side, keys and values on the other.
  auto* const shared = reinterpret_cast<bfloat16*>(attention_shared);
  using Room = TileRoom<Tile, 2>;
  bfloat16* const tiles_in = shared + Room::own_at;
  bfloat16* const tiles_out = tiles_in + Tile::own_rows * Tile::stride;
  bfloat16* const own_in = tiles_in + warp * Tile::warp_rows * Tile::stride;
  bfloat16* const own_out = tiles_out + warp * Tile::warp_rows * Tile::stride;
  // Behind the tiles, if queries are the other side, their statistics, twice.
  bfloat16 *stage = shared + Room::stage_at, *next = stage + Room::stage_elems;
  auto* stage_numbers = reinterpret_cast<float2*>(shared + Room::elems);
  float2* next_numbers = stage_numbers + Tile::other_rows;
  const unsigned members = of_queries ? 1 : sizes.group;  // query heads
  const AttentionHead head(sizes, blockIdx.x * members);
  RowCopies<Tile> queries(rows_in(head, qkv, 0)), gradients(rows_out(head, dout));
  const RowCopies<Tile> keys(rows_in(head, qkv, 1)), values(rows_in(head, qkv, 2));
  const auto* of_head = reinterpret_cast<const float2*>(statistics) + head.sums;
  const unsigned first = first_of_block<of_queries, Tile>(), own = first + warp * Tile::warp_rows;
  const auto load = [&](bfloat16* to, [[maybe_unused]] float2* numbers, unsigned other) {
    (of_queries ? keys : queries).template copy<Tile::other_rows>(to, other);
    (of_queries ? values : gradients)
        .template copy<Tile::other_rows>(to + Tile::other_elems, other);
    if constexpr (!of_queries) {
      static_assert(Tile::other_rows <= Tile::threads);
      const unsigned query = other + threadIdx.x;
      if (threadIdx.x < Tile::other_rows)
        copy_beside<8>(numbers + threadIdx.x, of_head + query, query < head.time ? 8 : 0);
    }
  };
  const unsigned begin = of_queries ? 0 : head.first_query(first);
  const unsigned end = of_queries ? head.keys_of(first, Tile::own_rows) : head.queries_end(first);
  (of_queries ? queries : keys).template copy<Tile::own_rows>(tiles_in, first);
  (of_queries ? gradients : values).template copy<Tile::own_rows>(tiles_out, first);
  load(stage, stage_numbers, begin);
  // Statistics of the queries owned by this lane. Gradients of weights are sums that begin with the negative inner
  // product.
  [[maybe_unused]] typename Tile::RowNumbers log_sums;
  float starts[Tile::tall][4] = {};
  const auto wait = [] {
    wait_for_copies();
    __syncthreads();
  };
  if constexpr (of_queries) {
    typename Tile::RowNumbers inner;
    if (out != nullptr) {
      const OutputStatistics<Tile> own_statistics(head, out, sums, own, lane);
      wait();
      own_statistics.finish(head, own_out, own, lane, reinterpret_cast<float2*>(statistics),
                            log_sums, inner);
    } else {
#pragma unroll
      for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
        for (unsigned h = 0; h < 2; ++h) {
          const unsigned query = own + 16 * m + 8 * h + lane / 4;
          const float2 mine = query < head.time ? of_head[query] : float2{0, 0};
          log_sums[m][h] = mine.x, inner[m][h] = mine.y;
        }
      wait();
    }
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) starts[m][i] = inner[m][i / 2];
  } else {
    wait();
  }
  const OwnRows<Tile> left_in(own_in, lane), left_out(own_out, lane);
  Room::release_own();
  typename Tile::Gathered sum = {};
  [[maybe_unused]] typename Tile::Gathered value_sum = {};
  const float factor = scale * log2_e;
  [[maybe_unused]] unsigned left = members;  // query heads that are not done
#pragma unroll 1
  for (unsigned other = begin, ahead = 0; other < end; other = ahead) {
    ahead = other + Tile::other_rows;
    if constexpr (!of_queries)
      if (ahead >= end && --left > 0) {
        queries.move(head.size), gradients.move(head.size), of_head += head.room;
        ahead = begin;
      }
    if (ahead < end) load(next, next_numbers, ahead);
#pragma unroll
    for (unsigned part = 0; part < Tile::other_rows; part += Tile::wide) {
      if (!meets<of_queries, Tile>(head, own, other + part)) continue;
      const bfloat16* const other_in = stage + part * Tile::stride;
      const bfloat16* const other_out = other_in + Tile::other_elems;
      typename Tile::Scores weights, dscores;
      inner_products<Tile>(weights, left_in, other_in, lane);
      inner_products<Tile>(dscores, left_out, other_out, lane, starts);
      if (hides<of_queries, Tile>(head, own, other + part))
        mask_scores<of_queries, Tile>(weights, head, own, other + part, lane);
#pragma unroll
      for (unsigned n = 0; n < Tile::wide / 8; ++n) {
        // Rows beyond the sequence are zeros, and so are their numbers: they add zeros.
        float4 two = {};
        if constexpr (!of_queries)
          two = *reinterpret_cast<const float4*>(stage_numbers + part + 8 * n + lane % 4 * 2);
#pragma unroll
        for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
          for (unsigned i = 0; i < 4; ++i) {
            const float log_sum = of_queries ? log_sums[m][i / 2] : i % 2 == 0 ? two.x : two.z;
            weights[m][n][i] = fast_power_of_2(fmaf(factor, weights[m][n][i], -log_sum));
            if constexpr (!of_queries) dscores[m][n][i] += i % 2 == 0 ? two.y : two.w;
            dscores[m][n][i] *= weights[m][n][i];
          }
      }
      if constexpr (!of_queries) add_rows<Tile>(value_sum, weights, other_out, lane);
      add_rows<Tile>(sum, dscores, other_in, lane);
    }
    wait_for_copies();
    __syncthreads();
    bfloat16* const free = stage;
    stage = next, next = free;
    float2* const free_numbers = stage_numbers;
    stage_numbers = next_numbers, next_numbers = free_numbers;
  }
  typename Tile::RowNumbers scales, ones;
#pragma unroll
  for (unsigned m = 0; m < Tile::tall; ++m)
    scales[m][0] = scales[m][1] = scale, ones[m][0] = ones[m][1] = 1;
  store_rows<Tile>(own_in, sum, scales, rows_in(head, dqkv, of_queries ? 0 : 1), own, lane);
  if constexpr (!of_queries)
    store_rows<Tile>(own_out, value_sum, ones, rows_in(head, dqkv, 2), own, lane);
}

/// The sizes of each kernel, by the channels of a head, padded.
template <unsigned Channels>
struct TensorSizes {
  static constexpr bool small = Channels <= 64;
  using Forward = TensorTile<Channels, 4, small ? 2 : 1, 64, 64>;
  using Statistics = TensorTile<Channels, 4, 1, 64, 64, true, small ? 4 : 2>;
  using OfQueries = TensorTile<Channels, 4, small ? 2 : 1, 64, small ? 16 : 32>;
  using OfKeys = TensorTile<Channels, 4, 1, 64, small ? 32 : 16, true, small ? 3 : 2>;
};

// Kernels by the sizes of their tiles, so that a benchmark may compare others.

/// With the TileRoom of `tiles` tiles of the block's own rows, and `more` bytes, in shared memory.
template <class Tile, unsigned tiles, bool of_queries = true, std::size_t more = 0, class Kernel,
          class... Given>
void launch_tensor_attention(const AttentionSizes& of, Cuda& cuda, Kernel attention,
                             Given... given) {
  constexpr std::size_t shared = TileRoom<Tile, tiles>::elems * sizeof(bfloat16) + more;
  launch_attention<Tile::own_rows, Tile::threads, shared, of_queries>(of, cuda, attention,
                                                                      given...);
}
template <class Tile>
void launch_tensor_forward(const AttentionSizes& of, Cuda& cuda, const bfloat16* qkv, bfloat16* out,
                           float* sums) {
  launch_tensor_attention<Tile, 1>(of, cuda, tensor_attention_forward_kernel<Tile>, qkv, out, sums);
}
template <class Tile>
void launch_tensor_statistics(const AttentionSizes& of, Cuda& cuda, const bfloat16* qkv,
                              const bfloat16* dout, float* statistics) {
  launch_tensor_attention<Tile, 2>(of, cuda, tensor_attention_statistics_kernel<Tile>, qkv, dout,
                                   statistics);
}
/// `out` as in cuda_attention_backward(), or null: the statistics are there.
template <bool of_queries, class Tile>
void launch_tensor_backward(const AttentionSizes& of, Cuda& cuda, const bfloat16* qkv,
                            const bfloat16* dout, float* statistics, bfloat16* dqkv,
                            const bfloat16* out = nullptr, const float* sums = nullptr) {
  constexpr std::size_t numbers = of_queries ? 0 : 2 * Tile::other_rows * sizeof(float2);
  launch_tensor_attention<Tile, 2, of_queries, numbers>(
      of, cuda, tensor_attention_backward_kernel<of_queries, Tile>, qkv, dout, statistics, dqkv,
      out, sums);
}

/// call() with the TensorSizes of the head's channels.
template <class Call>
void by_tensor_size(const AttentionSizes& of, const Call& call) {
  if (of.size <= 32) call(TensorSizes<32>{});
  else if (of.size <= 64) call(TensorSizes<64>{});
  else call(TensorSizes<128>{});
}

/// T is bfloat16.
template <class T>
void tensor_attention_forward(const AttentionSizes& of, Cuda& cuda, const T* qkv, T* out,
                              float* sums) {
  by_tensor_size(of, [&](auto sizes) {
    using Sizes = decltype(sizes);
    launch_tensor_forward<typename Sizes::Forward>(of, cuda, qkv, out, sums);
  });
}
template <class T>
void tensor_attention_backward(const AttentionSizes& of, Cuda& cuda, const T* qkv, const T* out,
                               const T* dout, T* dqkv, const float* sums, float* statistics) {
  by_tensor_size(of, [&](auto sizes) {
    using Sizes = decltype(sizes);
    if (out == nullptr)
      launch_tensor_statistics<typename Sizes::Statistics>(of, cuda, qkv, dout, statistics);
    launch_tensor_backward<true, typename Sizes::OfQueries>(of, cuda, qkv, dout, statistics, dqkv,
                                                            out, sums);
    launch_tensor_backward<false, typename Sizes::OfKeys>(of, cuda, qkv, dout, statistics, dqkv);
  });
}

}}}  // namespace adacc::v0_1::detail
