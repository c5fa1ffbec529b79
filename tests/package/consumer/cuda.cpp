// SPDX-License-Identifier: MIT
/// Links the CUDA runtime from a source that is no CUDA.
#include <adacc/core/cuda.cuh>

int main() {
  const adacc::Cuda cuda;
  return cuda.stream() == nullptr && cudaGetErrorString(cudaSuccess) != nullptr ? 0 : 1;
}
