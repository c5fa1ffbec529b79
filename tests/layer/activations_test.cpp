// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/layer/erf_gelu.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/math/lanes.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/silu.hpp>
#include <adacc/layer/swiglu.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "layer_run.hpp"

namespace activations_test {

using namespace adacc;

namespace {

/// Forward in T of every element of `in`.
template <class T, class F>
std::vector<T> forward(const F& f, const std::vector<T>& in) {
  testing::GuardedBlock x(in.size() * sizeof(T)), y(in.size() * sizeof(T));
  for (std::size_t i = 0; i < in.size(); ++i) x.as<T>()[i] = in[i];
  Cpu cpu;
  f.forward(cpu, View<const T>(x.as<T>(), Shape(in.size())), View<T>(y.as<T>(), Shape(in.size())));
  return std::vector<T>(y.as<T>(), y.as<T>() + in.size());
}

/// dx where dy is 1. `read` is what backward reads.
template <class T, class F>
std::vector<T> slope(const F& f, const std::vector<T>& read) {
  testing::GuardedBlock x(read.size() * sizeof(T)), dy(read.size() * sizeof(T));
  for (std::size_t i = 0; i < read.size(); ++i) x.as<T>()[i] = read[i], dy.as<T>()[i] = 1;
  Cpu cpu;
  const Shape shape(read.size());
  f.backward(cpu, View<const T>(x.as<T>(), shape), View<const T>(dy.as<T>(), shape),
             View<T>(dy.as<T>(), shape));
  return std::vector<T>(dy.as<T>(), dy.as<T>() + read.size());
}

/// Many elements from -limit to limit, so that vectors and their tails are both met.
template <class T>
std::vector<T> line(double limit) {
  std::vector<T> values;
  for (int i = -1000; i <= 1000; ++i) values.push_back(static_cast<T>(limit * i / 1000));
  return values;
}

template <class F>
void check_activation(const F& f) {
  for (const Shape shape : {Shape{1, 1}, Shape{3, 7}, Shape{5, 100}, Shape{130, 3}}) {
    const auto result = testing::gradient_check(f, shape);
    CHECK_MESSAGE(result.passed, result.text());
  }
  for (const std::size_t cols : {1U, 3U, 7U, 64U, 100U})
    for (const std::size_t rows : {1U, 2U, 17U, 130U}) {
      const auto serial = layer_tests::run<float>(f, Shape{rows, cols}, 0);
      const auto exact = layer_tests::run<double>(f, Shape{rows, cols}, 0);
      CHECK(layer_tests::distance(serial.y, exact.y) < 2e-6);
      CHECK(layer_tests::distance(serial.dx, exact.dx) < 4e-6);
    }
  const Shape large{3, 50, 999};  // several tiles, and a tail
  const auto serial = layer_tests::run<float>(f, large, 0);
  for (int workers = 1; workers <= 3; ++workers)
    CHECK(serial == layer_tests::run<float>(f, large, workers));
}

template <class T, class F>
void check_nan(const F& f) {
  for (const std::size_t size : {1U, 16U, 21U, 600U}) {
    std::vector<T> x(size, T(-1));
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      std::vector<T> poisoned = x;
      poisoned[at] = std::numeric_limits<T>::quiet_NaN();
      const auto y = forward(f, poisoned), dx = slope(f, poisoned);
      for (std::size_t i = 0; i < size; ++i) {
        CHECK(std::isnan(y[i]) == (i == at));
        CHECK(std::isnan(dx[i]) == (i == at));
      }
    }
  }
}

/// to[i] = from[i], by way of vectors of a target.
template <class T, class Target>
void copy_lanes(const T* from, std::size_t n, float* wide, T* to) {
  detail::each_vector<float, Target>(n, [&]<class V>(std::size_t i) {
    const V numbers = detail::load_lanes<V>(from + i);
    numbers.store(wide + i);
    detail::store_lanes(numbers, to + i);
  });
}
template <class Target>
void round_lanes(const float* from, std::size_t n, bfloat16* to) {
  detail::each_vector<float, Target>(
      n, [&]<class V>(std::size_t i) { detail::store_lanes(V::load(from + i), to + i); });
}

/// Calls run(target) with the target of every level that the processor has.
template <class Run>
void at_every_level(const Run& run) {
  for (const InstructionLevel level : instruction_levels)
    if (has_level(level)) detail::with_target(level, run);
}

}  // namespace

TEST_CASE("vectors of bfloat16 are widened and rounded as single numbers, at every level") {
  constexpr std::size_t halves = 0x10000, count = halves + 5;  // and a few behind whole vectors
  std::vector<bfloat16> all(count), back(count);
  std::vector<float> wide(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = {static_cast<std::uint16_t>(i)};
  at_every_level([&]<class Target>(Target) {
    Target::template call<copy_lanes<bfloat16, Target>>(all.data(), count, wide.data(),
                                                        back.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float expected = to_float(all[i]);
      if (std::memcmp(&wide[i], &expected, sizeof expected) != 0) ++wrong;
      if (back[i] != to_bfloat16(expected)) ++wrong;
    }
    CHECK(wrong == 0);
  });
  // Ties, carries into the exponent, overflow, and NaNs whose payload lies in the lower half alone.
  const std::uint32_t lower[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
  std::vector<float> numbers;
  for (std::uint32_t upper = 0; upper < halves; upper += 7)
    for (const std::uint32_t bits : lower)
      numbers.push_back(detail::bits_as<float>(upper << 16 | bits));
  for (const std::uint32_t upper : {0x7F80U, 0xFF80U, 0x7F7FU, 0xFF7FU})
    for (const std::uint32_t bits : lower)
      numbers.push_back(detail::bits_as<float>(upper << 16 | bits));
  std::vector<bfloat16> rounded(numbers.size());
  at_every_level([&]<class Target>(Target) {
    Target::template call<round_lanes<Target>>(numbers.data(), numbers.size(), rounded.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (rounded[i] != to_bfloat16(numbers[i])) ++wrong;
    CHECK(wrong == 0);
  });
}

TEST_CASE("activations: every level has their values, in vectors and behind them") {
  const auto check = []<class Op>(Op op, const auto& reference, float most) {
    const std::vector<float> x = line<float>(12);
    const std::size_t n = x.size() - 8;
    std::vector<float> y(n);
    at_every_level([&]<class Target>(Target) {
      for (const std::size_t skip : {0U, 1U, 8U}) {
        Target::template call<detail::map_numbers_at<Op, float, Target, float>>(n, y.data(),
                                                                                x.data() + skip);
        for (std::size_t i = 0; i < n; ++i) {
          CHECK(std::fabs(y[i] - reference(x[skip + i])) < most);
          float alone = 0;
          using V = detail::VecOf<float, 1, Target>;
          op(V::load(x.data() + skip + i)).store(&alone);
          CHECK(std::fabs(y[i] - alone) < most);
        }
      }
    });
  };
  check(
      detail::GeluValue{},
      [](float x) { return x / (1 + std::exp(-2 * 0.797884561F * x * (1 + 0.044715F * x * x))); },
      4e-6F);
  check(
      detail::SiluValue{}, [](float x) { return x / (1 + std::exp(-x)); }, 4e-6F);
  check(
      detail::ErfGeluValue{}, [](float x) { return x * std::erfc(-x * 0.707106781F) / 2; }, 4e-6F);
}

TEST_CASE("activations: gradients, float against double, bits on any number of threads") {
  check_activation(Gelu{});
  check_activation(ErfGelu{});
  check_activation(Relu{});
  check_activation(Silu{});
}

TEST_CASE("activations: a NaN stays where it is and stays a NaN") {
  check_nan<float>(Gelu{});
  check_nan<float>(ErfGelu{});
  check_nan<float>(Relu{});
  check_nan<float>(Silu{});
  check_nan<double>(Gelu{});
  check_nan<double>(ErfGelu{});
  check_nan<double>(Relu{});
  check_nan<double>(Silu{});
}

TEST_CASE("gelu: is GPT-2's formula with a hyperbolic tangent") {
  const auto check = []<class T>(T tolerance) {
    const auto x = line<T>(12);
    const auto y = forward(Gelu{}, x), dx = slope(Gelu{}, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      const double c = std::sqrt(2 / std::acos(-1.0));
      const double t = std::tanh(c * (v + 0.044715 * v * v * v));
      const double expected = 0.5 * v * (1 + t);
      const double expected_slope =
          0.5 * (1 + t) + 0.5 * v * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v);
      CHECK(std::fabs(static_cast<double>(y[i]) - expected) <=
            static_cast<double>(tolerance) * (1 + std::fabs(expected)));
      CHECK(std::fabs(static_cast<double>(dx[i]) - expected_slope) <=
            static_cast<double>(tolerance) * 2);
    }
  };
  check(1e-12);
  check(1e-6F);
}

TEST_CASE("erf gelu: is its definition, to a part of itself even where it is tiny") {
  const auto check = []<class T>(T tolerance, double limit) {
    const auto x = line<T>(limit);
    const auto y = forward(ErfGelu{}, x), dx = slope(ErfGelu{}, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      const double phi = 0.5 * std::erfc(-v / std::sqrt(2.0));
      const double expected = v * phi;
      const double expected_slope =
          phi + v * std::exp(-0.5 * v * v) / std::sqrt(2 * std::acos(-1.0));
      // The rounding of x^2 alone is worth half its units in the exponential.
      CHECK(std::fabs(static_cast<double>(y[i]) - expected) <=
            static_cast<double>(tolerance) * (2 + v * v) * std::fabs(expected));
      CHECK(std::fabs(static_cast<double>(dx[i]) - expected_slope) <=
            static_cast<double>(tolerance) * 2);
    }
  };
  check(1e-15, 12);
  check(2e-7F, 8);
}

TEST_CASE("swiglu: gradients, float against double, bits on any number of threads") {
  for (const Shape shape : {Shape{1, 2}, Shape{3, 14}, Shape{5, 200}, Shape{130, 6}}) {
    const auto result = testing::gradient_check(SwiGlu{}, shape);
    CHECK_MESSAGE(result.passed, result.text());
    const auto serial = layer_tests::run<float>(SwiGlu{}, shape, 0);
    const auto exact = layer_tests::run<double>(SwiGlu{}, shape, 0);
    CHECK(layer_tests::distance(serial.y, exact.y) < 2e-6);
    CHECK(layer_tests::distance(serial.dx, exact.dx) < 4e-6);
  }
  const Shape large{3, 50, 2046};
  CHECK(layer_tests::run<float>(SwiGlu{}, large, 0) == layer_tests::run<float>(SwiGlu{}, large, 3));
  const double x[] = {1, -2, 3, 5};  // gates, then what they gate
  double y[2] = {};
  Cpu cpu;
  SwiGlu{}.forward(cpu, View<const double>(x, Shape(1, 4)), View<double>(y, Shape(1, 2)));
  CHECK(y[0] == doctest::Approx(3 / (1 + std::exp(-1.0))));
  CHECK(y[1] == doctest::Approx(-10 / (1 + std::exp(2.0))));
  CHECK(SwiGlu{}.needs(Shape(2, 3), {}).error);
}

TEST_CASE("activations: far from zero they are x or 0, and their slopes 1 or 0") {
  const std::vector<float> x = {-1e15F, -1e6F, -100, -40, 40, 100, 1e6F, 1e15F};
  const auto check = [&](const auto& f, const std::vector<float>& read) {
    const auto y = forward(f, x), dx = slope(f, read);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(std::fabs(y[i] - (x[i] > 0 ? x[i] : 0)) <= 1e-12F);
      CHECK(std::fabs(dx[i] - (x[i] > 0 ? 1 : 0)) <= 1e-9F);
    }
  };
  check(Gelu{}, x);
  check(ErfGelu{}, x);
  check(Silu{}, x);
  check(Relu{}, forward(Relu{}, x));
}

TEST_CASE("relu: at zero the output is zero and the slope 0") {
  const std::vector<double> x = {-2, 0, 3};
  CHECK(forward(Relu{}, x) == std::vector<double>{0, 0, 3});
  CHECK(slope(Relu{}, forward(Relu{}, x)) == std::vector<double>{0, 0, 1});
}

TEST_CASE("relu: elements at the kink can be left out of a gradient check") {
  const double x[] = {0, -1, 2, 0, 0.5};
  const View<const double> given(x, Shape(5));
  const auto strict = testing::gradient_check(Relu{}, Shape(5), {.x = given});
  CHECK(!strict.passed);
  const auto lenient = testing::gradient_check(Relu{}, Shape(5), {.skip_kinks = true, .x = given});
  CHECK_MESSAGE(lenient.passed, lenient.text());
  CHECK(lenient.excluded == 2);
  CHECK(lenient.compared == 3);
}

}  // namespace activations_test
