// SPDX-License-Identifier: MIT
/// Stochastic rounding of quantizing codecs: unbiased, and keyed.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant_cases.hpp"

namespace quant_stochastic_test { namespace {

using namespace quant_cases;

TEST_CASE("stochastic rounding is unbiased, and keyed") {
  constexpr std::size_t cols = 96;
  Matrix<float> x(64, cols);  // two rows that set the scale of columns, and 5952 draws
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = i / cols == 0 ? -1.0F : i / cols == 1 ? 1.0F : 0.1F;
  const auto check_mean = [&]<class Codec>(Codec) {
    const Read<float> read = read_quant<Codec, float>(encoded<Codec>(x), 64, cols);
    double sum = 0, squares = 0;
    const double n = 62 * cols;
    for (std::size_t i = 2 * cols; i < x.size(); ++i) {
      const double error = static_cast<double>(read.x[i]) - static_cast<double>(x[i]);
      sum += error;
      squares += error * error;
    }
    const double mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
    CHECK(deviation > 0);
    CHECK(std::abs(mean) < 4 * deviation / std::sqrt(n));
  };
  check_mean(Int8OutlierWith<stochastic>{});
  check_mean(Int4OutlierWith<stochastic>{});
  check_mean(Int4OutlierWith<symmetric_stochastic>{});

  using Codec = Int8OutlierWith<stochastic>;
  const RandomKey key{.seed = 1, .step = 2, .activation = 3};
  const auto with = [&](const RandomKey& k) {
    Cpu cpu;
    cpu.key = k;
    return encoded<Codec>(x, 0, cpu);
  };
  const Blob blob = with(key);
  CHECK(with(key) == blob);
  RandomKey other = key;
  other.seed = 2;
  CHECK(!(with(other) == blob));
  other = key, other.step = 3;
  CHECK(!(with(other) == blob));
  CHECK(!(with(key.with_activation(4)) == blob));
  CHECK(with(key.with_purpose(Purpose::data)) == blob);  // the purpose is the codec's
  // Every element its own halfword: those that the specification names.
  const RandomKey stream = key.with_purpose(Purpose::rounding);
  const Read<float> read = read_quant<Codec, float>(blob, 64, cols);
  for (std::size_t i = 2 * cols; i < 4 * cols; ++i) {
    const std::uint32_t word = random_word(stream, i / 2);
    const std::uint32_t half = i % 2 == 0 ? word & 0xFFFF : word >> 16;
    const double steps = (static_cast<double>(x[i]) - static_cast<double>(read.low[i])) /
                         static_cast<double>(read.scale[i]) * 65536;
    const double code = std::floor((std::floor(steps) + half) / 65536);
    CHECK(read.x[i] == doctest::Approx(static_cast<double>(read.low[i]) +
                                       code * static_cast<double>(read.scale[i])));
  }
}

}}  // namespace quant_stochastic_test
