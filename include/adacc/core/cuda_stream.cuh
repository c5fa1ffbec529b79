// SPDX-License-Identifier: MIT
/// Checks that a stream belongs to the device that will use it.
#pragma once

#include <cuda_runtime_api.h>

#include "error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The device of a stream, or an error. The default stream belongs to the current device.
inline Result<int> device_of(cudaStream_t stream) {
  int device = 0;
  const cudaError_t status = cudaStreamGetDevice(stream, &device);
  if (status == cudaSuccess) return device;
  static_cast<void>(cudaGetLastError());
  return Error::say("the stream is none: CUDA says ", cudaGetErrorString(status));
}

/// Why a stream cannot take work of the current device; empty if it can.
inline Error stream_fault(cudaStream_t stream) {
  int current = 0;
  if (const cudaError_t status = cudaGetDevice(&current); status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return Error::say("there is no current device: CUDA says ", cudaGetErrorString(status));
  }
  const Result<int> device = device_of(stream);
  if (!device) return device.error;
  if (*device != current)
    return Error::misuse("the stream is of device ", *device, ", and device ", current,
                         " is the current one: cudaSetDevice() comes first");
  return {};
}

}}}  // namespace adacc::v0_1::detail
