// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "adacc/layer/actor_critic_loss.hpp"
#include "adacc/layer/contrastive_loss.hpp"
#include "adacc/layer/mean_squared_error.hpp"
#include "adacc/layer/softmax_cross_entropy.hpp"

#include <adacc/testing/gradient_check.hpp>
#include <adacc/testing/permuted_executor.hpp>

#include "guarded_buffer.hpp"

namespace losses_test { namespace {

using namespace adacc;

struct Outcome {
  double loss = 0, evaluated = 0;
  std::vector<double> dx;
  bool guards = true;

  bool same_bits(const Outcome& other) const {
    return loss == other.loss && evaluated == other.evaluated && dx.size() == other.dx.size() &&
           std::memcmp(dx.data(), other.dx.data(), dx.size() * sizeof(double)) == 0;
  }
};

// The loss in both forms of the contract; dx takes the place of x.
template <class T, class Loss, class Target>
Outcome run(const Loss& loss, Shape in, const std::vector<double>& values,
            const std::vector<Target>& targets, Cpu ctx = {}) {
  using Wanted = target_type_of<Loss, T>;
  const std::size_t bytes = loss.needs(in, {dtype_of<T>, ctx.workers(), Pass::backward}).workspace;
  GuardedBuffer<T> x(in.elems());
  GuardedBuffer<Wanted> wanted(targets.size());
  GuardedBuffer<std::byte> space(bytes);
  for (std::size_t i = 0; i < in.elems(); ++i) x[i] = static_cast<T>(values[i]);
  for (std::size_t i = 0; i < targets.size(); ++i) wanted[i] = static_cast<Wanted>(targets[i]);
  const View<const T> input(x.data(), in);
  const View<const Wanted> target_view(wanted.data(), layer_traits<Loss>::target_shape(loss, in));
  Outcome outcome;
  Cpu::Loss evaluated, trained;
  evaluated.clear(), trained.clear();
  call_loss(loss, ctx,
            LossCall<T, Wanted>{
                .x = input, .targets = target_view, .workspace = {space.data(), Shape(bytes)}},
            evaluated);
  call_loss_gradient(loss, ctx,
                     LossCall<T, Wanted>{.x = input,
                                         .targets = target_view,
                                         .dx = {x.data(), in},
                                         .workspace = {space.data(), Shape(bytes)}},
                     trained);
  outcome.evaluated = evaluated.value();
  outcome.loss = trained.value();
  outcome.dx.assign(x.data(), x.data() + in.elems());
  outcome.guards = x.guard_intact() && wanted.guard_intact() && space.guard_intact();
  return outcome;
}

template <class Loss, class Target>
void check_finite_differences(const Loss& loss, Shape in, std::vector<double> values,
                              const std::vector<Target>& targets) {
  const auto gradient = run<double>(loss, in, values, targets).dx;
  const double step = 1e-5;
  for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / 61) {
    const double middle = values[i];
    values[i] = middle + step;
    const double above = run<double>(loss, in, values, targets).loss;
    values[i] = middle - step;
    const double below = run<double>(loss, in, values, targets).loss;
    values[i] = middle;
    CHECK(std::fabs(gradient[i] - (above - below) / (2 * step)) < 1e-9);
  }
}

std::vector<int> targets_for(std::size_t rows, std::size_t classes) {
  std::vector<int> targets(rows);
  for (std::size_t r = 0; r < rows; ++r) targets[r] = static_cast<int>(r * 7 % classes);
  return targets;
}

TEST_CASE("softmax cross-entropy equals its definition") {
  for (const Shape in : {Shape(1, 1), Shape(3, 2), Shape(2, 5, 19), Shape(130, 300)}) {
    const std::size_t rows = in.rows(), classes = in.cols();
    CAPTURE(rows);
    const auto logits = random_values(in.elems(), 1, 3);
    const auto targets = targets_for(rows, classes);
    double loss = 0;
    std::vector<double> dx(in.elems());
    for (std::size_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < classes; ++c) sum += std::exp(logits[r * classes + c]);
      const auto target = static_cast<std::size_t>(targets[r]);
      loss += (std::log(sum) - logits[r * classes + target]) / double(rows);
      for (std::size_t c = 0; c < classes; ++c)
        dx[r * classes + c] =
            (std::exp(logits[r * classes + c]) / sum - (c == target ? 1 : 0)) / double(rows);
    }
    const auto wide = run<double>(SoftmaxCrossEntropy{}, in, logits, targets);
    const auto narrow = run<float>(SoftmaxCrossEntropy{}, in, logits, targets);
    CHECK(std::fabs(wide.loss - loss) < 1e-13);
    CHECK(std::fabs(narrow.loss - loss) < 1e-6);
    CHECK(wide.evaluated == wide.loss);
    CHECK(narrow.evaluated == narrow.loss);
    CHECK(wide.guards);
    CHECK(narrow.guards);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      CHECK(std::fabs(wide.dx[i] - dx[i]) < 1e-15);
      CHECK(std::fabs(narrow.dx[i] - dx[i]) < 1e-6);
    }
  }
  check_finite_differences(SoftmaxCrossEntropy{}, Shape(3, 37), random_values(111, 2),
                           targets_for(3, 37));
}

TEST_CASE("softmax cross-entropy takes logits of any size, and hides nothing") {
  const Shape in(2, 40);
  auto logits = random_values(in.elems(), 3, 1e4);
  logits[5] = 3e4;
  const std::vector<int> targets = {5, 7};
  const auto large = run<float>(SoftmaxCrossEntropy{}, in, logits, targets);
  CHECK(std::isfinite(large.loss));
  for (const double value : large.dx) CHECK(std::isfinite(value));
  CHECK(large.dx[5] == 0);  // all of the probability is where it belongs

  logits = random_values(in.elems(), 3);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), infinity})
    for (const std::size_t at : {std::size_t{0}, std::size_t{39}}) {
      auto broken = logits;
      broken[at] = bad;
      const auto seen = run<float>(SoftmaxCrossEntropy{}, in, broken, targets);
      CHECK(std::isnan(seen.loss));
      CHECK(std::isnan(seen.dx[at]));
      CHECK(std::isfinite(seen.dx[40]));
    }
  auto masked = logits;
  masked[1] = -infinity;
  const auto without = run<double>(SoftmaxCrossEntropy{}, in, masked, targets);
  CHECK(std::isfinite(without.loss));
  CHECK(std::fabs(without.dx[1]) < 1e-300);
  for (const int no_class : {40, -1})
    CHECK(std::isnan(run<float>(SoftmaxCrossEntropy{}, in, logits, std::vector{5, no_class}).loss));
}

TEST_CASE("mean squared error equals its definition") {
  for (const Shape in : {Shape(1), Shape(2, 3), Shape(517), Shape(3, 4, 3001)}) {
    const std::size_t n = in.elems();
    CAPTURE(n);
    const auto x = random_values(n, 4), target = random_values(n, 5);
    double loss = 0;
    for (std::size_t i = 0; i < n; ++i) loss += (x[i] - target[i]) * (x[i] - target[i]) / double(n);
    const auto wide = run<double>(MeanSquaredError{}, in, x, target);
    const auto narrow = run<float>(MeanSquaredError{}, in, x, target);
    CHECK(std::fabs(wide.loss - loss) < 1e-13);
    CHECK(std::fabs(narrow.loss - loss) < 1e-6);
    CHECK(wide.evaluated == wide.loss);
    CHECK(wide.guards);
    CHECK(narrow.guards);
    for (std::size_t i = 0; i < n; i += 1 + n / 200) {
      CHECK(std::fabs(wide.dx[i] - 2 * (x[i] - target[i]) / double(n)) < 1e-15);
      CHECK(std::fabs(narrow.dx[i] - wide.dx[i]) < 1e-6);
    }
  }
  check_finite_differences(MeanSquaredError{}, Shape(3, 37), random_values(111, 6),
                           random_values(111, 7));
  auto broken = random_values(600, 8);
  broken[599] = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(run<float>(MeanSquaredError{}, Shape(600), broken, random_values(600, 9)).loss));
}

TEST_CASE("contrastive loss equals its definition, and keeps the contract of losses") {
  const Shape in(6, 5);
  const std::vector<int> partners{1, 0, 3, 2, 5, 0};
  const auto x = random_values(in.elems(), 21);
  const ContrastiveLoss contrastive{.scale = 7};
  double loss = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    const auto cosine = [&](std::size_t j) {
      double ij = 0, ii = 0, jj = 0;
      for (std::size_t c = 0; c < 5; ++c) {
        ij += x[5 * i + c] * x[5 * j + c];
        ii += x[5 * i + c] * x[5 * i + c];
        jj += x[5 * j + c] * x[5 * j + c];
      }
      return 7 * ij / std::sqrt(ii * jj);
    };
    double sum = 0;
    for (std::size_t j = 0; j < 6; ++j) sum += j == i ? 0 : std::exp(cosine(j));
    loss += (std::log(sum) - cosine(static_cast<std::size_t>(partners[i]))) / 6;
  }
  CHECK(std::fabs(run<double>(contrastive, in, x, partners).loss - loss) < 1e-13);
  CHECK(std::fabs(run<float>(contrastive, in, x, partners).loss - loss) < 1e-6);
  check_finite_differences(contrastive, in, x, partners);
  const std::vector<std::int32_t> targets(partners.begin(), partners.end());
  const auto result = testing::gradient_check_loss(
      contrastive, in, View<const std::int32_t>(targets.data(), Shape(6)));
  CHECK_MESSAGE(result.passed, result.text());
  for (const int none : {6, -1, 5})
    CHECK(std::isnan(run<float>(contrastive, in, x, std::vector{1, 0, 3, 2, 5, none}).loss));
  CHECK(contrastive.needs(Shape(1, 5), {}).error);
  CHECK(contrastive.needs(Shape(2, 3, 5), {}).error);
  CHECK(ContrastiveLoss{.scale = 0}.needs(in, {}).error);
}

// Two rows by hand, then finite differences on either side of the clip.
TEST_CASE("the loss of actor and critic equals its definition, and keeps the contract of losses") {
  const ActorCriticLoss loss{.clip = 0.2, .value_weight = 0.5, .entropy_weight = 0.01};
  const Shape in(5, 4);
  auto x = random_values(in.elems(), 31);
  std::vector<double> targets(in[0] * experience_cols);
  double expected = 0;
  // Probabilities that grew and fell, within the clip and beyond it, for better and worse actions.
  const double ratios[] = {1.1, 1.5, 0.6, 1.5, 0.6}, advantages[] = {0.7, 1.3, 0.9, -0.4, -1.1};
  const bool clipped[] = {false, true, false, false, true};
  for (std::size_t r = 0; r < 5; ++r) {
    double sum = 0, entropy = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::exp(x[4 * r + c]);
    for (std::size_t c = 0; c < 3; ++c) {
      const double p = std::exp(x[4 * r + c]) / sum;
      entropy -= p * std::log(p);
    }
    const std::size_t action = r % 3;
    const double reward = 0.3 * double(r), gap = x[4 * r + 3] - reward;
    double* const to = targets.data() + r * experience_cols;
    to[0] = double(action), to[1] = advantages[r], to[2] = reward;
    to[3] = x[4 * r + action] - std::log(sum) - std::log(ratios[r]);
    const double held = clipped[r] ? (ratios[r] > 1 ? 1.2 : 0.8) : ratios[r];
    expected += (-held * advantages[r] + 0.5 * gap * gap - 0.01 * entropy) / 5;
  }
  const auto wide = run<double>(loss, in, x, targets);
  CHECK(std::fabs(wide.loss - expected) < 1e-13);
  CHECK(wide.evaluated == wide.loss);
  CHECK(std::fabs(run<float>(loss, in, x, targets).loss - expected) < 1e-6);
  check_finite_differences(loss, in, x, targets);
  const auto result = testing::gradient_check_loss(
      loss, in, View<const double>(targets.data(), loss.target_shape(in)),
      {.x = View<const double>(x.data(), in)});
  CHECK_MESSAGE(result.passed, result.text());

  // Without a clip, and with nothing for value and entropy, it is a plain policy gradient.
  const double infinity = std::numeric_limits<double>::infinity();
  const ActorCriticLoss plain{.clip = infinity, .value_weight = 0, .entropy_weight = 0};
  for (std::size_t r = 0; r < 5; ++r) targets[4 * r + 3] += std::log(ratios[r]);
  const auto policy_gradient = run<double>(plain, in, x, targets);
  std::vector<int> actions{0, 1, 2, 0, 1};
  for (std::size_t r = 0; r < 5; ++r) {
    const std::vector<double> logits(x.begin() + long(4 * r), x.begin() + long(4 * r) + 3);
    const auto one =
        run<double>(SoftmaxCrossEntropy{}, Shape(1, 3), logits, std::vector{actions[r]});
    for (std::size_t c = 0; c < 3; ++c)
      CHECK(std::fabs(policy_gradient.dx[4 * r + c] - advantages[r] * one.dx[c] / 5) < 1e-15);
    CHECK(policy_gradient.dx[4 * r + 3] == 0);
  }
  x[1] = -infinity;  // forbidden
  const auto without = run<double>(loss, in, x, targets);
  CHECK(std::isfinite(without.loss));
  CHECK(without.dx[1] == 0);
  for (const double none : {3.0, -1.0, 0.5, 1e300, infinity, std::nan("")}) {
    auto wrong = targets;
    wrong[4] = none;
    CHECK(std::isnan(run<double>(loss, in, x, wrong).loss));
  }
  CHECK(loss.needs(Shape(5, 1), {}).error);
  CHECK(loss.needs(Shape(4), {}).error);
  CHECK(ActorCriticLoss{.clip = 0}.needs(in, {}).error);
  CHECK(ActorCriticLoss{.entropy_weight = std::nan("")}.needs(in, {}).error);
  CHECK(loss.target_shape(Shape(2, 3, 4)) == Shape(2, 3, 4));
}

TEST_CASE("losses have the same bits for any number of workers") {
  const Shape in(330, 257);
  const auto x = random_values(in.elems(), 10, 2), other = random_values(in.elems(), 11);
  const auto targets = targets_for(in.rows(), in.cols());
  const auto softmax = run<float>(SoftmaxCrossEntropy{}, in, x, targets);
  const auto squares = run<float>(MeanSquaredError{}, in, x, other);
  for (int workers = 1; workers <= 3; ++workers) {
    testing::PermutedExecutor executor(workers);
    const Cpu ctx(executor);
    CHECK(softmax.same_bits(run<float>(SoftmaxCrossEntropy{}, in, x, targets, ctx)));
    CHECK(squares.same_bits(run<float>(MeanSquaredError{}, in, x, other, ctx)));
  }
}

TEST_CASE("losses say what they take") {
  constexpr SoftmaxCrossEntropy softmax;
  static_assert(softmax.target_shape(Shape(4, 8, 10)) == Shape(4, 8));
  static_assert(softmax.target_shape(Shape(4, 10)) == Shape(4));
  CHECK(!softmax.needs(Shape(4, 8, 10), {}).error);
  CHECK(std::string(softmax.needs(Shape(10), {}).error.text()).find("rank 1") != std::string::npos);
  CHECK(softmax.needs(Shape(4, 0), {}).error);
  CHECK(!MeanSquaredError{}.needs(Shape(10), {}).error);
  CHECK(MeanSquaredError{}.needs(Shape(10, 0), {}).error);
  CHECK(MeanSquaredError{}.needs(Shape(), {}).error);
}

}}  // namespace losses_test
