// SPDX-License-Identifier: MIT
/// What the host and the device of the test of checked rows give each other.
#pragma once

#include <adacc/adapter/torch/side_rows.hpp>
#include <adacc/core/bfloat16.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// An encoding, in pieces of `piece` rows each with a blob of its own.
template <class T>
struct CheckedEncoding {
  std::vector<T> x;
  std::size_t rows, cols, piece, part;
  std::vector<std::vector<std::byte>> blobs;
  std::vector<adacc::torch::RowScales> scales;  ///< by piece
  adacc::torch::RowLimits limits;
};

struct FoundRows {
  adacc::torch::RowReport report;
  std::vector<std::uint32_t> kept;  ///< ascending
  bool exact = true;  ///< all kept rows came back unchanged, and no other row was written
};

FoundRows found_on_device(const CheckedEncoding<float>& encoding);
FoundRows found_on_device(const CheckedEncoding<adacc::bfloat16>& encoding);
