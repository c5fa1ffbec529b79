// SPDX-License-Identifier: MIT
// mma.sync of bfloat16: D (16 x 8) = A (16 x 16) B (16 x 8) + C, in registers of a whole warp.
//
// Products are exact; they are summed in double and rounded to float once, where a GPU keeps fewer bits.
#pragma once
#include "registers.hpp"

namespace ptxrun {

inline constexpr const char* matrix_product_op =
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";

/// Operands by register: four of D, four of A, two of B, four of C.
struct MatrixProduct {
  static constexpr std::size_t d = 0, a = 4, b = 8, c = 10, registers = 14;

  /// Where element `i` of register `r` of lane `l` is.
  struct Place {
    int row, column;
  };
  static Place of_a(int l, int r, int i) {
    return {l / 4 + 8 * (r % 2), l % 4 * 2 + i + 8 * (r / 2)};
  }
  static Place of_b(int l, int r, int i) { return {l % 4 * 2 + i + 8 * r, l / 4}; }
  static Place of_c(int l, int r) { return {l / 4 + 8 * (r / 2), l % 4 * 2 + r % 2}; }

  static void run(Warp& w, const Inst& in) {
    const auto numbers = [&](std::size_t operand, int r) {
      return reg<u32>(w, static_cast<u32>(in.targets[operand + static_cast<std::size_t>(r)]));
    };
    using Row = double __attribute__((vector_size(8 * sizeof(double))));
    double left[16][16];
    Row right[16], sum[16];
    for (int l = 0; l < 32; ++l) {
      for (int r = 0; r < 4; ++r) {
        const Place at = of_c(l, r);
        sum[at.row][at.column] = double{std::bit_cast<float>(numbers(c, r)[l])};
        for (int i = 0; i < 2; ++i) {
          const Place p = of_a(l, r, i);
          left[p.row][p.column] = half(numbers(a, r)[l], i);
          if (r >= 2) continue;
          const Place q = of_b(l, r, i);
          right[q.row][q.column] = half(numbers(b, r)[l], i);
        }
      }
    }
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k) sum[row] += left[row][k] * right[k];
    for (int r = 0; r < 4; ++r) {
      u32* const to =
          reg_out<u32>(w, static_cast<u32>(in.targets[d + static_cast<std::size_t>(r)]));
      for (int l = 0; l < 32; ++l) {
        const Place at = of_c(l, r);
        to[l] = std::bit_cast<u32>(canonical(static_cast<float>(sum[at.row][at.column])));
      }
    }
  }

 private:
  static double half(u32 pair, int upper) {
    return double{std::bit_cast<float>(upper != 0 ? pair & 0xFFFF0000 : pair << 16)};
  }
};

}  // namespace ptxrun
