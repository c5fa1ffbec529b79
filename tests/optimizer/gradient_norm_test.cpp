// SPDX-License-Identifier: MIT
#include "adacc/optimizer/gradient_norm.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "../train/support.hpp"

namespace gradient_norm_test { namespace {

using namespace adacc;

double norm_of(std::vector<float>& grads, int threads) {
  train_test::Threads executor{threads};
  Cpu cpu{ExecutorRef(executor)};
  return gradient_norm(cpu, View<const float>(grads.data(), Shape(grads.size())));
}

TEST_CASE("the norm agrees with a plain sum, at sizes around the chunk's") {
  for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32769},
                           std::size_t{1000003}}) {
    CAPTURE(size);
    std::vector<float> grads(size);
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      grads[i] = std::sin(static_cast<float>(i));
      sum += static_cast<double>(grads[i]) * static_cast<double>(grads[i]);
    }
    CHECK(std::fabs(norm_of(grads, 1) - std::sqrt(sum)) <= 1e-12 * std::sqrt(sum));
  }
}

TEST_CASE("the norm covers the last element when there are more chunks than partial sums") {
  std::vector<float> grads(257 * 32768 + 1);
  grads.back() = 3;
  grads[0] = 4;
  CHECK(norm_of(grads, 1) == 5);
}

TEST_CASE("squares of large gradients do not overflow") {
  std::vector<float> grads(100, 1e30F);
  CHECK(norm_of(grads, 1) == doctest::Approx(1e31));
}

TEST_CASE("the norm's bits do not depend on the number of threads") {
  std::vector<float> grads(700001);
  for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = std::cos(0.7F * static_cast<float>(i));
  const double one = norm_of(grads, 1);
  for (int threads : {2, 3}) {
    const double other = norm_of(grads, threads);
    CHECK(std::memcmp(&one, &other, sizeof one) == 0);
  }
}

TEST_CASE("a gradient that is not finite makes the norm not finite") {
  std::vector<float> grads(1000, 1.0F);
  grads[777] = NAN;
  CHECK(std::isnan(norm_of(grads, 1)));
  grads[777] = INFINITY;
  CHECK(std::isinf(norm_of(grads, 1)));
}

TEST_CASE("clipping scales down only, and 0 is off") {
  CHECK(clip_scale(4, 1) == 0.25);
  CHECK(clip_scale(0.5, 1) == 1);
  CHECK(clip_scale(1, 1) == 1);
  CHECK(clip_scale(100, 0) == 1);
  CHECK(clip_scale(0, 1) == 1);
}

}}  // namespace gradient_norm_test
