// SPDX-License-Identifier: MIT
/// The execution context of kernels on a CUDA device: the caller's stream, mode and randomness.
///
/// Work is queued on the stream and nothing waits for it: no kernel's launch allocates or
/// synchronizes, so a step can be captured in a CUDA graph. Tensors and blobs are device memory.
/// What a call returns is therefore what could be known on the host: arguments that do not fit, and
/// a launch that failed.
#pragma once

#include <cuda_runtime_api.h>

#include "config.hpp"
#include "context.hpp"
#include "error.hpp"

namespace adacc { inline namespace v0_1 {

class Cuda : public KernelCall {
 public:
  static constexpr bool runs_parts = false;

  /// On the default stream.
  Cuda() = default;
  explicit Cuda(cudaStream_t stream) : stream_(stream) {}

  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

namespace detail {

/// What became of the kernel that `name` launched last; clears the launch's error if there is one.
inline Error launch_error(const char* name) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return {};
  return Error::say(name, ": CUDA did not start the kernel: ", cudaGetErrorString(status));
}

}  // namespace detail

}}  // namespace adacc::v0_1
