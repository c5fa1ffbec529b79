// SPDX-License-Identifier: MIT
/// cuDNN's attention, apart from what nvcc compiles: cudnn-frontend takes a while.
#include "cudnn_attention.hpp"

#include <adacc/adapter/cudnn.cuh>

#include <cstdlib>
#include <utility>

namespace support {

adacc::Result<std::unique_ptr<adacc::CudaAttention>> make_cudnn_attention() {
  adacc::CudnnAttentionOptions options;
  if (const char* const named = std::getenv("ADACC_CUDNN_LIBRARY")) options.library = named;
  auto made = adacc::CudnnAttention::make(options);
  if (!made) return made.error;
  return std::unique_ptr<adacc::CudaAttention>(std::move(*made));
}

}  // namespace support
