// SPDX-License-Identifier: MIT
/// What fails while kernels are counted ends the program.
#pragma once

#include <cuda_runtime_api.h>

#include <adacc/core/error.hpp>

#include <cstdio>
#include <cstdlib>

namespace cuda_counts {

inline void ok(const adacc::Error& error) {
  if (!error) return;
  std::fprintf(stderr, "cuda_counts: %s\n", error.text());
  std::exit(1);
}
inline void ok(cudaError_t status) {
  if (status != cudaSuccess) ok(adacc::Error::say(cudaGetErrorString(status)));
}

}  // namespace cuda_counts
