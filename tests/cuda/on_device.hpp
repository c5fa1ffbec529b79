// SPDX-License-Identifier: MIT
/// What the programs that run kernels have in common: a stream, or the status of a skipped test.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

/// Of the executor (support/ptxrun/counters.hpp), and nowhere else.
namespace ptxrun {
[[gnu::weak]] std::uint64_t waits();
[[gnu::weak]] void tick_events(double seconds);
}  // namespace ptxrun

/// Whether the first device is the executor of PTX, which counts what drivers keep to themselves.
inline bool on_executor() {
  cudaDeviceProp device{};
  return cudaGetDeviceProperties(&device, 0) == cudaSuccess &&
         std::strstr(device.name, "ptxrun") != nullptr;
}

/// The exit status of a program that is `check(stream)`, which returns its own: on the first device,
/// if there is one.
template <class Check>
int on_device(const Check& check) {
  std::setvbuf(stdout, nullptr, _IOLBF,
               1024);  // what was found is seen, even if the program ends early
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: there is no CUDA device\n");
    return 77;
  }
  cudaStream_t stream = nullptr;
  const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status != cudaSuccess) {
    std::printf("FAILED: no stream: %s\n", cudaGetErrorString(status));
    return 1;
  }
  const int result = check(stream);
  cudaStreamDestroy(stream);
  return result;
}
