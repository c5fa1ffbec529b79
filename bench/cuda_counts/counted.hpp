// SPDX-License-Identifier: MIT
/// What cuda_counts counts: one direction of a codec, with options, or of a layer, on one tensor.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../../support/ptxrun/counters.hpp"

namespace cuda_counts {

struct Counted {
  std::string name, type;  ///< "int8_outlier", "f32"
  std::string direction;  ///< "encode", "decode", "check"; of layers what the instruction is called
  std::string data;       ///< "clean", "outliers": massive ones, in one element of 16384
  std::size_t elements;   ///< of the tensor; of layers of the output
  std::size_t bytes;      ///< that must be read or written at least: of the tensors and blobs
  std::vector<ptxrun::Counts> kernels;
  ptxrun::Products products{};
};

/// Runs all of them on the executor and appends what it counted.
void count_codecs(std::vector<Counted>& all);
void count_checks(std::vector<Counted>& all);
void count_layers(std::vector<Counted>& all);

}  // namespace cuda_counts
