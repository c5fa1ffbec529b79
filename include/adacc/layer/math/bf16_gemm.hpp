// SPDX-License-Identifier: MIT
/// Products of bf16 matrices with sums in fp32: C = A B or C += A B, where A and B may be transposed or strided.
///
/// Processors with AVX512_BF16 multiply pairs of bf16 at twice the rate of fp32. A pair of k takes the place of one
/// float of gemm.hpp: panels hold pairs of every column. B is packed by all workers together, and rounded to bf16
/// while it is packed if it is fp32 (weights). A is read in place if its rows are contiguous, otherwise packed by each
/// worker, in strips of one cache line.
///
/// The result is defined element by element (bf16/definition.hpp): one sum in the order of pairs of k, which begins
/// with the old C, the bias, or zero. So the bits are those of one product for any number of threads, any blocks, every
/// instruction level but AMX, and also for a k cut into several products at even places, if C is fp32. A bf16 C is
/// rounded once, from the whole sum. AMX sums blocks of 32 k, in an order of its own; there cuts are multiples of 32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../../core/bfloat16.hpp"
#include "../../core/bytes.hpp"
#include "../../core/cpu.hpp"
#include "../../core/instruction_level.hpp"
#include "bf16/amx.hpp"
#include "bf16/avx2.hpp"
#include "bf16/avx512.hpp"
#include "bf16/avx512_bf16.hpp"
#include "bf16/blocks.hpp"
#include "bf16/plain.hpp"
#include "gemm.hpp"
#include "stored_operand.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Calls run(kernels) with the kernels of the level.
template <class Run>
void with_pair_kernels([[maybe_unused]] InstructionLevel level, const Run& run) {
#if ADACC_HAS_AMX
  if (level == InstructionLevel::amx) return run(AmxPairs{});
#endif
#if ADACC_HAS_LEVELS
  if (level == InstructionLevel::avx512_bf16) return run(Avx512Bf16Pairs{});
  if (level == InstructionLevel::avx512) return run(Avx512Pairs{});
  if (level == InstructionLevel::avx2) return run(Avx2Pairs{});
#endif
  run(PlainPairs{});
}

/// The loops of `bf16_gemm`, with the kernels of one instruction level.
template <class Kernels, class Right, class Out>
void multiply_pairs(Cpu& ctx, std::size_t m, std::size_t n, std::size_t k, Operand<bfloat16> a,
                    const Right& b, Out* c, std::size_t ldc, Accumulate acc, Bytes workspace,
                    const float* bias, PackedOperand<bfloat16> kept) {
  using Blocks = PairBlocks;
  const Blocks block(m, n, k);
  constexpr bool sums_wait_in_c = sizeof(Out) == sizeof(float);
  const std::size_t block_k = sums_wait_in_c ? block.cut_k() : block.even_k();
  const std::size_t block_cols = block.cols(block_k);
  const auto words = [](void* at) { return static_cast<std::uint32_t*>(at); };
  std::uint32_t* const a_scratch = words(workspace.data());
  std::uint32_t* const b_scratch =
      a_scratch + block.worker_elems() / 2 * static_cast<std::size_t>(ctx.workers());

  const bool in_place = a.col_stride == 1;
  const std::size_t rows_packed = block_k == 0 ? m : block.a_elems / block_k / 8 * 8;
  const std::size_t tile_rows =
      in_place ? Kernels::in_place_rows : least(Blocks::max_rows, rows_packed);
  const bool alone = k == 0 || m * n < (std::size_t{1} << 20) / k;
  const std::size_t row_tiles = div_up(m, tile_rows);
  // Tasks with the same rows of A each pack them: no more tasks than the workers can use.
  const std::size_t workers = alone ? 1 : static_cast<std::size_t>(ctx.workers());
  const std::size_t wanted_tiles = workers == 1 ? 1 : least(12, 3 * workers);
  const auto parallel = [&](std::size_t tiles, const auto& tile) {
    if (!alone) return ctx.parallel(tiles, tile);
    for (std::size_t i = 0; i < tiles; ++i) tile(i, 0);
  };

  for (std::size_t j0 = 0; j0 < n; j0 += block_cols) {
    const std::size_t cols = least(block_cols, n - j0), panels = div_up(cols, Blocks::panel);
    const std::size_t group = div_up(panels, div_up(wanted_tiles, row_tiles));
    const std::size_t groups = div_up(panels, group);
    std::size_t p0 = 0;
    do {
      const std::size_t depth = least(block_k, k - p0), pairs = div_up(depth, 2);
      const auto wide = [&](std::size_t panel) {
        return round_up(least(Blocks::panel, cols - panel * Blocks::panel), Blocks::width);
      };
      // Kept panels hold all of k, so they do not depend on how C's type cuts it.
      const bool keeps = kept.data != nullptr;
      const std::size_t stride = Blocks::panel * (keeps ? block.even_k() / 2 : pairs);
      std::uint32_t* const packed = keeps ? words(kept.data) + j0 / 2 * block.even_k() : b_scratch;
      // Where they are read in parts, the last one's part begins elsewhere.
      const std::size_t at_once = keeps && block_k < k ? 1 : Kernels::panels_at_once;
      const auto panel_at = [&](std::size_t panel) {
        return packed + panel * stride + (keeps ? p0 / 2 * wide(panel) : 0);
      };
      if (!kept.holds) {
        if constexpr (std::is_same_v<Right, StoredOperand<float>>)
          b.template pack_block<Blocks::panel>(
              parallel, p0, depth, j0, cols,
              [&](std::size_t panel, std::size_t count, std::size_t p, std::size_t deep,
                  Operand<float> tile) {
                Kernels::pack(count, wide(panel), deep, tile,
                              panel_at(panel) + p / 2 * wide(panel));
              });
        else
          parallel(panels, [&](std::size_t panel, int) {
            const std::size_t j = panel * Blocks::panel;
            Kernels::pack(least(Blocks::panel, cols - j), wide(panel), depth, b.at(p0, j0 + j),
                          panel_at(panel));
          });
      }
      parallel(row_tiles * groups, [&](std::size_t task, int worker) {
        const std::size_t i0 = task / groups * tile_rows, first = task % groups * group;
        const std::size_t last = least(first + group, panels);
        std::uint32_t* const scratch =
            a_scratch + block.worker_elems() / 2 * static_cast<std::size_t>(worker);
        PairTile<Out> tile = {};
        tile.rows = least(tile_rows, m - i0);
        tile.k = depth;
        tile.scratch = static_cast<float*>(static_cast<void*>(scratch + block.a_elems / 2));
        const Operand<bfloat16> left = a.at(i0, p0);
        if (in_place) {
          tile.a = left.data;
          tile.a_stride = left.row_stride;
        } else {
          Kernels::pack_rows(tile.rows, depth, left, scratch);
          tile.packed_a = scratch;
        }
        tile.ldc = ldc;
        tile.add = p0 != 0 || acc == Accumulate::yes;
        tile.b_stride = stride;
        for (std::size_t panel = first; panel < last; panel += at_once) {
          const std::size_t j = panel * Blocks::panel;
          const std::size_t end = least(panel + at_once, last);
          tile.cols = least(end * Blocks::panel, cols) - j;
          tile.b = panel_at(panel);
          tile.c = c + i0 * ldc + j0 + j;
          tile.bias = tile.add || bias == nullptr ? nullptr : bias + j0 + j;
          Kernels::multiply(tile);
        }
      });
      p0 += block_k;
    } while (p0 < k);
  }
}

/// `bf16_gemm` at this level, which the processor has. Right: Operand, or StoredOperand<float>.
template <class Right, class Out>
void bf16_gemm_at(InstructionLevel level, Cpu& ctx, std::size_t m, std::size_t n, std::size_t k,
                  Operand<bfloat16> a, Right b, Out* c, std::size_t ldc, Accumulate acc,
                  Bytes workspace, const float* bias = nullptr, PackedOperand<bfloat16> kept = {}) {
  if constexpr (sizeof(Out) != sizeof(float))
    if (acc == Accumulate::yes)
      return ADACC_ASSERT(false, "a product of bf16 matrices is added to an fp32 C alone");
  if (m == 0 || n == 0) return;
  if (k == 0) a = {nullptr, 0, 1}, b = {};  // nothing is read
  with_pair_kernels(level, [&]<class Kernels>(Kernels) {
    multiply_pairs<Kernels>(ctx, m, n, k, a, b, c, ldc, acc, workspace, bias, kept);
  });
}

}  // namespace detail

/// Bytes of the whole of a packed B (k x n). 0 if more than can be addressed: nothing is kept for a vector so long.
constexpr std::size_t bf16_packed_bytes(std::size_t n, std::size_t k) {
  const std::size_t column = detail::round_up(n, detail::PairBlocks::width) * sizeof(bfloat16);
  std::size_t bytes = 0;
  return multiply(column, k + k % 2, bytes) ? bytes : 0;
}

/// Bytes of workspace for `bf16_gemm`: packed rows of A and scratch for each worker, then the shared block of B.
constexpr std::size_t bf16_gemm_workspace_bytes(std::size_t m, std::size_t n, std::size_t k,
                                                int workers) {
  const detail::PairBlocks block(m, n, k);
  return (block.worker_elems() * static_cast<std::size_t>(workers) + block.b_elems()) *
         sizeof(bfloat16);
}

/// C (m x n, row-major with leading dimension ldc, bf16 or fp32) = A (m x k) B (k x n), or += with Accumulate::yes, which
/// an fp32 C alone can take, in parallel over the context's threads. A is bf16; B is bf16, or fp32 and rounded to the
/// nearest bf16. If `bias` is not null and the product overwrites C, the sums of every row begin with the row bias (n).
/// C overlaps neither operand; `workspace` holds bf16_gemm_workspace_bytes, 64-byte aligned. If `kept` has memory
/// (bf16_packed_bytes), the packed B stays there, or is read from there: the results have the same bits.
template <class B, class Out>
void bf16_gemm(Cpu& ctx, std::size_t m, std::size_t n, std::size_t k, Operand<bfloat16> a,
               Operand<B> b, Out* c, std::size_t ldc, Accumulate acc, Bytes workspace,
               const float* bias = nullptr, PackedOperand<bfloat16> kept = {}) {
  detail::bf16_gemm_at(instruction_choice().level, ctx, m, n, k, a, b, c, ldc, acc, workspace, bias,
                       kept);
}

/// Bytes of scratch for `bf16_gemm_tile`.
constexpr std::size_t bf16_gemm_tile_workspace_bytes(std::size_t m, std::size_t n, std::size_t k) {
  return bf16_gemm_workspace_bytes(m, n, k, 1);
}

/// `bf16_gemm` on the calling thread, for use inside a tile, such as a head of attention. `scratch` holds
/// bf16_gemm_tile_workspace_bytes, 64-byte aligned.
template <class B, class Out>
void bf16_gemm_tile(std::size_t m, std::size_t n, std::size_t k, Operand<bfloat16> a, Operand<B> b,
                    Out* c, std::size_t ldc, Accumulate acc, Bytes scratch,
                    PackedOperand<bfloat16> kept = {}) {
  Cpu alone;
  bf16_gemm<B>(alone, m, n, k, a, b, c, ldc, acc, scratch, nullptr, kept);
}

}}  // namespace adacc::v0_1
