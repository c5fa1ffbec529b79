// SPDX-License-Identifier: MIT
/// Checks of trainings on a device: the stream, the products, and a place for failures.
#pragma once

#include <adacc/train.cuh>

#include "steps_cases.hpp"

namespace steps {

struct DeviceChecks {
  cudaStream_t stream;
  CudaProducts* products;
  void (*expect)(bool holds, const char* what);

  bool fine(const Error& error) const {
    expect(!error, error.text());
    return !error;
  }
  Cuda context() const {
    Cuda cuda(stream, products);
    cuda.key.seed = seed;
    return cuda;
  }
};

}  // namespace steps
