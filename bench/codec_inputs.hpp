// SPDX-License-Identifier: MIT
/// The inputs on which codecs are judged, each with the truth about which elements are outliers.
///
/// A codec must not be judged by what it calls an outlier itself, so the generators say what they
/// planted. All numbers come from the counter-based generator: the same on every machine, up to
/// the last bit of its logarithm.
#pragma once

#include <adacc/core/block.hpp>
#include <adacc/core/random.hpp>
#include <adacc/core/shape.hpp>
#include <adacc/core/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace codec_inputs {

/// A matrix, and for each of its elements whether it belongs to the bulk (1) or is an outlier (0).
struct Input {
  std::string name;
  std::size_t rows = 0, cols = 0;
  adacc::Block<float> x;
  std::vector<std::uint8_t> bulk;

  adacc::View<const float> view() const { return {x.data(), adacc::Shape(rows, cols)}; }
};

enum class Kind { clean, channels, massive, gelu, softmax, relu, indices };

constexpr const char* name_of(Kind kind) {
  constexpr const char* names[] = {"clean",   "channels", "massive", "gelu",
                                   "softmax", "relu",     "indices"};
  return names[static_cast<int>(kind)];
}

/// One in 128 columns is hit: 6 of 768.
constexpr bool is_hit_column(std::size_t col) { return col % 128 == 77; }
inline constexpr float hit_factor = 20;

/// About one element in 16384 is massive: 48 of 1024 x 768.
inline constexpr std::size_t massive_stretch = 16384;

/// Normally distributed, by Box and Muller.
inline float normal(const adacc::RandomKey& key, std::size_t element) {
  const adacc::PhiloxBlock words = adacc::random_block(key, element / 2);
  const std::size_t half = 2 * (element % 2);
  const float u = adacc::unit_float(words.word[half]), v = adacc::unit_float(words.word[half + 1]);
  return std::sqrt(-2 * std::log(1 - u)) * std::cos(6.2831853F * v);
}

inline float gelu(float x) {
  return 0.5F * x * (1 + std::tanh(0.79788456F * (x + 0.044715F * x * x * x)));
}

/// Makes rows of probabilities of rows of scores.
inline void softmax_rows(float* x, std::size_t rows, std::size_t cols) {
  for (std::size_t r = 0; r < rows; ++r) {
    float* row = x + r * cols;
    const float most = *std::max_element(row, row + cols);
    float sum = 0;
    for (std::size_t c = 0; c < cols; ++c) sum += row[c] = std::exp(row[c] - most);
    for (std::size_t c = 0; c < cols; ++c) row[c] /= sum;
  }
}

/// rows x cols numbers of a kind:
///   clean      standard normal
///   channels   the same, 6 columns of 768 times 20
///   massive    the same, and one element in each stretch of 16384 of magnitude 100 to 1000
///   gelu       GELU of standard normal numbers
///   softmax    rows that sum to 1: softmax of normal scores of standard deviation 2
///   relu       the positive part of clean
///   indices    whole numbers from 0 to 15
inline adacc::Result<Input> make(Kind kind, std::size_t rows, std::size_t cols) {
  const std::size_t size = rows * cols;
  auto block = adacc::Block<float>::make(size, "an input");
  if (!block) return block.error;
  Input input{name_of(kind), rows, cols, std::move(*block), std::vector<std::uint8_t>(size, 1)};
  float* x = input.x.data();
  const adacc::RandomKey key{.seed = 7, .purpose = adacc::Purpose::data};
  const adacc::RandomKey places{.seed = 8, .purpose = adacc::Purpose::data};
  for (std::size_t i = 0; i < size; ++i) x[i] = normal(key, i);
  switch (kind) {
    case Kind::clean: break;
    case Kind::channels:
      for (std::size_t i = 0; i < size; ++i)
        if (is_hit_column(i % cols)) x[i] *= hit_factor, input.bulk[i] = 0;
      break;
    case Kind::massive:
      for (std::size_t first = 0, n = 0; first < size; first += massive_stretch, ++n) {
        const std::size_t i = first + adacc::random_word(places, 3 * n) % massive_stretch;
        if (i >= size) continue;
        const float magnitude =
            std::pow(10.0F, 2 + adacc::unit_float(adacc::random_word(places, 3 * n + 1)));
        x[i] = (adacc::random_word(places, 3 * n + 2) & 1) == 0 ? magnitude : -magnitude;
        input.bulk[i] = 0;
      }
      break;
    case Kind::gelu:
      for (std::size_t i = 0; i < size; ++i) x[i] = gelu(x[i]);
      break;
    case Kind::softmax:
      for (std::size_t i = 0; i < size; ++i) x[i] *= 2;
      softmax_rows(x, rows, cols);
      break;
    case Kind::relu:
      for (std::size_t i = 0; i < size; ++i) x[i] = x[i] > 0 ? x[i] : 0;
      break;
    case Kind::indices:
      for (std::size_t i = 0; i < size; ++i)
        x[i] = static_cast<float>(adacc::random_word(key, i) % 16);
      break;
  }
  return input;
}

/// For tensors of which nobody knows the truth: the bulk is all but the 1 % largest in magnitude.
inline std::vector<std::uint8_t> bulk_of(adacc::View<const float> x) {
  std::vector<float> magnitudes(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) magnitudes[i] = std::fabs(x[i]);
  const auto limit =
      magnitudes.begin() + static_cast<std::ptrdiff_t>(x.size() - x.size() / 100) - 1;
  std::nth_element(magnitudes.begin(), limit, magnitudes.end());
  std::vector<std::uint8_t> bulk(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) bulk[i] = std::fabs(x[i]) <= *limit;
  return bulk;
}

}  // namespace codec_inputs
