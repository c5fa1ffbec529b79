// SPDX-License-Identifier: MIT
/// The inner loop of products on AArch64, for neon_kernel.cmake.
#include <adacc/layer/math/gemm.hpp>

void product(std::size_t rows, std::size_t cols, std::size_t k, const float* a, const float* b,
             adacc::detail::GemmTarget<float> to) {
  adacc::detail::gemm_kernel<float, 3, true, adacc::detail::BuildTarget>(rows, cols, k, a, 1, 1, b,
                                                                         12, to);
}
