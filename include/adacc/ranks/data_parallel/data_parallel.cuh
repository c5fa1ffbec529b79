// SPDX-License-Identifier: MIT
/// A DataParallel on CUDA devices, one for each rank.
///
///     auto devices = NcclGroup::make(host, {.stream = stream});
///     auto parallel = DataParallel<bfloat16, Cuda>::make(host, net, shape, {.context = *cuda},
///                                                        {.device_group = *devices});
///
/// Gradients are summed by kernels on streams beside the context's, while backward goes on there (rank_sums.cuh);
/// numbers that the host knows, plans and errors go through the group of the host.
#pragma once

#include "../../train/training.cuh"

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for an ignored Result
#include "data_parallel.hpp"
#pragma nv_diagnostic pop

#include "rank_sums.cuh"
