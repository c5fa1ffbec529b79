// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/layer/dropout.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "layer_run.hpp"

namespace dropout_test {

using namespace adacc;

namespace {

/// Dropout of ones.
std::vector<float> mask(const Dropout& dropout, std::size_t size, const RandomKey& key,
                        bool training = true) {
  testing::GuardedBlock x(size * sizeof(float)), y(size * sizeof(float));
  for (std::size_t i = 0; i < size; ++i) x.as<float>()[i] = 1;
  Cpu cpu;
  cpu.key = key;
  cpu.training = training;
  dropout.forward(cpu, ForwardCall<float>{.x = {x.as<float>(), Shape(size)},
                                          .y = {y.as<float>(), Shape(size)}});
  return std::vector<float>(y.as<float>(), y.as<float>() + size);
}

}  // namespace

TEST_CASE("dropout: gradients, bits on any number of threads, every size") {
  for (const Shape shape : {Shape{1, 1}, Shape{3, 7}, Shape{4, 100}, Shape{130, 3}})
    for (const float rate : {0.0F, 0.1F, 0.9F}) {
      const auto result = testing::gradient_check(Dropout{rate}, shape);
      CHECK_MESSAGE(result.passed, result.text());
    }
  for (const std::size_t cols : {1U, 3U, 7U, 64U, 100U, 999U})
    for (const std::size_t rows : {1U, 2U, 130U}) {
      const auto serial = layer_tests::run<float>(Dropout{0.3F}, Shape{rows, cols}, 0);
      const auto exact = layer_tests::run<double>(Dropout{0.3F}, Shape{rows, cols}, 0);
      CHECK(layer_tests::distance(serial.y, exact.y) < 1e-6);
      for (int workers = 1; workers <= 3; ++workers)
        CHECK(serial == layer_tests::run<float>(Dropout{0.3F}, Shape{rows, cols}, workers));
    }
}

TEST_CASE("dropout: element e is dropped where word e of the stream is below the rate") {
  const RandomKey key{0x123456789ABCDEFULL, 77, 5, 12, Purpose::rounding};
  const std::size_t size = 16 * 1024 + 4321;  // beyond one tile, with a tail
  const auto y = mask(Dropout{0.25F}, size, key);
  const RandomKey expected = key.with_purpose(Purpose::dropout);
  bool equal = true;
  for (std::size_t i = 0; i < size; ++i)
    equal &= y[i] == (random_word(expected, i) < 0x40000000U ? 0.0F : 1.0F / 0.75F);
  CHECK(equal);
}

TEST_CASE("dropout: many blocks at once are the blocks of the generator") {
  const RandomKey key{~0ULL, 0xFFFFFFFF, 0xFFFF, 0x80000001, Purpose::dropout};
  for (const std::uint64_t first : {0ULL, 64ULL, 0xFFFFFFC0ULL, 0x100000000ULL, 0xFFFFFFFFC0ULL}) {
    std::uint32_t words[256];
    adacc::detail::random_words<64>(key, first, words);
    bool equal = true;
    for (std::size_t i = 0; i < 256; ++i) equal &= words[i] == random_word(key, 4 * first + i);
    CHECK(equal);
  }
}

TEST_CASE("dropout: keeps the share and the mean that it promises") {
  const std::size_t size = 200000;
  for (const float rate : {0.1F, 0.5F, 0.9F}) {
    const auto y = mask(Dropout{rate}, size, {3, 1, 0, 4, Purpose::dropout});
    double kept = 0, sum = 0;
    for (const float v : y) kept += v != 0, sum += static_cast<double>(v);
    const double expected = 1 - static_cast<double>(rate);
    const double n = static_cast<double>(size);
    const double sigma = std::sqrt(expected * (1 - expected) / n);
    CHECK(std::fabs(kept / n - expected) < 5 * sigma);
    CHECK(std::fabs(sum / n - 1) < 5 * sigma / expected);
  }
}

TEST_CASE("dropout: backward has forward's mask, also in place") {
  const std::size_t size = 5000;
  const Dropout dropout{0.4F};
  const RandomKey key{8, 9, 0, 11, Purpose::dropout};
  const auto y = mask(dropout, size, key);
  testing::GuardedBlock dy(size * sizeof(float));
  for (std::size_t i = 0; i < size; ++i) dy.as<float>()[i] = 1;
  Cpu cpu;
  cpu.key = key;
  dropout.backward(cpu, BackwardCall<float>{.dy = {dy.as<float>(), Shape(size)},
                                            .dx = {dy.as<float>(), Shape(size)}});
  CHECK(std::memcmp(dy.data(), y.data(), size * sizeof(float)) == 0);
}

TEST_CASE("dropout: other seeds, steps, micro-steps and activations have other masks") {
  const RandomKey key{1, 2, 3, 4, Purpose::dropout};
  const auto y = mask(Dropout{0.5F}, 256, key);
  CHECK(y == mask(Dropout{0.5F}, 256, key));
  CHECK(y != mask(Dropout{0.5F}, 256, {2, 2, 3, 4, Purpose::dropout}));
  CHECK(y != mask(Dropout{0.5F}, 256, {1, 3, 3, 4, Purpose::dropout}));
  CHECK(y != mask(Dropout{0.5F}, 256, {1, 2, 4, 4, Purpose::dropout}));
  CHECK(y != mask(Dropout{0.5F}, 256, {1, 2, 3, 5, Purpose::dropout}));
}

TEST_CASE("dropout: evaluation and a rate of 0 are the identity") {
  const std::vector<float> ones(3000, 1.0F);
  CHECK(mask(Dropout{0.7F}, 3000, {}, false) == ones);
  CHECK(mask(Dropout{0}, 3000, {}) == ones);
  CHECK(mask(Dropout{0.7F}, 3000, {}) != ones);
}

TEST_CASE("dropout: a NaN stays a NaN, dropped or not") {
  const std::size_t size = 300;
  testing::GuardedBlock x(size * sizeof(float));  // all NaN
  Cpu cpu;
  Dropout{0.5F}.forward(cpu, ForwardCall<float>{.x = {x.as<float>(), Shape(size)},
                                                .y = {x.as<float>(), Shape(size)}});
  for (std::size_t i = 0; i < size; ++i) CHECK(std::isnan(x.as<float>()[i]));
}

TEST_CASE("dropout: rates outside [0, 1) are refused") {
  CHECK(!Dropout{0}.needs(Shape(1), {}).error);
  CHECK(!Dropout{0.999F}.needs(Shape(1), {}).error);
  for (const float rate : {-0.1F, 1.0F, 2.0F, std::numeric_limits<float>::quiet_NaN()})
    CHECK(Dropout{rate}.needs(Shape(1), {}).error);
}

}  // namespace dropout_test
