// SPDX-License-Identifier: MIT
#include "adacc/layer/causal_attention.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <adacc/testing/permuted_executor.hpp>

#include "guarded_buffer.hpp"

namespace causal_attention_test { namespace {

using namespace adacc;

struct Case {
  std::size_t batch, time, heads, size;
  std::size_t channels() const { return heads * size; }
  Shape in() const { return Shape(batch, time, 3 * channels()); }
  Shape out() const { return Shape(batch, time, channels()); }
};

template <class T>
struct Computed {
  std::vector<T> out, sums, dqkv;
  bool guards = true;

  bool same_bits(const Computed& other) const {
    return same(out, other.out) && same(sums, other.sums) && same(dqkv, other.dqkv);
  }
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }
};

/// Forward on `qkv`, and backward on the same; or, where `decoded` is given, on that, with an
/// output and an aux that are none: an inexact input forbids their use.
template <class T>
Computed<T> compute(const Case& c, const std::vector<double>& qkv, const std::vector<double>& dout,
                    Cpu ctx = {}, const std::vector<double>* decoded = nullptr,
                    bool exact_output = true) {
  const CausalAttention layer{c.heads};
  const std::size_t in = c.in().elems(), out = c.out().elems();
  const std::size_t aux_bytes = layer.needs(c.in(), {dtype_of<T>}).aux;
  GuardedBuffer<T> x(in), y(out), dy(out), dx(in);
  GuardedBuffer<std::byte> aux(aux_bytes);
  for (std::size_t i = 0; i < in; ++i) x[i] = static_cast<T>(qkv[i]);
  for (std::size_t i = 0; i < out; ++i) dy[i] = static_cast<T>(dout[i]);
  const std::size_t forward_bytes =
      layer.needs(c.in(), {dtype_of<T>, ctx.workers(), Pass::forward}).workspace;
  const std::size_t backward_bytes =
      layer.needs(c.in(), {dtype_of<T>, ctx.workers(), Pass::backward}).workspace;
  GuardedBuffer<std::byte> forward_space(forward_bytes), backward_space(backward_bytes);

  call_forward(layer, ctx,
               ForwardCall<T>{.x = {x.data(), c.in()},
                              .y = {y.data(), c.out()},
                              .aux = {aux.data(), Shape(aux_bytes)},
                              .workspace = {forward_space.data(), Shape(forward_bytes)}});
  Computed<T> result;
  result.out.assign(y.data(), y.data() + out);
  result.sums.resize(aux_bytes / sizeof(T));
  std::memcpy(result.sums.data(), aux.data(), aux_bytes);
  if (decoded != nullptr) {
    for (std::size_t i = 0; i < in; ++i) x[i] = static_cast<T>((*decoded)[i]);
    for (std::size_t i = 0; i < out; ++i) y[i] = std::numeric_limits<T>::quiet_NaN();
    std::memset(aux.data(), 0xFF, aux_bytes);
  }
  call_backward(layer, ctx,
                BackwardCall<T>{.x = {x.data(), c.in()},
                                .y = {y.data(), c.out()},
                                .dy = {dy.data(), c.out()},
                                .dx = {dx.data(), c.in()},
                                .aux = {aux.data(), Shape(aux_bytes)},
                                .workspace = {backward_space.data(), Shape(backward_bytes)},
                                .exact_input = decoded == nullptr,
                                .exact_output = exact_output});

  result.dqkv.assign(dx.data(), dx.data() + in);
  result.guards = x.guard_intact() && y.guard_intact() && dy.guard_intact() && dx.guard_intact() &&
                  aux.guard_intact() && forward_space.guard_intact() &&
                  backward_space.guard_intact();
  return result;
}

// The definition: a T x T matrix of probabilities per head.
Computed<double> reference(const Case& c, const std::vector<double>& qkv,
                           const std::vector<double>& dout) {
  const std::size_t width = 3 * c.channels(), time = c.time;
  Computed<double> result;
  result.out.assign(c.out().elems(), 0);
  result.dqkv.assign(c.in().elems(), 0);
  const double scale = 1 / std::sqrt(double(c.size));
  for (std::size_t b = 0; b < c.batch; ++b)
    for (std::size_t h = 0; h < c.heads; ++h) {
      const auto at = [&](std::size_t part, std::size_t t, std::size_t d) {
        return (b * time + t) * width + part * c.channels() + h * c.size + d;
      };
      const auto out_at = [&](std::size_t t, std::size_t d) {
        return (b * time + t) * c.channels() + h * c.size + d;
      };
      for (std::size_t t = 0; t < time; ++t) {
        std::vector<double> p(t + 1), dp(t + 1, 0.0);
        double top = -std::numeric_limits<double>::infinity(), sum = 0, mean = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          p[s] = 0;
          for (std::size_t d = 0; d < c.size; ++d) p[s] += qkv[at(0, t, d)] * qkv[at(1, s, d)];
          p[s] *= scale;
          top = std::fmax(top, p[s]);
        }
        for (double& value : p) sum += value = std::exp(value - top);
        result.sums.push_back(top + std::log(sum));
        for (std::size_t s = 0; s <= t; ++s) {
          p[s] /= sum;
          for (std::size_t d = 0; d < c.size; ++d) {
            result.out[out_at(t, d)] += p[s] * qkv[at(2, s, d)];
            dp[s] += dout[out_at(t, d)] * qkv[at(2, s, d)];
            result.dqkv[at(2, s, d)] += p[s] * dout[out_at(t, d)];
          }
          mean += p[s] * dp[s];
        }
        for (std::size_t s = 0; s <= t; ++s)
          for (std::size_t d = 0; d < c.size; ++d) {
            const double ds = scale * p[s] * (dp[s] - mean);
            result.dqkv[at(0, t, d)] += ds * qkv[at(1, s, d)];
            result.dqkv[at(1, s, d)] += ds * qkv[at(0, t, d)];
          }
      }
    }
  return result;
}

template <class A, class B>
double largest_difference(const std::vector<A>& a, const std::vector<B>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double(a[i]) - double(b[i]));
    if (!(difference <= largest)) largest = difference;  // NaN is the largest of all
  }
  return largest;
}

const Case cases[] = {{2, 1, 1, 1},  {1, 2, 2, 3},    {1, 63, 1, 16}, {2, 64, 3, 8},
                      {1, 65, 2, 5}, {1, 130, 2, 24}, {1, 66, 1, 64}, {2, 129, 2, 33}};

TEST_CASE("attention equals its definition, in double and in float") {
  for (const Case& c : cases) {
    CAPTURE(c.time);
    CAPTURE(c.size);
    const auto qkv = random_values(c.in().elems(), 1, 2), dout = random_values(c.out().elems(), 2);
    const auto expected = reference(c, qkv, dout);
    const auto wide = compute<double>(c, qkv, dout);
    CHECK(largest_difference(wide.out, expected.out) < 1e-13);
    CHECK(largest_difference(wide.sums, expected.sums) < 1e-13);
    CHECK(largest_difference(wide.dqkv, expected.dqkv) < 1e-12);
    CHECK(wide.guards);
    const auto narrow = compute<float>(c, qkv, dout);
    CHECK(largest_difference(narrow.out, expected.out) < 5e-6);
    CHECK(largest_difference(narrow.sums, expected.sums) < 5e-6);
    CHECK(largest_difference(narrow.dqkv, expected.dqkv) < 3e-5);
    CHECK(narrow.guards);
  }
}

TEST_CASE("attention's gradient equals finite differences") {
  for (const Case& c : {Case{1, 3, 2, 4}, Case{1, 66, 2, 3}}) {
    auto qkv = random_values(c.in().elems(), 3);
    const auto dout = random_values(c.out().elems(), 4);
    const auto gradient = compute<double>(c, qkv, dout).dqkv;
    const auto value = [&] {
      const auto out = compute<double>(c, qkv, dout).out;
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
      return sum;
    };
    const double step = 1e-5;
    for (std::size_t i = 0; i < qkv.size(); i += 1 + qkv.size() / 97) {
      const double middle = qkv[i];
      qkv[i] = middle + step;
      const double above = value();
      qkv[i] = middle - step;
      const double below = value();
      qkv[i] = middle;
      CHECK(gradient[i] == doctest::Approx((above - below) / (2 * step)).epsilon(1e-7));
    }
  }
}

/// What a lossy codec might make of `exact`.
std::vector<double> perturbed(std::vector<double> exact, std::uint64_t seed) {
  const auto error = random_values(exact.size(), seed, 0.2);
  for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += error[i];
  return exact;
}

TEST_CASE("beside inexact input, attention's gradient is that of its definition on what it reads") {
  for (const Case& c : cases) {
    CAPTURE(c.time);
    CAPTURE(c.size);
    const auto qkv = random_values(c.in().elems(), 1, 2), dout = random_values(c.out().elems(), 2);
    const auto decoded = perturbed(qkv, 21);
    const auto expected = reference(c, decoded, dout);
    const auto wide = compute<double>(c, qkv, dout, {}, &decoded);
    CHECK(largest_difference(wide.dqkv, expected.dqkv) < 1e-12);
    CHECK(wide.guards);
    const auto narrow = compute<float>(c, qkv, dout, {}, &decoded);
    CHECK(largest_difference(narrow.dqkv, expected.dqkv) < 3e-5);
    CHECK(narrow.guards);
    // Both ways to compute it agree where nothing was lost, and trusting what was saved would not
    // do.
    const auto exact = compute<double>(c, qkv, dout);
    CHECK(largest_difference(compute<double>(c, qkv, dout, {}, &qkv).dqkv, exact.dqkv) < 1e-12);
    if (c.time > 1) CHECK(largest_difference(wide.dqkv, exact.dqkv) > 1e-3);
  }
}

TEST_CASE("an inexact output alone is not read either") {
  const Case c{1, 130, 2, 24};
  const auto qkv = random_values(c.in().elems(), 1, 2), dout = random_values(c.out().elems(), 2);
  const auto again = compute<double>(c, qkv, dout, {}, nullptr, false),
             exact = compute<double>(c, qkv, dout);
  CHECK(largest_difference(again.dqkv, exact.dqkv) < 1e-12);
  CHECK_FALSE(again.same_bits(exact));  // else the output was read
}

TEST_CASE("beside inexact input, attention's gradient equals finite differences there") {
  for (const Case& c : {Case{1, 3, 2, 4}, Case{1, 66, 2, 3}}) {
    const auto qkv = random_values(c.in().elems(), 3), dout = random_values(c.out().elems(), 4);
    auto decoded = perturbed(qkv, 22);
    const auto gradient = compute<double>(c, qkv, dout, {}, &decoded).dqkv;
    const auto value = [&] {
      const auto out = compute<double>(c, decoded, dout).out;
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
      return sum;
    };
    const double step = 1e-5;
    for (std::size_t i = 0; i < decoded.size(); i += 1 + decoded.size() / 97) {
      const double middle = decoded[i];
      decoded[i] = middle + step;
      const double above = value();
      decoded[i] = middle - step;
      const double below = value();
      decoded[i] = middle;
      CHECK(gradient[i] == doctest::Approx((above - below) / (2 * step)).epsilon(1e-7));
    }
  }
}

TEST_CASE("attention has the same bits for any number of workers and any order of tiles") {
  const Case c{2, 200, 3, 20};
  const auto qkv = random_values(c.in().elems(), 5), dout = random_values(c.out().elems(), 6);
  const auto serial = compute<float>(c, qkv, dout);
  const auto decoded = perturbed(qkv, 23);
  const auto serial_again = compute<float>(c, qkv, dout, {}, &decoded);
  for (int workers = 1; workers <= 3; ++workers)
    for (std::size_t stride : {std::size_t{1}, std::size_t{5}, std::size_t{11}}) {
      testing::PermutedExecutor executor(workers, stride);
      const auto other = compute<float>(c, qkv, dout, Cpu(executor));
      CHECK(serial.same_bits(other));
      CHECK(other.guards);
      CHECK(serial_again.same_bits(compute<float>(c, qkv, dout, Cpu(executor), &decoded)));
    }
}

TEST_CASE("attention's scores may be large: nothing overflows") {
  const Case c{1, 130, 1, 16};
  const auto qkv = random_values(c.in().elems(), 7, 200), dout = random_values(c.out().elems(), 8);
  const auto expected = reference(c, qkv, dout);
  const auto wide = compute<double>(c, qkv, dout);
  CHECK(largest_difference(wide.out, expected.out) < 1e-8);
  CHECK(largest_difference(wide.dqkv, expected.dqkv) < 1e-6);
  for (const float value : compute<float>(c, qkv, dout).dqkv) CHECK(std::isfinite(value));
  const auto decoded = perturbed(qkv, 24);
  const auto again = compute<double>(c, qkv, dout, {}, &decoded);
  CHECK(largest_difference(again.dqkv, reference(c, decoded, dout).dqkv) < 1e-6);
  for (const float value : compute<float>(c, qkv, dout, {}, &decoded).dqkv)
    CHECK(std::isfinite(value));
}

TEST_CASE("a later position does not touch an earlier one") {
  const Case c{1, 130, 2, 16};
  auto qkv = random_values(c.in().elems(), 9);
  const auto dout = random_values(c.out().elems(), 10);
  const auto before = compute<float>(c, qkv, dout);
  const std::size_t changed = 70;
  for (std::size_t i = changed * 3 * c.channels(); i < qkv.size(); ++i) qkv[i] += 1;
  const auto after = compute<float>(c, qkv, dout);
  const std::size_t bytes = changed * c.channels() * sizeof(float);
  CHECK(std::memcmp(before.out.data(), after.out.data(), bytes) == 0);
  CHECK(before.out[changed * c.channels()] != after.out[changed * c.channels()]);
}

TEST_CASE("what is not finite stays visible") {
  const Case c{1, 130, 1, 16};
  const auto clean = random_values(c.in().elems(), 11), dout = random_values(c.out().elems(), 12);
  const double bad[] = {std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity()};
  for (const double value : bad)
    for (std::size_t part = 0; part < 3; ++part)
      for (std::size_t position : {std::size_t{0}, std::size_t{66}}) {
        CAPTURE(value);
        CAPTURE(part);
        auto qkv = clean;
        qkv[position * 48 + part * 16 + 3] = value;
        const auto result = compute<float>(c, qkv, dout);
        bool seen = false;
        for (std::size_t d = 0; d < 16; ++d) {
          seen = seen || !std::isfinite(result.out[position * 16 + d]);
          if (position > 8) CHECK(std::isfinite(result.out[(position - 8) * 16 + d]));
        }
        // Minus infinity as a score is a weight of zero, so an infinite key shows only in those
        // queries whose component has its sign, and always in the gradient.
        if (part != 1 || std::isnan(value)) CHECK(seen);
        bool in_gradient = false;
        for (const float g : result.dqkv) in_gradient = in_gradient || !std::isfinite(g);
        CHECK(in_gradient);
        bool in_gradient_again = false;
        for (const float g : compute<float>(c, clean, dout, {}, &qkv).dqkv)
          in_gradient_again = in_gradient_again || !std::isfinite(g);
        CHECK(in_gradient_again);
      }
  auto dbad = dout;
  dbad[100] = bad[0];
  bool in_gradient = false;
  for (const float g : compute<float>(c, clean, dbad).dqkv)
    in_gradient = in_gradient || !std::isfinite(g);
  CHECK(in_gradient);
}

TEST_CASE("attention refuses shapes that it cannot split") {
  const auto text = [](std::size_t heads, Shape in) {
    return std::string(CausalAttention{heads}.needs(in, {}).error.text());
  };
  CHECK(text(2, Shape(1, 4, 12)).empty());
  CHECK(text(0, Shape(1, 4, 12)).find("0") != std::string::npos);
  CHECK(text(3, Shape(1, 4, 12)) == "attention's 3 heads do not divide its 4 channels");
  CHECK(text(2, Shape(1, 4, 13)).find("13 columns are not divisible by 3") != std::string::npos);
  CHECK(text(2, Shape(4, 12)).find("2 extents") != std::string::npos);
  CHECK(text(2, Shape(1, 0, 12)).find("(1, 0, 12)") != std::string::npos);
  const std::size_t huge = std::size_t{1} << 40;
  CHECK(text(2, Shape(huge, huge, 12)).find("too large") != std::string::npos);
  CHECK(text(1, Shape(std::size_t{1} << 61, 1, 3)).find("too large") != std::string::npos);
}

TEST_CASE("attention's memory is known in constant expressions and is linear in time") {
  constexpr CausalAttention layer{6};
  constexpr Shape in(4, 256, 3 * 384);
  static_assert(layer.output_shape(in) == Shape(4, 256, 384));
  static_assert(layer.needs(in, {Dtype::f32}).aux == 4 * 6 * 256 * 4);
  static_assert(layer.needs(in, {Dtype::f32, 2, Pass::backward}).workspace <= 256 * KiB);
  static_assert(layer.needs(in, {Dtype::f32, 1, Pass::forward}).workspace ==
                layer.needs(Shape(4, 8192, 3 * 384), {Dtype::f32, 1, Pass::forward}).workspace);
  CHECK(layer.needs(in, {Dtype::f64, 3, Pass::forward}).workspace % alignment == 0);
}

}}  // namespace causal_attention_test
