// SPDX-License-Identifier: MIT
/// What cuda_counts counts: codecs with their options, one direction of one tensor each.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../../support/ptxrun/counters.hpp"

namespace cuda_counts {

struct Counted {
  std::string codec, type;  ///< "int8_outlier", "f32"
  bool encode;
  bool outliers;  ///< massive ones, in one element of 16384
  std::size_t elements, tensor_bytes, blob_bytes;
  std::vector<ptxrun::Counts> kernels;
};

/// Runs all of them on the executor and appends what it counted.
void count_all(std::vector<Counted>& all);

}  // namespace cuda_counts
