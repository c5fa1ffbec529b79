// SPDX-License-Identifier: MIT
/// Tiles of bfloat16 for attention on a CUDA device: from global to shared memory, to the registers of warps, and to
/// products on tensor cores.
///
/// A product is mma.m16n8k16, of 16 x 16 and 16 x 8 numbers of bfloat16 with sums in fp32. The PTX manual shows the
/// operands in registers: with g = lane / 4 and t = lane % 4, a lane has rows g and g + 8 of the left operand, column g
/// of the right one, rows g and g + 8 of the sum, and everywhere columns (of the right operand: rows) 2 t and 2 t + 1,
/// of operands also 8 further. So a sum, rounded to pairs, is the left operand of the next product. From shared memory
/// operands come by ldmatrix, a warp's four blocks of 8 x 8 at a time, transposed where the rows of a tile are rows of
/// the right operand.
///
/// Rows of a tile start 16 bytes further than they are long, so that eight of them, 16 bytes each, are in different
/// banks. They are copied by cp.async beside the arithmetic, 16 bytes a lane, if the rows of the head are aligned to 16
/// bytes; otherwise by loads of single numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "async_copy.cuh"
#include "attention_head.cuh"
#include "sums.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Sizes, for heads of up to `Channels`: each of `Warps` warps owns 16 * Tall rows of one side; rows of the other come
/// to shared memory `Others` at a time, and a warp multiplies with `Wide` of them at a time. The warp's own rows stay
/// in registers, or are loaded again for every product. Registers are to suffice for `Blocks` blocks on a processor.
template <unsigned Channels, unsigned Warps, unsigned Tall, unsigned Others, unsigned Wide,
          bool Keeps = true, unsigned Blocks = 2>
struct TensorTile {
  static constexpr unsigned channels = Channels, tall = Tall, wide = Wide;
  static constexpr bool keeps = Keeps;
  static constexpr unsigned threads = Warps * warp_size, blocks = Blocks;
  static constexpr unsigned warp_rows = 16 * Tall, own_rows = Warps * warp_rows;
  static constexpr unsigned other_rows = Others;
  static constexpr unsigned stride = Channels + 8, other_elems = Others * stride;

  using Scores = float[Tall][Wide / 8][4];        ///< a warp's own rows with the other side's
  using Gathered = float[Tall][Channels / 8][4];  ///< gathered by own rows from the other side
  using RowNumbers = float[Tall][2];              ///< one for each row with a part in this lane
};

/// The shared memory of a block: `tiles` of its own rows, a stage of two tiles of the other side, and the next stage. Own
/// rows of more than 64 channels that stay in registers lie in the next stage's room, before its first copy and behind its
/// last use: heads of 128 channels take up to 69 KiB instead of 103, and some devices have 99 for a block.
template <class Tile, unsigned tiles>
struct TileRoom {
  static constexpr bool shares = Tile::keeps && Tile::channels > 64;
  static constexpr unsigned own_elems = tiles * Tile::own_rows * Tile::stride;
  static constexpr unsigned stage_elems = 2 * Tile::other_elems;
  static constexpr unsigned own_at = shares ? stage_elems : 0, stage_at = shares ? 0 : own_elems;
  static constexpr unsigned next_elems =
      shares && own_elems > stage_elems ? own_elems : stage_elems;
  static constexpr unsigned elems = stage_at + stage_elems + next_elems;

  /// All warps have made OwnRows: the next stage may be copied.
  __device__ static void release_own() {
    if constexpr (shares) __syncthreads();
  }
};

// ---- single instructions ----

/// Four blocks of 8 x 8, of which each lane names a row.
template <bool transposed>
__device__ void load_blocks(std::uint32_t (&to)[4], std::uint32_t row) {
#if defined(__CUDA_ARCH__)
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
#endif
}

/// sum = start + left * right.
__device__ inline void multiply_blocks(float (&sum)[4], const std::uint32_t (&left)[4],
                                       std::uint32_t right0, std::uint32_t right1,
                                       const float* start) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1),
        "f"(start[0]), "f"(start[1]), "f"(start[2]), "f"(start[3]));
#endif
}

// ---- global memory ----

/// Rows of one head: its queries, keys, values, or their gradients.
template <class T>
struct HeadRows {
  T* data;
  unsigned distance;          ///< elements from row to row
  unsigned time, room, size;  ///< rows; rows with padding
  bool whole;                 ///< 16 bytes at a time are aligned, and nobody else's

  __device__ HeadRows(T* first, unsigned between, const AttentionHead& head)
      : data(first), distance(between), time(head.time), room(head.room), size(head.size),
        whole(head.size % 8 == 0 && reinterpret_cast<std::uintptr_t>(first) % 16 == 0) {}
};
/// Queries (0), keys (1) or values (2) of qkv, or their gradients.
template <class T>
__device__ HeadRows<T> rows_in(const AttentionHead& head, T* qkv, unsigned which) {
  return {qkv + head.in(0, which), head.in_channels, head};
}
template <class T>
__device__ HeadRows<T> rows_out(const AttentionHead& head, T* out) {
  return {out + head.out(0), head.out_channels, head};
}

/// Eight numbers of a row from channel `c` on, zeros beyond the head's.
__device__ inline uint4 eight_numbers(const HeadRows<const bfloat16>& rows, const bfloat16* row,
                                      unsigned c) {
  if (rows.whole) {
    if (c < rows.size) return *reinterpret_cast<const uint4*>(row + c);
    return {0, 0, 0, 0};
  }
  std::uint32_t pair[4] = {};
#pragma unroll
  for (unsigned i = 0; i < 8; ++i)
    if (c + i < rows.size) pair[i / 2] |= std::uint32_t{row[c + i].bits} << 16 * (i % 2);
  return {pair[0], pair[1], pair[2], pair[3]};
}

/// A thread's share of the copies of a head's rows to tiles: eight channels of every row that is a multiple of `step`
/// behind its first.
template <class Tile>
class RowCopies {
 public:
  __device__ explicit RowCopies(const HeadRows<const bfloat16>& rows)
      : rows_(rows), channel_(threadIdx.x % parts * 8), row_(threadIdx.x / parts),
        from_(rows.data + std::size_t{rows.distance} * row_ + channel_),
        left_(channel_ < rows.size ? static_cast<int>(rows.time) - static_cast<int>(row_) : 0) {}

  /// Moves on by `channels` in every row.
  __device__ void move(unsigned channels) { from_ += channels; }

  /// Rows [first, first + count) to a tile, by all threads of a block; there once each thread has waited for its copies
  /// and all have met. Zeros beyond the sequence and beyond the head's channels.
  template <unsigned count>
  __device__ void copy(bfloat16* tile, unsigned first) const {
    static_assert(count % step == 0);
    bfloat16* const to = tile + row_ * Tile::stride + channel_;
    const bfloat16* const from = from_ + std::size_t{rows_.distance} * first;
    const int left = left_ - static_cast<int>(first);
    if (rows_.whole) {
#pragma unroll
      for (unsigned r = 0; r < count; r += step)
        copy_beside<16>(to + r * Tile::stride, from + std::size_t{rows_.distance} * r,
                        static_cast<int>(r) < left ? 16 : 0);
    } else {
#pragma unroll 1
      for (unsigned r = 0; r < count; r += step)
        *reinterpret_cast<uint4*>(to + r * Tile::stride) =
            static_cast<int>(r) < left
                ? eight_numbers(rows_, from + std::size_t{rows_.distance} * r - channel_, channel_)
                : uint4{0, 0, 0, 0};
    }
  }

 private:
  static constexpr unsigned parts = Tile::channels / 8, step = Tile::threads / parts;

  HeadRows<const bfloat16> rows_;
  unsigned channel_, row_;
  const bfloat16* from_;  ///< the first of these channels
  int left_;              ///< rows from there on
};

/// A warp's own rows, from `first` on, factor * sum, by way of the warp's rows of a tile, which are read no more. Zeros
/// in padding.
template <class Tile>
__device__ void store_rows(bfloat16* tile, const typename Tile::Gathered& sum,
                           const typename Tile::RowNumbers& factor, const HeadRows<bfloat16>& rows,
                           unsigned first, unsigned lane) {
  __syncwarp();
#pragma unroll
  for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      bfloat16* const to = tile + (16 * m + 8 * h + lane / 4) * Tile::stride + lane % 4 * 2;
#pragma unroll
      for (unsigned n = 0; n < Tile::channels / 8; ++n)
        *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
            narrowed_pair(factor[m][h] * sum[m][n][2 * h], factor[m][h] * sum[m][n][2 * h + 1]);
    }
  __syncwarp();
  constexpr unsigned parts = Tile::channels / 8, step = warp_size / parts;
  const unsigned c = lane % parts * 8;
  for (unsigned row = lane / parts; row < Tile::warp_rows; row += step) {
    if (first + row >= rows.room) continue;
    const bool valid = first + row < rows.time;
    const bfloat16* const from = tile + row * Tile::stride + c;
    bfloat16* const to = rows.data + std::size_t{rows.distance} * (first + row) + c;
    if (rows.whole) {
      if (c < rows.size)
        *reinterpret_cast<uint4*>(to) =
            valid ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
    } else {
      for (unsigned i = 0; i < 8; ++i)
        if (c + i < rows.size) to[i] = valid ? from[i] : bfloat16{};
    }
  }
}

// ---- products ----

/// A warp's own rows of a tile as left operands. The tile may not change while this lives.
template <class Tile>
class OwnRows {
 public:
  __device__ OwnRows(const bfloat16* tile, unsigned lane)
      : at_(shared_address(tile + lane % 16 * Tile::stride + lane / 16 * 8)) {
    if constexpr (Tile::keeps) {
#pragma unroll
      for (unsigned k = 0; k < Tile::channels / 16; ++k) load(kept_[k], k);
    }
  }
  /// Their 16 channels from 16 * k on.
  __device__ void get(std::uint32_t (&left)[Tile::tall][4], unsigned k) const {
    if constexpr (Tile::keeps) {
#pragma unroll
      for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) left[m][i] = kept_[k][m][i];
    } else {
      load(left, k);
    }
  }

 private:
  std::uint32_t at_;
  std::uint32_t kept_[Tile::keeps ? Tile::channels / 16 : 1][Tile::tall][4];

  __device__ void load(std::uint32_t (&left)[Tile::tall][4], unsigned k) const {
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
      load_blocks<false>(left[m], at_ + 2 * (16 * m * Tile::stride + 16 * k));
  }
};

/// The inner products of a warp's rows with eight times `eights` rows of `other`, added to `start[m]` of the row.
template <class Tile, unsigned eights>
__device__ void inner_products(float (&scores)[Tile::tall][eights][4], const OwnRows<Tile>& own,
                               const bfloat16* other, unsigned lane,
                               const float (&start)[Tile::tall][4] = {}) {
  const std::uint32_t at =
      shared_address(other + (lane % 8 + lane / 16 * 8) * Tile::stride + lane / 8 % 2 * 8);
#pragma unroll
  for (unsigned k = 0; k < Tile::channels / 16; ++k) {
    std::uint32_t left[Tile::tall][4];
    own.get(left, k);
#pragma unroll
    for (unsigned n = 0; n < eights / 2; ++n) {
      std::uint32_t right[4];
      load_blocks<false>(right, at + 2 * (16 * n * Tile::stride + 16 * k));
#pragma unroll
      for (unsigned m = 0; m < Tile::tall; ++m) {
        multiply_blocks(scores[m][2 * n], left[m], right[0], right[1],
                        k == 0 ? start[m] : scores[m][2 * n]);
        multiply_blocks(scores[m][2 * n + 1], left[m], right[2], right[3],
                        k == 0 ? start[m] : scores[m][2 * n + 1]);
      }
    }
  }
}

/// sum += weights * the rows of `other`.
template <class Tile>
__device__ void add_rows(typename Tile::Gathered& sum, const typename Tile::Scores& weights,
                         const bfloat16* other, unsigned lane) {
  const std::uint32_t at = shared_address(other + lane % 16 * Tile::stride + lane / 16 * 8);
#pragma unroll
  for (unsigned k = 0; k < Tile::wide / 16; ++k) {
    std::uint32_t left[Tile::tall][4];
#pragma unroll
    for (unsigned m = 0; m < Tile::tall; ++m)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        left[m][i] = narrowed_pair(weights[m][2 * k + i / 2][i % 2 * 2],
                                   weights[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (unsigned n = 0; n < Tile::channels / 16; ++n) {
      std::uint32_t right[4];
      load_blocks<true>(right, at + 2 * (16 * k * Tile::stride + 16 * n));
#pragma unroll
      for (unsigned m = 0; m < Tile::tall; ++m) {
        multiply_blocks(sum[m][2 * n], left[m], right[0], right[1], sum[m][2 * n]);
        multiply_blocks(sum[m][2 * n + 1], left[m], right[2], right[3], sum[m][2 * n + 1]);
      }
    }
  }
}

/// Combines the four lanes that have a row in common.
template <class Combine>
__device__ float of_row(float value, const Combine& combine) {
  value = combine(value, __shfl_xor_sync(~0U, value, 1));
  return combine(value, __shfl_xor_sync(~0U, value, 2));
}
__device__ inline float row_sum(float value) {
  return of_row(value, [](float a, float b) { return a + b; });
}

}}}  // namespace adacc::v0_1::detail
