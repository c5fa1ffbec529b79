// SPDX-License-Identifier: MIT
/// The calls that a made-up cuDNN saw: libmade_up_cudnn.so has cuDNN's own functions, except for those that need a device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

struct MadeUpCudnn {
  int handles = 0;  ///< that are not given back
  cudaStream_t stream = nullptr;
  int executed = 0;
  std::int64_t count = 0;  ///< tensors of the last execution
  std::int64_t ids[16] = {};
  void* places[16] = {};
  void* workspace = nullptr;
  bool fails = false;
};
