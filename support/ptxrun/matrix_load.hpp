// SPDX-License-Identifier: MIT
// ldmatrix: matrices of 8 x 8 numbers of 16 bits from shared memory to registers of a whole warp.
#pragma once
#include "access.hpp"

namespace ptxrun {

/// Row r of matrix i is the 16 bytes at the address of lane 8 i + r. Lane l gets of each matrix the
/// numbers 2 (l % 4) and the next of row l / 4, or, transposed, of column l / 4.
inline void load_matrices(Machine& m, Warp& w, const Inst& in) {
  const int rows = 8 * in.count;
  if (m.settings.stats) {
    Inst row = in;
    row.size = 16, row.count = 1;
    count_access(m, w, row, rows == 32 ? all_lanes : (1U << rows) - 1, false);
  }
  u16 number[4][8][8];
  for (int l = 0; l < rows; ++l)
    std::memcpy(
        number[l / 8][l % 8],
        m.access(in, w, l, in.space, address_of(w, in, l), 16, Machine::Access::read, nullptr), 16);
  for (int i = 0; i < in.count; ++i) {
    u32* const to = reg_out<u32>(w, in.v[i]);
    for (int l = 0; l < 32; ++l) {
      const int a = l / 4, b = l % 4 * 2;
      const bool turned = in.is_signed;
      const u16 low = turned ? number[i][b][a] : number[i][a][b];
      const u16 high = turned ? number[i][b + 1][a] : number[i][a][b + 1];
      to[l] = u32{high} << 16 | low;
    }
  }
}

}  // namespace ptxrun
