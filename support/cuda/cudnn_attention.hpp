// SPDX-License-Identifier: MIT
/// cuDNN's attention, for programs that are built with it (-DADACC_CUDNN=ON) and for those that are not.
#pragma once

#include <adacc/layer/cuda/lent_attention.cuh>

#include <memory>

namespace support {

/// cuDNN's attention on the current device. The library is the one that the environment variable ADACC_CUDNN_LIBRARY
/// names, or else libcudnn.so.9, as the loader finds it. An error says what is missing.
#if defined(ADACC_CUDNN)
adacc::Result<std::unique_ptr<adacc::CudaAttention>> make_cudnn_attention();  // cudnn_attention.cpp
#else
inline adacc::Result<std::unique_ptr<adacc::CudaAttention>> make_cudnn_attention() {
  return adacc::Error::say(
      "this program was built without cuDNN: configure with -DADACC_CUDNN=ON (docs/cuda.md)");
}
#endif

}  // namespace support
