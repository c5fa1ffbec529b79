// SPDX-License-Identifier: MIT
/// Eigen for code that runs on the host.
///
/// In a CUDA source Eigen takes itself for device code: nvcc then warns of its annotations, and its
/// vectors are off. The layers' device code does without it.
#pragma once

#if defined(__CUDACC__) && !defined(EIGEN_NO_CUDA)
#define EIGEN_NO_CUDA
#endif

#include <Eigen/Core>
