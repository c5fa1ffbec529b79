// SPDX-License-Identifier: MIT
#include "adacc/layer/cross_entropy_head.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <adacc/testing/permuted_executor.hpp>

#include "guarded_buffer.hpp"

namespace cross_entropy_head_test { namespace {

using namespace adacc;

struct Problem {
  Shape in;
  CrossEntropyHead head;
  std::vector<double> x, weight;
  std::vector<int> targets;

  Problem(Shape shape, std::size_t vocab, std::size_t padded = 0, double scale = 1)
      : in(shape), head{.vocab = vocab, .padded_vocab = padded},
        x(random_values(in.elems(), 1, scale)),
        weight(random_values(head.parameters(in)[0].shape.elems(), 2)), targets(in.rows()) {
    for (std::size_t r = 0; r < targets.size(); ++r)
      targets[r] = static_cast<int>((r * 977 + vocab - 1) % vocab);
  }
};

struct Outcome {
  double loss = 0, evaluated = 0;
  std::vector<double> dx, dweight;
  bool guards = true;

  bool same_bits(const Outcome& other) const {
    return loss == other.loss && evaluated == other.evaluated && dx == other.dx &&
           dweight == other.dweight;
  }
};

constexpr double earlier_gradient = 0.5;  // dweight is added to what is there

template <class T>
Outcome run(const Problem& p, Cpu ctx = {}, bool in_place = true) {
  const std::size_t n = p.in.elems(), m = p.weight.size(), rows = p.targets.size();
  GuardedBuffer<T> x(n), separate(n), weight(m), dweight(m);
  GuardedBuffer<std::int32_t> targets(rows);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(p.x[i]);
  for (std::size_t i = 0; i < m; ++i) weight[i] = static_cast<T>(p.weight[i]);
  for (std::size_t i = 0; i < m; ++i) dweight[i] = static_cast<T>(earlier_gradient);
  for (std::size_t i = 0; i < rows; ++i) targets[i] = p.targets[i];
  Parameter parameter;
  static_cast<ParameterSpec&>(parameter) = p.head.parameters(p.in)[0];
  const Params<const T> params(weight.data(), &parameter, 1);
  const Params<T> dparams(dweight.data(), &parameter, 1);
  const std::size_t small =
      p.head.needs(p.in, {dtype_of<T>, ctx.workers(), Pass::forward}).workspace;
  const std::size_t large =
      p.head.needs(p.in, {dtype_of<T>, ctx.workers(), Pass::backward}).workspace;
  GuardedBuffer<std::byte> forward_space(small), backward_space(large);
  const View<const std::int32_t> target_view(targets.data(), p.head.target_shape(p.in));
  T* const dx = in_place ? x.data() : separate.data();

  Outcome outcome;
  Cpu::Loss evaluated, trained;
  evaluated.clear(), trained.clear();
  call_loss(p.head, ctx,
            LossCall<T, std::int32_t>{.x = {x.data(), p.in},
                                      .targets = target_view,
                                      .params = params,
                                      .workspace = {forward_space.data(), Shape(small)}},
            evaluated);
  call_loss_gradient(p.head, ctx,
                     LossCall<T, std::int32_t>{.x = {x.data(), p.in},
                                               .targets = target_view,
                                               .dx = {dx, p.in},
                                               .params = params,
                                               .dparams = dparams,
                                               .workspace = {backward_space.data(), Shape(large)}},
                     trained);
  outcome.evaluated = evaluated.value();
  outcome.loss = trained.value();
  outcome.dx.assign(dx, dx + n);
  outcome.dweight.assign(dweight.data(), dweight.data() + m);
  outcome.guards = x.guard_intact() && separate.guard_intact() && weight.guard_intact() &&
                   dweight.guard_intact() && forward_space.guard_intact() &&
                   backward_space.guard_intact();
  return outcome;
}

// All logits at once.
Outcome reference(const Problem& p) {
  const std::size_t rows = p.targets.size(), channels = p.in.cols(), vocab = p.head.vocab;
  Outcome outcome;
  outcome.dx.assign(p.x.size(), 0);
  outcome.dweight.assign(p.weight.size(), earlier_gradient);
  std::vector<double> logits(vocab);
  for (std::size_t r = 0; r < rows; ++r) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::size_t v = 0; v < vocab; ++v) {
      logits[v] = 0;
      for (std::size_t c = 0; c < channels; ++c)
        logits[v] += p.x[r * channels + c] * p.weight[v * channels + c];
      top = std::fmax(top, logits[v]);
    }
    const auto target = static_cast<std::size_t>(p.targets[r]);
    for (const double logit : logits) sum += std::exp(logit - top);
    outcome.loss += (top + std::log(sum) - logits[target]) / double(rows);
    for (std::size_t v = 0; v < vocab; ++v) {
      const double d = (std::exp(logits[v] - top) / sum - (v == target ? 1 : 0)) / double(rows);
      for (std::size_t c = 0; c < channels; ++c) {
        outcome.dx[r * channels + c] += d * p.weight[v * channels + c];
        outcome.dweight[v * channels + c] += d * p.x[r * channels + c];
      }
    }
  }
  return outcome;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN is the largest of all
  }
  return largest;
}

TEST_CASE("the head equals its definition: one block of words or several, tiles and their ends") {
  const Problem problems[] = {
      {Shape(1, 1, 3), 1},      {Shape(2, 3, 8), 5},       {Shape(2, 130, 24), 37},
      {Shape(1, 257, 16), 256}, {Shape(1, 3, 12), 2048},   {Shape(2, 129, 7), 2049},
      {Shape(2, 5, 12), 5000},  {Shape(3, 20, 8), 29, 32}, {Shape(4, 9), 4097, 4224}};
  for (const Problem& p : problems) {
    CAPTURE(p.head.vocab);
    CAPTURE(p.targets.size());
    const auto expected = reference(p);
    const auto wide = run<double>(p), narrow = run<float>(p);
    CHECK(std::fabs(wide.loss - expected.loss) < 1e-13);
    CHECK(std::fabs(narrow.loss - expected.loss) < 1e-5);
    CHECK(wide.evaluated == wide.loss);
    CHECK(narrow.evaluated == narrow.loss);
    CHECK(largest_difference(wide.dx, expected.dx) < 1e-14);
    CHECK(largest_difference(wide.dweight, expected.dweight) < 1e-14);
    CHECK(largest_difference(narrow.dx, expected.dx) < 1e-6);
    CHECK(largest_difference(narrow.dweight, expected.dweight) < 2e-6);  // one sum over all rows
    CHECK(wide.guards);
    CHECK(narrow.guards);
  }
}

TEST_CASE("dx may take the place of x") {
  for (const std::size_t vocab : {std::size_t{65}, std::size_t{2100}}) {
    const Problem p(Shape(3, 100, 20), vocab);
    CHECK(run<float>(p, {}, true).same_bits(run<float>(p, {}, false)));
  }
}

TEST_CASE("the head's gradient equals finite differences") {
  for (const std::size_t vocab : {std::size_t{33}, std::size_t{2055}}) {
    Problem p(Shape(1, 3, 5), vocab);
    const auto gradient = run<double>(p);
    const double step = 1e-5;
    const auto slope = [&](double& value) {
      const double middle = value;
      value = middle + step;
      const double above = run<double>(p).evaluated;
      value = middle - step;
      const double below = run<double>(p).evaluated;
      value = middle;
      return (above - below) / (2 * step);
    };
    for (std::size_t i = 0; i < p.x.size(); i += 2)
      CHECK(std::fabs(gradient.dx[i] - slope(p.x[i])) < 1e-9);
    for (std::size_t i = 0; i < p.weight.size(); i += 1 + p.weight.size() / 23)
      CHECK(std::fabs(gradient.dweight[i] - earlier_gradient - slope(p.weight[i])) < 1e-9);
  }
}

TEST_CASE("the head has the same bits for any number of workers") {
  for (const std::size_t vocab : {std::size_t{257}, std::size_t{2500}}) {
    const Problem p(Shape(2, 150, 40), vocab);
    const auto serial = run<float>(p);
    for (int workers = 1; workers <= 3; ++workers) {
      testing::PermutedExecutor executor(workers);
      const auto other = run<float>(p, Cpu(executor));
      CHECK(serial.same_bits(other));
      CHECK(other.guards);
    }
  }
}

TEST_CASE("logits may be large, and what is not finite stays visible") {
  for (const std::size_t vocab : {std::size_t{50}, std::size_t{2100}}) {
    Problem p(Shape(1, 9, 16), vocab, 0, 3e4);
    const auto expected = reference(p);
    const auto large = run<double>(p);
    CHECK(large.loss == doctest::Approx(expected.loss).epsilon(1e-12));
    CHECK(largest_difference(large.dx, expected.dx) < 1e-9);
    const auto narrow = run<float>(p);
    CHECK(narrow.loss == doctest::Approx(expected.loss).epsilon(1e-4));
    for (const double value : narrow.dx) CHECK(std::isfinite(value));

    const Problem clean(Shape(1, 9, 16), vocab);
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      Problem broken = clean;
      broken.x[20] = bad;
      const auto seen = run<float>(broken);
      CHECK(std::isnan(seen.loss));
      CHECK(std::isnan(seen.dx[16]));
      CHECK(std::isfinite(seen.dx[0]));
    }
    for (const int no_word : {-1, static_cast<int>(vocab)}) {
      Problem broken = clean;
      broken.targets[3] = no_word;
      CHECK(std::isnan(run<float>(broken).loss));
    }
  }
}

TEST_CASE("logits for sampling are the product with the weight") {
  const Problem p(Shape(2, 12), 2050, 2064);
  GuardedBuffer<float> x(p.in.elems()), weight(p.weight.size()), out(2 * 2050);
  for (std::size_t i = 0; i < p.x.size(); ++i) x[i] = float(p.x[i]);
  for (std::size_t i = 0; i < p.weight.size(); ++i) weight[i] = float(p.weight[i]);
  Parameter parameter;
  static_cast<ParameterSpec&>(parameter) = p.head.parameters(p.in)[0];
  const std::size_t bytes = p.head.logits_workspace_bytes(p.in, Dtype::f32, 1);
  GuardedBuffer<std::byte> space(bytes);
  Cpu ctx;
  p.head.logits<float>(ctx, {weight.data(), &parameter, 1}, {x.data(), p.in},
                       {out.data(), Shape(2, 2050)}, {space.data(), Shape(bytes)});
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t v = 0; v < 2050; v += 41) {
      double logit = 0;
      for (std::size_t c = 0; c < 12; ++c) logit += p.x[r * 12 + c] * p.weight[v * 12 + c];
      CHECK(std::fabs(double(out[r * 2050 + v]) - logit) < 1e-5);
    }
  CHECK(out.guard_intact());
  CHECK(space.guard_intact());
}

TEST_CASE("the head says what it takes and needs") {
  constexpr CrossEntropyHead head{.vocab = 50257, .padded_vocab = 50304};
  constexpr Shape in(4, 1024, 768);
  static_assert(head.target_shape(in) == Shape(4, 1024));
  static_assert(head.parameters(in)[0].shape == Shape(50304, 768));
  CHECK(std::string(head.parameters(in)[0].tied) == "wte");
  // All logits of these rows would be 785 MiB.
  static_assert(head.needs(in, {Dtype::f32, 2, Pass::backward}).workspace <= 6 * MiB);
  static_assert(head.needs(in, {Dtype::f32, 2, Pass::forward}).workspace <=
                head.needs(in, {Dtype::f32, 2, Pass::backward}).workspace);
  CHECK(!head.needs(in, {}).error);

  const auto text = [](CrossEntropyHead asked, Shape shape) {
    return std::string(asked.needs(shape, {}).error.text());
  };
  const std::size_t huge = std::size_t{1} << 31;
  CHECK(text({.vocab = 0}, in).find("vocabulary of 0 words") != std::string::npos);
  CHECK(text({.vocab = huge}, in).find("2147483647") != std::string::npos);
  CHECK(text({.vocab = 9, .padded_vocab = 8}, in).find("8 words is smaller") != std::string::npos);
  CHECK(text({.vocab = 9}, Shape(768)).find("rank 1") != std::string::npos);
  CHECK(text({.vocab = 9}, Shape(4, 0, 768)).find("extent of 0") != std::string::npos);
  CHECK(text({.vocab = 9}, Shape(huge, huge)).find("addressed") != std::string::npos);
}

}}  // namespace cross_entropy_head_test
