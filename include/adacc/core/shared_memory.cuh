// SPDX-License-Identifier: MIT
/// Shared memory of a CUDA kernel beyond the 48 KiB that every kernel may have.
///
/// A kernel has to be allowed more before its launch. CUDA is asked and told once for each kernel and device: a kernel
/// is allowed everything the device gives a block, and a launch states how many bytes a block takes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <thread>

#include "error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The most bytes of dynamic shared memory for a block of a kernel, known for the kernels and devices of a process.
class SharedRooms {
 public:
  static SharedRooms& of_process() {
    static SharedRooms rooms;
    return rooms;
  }

  /// The room on the current device. Any thread may ask.
  Result<std::size_t> of(const void* kernel) {
    int device = 0;
    if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess)
      return failure("there is no current device", status);
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count_; ++i)
      if (known_[i].kernel == kernel && known_[i].device == device) return known_[i].bytes;
    int most = 0;
    if (const cudaError_t status =
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        status != cudaSuccess)
      return failure("the shared memory of a block is not known", status);
    cudaFuncAttributes attributes{};
    if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
        status != cudaSuccess)
      return failure("the shared memory of a kernel is not known", status);
    const std::size_t all = static_cast<std::size_t>(most), taken = attributes.sharedSizeBytes;
    const std::size_t bytes = taken < all ? all - taken : 0;
    if (const cudaError_t status = allow(kernel, device, static_cast<int>(bytes));
        status != cudaSuccess)
      return failure("a kernel is not allowed the shared memory of the device", status);
    if (count_ < most_known) known_[count_++] = {kernel, device, bytes};
    return bytes;
  }

 private:
  struct Known {
    const void* kernel = nullptr;
    int device = 0;
    std::size_t bytes = 0;
  };
  static constexpr std::size_t most_known = 256;  ///< others are asked for each time

  /// cudaFuncSetAttribute() clears the last error of its thread even where it succeeds, as CUDA 13.0 does on an H100.
  /// The error of another user is kept: a thread of its own makes the call.
  static cudaError_t allow(const void* kernel, int device, int bytes) {
    const auto set = [&] {
      return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    };
    if (cudaPeekAtLastError() == cudaSuccess) return set();
    cudaError_t status = cudaSuccess;
    std::thread([&] {
      status = cudaSetDevice(device);
      if (status == cudaSuccess) status = set();
    }).join();
    return status;
  }
  static Error failure(const char* what, cudaError_t status) {
    static_cast<void>(cudaGetLastError());
    return Error::say(what, ": CUDA says ", cudaGetErrorString(status));
  }

  std::mutex mutex_;
  std::size_t count_ = 0;
  Known known_[most_known];
};

/// The most bytes of dynamic shared memory for a block of `kernel` on the current device.
template <class... Given>
Result<std::size_t> shared_room(void (*kernel)(Given...)) {
  return SharedRooms::of_process().of(reinterpret_cast<const void*>(kernel));
}

}}}  // namespace adacc::v0_1::detail
