// SPDX-License-Identifier: MIT
// What stand-ins for the libraries of CUDA ask of the executor: host code on its device memory.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#include "parse.hpp"

namespace ptxrun {

/// Does the work now, or when somebody waits for it (PTXRUN_LATE), or records it if the stream is being captured. Work
/// that returns cudaErrorNotReady has done nothing: it is called again later, and the stream's later work comes behind.
cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> work);

/// Where n bytes of device memory are kept; null, and a report, if they are none. What is read must
/// have been written.
u8* device_bytes(const void* p, u64 n, bool writes, const char* who);

/// For products() of counters.hpp.
void count_product(bool aligned);

}  // namespace ptxrun
