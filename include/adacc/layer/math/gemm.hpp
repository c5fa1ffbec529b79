// SPDX-License-Identifier: MIT
/// Matrix products: C = A B or C += A B, where A and B may be transposed or strided.
///
/// Nearly all time of a training step is spent here, so this is a packed, register-blocked kernel of our own. The bound
/// is the rate of a core's multiply-add units: on Zen 4, where a 512-bit instruction takes both 256-bit pipes for one
/// cycle, 32 float operations a cycle, measured 117 GFLOP/s with nothing but multiply-adds. The kernel alone reaches
/// 0.98 of this bound; bench/gemm_bench prints the rate left by packing and memory, beside Eigen's products.
///
/// B is packed once per block by all workers together, into panels as wide as the kernel. A is read in place if its
/// rows are contiguous, otherwise packed by each worker. One tile of C belongs to one task, and every element of C is
/// one sum: the old value of C (or the bias, or zero), then the products in the order of k, each added to the sum of
/// all before. So results have the same bits for any number of threads, however the product is cut into blocks, and
/// also if it is cut into several products over a part of k each, one after the other. Written with the vector
/// extensions of g++ and clang: one source for every instruction set, float and double.
#pragma once

#include <cstddef>
#include <cstring>

#include "../../core/bytes.hpp"
#include "../../core/cpu.hpp"
#include "../../core/dtype.hpp"
#include "../../core/extremes.hpp"
#include "../../core/vector_target.hpp"
#include "../../core/view.hpp"

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // pragmas that the host's compiler understands
#endif

namespace adacc { inline namespace v0_1 {

/// A matrix to read: element (i, j) is data[i * row_stride + j * col_stride]. A row-major matrix
/// with leading dimension ld is {p, ld, 1}, its transpose {p, 1, ld}.
template <class T>
struct Operand {
  const T* data;
  std::size_t row_stride, col_stride;

  constexpr Operand at(std::size_t i, std::size_t j) const {
    if (data == nullptr) return *this;  // empty: a null pointer takes no offset
    return {data + i * row_stride + j * col_stride, row_stride, col_stride};
  }
};

/// Whether a product overwrites C or is added to it.
enum class Accumulate : bool { no, yes };

/// Memory in which the packed B of a product stays for other products with the same B: of
/// packed_elems(), 64-byte aligned; null: there is none, and B is packed into the workspace.
template <class T>
struct PackedOperand {
  T* data = nullptr;
  bool holds = false;  ///< a product before has packed it already
};

namespace detail {

// Packed panels are as wide as the largest kernel of the processor's kind, and packed rows as many as its rows, at every
// instruction level: a workspace has the same size, and a kept operand the same layout. Kernels of lesser levels take
// a panel in pieces.
#if defined(__x86_64__) || defined(__AVX512F__)
inline constexpr std::size_t layout_bytes = 64, layout_rows = 8;
#elif defined(__aarch64__)
inline constexpr std::size_t layout_bytes = BuildTarget::bytes, layout_rows = 8;
#else
inline constexpr std::size_t layout_bytes = BuildTarget::bytes, layout_rows = 4;
#endif
/// Vector registers of `bytes`: AVX-512 and AArch64 have 32.
constexpr bool has_32_registers(std::size_t bytes) {
#if defined(__aarch64__)
  static_cast<void>(bytes);
  return true;
#else
  return bytes == 64;
#endif
}
inline constexpr std::size_t kernel_vectors = 3;

/// The kernel of a target: it holds rows x kernel_vectors registers of C, 24 of 32 or 12 of 16.
template <class T, class Target>
struct GemmKernel {
  using V = typename Simd<T, Target::bytes>::type;
  static constexpr std::size_t width = Simd<T, Target::bytes>::width;
  static constexpr std::size_t rows = has_32_registers(Target::bytes) ? 8 : 4;
  static constexpr std::size_t cols = kernel_vectors * width;
};

constexpr std::size_t least(std::size_t a, std::size_t b) { return smaller(a, b); }
constexpr std::size_t round_up(std::size_t whole, std::size_t part) {
  return div_up(whole, part) * part;
}

/// How a product of m x n x k is cut: blocks of B as large as leaves room for them in the caches.
template <class T>
struct GemmBlocks {
  static constexpr std::size_t width = layout_bytes / sizeof(T);  // panels have multiples of it
  static constexpr std::size_t panel = kernel_vectors * width;
  static constexpr std::size_t max_k = 384 * sizeof(float) / sizeof(T);
  static constexpr std::size_t max_cols = 768;
  static constexpr std::size_t max_rows = 64;

  std::size_t rows, cols, k;  // extents of the largest block

  constexpr GemmBlocks(std::size_t m, std::size_t n, std::size_t depth)
      : rows(least(round_up(m, layout_rows), max_rows)),
        cols(n == 0 ? 0 : least(round_up(n, width), even_part(n, max_cols, panel))),
        k(depth == 0 ? 0 : least(depth, even_part(depth, max_k, 16))) {}

  /// Every block but the last has this size: as few blocks as `most` allows, about equal.
  static constexpr std::size_t even_part(std::size_t whole, std::size_t most, std::size_t unit) {
    return round_up(div_up(whole, div_up(whole, most)), unit);
  }

  constexpr std::size_t a_elems() const { return round_up(rows * k, alignment / sizeof(T)); }
  constexpr std::size_t b_elems() const { return k * cols; }
};

/// Rows far apart are fetched so many ahead: no hardware prefetcher follows them.
inline constexpr std::size_t prefetch_rows = 12;

template <class T>
void prefetch_row(const T* row, std::size_t count) {
  for (std::size_t i = 0; i < count; i += alignment / sizeof(T)) ADACC_PREFETCH(row + i, 0, 3);
}

/// Packs `count` <= Width columns of depth k: to[p * Width + i] = from[i * stride + p * step]. Columns from `count` on
/// repeat the last one, so that the kernel reads nothing undefined; their products are not stored.
template <class T, std::size_t Width>
void pack(std::size_t count, std::size_t k, const T* from, std::size_t stride, std::size_t step,
          T* __restrict to) {
  if (stride == 1 && count == Width) {
    for (std::size_t p = 0; p < k; ++p) {
      prefetch_row(from + least(p + prefetch_rows, k - 1) * step, Width);
      std::memcpy(to + p * Width, from + p * step, Width * sizeof(T));
    }
    return;
  }
  std::size_t done = 0;
  if (step == 1 && Width % 4 == 0) {
    // Squares of 4 x 4 are transposed in registers; a cache line of each row is used up at once.
    using V = typename Simd<T, 4 * sizeof(T)>::type;
    done = k / 4 * 4;
    for (std::size_t line = 0; line < done; line += 16)
      for (std::size_t i = 0; i < Width; i += 4) {
        const T* row[4];
        for (std::size_t r = 0; r < 4; ++r) {
          row[r] = from + least(i + r, count - 1) * stride;
          ADACC_PREFETCH(row[r] + least(line + 32, k - 1), 0, 3);
        }
        for (std::size_t p = line; p < least(line + 16, done); p += 4) {
          V a, b, c, d;
          std::memcpy(&a, row[0] + p, sizeof a);
          std::memcpy(&b, row[1] + p, sizeof b);
          std::memcpy(&c, row[2] + p, sizeof c);
          std::memcpy(&d, row[3] + p, sizeof d);
          const V ab_low = ADACC_SHUFFLE_LANES(a, b, 0, 4, 1, 5);
          const V ab_high = ADACC_SHUFFLE_LANES(a, b, 2, 6, 3, 7);
          const V cd_low = ADACC_SHUFFLE_LANES(c, d, 0, 4, 1, 5);
          const V cd_high = ADACC_SHUFFLE_LANES(c, d, 2, 6, 3, 7);
          a = ADACC_SHUFFLE_LANES(ab_low, cd_low, 0, 1, 4, 5);
          b = ADACC_SHUFFLE_LANES(ab_low, cd_low, 2, 3, 6, 7);
          c = ADACC_SHUFFLE_LANES(ab_high, cd_high, 0, 1, 4, 5);
          d = ADACC_SHUFFLE_LANES(ab_high, cd_high, 2, 3, 6, 7);
          std::memcpy(to + (p + 0) * Width + i, &a, sizeof a);
          std::memcpy(to + (p + 1) * Width + i, &b, sizeof b);
          std::memcpy(to + (p + 2) * Width + i, &c, sizeof c);
          std::memcpy(to + (p + 3) * Width + i, &d, sizeof d);
        }
      }
  }
  for (std::size_t p = done; p < k; ++p)
    for (std::size_t i = 0; i < Width; ++i)
      to[p * Width + i] = from[least(i, count - 1) * stride + p * step];
}

/// Packs a block of A whose rows are not contiguous: groups of layout_rows rows, one after the other, each in the order
/// of `pack`. If the columns are contiguous, all groups advance together, so that each cache line is read once.
template <class T>
void pack_rows(std::size_t rows, std::size_t k, Operand<T> a, T* __restrict to) {
  const std::size_t whole = a.row_stride == 1 ? rows / layout_rows * layout_rows : 0;
  for (std::size_t p = 0; whole != 0 && p < k; ++p) {
    const T* const from = a.data + p * a.col_stride;
    prefetch_row(a.data + least(p + prefetch_rows, k - 1) * a.col_stride, whole);
    for (std::size_t i = 0; i < whole; i += layout_rows)
      std::memcpy(to + i * k + p * layout_rows, from + i, layout_rows * sizeof(T));
  }
  for (std::size_t i = whole; i < rows; i += layout_rows)
    pack<T, layout_rows>(least(layout_rows, rows - i), k, a.at(i, 0).data, a.row_stride,
                         a.col_stride, to + i * k);
}

/// Packs `count` columns, at most a panel, in as many vectors as they need.
template <class T>
void pack_panel(std::size_t count, std::size_t k, Operand<T> b, T* to) {
  constexpr std::size_t width = GemmBlocks<T>::width;
  static_assert(kernel_vectors == 3);
  switch (div_up(count, width)) {
    case 1: return pack<T, width>(count, k, b.data, b.col_stride, b.row_stride, to);
    case 2: return pack<T, 2 * width>(count, k, b.data, b.col_stride, b.row_stride, to);
    default: return pack<T, 3 * width>(count, k, b.data, b.col_stride, b.row_stride, to);
  }
}

/// A kernel's sums go to c, and begin with `from`: c, a row (stride 0), or zero (null).
template <class T>
struct GemmTarget {
  T* c;
  std::size_t ldc;
  const T* from;
  std::size_t from_stride;

  GemmTarget at(std::size_t i, std::size_t j) const {
    return {c + i * ldc + j, ldc, from == nullptr ? nullptr : from + i * from_stride + j,
            from_stride};
  }
};

ADACC_TARGET_CODE_BEGIN
/// The kernel's part of C, kernel rows x Vectors registers; rows x cols elements of them are wanted. begin() sets the
/// first terms of the sums, add() may be called several times, end() stores.
template <class T, std::size_t Vectors, class Target>
struct GemmSums {
  using V = typename GemmKernel<T, Target>::V;
  static constexpr std::size_t width = GemmKernel<T, Target>::width;
  static constexpr std::size_t kernel_rows = GemmKernel<T, Target>::rows;

  V sum[kernel_rows][Vectors];
  std::size_t rows, cols;

  [[gnu::always_inline]] bool whole() const {
    return rows == kernel_rows && cols == Vectors * width;
  }

  /// Row r starts with the elements at from(r), or with zeros if there is `nothing`.
  template <class From>
  [[gnu::always_inline]] void begin(bool nothing, const From& from) {
    const bool all = whole();
    T edge[kernel_rows][Vectors * width];
    if (!all && !nothing)
      for (std::size_t r = 0; r < kernel_rows; ++r)
        for (std::size_t j = 0; j < Vectors * width; ++j)
          edge[r][j] = r < rows && j < cols ? from(r)[j] : T(0);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kernel_rows; ++r)
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v) {
        sum[r][v] = V{};
        if (nothing) continue;
        const T* const start = all ? from(r) + v * width : &edge[r][v * width];
        std::memcpy(&sum[r][v], start, sizeof(V));
      }
  }

  /// Adds a product over k: element (r, p) of A is row[r][p * a_step], row p of B starts at
  /// b[p * b_step] and is readable over all Vectors vectors.
  [[gnu::always_inline]] void add(std::size_t k, const T* const (&row)[kernel_rows],
                                  std::size_t a_step, const T* b, std::size_t b_step) {
    for (std::size_t p = 0; p < k; ++p) {
      V right[Vectors];
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v)
        std::memcpy(&right[v], b + p * b_step + v * width, sizeof(V));
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kernel_rows; ++r)
#pragma GCC unroll 16
        for (std::size_t v = 0; v < Vectors; ++v) sum[r][v] += row[r][p * a_step] * right[v];
    }
  }

  /// Stores row r from to(r) on.
  template <class To>
  [[gnu::always_inline]] void end(const To& to) const {
    if (whole()) {
#pragma GCC unroll 16
      for (std::size_t r = 0; r < kernel_rows; ++r)
#pragma GCC unroll 16
        for (std::size_t v = 0; v < Vectors; ++v)
          std::memcpy(to(r) + v * width, &sum[r][v], sizeof(V));
      return;
    }
    T edge[kernel_rows][Vectors * width];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kernel_rows; ++r)
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v)
        std::memcpy(&edge[r][v * width], &sum[r][v], sizeof(V));
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t j = 0; j < cols; ++j) to(r)[j] = edge[r][j];
  }
};

/// The kernel: rows x cols of C over all of k. Element (i, p) of A is a[i * a_stride + p * a_step],
/// with constant strides where A is packed.
template <class T, std::size_t Vectors, bool Packed, class Target>
void gemm_kernel(std::size_t rows, std::size_t cols, std::size_t k, const T* a,
                 std::size_t a_stride, std::size_t a_step, const T* b, std::size_t b_step,
                 GemmTarget<T> to) {
  GemmSums<T, Vectors, Target> sums;
  constexpr std::size_t kernel_rows = sums.kernel_rows;
  sums.rows = rows;
  sums.cols = cols;
  const T* row[kernel_rows];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kernel_rows; ++r) {
    row[r] = Packed ? a + r : a + least(r, rows - 1) * a_stride;
    if (to.from != nullptr || r >= rows) continue;
#pragma GCC unroll 16
    for (std::size_t v = 0; v < Vectors; ++v)
      ADACC_PREFETCH(to.c + r * to.ldc + v * sums.width, 1, 3);
  }
  sums.begin(to.from == nullptr, [&](std::size_t r) { return to.from + r * to.from_stride; });
  sums.add(k, row, Packed ? layout_rows : a_step, b, b_step);
  sums.end([&](std::size_t r) { return to.c + r * to.ldc; });
}

/// Calls kernel.operator()<Vectors>(first column, columns) for the pieces of a panel's columns.
template <class T, class Target, class Kernel>
void for_each_piece_of_panel(std::size_t cols, const Kernel& kernel) {
  using Piece = GemmKernel<T, Target>;
  for (std::size_t j = 0; j < cols; j += Piece::cols) {
    const std::size_t count = least(Piece::cols, cols - j);
    switch (div_up(count, Piece::width)) {
      case 1: kernel.template operator()<1>(j, count); break;
      case 2: kernel.template operator()<2>(j, count); break;
      default: kernel.template operator()<3>(j, count);
    }
  }
}

/// The kernel over all rows of a block of A, for one panel of B. Packed blocks hold groups of
/// layout_rows rows one after the other.
template <class T, bool Packed, class Target>
void gemm_rows_at(std::size_t rows, std::size_t cols, std::size_t k, Operand<T> a, const T* b,
                  std::size_t b_step, GemmTarget<T> to) {
  constexpr std::size_t kernel_rows = GemmKernel<T, Target>::rows;
  static_assert(layout_rows % kernel_rows == 0);
  for (std::size_t i = 0; i < rows; i += kernel_rows) {
    const std::size_t count = least(kernel_rows, rows - i);
    const T* from =
        a.data + (Packed ? i / layout_rows * layout_rows * k + i % layout_rows : i * a.row_stride);
    for_each_piece_of_panel<T, Target>(
        cols, [&]<std::size_t Vectors>(std::size_t j, std::size_t n) {
          gemm_kernel<T, Vectors, Packed, Target>(count, n, k, from, a.row_stride, a.col_stride,
                                                  b + j, b_step, to.at(i, j));
        });
  }
}

ADACC_TARGET_CODE_END

/// gemm_rows_at() the instructions of this level.
template <class T, bool Packed>
void gemm_rows(InstructionLevel level, std::size_t rows, std::size_t cols, std::size_t k,
               Operand<T> a, const T* b, std::size_t b_step, GemmTarget<T> to) {
  with_target(level, [&]<class Target>(Target) {
    Target::template call<gemm_rows_at<T, Packed, Target>>(rows, cols, k, a, b, b_step, to);
  });
}

/// The work of one task of a product: a tile of rows by some panels of the packed block of B, over `depth` of k.
/// Columns are numbered in C.
template <class T>
struct GemmTile {
  std::size_t first_row, rows;
  std::size_t first_k, depth;
  std::size_t first_col, cols;          // within the block
  std::size_t first_panel, last_panel;  // in the block
  const T* packed;

  /// body(first column, columns, their packed panel, the panel's step)
  template <class Body>
  void for_each_panel(const Body& body) const {
    using Blocks = GemmBlocks<T>;
    for (std::size_t panel = first_panel; panel < last_panel; ++panel) {
      const std::size_t j = panel * Blocks::panel, count = least(Blocks::panel, cols - j);
      body(first_col + j, count, packed + j * depth, round_up(count, Blocks::width));
    }
  }
};

/// The loops over blocks, shared by products of all kinds. B is packed into `scratch` (GemmBlocks::b_elems), or into
/// `kept` if `kept` has memory and not yet B, by pack(first k, depth, first column, columns, to) for each panel, or by
/// pack.pack_block(parallel, first k, depth, first column, columns, to) for all of a block. Then multiply(tile, worker)
/// is called for tiles of `tile_rows` rows: both in parallel.
template <class T, class Pack, class Multiply>
void multiply_in_blocks(Cpu& ctx, std::size_t m, std::size_t n, std::size_t k,
                        std::size_t tile_rows, T* scratch, PackedOperand<T> kept, const Pack& pack,
                        const Multiply& multiply) {
  using Blocks = GemmBlocks<T>;
  const Blocks block(m, n, k);
  // Tiles: many enough that any few threads finish about together. A product of a few microseconds is not worth waking
  // threads for.
  const bool alone = k == 0 || m * n < (std::size_t{1} << 19) / k;
  const std::size_t row_tiles = div_up(m, tile_rows), wanted_tiles = 12;
  const auto parallel = [&](std::size_t tiles, const auto& tile) {
    if (!alone) return ctx.parallel(tiles, tile);
    for (std::size_t i = 0; i < tiles; ++i) tile(i, 0);
  };

  for (std::size_t j0 = 0; j0 < n; j0 += block.cols) {
    const std::size_t cols = least(block.cols, n - j0), panels = div_up(cols, Blocks::panel);
    const std::size_t group = div_up(panels, div_up(wanted_tiles, row_tiles));  // panels of a tile
    const std::size_t groups = div_up(panels, group);
    std::size_t p0 = 0;
    do {
      const std::size_t depth = least(block.k, k - p0);
      // Kept blocks lie one after the other, in the order of reading.
      T* const packed =
          kept.data == nullptr ? scratch : kept.data + j0 * k + round_up(cols, Blocks::width) * p0;
      if (!kept.holds) {
        if constexpr (requires { pack.pack_block(parallel, p0, depth, j0, cols, packed); })
          pack.pack_block(parallel, p0, depth, j0, cols, packed);
        else
          parallel(panels, [&](std::size_t panel, int) {
            const std::size_t j = panel * Blocks::panel;
            pack(p0, depth, j0 + j, least(Blocks::panel, cols - j), packed + j * depth);
          });
      }
      parallel(row_tiles * groups, [&](std::size_t tile, int worker) {
        const std::size_t i0 = tile / groups * tile_rows, first = tile % groups * group;
        multiply(GemmTile<T>{i0, least(tile_rows, m - i0), p0, depth, j0, cols, first,
                             least(first + group, panels), packed},
                 worker);
      });
      p0 += block.k;
    } while (p0 < k);
  }
}

/// `gemm`, with a B packed by `pack` (multiply_in_blocks).
template <class T, class Pack>
void gemm_with(InstructionLevel level, Cpu& ctx, std::size_t m, std::size_t n, std::size_t k,
               Operand<T> a, const Pack& pack, T* c, std::size_t ldc, Accumulate acc,
               Bytes workspace, const T* bias = nullptr, PackedOperand<T> kept = {}) {
  using Blocks = GemmBlocks<T>;
  const Blocks block(m, n, k);
  T* const a_scratch = static_cast<T*>(static_cast<void*>(workspace.data()));
  T* const b_packed = a_scratch + block.a_elems() * static_cast<std::size_t>(ctx.workers());

  // A packed A pays only if tiles are high enough.
  const bool in_place = a.col_stride == 1;
  const std::size_t tile_rows = in_place ? least(block.rows, Blocks::max_rows / 2) : block.rows;
  const auto multiply = [&](const GemmTile<T>& tile, int worker) {
    GemmTarget<T> to = {c, ldc, c, ldc};
    if (tile.first_k == 0 && acc == Accumulate::no) to = {c, ldc, bias, 0};
    const Operand<T> left = a.at(tile.first_row, tile.first_k);
    T* const a_packed = a_scratch + block.a_elems() * static_cast<std::size_t>(worker);
    if (!in_place) pack_rows(tile.rows, tile.depth, left, a_packed);
    tile.for_each_panel([&](std::size_t j, std::size_t count, const T* right, std::size_t step) {
      const GemmTarget<T> part = to.at(tile.first_row, j);
      if (in_place)
        gemm_rows<T, false>(level, tile.rows, count, tile.depth, left, right, step, part);
      else
        gemm_rows<T, true>(level, tile.rows, count, tile.depth, {a_packed, 1, layout_rows}, right,
                           step, part);
    });
  };
  multiply_in_blocks<T>(ctx, m, n, k, tile_rows, b_packed, kept, pack, multiply);
}

}  // namespace detail

/// Elements of the whole of a packed B (k x n).
template <class T>
constexpr std::size_t packed_elems(std::size_t n, std::size_t k) {
  return detail::round_up(n, detail::GemmBlocks<T>::width) * k;
}

/// Bytes of the whole of a packed B, for a type known at run time: f32 or f64. 0 if more than can be addressed: nothing
/// is kept for a vector so long.
constexpr std::size_t packed_bytes(Dtype scalar, std::size_t n, std::size_t k) {
  const std::size_t column = scalar == Dtype::f64 ? packed_elems<double>(n, 1) * sizeof(double)
                                                  : packed_elems<float>(n, 1) * sizeof(float);
  std::size_t bytes = 0;
  return multiply(column, k, bytes) ? bytes : 0;
}

/// Bytes of workspace for `gemm`: a block of A for each worker, then the shared block of B, whose
/// last byte is the last of the workspace and is written.
template <class T>
constexpr std::size_t gemm_workspace_bytes(std::size_t m, std::size_t n, std::size_t k,
                                           int workers) {
  const detail::GemmBlocks<T> block(m, n, k);
  return (block.a_elems() * static_cast<std::size_t>(workers) + block.b_elems()) * sizeof(T);
}

/// Bytes of workspace for a type known at run time: f32 or f64.
constexpr std::size_t gemm_workspace_bytes(Dtype scalar, std::size_t m, std::size_t n,
                                           std::size_t k, int workers) {
  return scalar == Dtype::f64 ? gemm_workspace_bytes<double>(m, n, k, workers)
                              : gemm_workspace_bytes<float>(m, n, k, workers);
}

namespace detail {

/// `gemm` at this level, which the processor has.
template <class T>
void gemm_at(InstructionLevel level, Cpu& ctx, std::size_t m, std::size_t n, std::size_t k,
             Operand<T> a, Operand<T> b, T* c, std::size_t ldc, Accumulate acc, Bytes workspace,
             const T* bias = nullptr, PackedOperand<T> kept = {}) {
  if (m == 0 || n == 0) return;
  if (k == 0) a = b = {c, 0, 1};  // nothing is read, and no offset added to a null pointer
  const auto pack = [&](std::size_t p, std::size_t depth, std::size_t j, std::size_t count, T* to) {
    pack_panel(count, depth, b.at(p, j), to);
  };
  gemm_with<T>(level, ctx, m, n, k, a, pack, c, ldc, acc, workspace, bias, kept);
}

}  // namespace detail

/// C (m x n, row-major with leading dimension ldc) = A (m x k) B (k x n), or += with
/// Accumulate::yes, in parallel over the context's threads. If `bias` is not null and the
/// product overwrites C, the row bias (n) is added to every row. C overlaps neither operand;
/// `workspace` holds gemm_workspace_bytes, 64-byte aligned. If `kept` has memory, the packed B stays
/// there, or is read from there: the results have the same bits.
template <class T>
void gemm(Cpu& ctx, std::size_t m, std::size_t n, std::size_t k, Operand<T> a, Operand<T> b, T* c,
          std::size_t ldc, Accumulate acc, Bytes workspace, const T* bias = nullptr,
          PackedOperand<T> kept = {}) {
  detail::gemm_at(detail::target_level(), ctx, m, n, k, a, b, c, ldc, acc, workspace, bias, kept);
}

/// Bytes of scratch for `gemm_tile`.
template <class T>
constexpr std::size_t gemm_tile_workspace_bytes(std::size_t, std::size_t n, std::size_t k) {
  using Blocks = detail::GemmBlocks<T>;
  return detail::least(k, Blocks::max_k) *
         detail::least(detail::round_up(n, Blocks::width), Blocks::panel) * sizeof(T);
}

/// `gemm` on the calling thread, for use inside a tile: small enough for A to be read in place, and B, too, if its rows
/// are contiguous. `scratch` holds gemm_tile_workspace_bytes.
template <class T>
void gemm_tile(std::size_t m, std::size_t n, std::size_t k, Operand<T> a, Operand<T> b, T* c,
               std::size_t ldc, Accumulate acc, Bytes scratch) {
  using namespace detail;
  if (m == 0 || n == 0) return;
  if (k == 0) a = b = {c, 0, 1};  // nothing is read, and no offset added to a null pointer
  using Blocks = GemmBlocks<T>;
  const InstructionLevel level = detail::target_level();
  T* const b_packed = static_cast<T*>(static_cast<void*>(scratch.data()));
  std::size_t p0 = 0;
  do {
    const std::size_t depth = least(Blocks::max_k, k - p0);
    const bool fresh = p0 == 0 && acc == Accumulate::no;
    for (std::size_t j = 0; j < n; j += Blocks::panel) {
      const std::size_t cols = least(Blocks::panel, n - j), width = round_up(cols, Blocks::width);
      const Operand<T> right = b.at(p0, j);
      const bool direct = b.col_stride == 1 && cols == width;
      if (!direct) pack_panel(cols, depth, right, b_packed);
      const GemmTarget<T> to = {c + j, ldc, fresh ? nullptr : c + j, ldc};
      gemm_rows<T, false>(level, m, cols, depth, a.at(0, p0), direct ? right.data : b_packed,
                          direct ? b.row_stride : width, to);
    }
    p0 += Blocks::max_k;
  } while (p0 < k);
}

}}  // namespace adacc::v0_1

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
