// SPDX-License-Identifier: MIT
/// Losses over classes with ignored targets: the mean over the counted rows, and zeros in the others.
#include <doctest/doctest.h>

#include <adacc/layer/cross_entropy_head.hpp>
#include <adacc/layer/plain/softmax_cross_entropy.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/testing/gradient_check.hpp>

#include <cstdint>
#include <vector>

#include "guarded_buffer.hpp"

namespace ignored_targets_test { namespace {

using namespace adacc;

/// Every third target counts, or none does.
std::vector<std::int32_t> some_targets(std::size_t rows, std::size_t classes, bool none = false) {
  std::vector<std::int32_t> targets;
  for (std::size_t r = 0; r < rows; ++r)
    targets.push_back(none || r % 3 != 1 ? ignored_target
                                         : static_cast<std::int32_t>(r * 7 % classes));
  return targets;
}

struct Outcome {
  double loss = 0;
  std::vector<float> dx, dweight;
};

template <class Loss>
Outcome run(const Loss& loss, Shape in, const std::vector<float>& x,
            const std::vector<std::int32_t>& targets, std::size_t divisor = 0) {
  Cpu cpu;
  std::vector<Parameter> table;
  layer_traits<Loss>::parameters(loss, in, [&](const ParameterSpec& spec) {
    table.emplace_back();
    static_cast<ParameterSpec&>(table.back()) = spec;
  });
  const std::size_t elems = table.empty() ? 0 : table[0].shape.elems();
  std::vector<float> weight, dx(x.size(), 7);
  for (const double value : random_values(elems, 5)) weight.push_back(static_cast<float>(value));
  std::vector<float> dweight(elems);
  GuardedBuffer<std::byte> space(
      loss.needs(in, {Dtype::f32, cpu.workers(), Pass::backward}).workspace);
  Cpu::Loss sum;
  sum.clear();
  call_loss_gradient(
      loss, cpu,
      LossCall<float, std::int32_t>{
          .x = {x.data(), in},
          .targets = {targets.data(), layer_traits<Loss>::target_shape(loss, in)},
          .dx = {dx.data(), in},
          .params = {weight.data(), table.data(), table.size()},
          .dparams = {dweight.data(), table.data(), table.size()},
          .workspace = {space.data(),
                        Shape(
                            loss.needs(in, {Dtype::f32, cpu.workers(), Pass::backward}).workspace)},
          .divisor = divisor},
      sum);
  CHECK(space.guard_intact());
  return {sum.value(), dx, dweight};
}

/// The loss of all rows has the bits of the loss of the counted rows alone, and so has dx; other rows get zeros.
template <class Loss>
void equals_counted_rows_alone(const Loss& loss, std::size_t rows, std::size_t channels,
                               std::size_t classes) {
  std::vector<float> x, alone;
  for (const double value : random_values(rows * channels, 3))
    x.push_back(static_cast<float>(value));
  const std::vector<std::int32_t> targets = some_targets(rows, classes);
  std::vector<std::int32_t> counted;
  for (std::size_t r = 0; r < rows; ++r) {
    if (targets[r] == ignored_target) continue;
    counted.push_back(targets[r]);
    for (std::size_t c = 0; c < channels; ++c) alone.push_back(x[r * channels + c]);
  }
  const Outcome all = run(loss, Shape(rows, channels), x, targets),
                some = run(loss, Shape(counted.size(), channels), alone, counted);
  CHECK(all.loss == some.loss);
  std::size_t next = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const bool counts = targets[r] != ignored_target;
    for (std::size_t c = 0; c < channels; ++c)
      CHECK(all.dx[r * channels + c] == (counts ? some.dx[next * channels + c] : 0));
    if (counts) ++next;
  }
  REQUIRE(all.dweight.size() == some.dweight.size());
  for (std::size_t i = 0; i < all.dweight.size(); ++i)
    CHECK(all.dweight[i] == doctest::Approx(some.dweight[i]).epsilon(1e-4));

  // Divided by the number of all rows instead, losses and gradients of pieces add up.
  const double share = static_cast<double>(counted.size()) / static_cast<double>(rows);
  const Outcome by_all = run(loss, Shape(rows, channels), x, targets, rows);
  CHECK(by_all.loss == doctest::Approx(all.loss * share).epsilon(1e-12));
  for (std::size_t i = 0; i < all.dx.size(); ++i)
    CHECK(by_all.dx[i] == doctest::Approx(static_cast<double>(all.dx[i]) * share).epsilon(1e-5));

  const Outcome none = run(loss, Shape(rows, channels), x, some_targets(rows, classes, true));
  CHECK(none.loss == 0);
  for (const float value : none.dx) CHECK(value == 0);
  for (const float value : none.dweight) CHECK(value == 0);
}

TEST_CASE("losses over classes are the mean over counted targets") {
  equals_counted_rows_alone(SoftmaxCrossEntropy{}, 41, 19, 19);
  equals_counted_rows_alone(plain::SoftmaxCrossEntropy{}, 41, 19, 19);
  equals_counted_rows_alone(CrossEntropyHead{.vocab = 67, .tied = nullptr}, 41, 19, 67);
  // More rows than a tile has, and more words than a block.
  equals_counted_rows_alone(CrossEntropyHead{.vocab = 2100, .tied = nullptr}, 300, 4, 2100);
}

TEST_CASE("a tile of rows without a counted target gets zeros, and leaves the others alone") {
  const CrossEntropyHead head{.vocab = 23, .tied = nullptr};
  constexpr std::size_t rows = 2 * CrossEntropyHead::tile_rows + 40, channels = 5;
  std::vector<float> x;
  for (const double value : random_values(rows * channels, 3))
    x.push_back(static_cast<float>(value));
  std::vector<std::int32_t> targets(rows, ignored_target);
  for (std::size_t r = 2 * CrossEntropyHead::tile_rows; r < rows; ++r) targets[r] = 11;
  const Outcome all = run(head, Shape(rows, channels), x, targets);
  const std::size_t first = 2 * CrossEntropyHead::tile_rows;
  const Outcome last = run(head, Shape(40, channels), {x.begin() + first * channels, x.end()},
                           std::vector<std::int32_t>(40, 11));
  CHECK(all.loss == last.loss);
  CHECK(all.dweight == last.dweight);
  for (std::size_t i = 0; i < all.dx.size(); ++i)
    CHECK(all.dx[i] == (i < first * channels ? 0 : last.dx[i - first * channels]));
}

template <class Loss>
void check(const Loss& loss, Shape in, std::size_t classes) {
  for (const bool none : {false, true}) {
    const std::vector<std::int32_t> targets = some_targets(in.rows(), classes, none);
    const auto checked = testing::gradient_check_loss(
        loss, in,
        View<const std::int32_t>(targets.data(), layer_traits<Loss>::target_shape(loss, in)));
    CHECK_MESSAGE(checked.passed, checked.text());
  }
}

TEST_CASE("losses with ignored targets keep the contract, in parts too") {
  check(SoftmaxCrossEntropy{}, Shape(7, 6), 6);
  check(plain::SoftmaxCrossEntropy{}, Shape(7, 6), 6);
  check(CrossEntropyHead{.vocab = 9, .tied = nullptr}, Shape(2, 7, 4), 9);
}

}}  // namespace ignored_targets_test
