// SPDX-License-Identifier: MIT
/// Links the CUDA runtime from a source that is no CUDA, beside headers that need no nvcc.
#include <adacc/core/view.hpp>
#include <cuda_runtime_api.h>

int main() {
  const adacc::View<const float> nothing;
  return nothing.empty() && cudaGetErrorString(cudaSuccess) != nullptr ? 0 : 1;
}
