// SPDX-License-Identifier: MIT
// Attention in both directions, over sequences that end early, with shared heads of keys and values;
// and the layers around it. What it does under the causal mask is in causal_attention_test.cpp.
#include "adacc/layer/attention.hpp"

#include <doctest/doctest.h>

#include <adacc/layer/causal_attention.hpp>
#include <adacc/layer/pooling.hpp>
#include <adacc/layer/rotary_embedding.hpp>
#include <adacc/testing/gradient_check.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "guarded_buffer.hpp"
#include "layer_run.hpp"

namespace attention_test {
namespace {

using namespace adacc;

ADACC_TARGET_CODE_BEGIN
/// The vectors' exponentials of 64 numbers, and their sum and maximum.
template <class T, class Target>
void exponentials(const T* x, T* y, T& sum, T& maximum) {
  using V = detail::Widest<T, Target>;
  constexpr std::size_t lanes = detail::lanes_of<T, Target>;
  V all = V::all(0), most = V::all(-1);
  for (std::size_t i = 0; i < 64; i += lanes) {
    const V power = exp(V::load(x + i));
    power.store(y + i);
    all = all + V::load(x + i);
    most = larger(most, V::load(x + i));
  }
  sum = all.sum();
  maximum = most.maximum();
}
ADACC_TARGET_CODE_END

struct Case {
  std::size_t batch, time, heads, kv_heads, size;
  std::vector<std::int32_t> lengths{};

  Shape in() const { return Shape(batch, time, (heads + 2 * kv_heads) * size); }
  Shape out() const { return Shape(batch, time, heads * size); }
  View<const std::int32_t> length_view() const {
    return lengths.empty() ? View<const std::int32_t>()
                           : View<const std::int32_t>(lengths.data(), Shape(lengths.size()));
  }
  std::size_t length(std::size_t entry) const {
    return entry < lengths.size() ? static_cast<std::size_t>(lengths[entry]) : time;
  }
};

struct Computed {
  std::vector<double> out, dqkv;
};

// The definition: a matrix of probabilities per head.
Computed reference(const Case& c, bool causal, const std::vector<double>& qkv,
                   const std::vector<double>& dout) {
  const std::size_t width = c.in().cols(), group = c.heads / c.kv_heads;
  Computed result;
  result.out.assign(c.out().elems(), 0);
  result.dqkv.assign(c.in().elems(), 0);
  const double scale = 1 / std::sqrt(double(c.size));
  for (std::size_t b = 0; b < c.batch; ++b)
    for (std::size_t h = 0; h < c.heads; ++h) {
      const auto q = [&](std::size_t t, std::size_t d) {
        return (b * c.time + t) * width + h * c.size + d;
      };
      const auto k = [&](std::size_t t, std::size_t d) {
        return (b * c.time + t) * width + (c.heads + h / group) * c.size + d;
      };
      const auto v = [&](std::size_t t, std::size_t d) { return k(t, d) + c.kv_heads * c.size; };
      const auto o = [&](std::size_t t, std::size_t d) {
        return (b * c.time + t) * c.heads * c.size + h * c.size + d;
      };
      for (std::size_t t = 0; t < c.length(b); ++t) {
        const std::size_t seen = causal ? t + 1 : c.length(b);
        std::vector<double> p(seen), dp(seen, 0.0);
        double sum = 0, mean = 0;
        for (std::size_t s = 0; s < seen; ++s) {
          for (std::size_t d = 0; d < c.size; ++d) p[s] += qkv[q(t, d)] * qkv[k(s, d)];
          sum += p[s] = std::exp(scale * p[s]);
        }
        for (std::size_t s = 0; s < seen; ++s) {
          p[s] /= sum;
          for (std::size_t d = 0; d < c.size; ++d) {
            result.out[o(t, d)] += p[s] * qkv[v(s, d)];
            dp[s] += dout[o(t, d)] * qkv[v(s, d)];
            result.dqkv[v(s, d)] += p[s] * dout[o(t, d)];
          }
          mean += p[s] * dp[s];
        }
        for (std::size_t s = 0; s < seen; ++s)
          for (std::size_t d = 0; d < c.size; ++d) {
            const double ds = scale * p[s] * (dp[s] - mean);
            result.dqkv[q(t, d)] += ds * qkv[k(s, d)];
            result.dqkv[k(s, d)] += ds * qkv[q(t, d)];
          }
      }
    }
  return result;
}

/// Forward and backward in T; beside an input that is not exact if `again`.
template <class T, Mask mask>
Computed compute(const Case& c, const std::vector<double>& qkv, const std::vector<double>& dout,
                 bool again) {
  const Attention<mask> layer{c.heads, c.kv_heads};
  REQUIRE_MESSAGE(!layer.needs(c.in(), {}).error, layer.needs(c.in(), {}).error.text());
  Cpu ctx;
  ctx.lengths = c.length_view();
  const std::size_t in = c.in().elems(), out = c.out().elems();
  const std::size_t aux_bytes = layer.needs(c.in(), {dtype_of<T>}).aux;
  GuardedBuffer<T> x(in), y(out), dy(out), dx(in);
  GuardedBuffer<std::byte> aux(aux_bytes);
  for (std::size_t i = 0; i < in; ++i) x[i] = static_cast<T>(qkv[i]);
  for (std::size_t i = 0; i < out; ++i) dy[i] = static_cast<T>(dout[i]);
  const std::size_t bytes[] = {layer.needs(c.in(), {dtype_of<T>, 1, Pass::forward}).workspace,
                               layer.needs(c.in(), {dtype_of<T>, 1, Pass::backward}).workspace};
  GuardedBuffer<std::byte> forward_space(bytes[0]), backward_space(bytes[1]);
  call_forward(layer, ctx,
               ForwardCall<T>{.x = {x.data(), c.in()},
                              .y = {y.data(), c.out()},
                              .aux = {aux.data(), Shape(aux_bytes)},
                              .workspace = {forward_space.data(), Shape(bytes[0])}});
  call_backward(layer, ctx,
                BackwardCall<T>{.x = {x.data(), c.in()},
                                .y = {y.data(), c.out()},
                                .dy = {dy.data(), c.out()},
                                .dx = {dx.data(), c.in()},
                                .aux = {aux.data(), Shape(aux_bytes)},
                                .workspace = {backward_space.data(), Shape(bytes[1])},
                                .exact_input = !again});
  CHECK(x.guard_intact());
  CHECK(y.guard_intact());
  CHECK(dx.guard_intact());
  CHECK(aux.guard_intact());
  CHECK(forward_space.guard_intact());
  CHECK(backward_space.guard_intact());
  Computed result;
  result.out.assign(y.data(), y.data() + out);
  result.dqkv.assign(dx.data(), dx.data() + in);
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

const Case cases[] = {{2, 1, 1, 1, 1},
                      {2, 5, 4, 2, 3, {5, 3}},
                      {1, 66, 6, 2, 8},
                      {3, 130, 2, 1, 5, {130, 64, 65}},
                      {4, 70, 2, 2, 16, {1, 0, 69, 70}},
                      {2, 129, 4, 4, 4, {127}}};

}  // namespace

TEST_CASE("attention in both directions equals its definition, with lengths and shared heads") {
  for (const Case& c : cases) {
    CAPTURE(c.time);
    CAPTURE(c.heads);
    const auto qkv = random_values(c.in().elems(), 1, 2), dout = random_values(c.out().elems(), 2);
    const auto expected = reference(c, false, qkv, dout);
    for (const bool again : {false, true}) {
      const auto wide = compute<double, Mask::length>(c, qkv, dout, again);
      CHECK(largest_difference(wide.out, expected.out) < 1e-13);
      CHECK(largest_difference(wide.dqkv, expected.dqkv) < 1e-12);
      const auto narrow = compute<float, Mask::length>(c, qkv, dout, again);
      CHECK(largest_difference(narrow.out, expected.out) < 5e-6);
      CHECK(largest_difference(narrow.dqkv, expected.dqkv) < 5e-5);
    }
  }
}

TEST_CASE("causal attention shares heads of keys and values, and does not look at lengths") {
  for (const Case& c : cases) {
    CAPTURE(c.time);
    CAPTURE(c.heads);
    const Case whole{c.batch, c.time, c.heads, c.kv_heads, c.size};
    const auto qkv = random_values(c.in().elems(), 1, 2), dout = random_values(c.out().elems(), 2);
    const auto expected = reference(whole, true, qkv, dout);
    for (const bool again : {false, true}) {
      const auto wide = compute<double, Mask::causal>(c, qkv, dout, again);
      CHECK(largest_difference(wide.out, expected.out) < 1e-13);
      CHECK(largest_difference(wide.dqkv, expected.dqkv) < 1e-12);
    }
  }
}

TEST_CASE("attention with lengths and shared heads keeps the contract of layers") {
  const std::int32_t lengths[] = {66, 40};
  const auto check = [&](const auto& layer, Shape in) {
    const auto result = testing::gradient_check(
        layer, in, {.max_elements = 60, .lengths = View<const std::int32_t>(lengths, Shape(2))});
    CHECK_MESSAGE(result.passed, result.text());
  };
  check(BidirectionalAttention{.heads = 2}, Shape(2, 66, 18));
  check(BidirectionalAttention{.heads = 4, .kv_heads = 2}, Shape(2, 66, 24));
  check(CausalAttention{.heads = 4, .kv_heads = 1}, Shape(2, 66, 18));
}

TEST_CASE("what lies behind a sequence's length changes no bit, and a length is held to the room") {
  Case c{2, 70, 2, 2, 8, {40, 1000}};
  auto qkv = random_values(c.in().elems(), 1, 2);
  const auto dout = random_values(c.out().elems(), 2);
  const auto before = compute<float, Mask::length>(c, qkv, dout, false);
  for (std::size_t i = 40 * c.in().cols(); i < 70 * c.in().cols(); ++i) qkv[i] = 1e30;
  const auto after = compute<float, Mask::length>(c, qkv, dout, false);
  CHECK(before.out == after.out);
  CHECK(before.dqkv == after.dqkv);
  for (std::size_t i = 40 * c.out().cols(); i < 70 * c.out().cols(); ++i) CHECK(after.out[i] == 0);
  c.lengths = {40, 70};
  CHECK(compute<float, Mask::length>(c, qkv, dout, false).out == after.out);
  c.lengths = {40, -3};
  const auto none = compute<float, Mask::length>(c, qkv, dout, false);
  for (std::size_t i = 70 * c.out().cols(); i < none.out.size(); ++i) CHECK(none.out[i] == 0);
}

TEST_CASE("attention refuses groups that do not come out even") {
  const auto text = [](std::size_t heads, std::size_t kv_heads, std::size_t columns) {
    return std::string(
        BidirectionalAttention{heads, kv_heads}.needs(Shape(1, 4, columns), {}).error.text());
  };
  CHECK(text(4, 2, 16).empty());
  CHECK(text(4, 3, 16) ==
        "attention's 3 heads of keys and values do not divide its 4 heads of queries");
  CHECK(text(4, 2, 20).find("20 columns are not divisible by 8") != std::string::npos);
}

TEST_CASE("rotary embedding: angles as published, values untouched, backward turns back") {
  const RotaryEmbedding rotary{.heads = 2, .kv_heads = 1, .base = 100};
  const Shape in(2, 9, 4 * 6);
  const auto result = testing::gradient_check(rotary, in);
  CHECK_MESSAGE(result.passed, result.text());
  const auto serial = layer_tests::run<float>(rotary, in, 0);
  CHECK(serial == layer_tests::run<float>(rotary, in, 3));
  for (std::size_t t = 0; t < 18; ++t)
    for (std::size_t c = 0; c < 24; ++c) {
      const std::size_t head = c / 6, i = c % 6 % 3, at = t * 24 + head * 6 + i;
      const double a = double(layer_tests::value(8, at)), b = double(layer_tests::value(8, at + 3));
      const double angle = double(t % 9) * std::pow(100.0, -2.0 * double(i) / 6);
      double expected = c % 6 < 3 ? a * std::cos(angle) - b * std::sin(angle)
                                  : b * std::cos(angle) + a * std::sin(angle);
      if (head == 3) expected = c % 6 < 3 ? a : b;
      CHECK(double(serial.y[t * 24 + c]) == doctest::Approx(expected).epsilon(1e-5));
    }
  // More pairs than fit the stack at a time.
  const auto wide = testing::gradient_check(RotaryEmbedding{.heads = 1}, Shape(1, 3, 3 * 300),
                                            {.max_elements = 50});
  CHECK_MESSAGE(wide.passed, wide.text());
  CHECK(std::string(rotary.needs(Shape(1, 2, 20), {}).error.text()).find("even number") !=
        std::string::npos);
  CHECK(RotaryEmbedding{.heads = 1, .base = std::nan("")}.needs(Shape(1, 2, 6), {}).error);
}

TEST_CASE("rotary embedding with norms: as RmsNorm on each head, then turned") {
  const RotaryEmbedding rotary{.heads = 2, .kv_heads = 1, .base = 100, .norms = true};
  const Shape in(2, 37, 4 * 6);  // more rows than a chunk of sums
  const auto result = testing::gradient_check(rotary, in, {.max_elements = 200});
  CHECK_MESSAGE(result.passed, result.text());
  const auto serial = layer_tests::run<float>(rotary, in, 0);
  CHECK(serial == layer_tests::run<float>(rotary, in, 3));
  CHECK(rotary.parameters(in).size() == 2);
  CHECK(rotary.reads_when({}) == reads::input);
  CHECK(RotaryEmbedding{.heads = 2}.reads_when({}) == reads::none);
  CHECK(RotaryEmbedding{.heads = 2}.parameters(in).size() == 0);
  CHECK(RotaryEmbedding{.heads = 1, .norms = true, .epsilon = 0}.needs(Shape(1, 2, 6), {}).error);
}

TEST_CASE("pooling: the mean of what is there, or the first position") {
  const std::int32_t lengths[] = {3, 0, 5};
  const auto check = [&](const auto& layer) {
    const auto result = testing::gradient_check(
        layer, Shape(3, 5, 7), {.lengths = View<const std::int32_t>(lengths, Shape(3))});
    CHECK_MESSAGE(result.passed, result.text());
    CHECK(layer_tests::run<float>(layer, Shape(3, 5, 7), 0) ==
          layer_tests::run<float>(layer, Shape(3, 5, 7), 3));
    CHECK(layer.needs(Shape(3, 5), {}).error);
  };
  check(MeanOverTime{});
  check(FirstPosition{});
  const float x[] = {1, 2, 3, 4, 100, 100, 7, 8, 9, 10, 11, 12};
  float y[4] = {};
  Cpu cpu;
  const std::int32_t two[] = {2};  // and the second is whole
  cpu.lengths = View<const std::int32_t>(two, Shape(1));
  MeanOverTime{}.forward(cpu, ForwardCall<float>{.x = {x, Shape(2, 3, 2)}, .y = {y, Shape(2, 2)}});
  CHECK(std::vector<float>(y, y + 4) == std::vector<float>{2, 3, 9, 10});
  FirstPosition{}.forward(cpu, View<const float>(x, Shape(2, 3, 2)), View<float>(y, Shape(2, 2)));
  CHECK(std::vector<float>(y, y + 4) == std::vector<float>{1, 2, 7, 8});
}

TEST_CASE_TEMPLATE("vectors: exponentials, sums and maxima at every instruction level", T, float,
                   double) {
  const T infinity = std::numeric_limits<T>::infinity();
  const T range = std::is_same_v<T, float> ? T(87) : T(700);
  const T epsilon = std::numeric_limits<T>::epsilon();
  for (const InstructionLevel level : instruction_levels) {
    if (!has_level(level)) continue;
    T x[64], y[64], sum = 0, maximum = 0;
    const auto compute = [&] {
      detail::with_target(level, [&]<class Target>(Target) {
        Target::template call<exponentials<T, Target>>(x, y, sum, maximum);
      });
    };
    for (int round = 0; round < 200; ++round) {
      for (int i = 0; i < 64; ++i)
        x[i] = range * static_cast<T>(i - 32) / T(32) + static_cast<T>(round) / T(150);
      compute();
      T worst = 0;
      for (int i = 0; i < 64; ++i)
        worst = std::max(worst, std::abs(y[i] / std::exp(x[i]) - 1) / epsilon);
      CHECK(worst < 40);  // below -O2, g++ rounds products before it adds
      CHECK(maximum == x[63]);
      CHECK(std::abs(sum - std::accumulate(x, x + 64, T(0))) < 400 * range * epsilon);
    }
    const T special[] = {infinity, -infinity, std::numeric_limits<T>::quiet_NaN(),
                         0,        T(-1e4),   T(1e4)};
    for (int i = 0; i < 64; ++i) x[i] = special[i % 6];
    compute();
    CHECK(y[0] == infinity);
    CHECK(y[1] < std::numeric_limits<T>::min());
    CHECK(std::isnan(y[2]));
    CHECK(y[3] == 1);
    CHECK(y[4] < std::numeric_limits<T>::min());
    CHECK(y[5] > std::numeric_limits<T>::max() / 4);
  }
}

}  // namespace attention_test
