// SPDX-License-Identifier: MIT
/// Launches of kernels, judged by their own status.
///
/// CUDA keeps the last error of a thread. Behind `kernel<<<...>>>` only this error can be asked for, and another user of
/// the process may have caused the error. So kernels are launched by a call with a status of its own, and errors of
/// others are neither taken nor cleared.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include "cuda_stream.cuh"
#include "error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Blocks, threads and stream of a launch.
struct CudaLaunch {
  dim3 blocks;
  unsigned threads;
  cudaStream_t stream;
  std::size_t shared_bytes = 0;
};

/// Queues the kernel; `name` is for the error.
template <class... Parameters>
Error launch(const char* name, const CudaLaunch& how, void (*kernel)(Parameters...),
             std::type_identity_t<Parameters>... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = how.blocks;
  config.blockDim = dim3(how.threads);
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = how.stream;
  void* places[] = {static_cast<void*>(&arguments)..., nullptr};
  const cudaError_t status =
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), places);
  if (status == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());  // this launch's own
  if (status == cudaErrorInvalidResourceHandle)
    if (const Error why = stream_fault(how.stream))
      return Error::misuse(name, ": CUDA did not start the kernel: ", why.text());
  return Error::say(name, ": CUDA did not start the kernel: ", cudaGetErrorString(status));
}

/// Whether an error stays with the process: every later call fails, whoever is to blame.
inline bool ends_all_work(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

}}}  // namespace adacc::v0_1::detail
