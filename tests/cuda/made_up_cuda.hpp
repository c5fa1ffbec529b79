// SPDX-License-Identifier: MIT
/// What CUDA runtimes that are made up for a test have in common: events, and the words of errors. What a
/// stream is, and when it runs, is the test's. Included by one source of a program.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>

struct CUevent_st {
  CUstream_st* stream = nullptr;  ///< of its last record
  std::size_t position = 0;       ///< that has ended once so many items of the stream have run
};

namespace made_up_cuda {
inline std::atomic<int> live{0};  ///< handles and memory that are not given back
}

extern "C" {
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  ++made_up_cuda::live;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --made_up_cuda::live;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "out of something"; }
}
