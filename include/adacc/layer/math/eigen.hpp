// SPDX-License-Identifier: MIT
/// Eigen for code that runs on the host.
///
/// Eigen takes a CUDA source for device code: nvcc then warns of Eigen's annotations, and Eigen's vectors are off. The
/// layers' device code does without Eigen.
#pragma once

#if defined(__CUDACC__) && !defined(EIGEN_NO_CUDA)
#define EIGEN_NO_CUDA
#endif

#include <Eigen/Core>
