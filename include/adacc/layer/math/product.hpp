// SPDX-License-Identifier: MIT
/// Products of activations with weights and with one another, in the activations' type: `gemm`, or `bf16_gemm`.
#pragma once

#include <cstddef>

#include "bf16_gemm.hpp"
#include "gemm.hpp"
#include "numbers.hpp"
#include "row_product.hpp"
#include "stored_operand.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Rows of `cols` numbers, each rounded by round_in_place(), as an operand.
template <class T>
Operand<T> rounded_rows(const Wide<T>* rows, std::size_t cols) {
  return {static_cast<const T*>(static_cast<const void*>(rows)),
          cols * (sizeof(Wide<T>) / sizeof(T)), 1};
}

/// Bytes of workspace for product().
constexpr std::size_t product_workspace_bytes(Dtype scalar, std::size_t m, std::size_t n,
                                              std::size_t k, int workers) {
  return scalar == Dtype::bf16 ? bf16_gemm_workspace_bytes(m, n, k, workers)
                               : gemm_workspace_bytes(scalar, m, n, k, workers);
}
/// Bytes of the whole of a packed right operand (k x n).
constexpr std::size_t product_packed_bytes(Dtype scalar, std::size_t n, std::size_t k) {
  return scalar == Dtype::bf16 ? bf16_packed_bytes(n, k) : adacc::packed_bytes(scalar, n, k);
}

/// C (m x n, leading dimension ldc) = A B, or += with Accumulate::yes: gemm(), or, if A is of bfloat16, bf16_gemm(). One
/// row times a transpose needs no packing (row_product.hpp), and has the same bits. B is of T or Wide<T>. C is of either, too, but of Wide<T> to be added to.
template <class T, class B, class Out>
void product(Cpu& cpu, std::size_t m, std::size_t n, std::size_t k, Operand<T> a, Operand<B> b,
             Out* c, std::size_t ldc, Accumulate accumulate, Bytes workspace,
             const Wide<T>* bias = nullptr, PackedOperand<T> kept = {}) {
  if constexpr (in_place<T>) {
    if (m == 1 && b.row_stride == 1 && kept.data == nullptr)
      return row_product(target_level(), cpu, n, k, a.data, a.col_stride,
                         RowsInPlace<T>{b.data, b.col_stride, k}, c, accumulate, bias);
    gemm<T>(cpu, m, n, k, a, b, c, ldc, accumulate, workspace, bias, kept);
  } else bf16_gemm(cpu, m, n, k, a, b, c, ldc, accumulate, workspace, bias, kept);
}

/// The same with a parameter matrix of `cols` columns for B, or, if `transposed`, with its transpose: the matrix may be
/// in full, or stored in a file. Then its rows that were read are released.
template <class T, class Out>
void product(Cpu& cpu, std::size_t m, std::size_t n, std::size_t k, Operand<T> a,
             const ParameterMatrix<Wide<T>>& b, std::size_t cols, bool transposed, Out* c,
             std::size_t ldc, Accumulate accumulate, Bytes workspace, const Wide<T>* bias = nullptr,
             PackedOperand<T> kept = {}) {
  if (b.stored == nullptr) {
    const Operand<Wide<T>> full{b.data, transposed ? 1 : cols, transposed ? cols : 1};
    return product(cpu, m, n, k, a, full, c, ldc, accumulate, workspace, bias, kept);
  }
  const StoredOperand<Wide<T>> stored{b, transposed};
  if constexpr (in_place<T>) {
    if (m == 1 && transposed && kept.data == nullptr)
      row_product(target_level(), cpu, n, k, a.data, a.col_stride, RowsStored<T>{b, k}, c,
                  accumulate, bias);
    else
      gemm_with<T>(target_level(), cpu, m, n, k, a, PackStored<T>{stored}, c, ldc, accumulate,
                   workspace, bias, kept);
  } else
    bf16_gemm_at(instruction_choice().level, cpu, m, n, k, a, stored, c, ldc, accumulate, workspace,
                 bias, kept);
  if (!kept.holds) b.stored->release(b.first, transposed ? n : k);
}

}}}  // namespace adacc::v0_1::detail
