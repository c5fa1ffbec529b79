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

// Each is a file of its own for the compiler's sake. They run on the executor and append.
void count_int8(std::vector<Counted>& all);
void count_int4(std::vector<Counted>& all);
void count_others(std::vector<Counted>& all);

}  // namespace cuda_counts
