// SPDX-License-Identifier: MIT
/// The tensor that codecs and checks are counted on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <adacc/adacc.hpp>

namespace cuda_counts {

/// Rows are whole packets and whole tiles: what activations of models look like.
inline constexpr adacc::Shape counted_shape(256, 1024);

/// With `outliers`, massive ones in one element of 16384.
template <class T>
std::vector<T> numbers(bool outliers) {
  using namespace adacc;
  const RandomKey key{.seed = 1, .purpose = Purpose::data};
  std::vector<T> x(counted_shape.elems());
  for (std::size_t e = 0; e < x.size(); ++e) {
    float sum = -2;
    for (const std::uint32_t word : random_block(key, e).word) sum += unit_float(word);
    if (outliers && random_word(key, e) % 16384 == 0) sum *= 300;
    x[e] = detail::from_number<T>(sum);
  }
  return x;
}

}  // namespace cuda_counts
