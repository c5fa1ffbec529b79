// SPDX-License-Identifier: MIT
// Products of matrices in device memory, in host code, for what stands in for cuBLAS and cuBLASLt. Matrices are
// stored column after column, of fp32 or bfloat16; sums are fp32.
#pragma once
#include <library_types.h>

#include <bit>
#include <cstring>
#include <vector>

#include "host.hpp"

namespace ptxrun {

struct Matrix {
  cudaDataType_t type;
  u64 rows, cols;
  std::int64_t ld;  ///< elements from one column to the next
};

inline bool known(cudaDataType_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF; }
inline u64 size_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

/// Number i at `stored`, whose numbers have a known type.
inline float number_at(const u8* stored, cudaDataType_t type, u64 i) {
  if (type == CUDA_R_16BF) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, stored + 2 * i, sizeof upper);
    return std::bit_cast<float>(u32{upper} << 16);
  }
  float number = 0;
  std::memcpy(&number, stored + 4 * i, sizeof number);
  return number;
}
/// Stores number i; bfloat16 is rounded to the nearest.
inline void put_number(u8* stored, cudaDataType_t type, u64 i, float number) {
  if (type == CUDA_R_16BF) {
    const u32 bits = std::bit_cast<u32>(number);
    const bool nan = number != number;
    const auto upper =
        static_cast<std::uint16_t>(nan ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    std::memcpy(stored + 2 * i, &upper, sizeof upper);
  } else {
    std::memcpy(stored + 4 * i, &number, sizeof number);
  }
}

/// A matrix of a product: op(the matrix stored at `at`).
struct Operand {
  const void* at;
  Matrix stored;
  bool transposed;

  u64 rows() const { return transposed ? stored.cols : stored.rows; }
  u64 cols() const { return transposed ? stored.rows : stored.cols; }
  const void* column(u64 c) const {
    return static_cast<const u8*>(at) + c * static_cast<u64>(stored.ld) * size_of(stored.type);
  }
};

/// The operand's numbers row by row. False, and a report by `who`, if one of its columns is no device memory that
/// somebody wrote.
inline bool load(const Operand& operand, const char* who, std::vector<float>& numbers) {
  const Matrix& m = operand.stored;
  numbers.resize(m.rows * m.cols);
  for (u64 c = 0; c < m.cols; ++c) {
    const u8* const column = device_bytes(operand.column(c), m.rows * size_of(m.type), false, who);
    if (column == nullptr) return false;
    for (u64 r = 0; r < m.rows; ++r)
      numbers[operand.transposed ? c * m.rows + r : r * m.cols + c] = number_at(column, m.type, r);
  }
  return true;
}
/// Writes numbers that are row by row to where the operand is stored.
inline bool store(const Operand& operand, const char* who, const std::vector<float>& numbers) {
  const Matrix& m = operand.stored;
  for (u64 c = 0; c < m.cols; ++c) {
    u8* const column = device_bytes(operand.column(c), m.rows * size_of(m.type), true, who);
    if (column == nullptr) return false;
    for (u64 r = 0; r < m.rows; ++r)
      put_number(column, m.type, r, numbers[operand.transposed ? c * m.rows + r : r * m.cols + c]);
  }
  return true;
}

/// out = alpha left right + beta old + bias, each sum in the order of k, or in pieces of k whose sums are added. `old` is not read if beta is 0; a bias, a
/// number for each row, is of out's type.
struct Product {
  float alpha, beta;
  Operand left, right, old, out;
  const void* bias;
  const char* who;  ///< the function in reports
  u64 pieces = 1;

  cudaError_t run() const {
    const u64 m = left.rows(), k = left.cols(), n = right.cols();
    std::vector<float> x, y, before, added;
    if (!load(left, who, x) || !load(right, who, y)) return cudaErrorIllegalAddress;
    if (beta != 0 && !load(old, who, before)) return cudaErrorIllegalAddress;
    if (bias != nullptr && !load({bias, {out.stored.type, m, 1, 1}, false}, who, added))
      return cudaErrorIllegalAddress;
    std::vector<float> sums(m * n), piece(pieces == 1 ? 0 : m * n);
    for (u64 of = 0; of < pieces; ++of) {
      std::vector<float>& to = pieces == 1 ? sums : piece;
      for (float& sum : piece) sum = 0;
      for (u64 i = 0; i < m; ++i)
        for (u64 p = k * of / pieces; p < k * (of + 1) / pieces; ++p)
          for (u64 j = 0; j < n; ++j) to[i * n + j] += x[i * k + p] * y[p * n + j];
      for (u64 e = 0; e < piece.size(); ++e) sums[e] += piece[e];
    }
    for (u64 i = 0; i < m; ++i)
      for (u64 j = 0; j < n; ++j) {
        float& value = sums[i * n + j];
        value *= alpha;
        if (beta != 0) value += beta * before[i * n + j];
        if (bias != nullptr) value += added[i];
      }
    return store(out, who, sums) ? cudaSuccess : cudaErrorIllegalAddress;
  }
};

}  // namespace ptxrun
