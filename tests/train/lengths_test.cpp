// SPDX-License-Identifier: MIT
/// Trainings on sequences of any length up to a largest: bits, losses, budgets, checkpoints, refusals.
#include <doctest/doctest.h>

#include <adacc/io/packing.hpp>
#include <adacc/layer/attention.hpp>
#include <adacc/layer/causal_attention.hpp>
#include <adacc/layer/cross_entropy_head.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/embedding.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/plain/conv1d.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/pooling.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/model/repeat.hpp>
#include <adacc/model/residual.hpp>
#include <adacc/train/lengths.hpp>
#include <adacc/train/save.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support.hpp"

namespace lengths_test { namespace {

using namespace adacc;
using train_test::TokenBatch;

constexpr std::size_t channels = 32, vocab = 40, longest = 60, sequences = 3;
const Shape largest(sequences, longest);

auto causal_net(float dropped = 0) {
  const Embedding embedding{.vocab = vocab, .context = longest, .channels = channels};
  const Residual block{layer(LayerNorm{}), layer(Linear{.out = 3 * channels}),
                       layer(CausalAttention{.heads = 2}), layer(Linear{.out = channels}),
                       layer(Dropout{.rate = dropped})};
  return Network{Sequential{layer(embedding), repeat(2, block), layer(LayerNorm{})},
                 CrossEntropyHead{.vocab = vocab}};
}
const auto net = causal_net();
const auto dropping_net = causal_net(0.25F);

/// Sequences in both directions, with a class for each as a whole.
const Network judging_net{
    Sequential{layer(Embedding{.vocab = vocab, .context = longest, .channels = channels}),
               Residual{layer(Linear{.out = 3 * channels}),
                        layer(BidirectionalAttention{.heads = 2}), layer(Linear{.out = channels})},
               layer(MeanOverTime{}), layer(Linear{.out = 5})},
    SoftmaxCrossEntropy{}};

using Options = TrainingOptions<Cpu, AdamW>;

Shape of_length(std::size_t length) { return Shape(sequences, length); }

template <class... Pieces>
bool says(const Error& why, const Pieces&... pieces) {
  return train_test::says(why.text(), pieces...);
}

bool same(View<const float> a, View<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The largest difference of two gradients, over the largest number in them.
double distance(View<const float> a, View<const float> b) {
  double most = 0, apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::fmax(most, std::fabs(static_cast<double>(a[i])));
    apart = std::fmax(apart, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most > 0 && a.size() == b.size() ? apart / most : 1;
}

TEST_CASE("a batch as long as its class has the bits of a training of this shape") {
  auto any = Training<>::make(dropping_net, Lengths{.largest = largest, .multiples_of = 12},
                              Options{.seed = 3});
  auto fixed = Training<>::make(dropping_net, of_length(24), Options{.seed = 3});
  REQUIRE(any);
  REQUIRE(fixed);
  CHECK(any->plan().policies.size() == fixed->plan().policies.size());
  const auto* const params = any->params().data();
  for (std::size_t i = 0; i < 4; ++i) {
    const TokenBatch batch(i, of_length(24), vocab), other(i, of_length(12 + 11 * i), vocab);
    const auto a = any->step(batch.input(), batch.targets(), 1e-2);
    const auto b = fixed->step(batch.input(), batch.targets(), 1e-2);
    REQUIRE(a);
    REQUIRE(b);
    CHECK(a->loss == b->loss);
    CHECK(a->grad_norm == b->grad_norm);
    // Another class runs in between, and changes nothing.
    REQUIRE(any->evaluate(other.input(), other.targets()));
  }
  CHECK(any->params().data() == params);
  CHECK(same(any->params(), fixed->params()));
  CHECK(train_test::state_of(*any) == train_test::state_of(*fixed));
}

TEST_CASE("a batch between two classes has the loss of its own length, and its gradient") {
  auto any =
      *Training<>::make(net, Lengths{.largest = largest, .powers_from = 8}, Options{.seed = 3});
  for (const std::size_t length : {1U, 7U, 9U, 31U, 33U, 59U}) {
    CAPTURE(length);
    auto fixed = *Training<>::make(net, of_length(length), Options{.seed = 3});
    TokenBatch batch(length, of_length(length), vocab);
    if (length > 9) batch.y[4] = batch.y[length + 1] = ignored_target;
    const auto known = fixed.evaluate(batch.input(), batch.targets());
    const auto loss = any.evaluate(batch.input(), batch.targets());
    REQUIRE(loss);
    CHECK(*loss == *known);
    REQUIRE(fixed.accumulate(batch.input(), batch.targets()));
    const auto summed = any.accumulate(batch.input(), batch.targets());
    REQUIRE(summed);
    CHECK(*summed == doctest::Approx(*known).epsilon(1e-12));
    CHECK(any.targets() == fixed.targets());
    CHECK(distance(fixed.gradients(), any.gradients()) < 1e-6);
    CHECK(any.context().lengths.empty());
    // Gradients are given up.
    REQUIRE_FALSE(any.begin(batch.input(), batch.targets()));
    any.cursor();
    any.compiled_step().abandon();

    std::vector<float> out(sequences * length * channels), expected(out.size());
    const Shape shape(sequences, length, channels);
    REQUIRE_FALSE(fixed.infer(batch.input(), View<float>(expected.data(), shape)));
    REQUIRE_FALSE(any.infer(batch.input(), View<float>(out.data(), shape)));
    CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
    CHECK(says(any.infer(batch.input(), View<float>(out.data(), Shape(1, 2, 3))), "place for it"));
  }
}

TEST_CASE("bidirectional attention and means over time leave out padding") {
  auto any = *Training<>::make(judging_net, Lengths{.largest = largest, .multiples_of = 16},
                               Options{.seed = 3});
  const std::int32_t ends[] = {20, 3, 11};
  const std::int32_t classes[] = {4, 0, 2};
  const View<const std::int32_t> targets(classes, Shape(sequences));
  auto fixed = *Training<>::make(judging_net, of_length(20), Options{.seed = 3});
  const TokenBatch batch(1, of_length(20), vocab);
  for (const bool uneven : {false, true}) {
    if (uneven) any.context().lengths = fixed.context().lengths = {ends, Shape(sequences)};
    const auto known = fixed.accumulate(batch.input(), targets);
    const auto loss = any.accumulate(batch.input(), targets);
    REQUIRE(loss);
    CHECK(*loss == *known);
    CHECK(distance(fixed.gradients(), any.gradients()) < 1e-6);
    CHECK(any.context().lengths.data() == fixed.context().lengths.data());
  }
}

TEST_CASE("micro-batches of other lengths weigh by their targets") {
  // All in one batch of the largest length, filled up by hand.
  const std::size_t lengths[] = {5, 17, 60};
  std::vector<std::int32_t> x(longest * 3, 0), y(longest * 3, ignored_target);
  auto one = *Training<>::make(net, largest, Options{.seed = 3});
  auto any = *Training<>::make(net, Lengths{.largest = Shape(1, longest), .multiples_of = 16},
                               Options{.seed = 3});
  for (std::size_t i = 0; i < 3; ++i) {
    const TokenBatch batch(i, Shape(1, lengths[i]), vocab);
    std::copy(batch.x.begin(), batch.x.end(), x.begin() + static_cast<std::ptrdiff_t>(i * longest));
    std::copy(batch.y.begin(), batch.y.end(), y.begin() + static_cast<std::ptrdiff_t>(i * longest));
    REQUIRE(any.accumulate(batch.input(), batch.targets()));
  }
  const View<const std::int32_t> input(x.data(), largest), targets(y.data(), largest);
  REQUIRE(one.accumulate(input, targets));
  const auto a = one.update(1e-2);
  const auto b = any.update(1e-2);
  REQUIRE(a);
  REQUIRE(b);
  CHECK(b->loss == doctest::Approx(a->loss).epsilon(1e-6));
  CHECK(b->grad_norm == doctest::Approx(a->grad_norm).epsilon(1e-6));
}

TEST_CASE("packed documents stay apart in a batch that is filled up") {
  auto any =
      *Training<>::make(net, Lengths{.largest = largest, .multiples_of = 32}, Options{.seed = 3});
  auto fixed = *Training<>::make(net, of_length(20), Options{.seed = 3});
  PackedBatch batch(of_length(20));
  for (const std::size_t length : {9U, 12U, 7U, 15U, 6U}) {
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < length; ++i)
      tokens.push_back(static_cast<std::int32_t>(7 * i + length) % 40);
    REQUIRE(*batch.add({tokens.data(), Shape(length)}));
  }
  any.context().positions = fixed.context().positions = batch.positions();
  const auto known = fixed.evaluate(batch.tokens(), batch.targets());
  const auto loss = any.evaluate(batch.tokens(), batch.targets());
  REQUIRE(loss);
  CHECK(*loss == *known);
  CHECK(any.context().positions.data() == batch.positions().data());
  any.context().positions = {batch.positions().data(), Shape(7)};
  CHECK(says(any.step(batch.tokens(), batch.targets(), 1e-2).error, "7 positions"));
  CHECK(any.context().positions.size() == 7);
}

TEST_CASE("60 lengths, the longest last, stay within one budget and one block of parameters") {
  const auto graph = make_graph(net, largest);
  REQUIRE(graph);
  const std::size_t retained = peak_bytes(*graph, retain_all(*graph));
  PlanRequest request;
  request.budget_bytes = 1;
  request.tolerance = 0;
  const auto least = smallest_peak(*graph, estimated_profile(*graph), request);
  REQUIRE(least);
  const std::size_t budget = (retained + 3 * *least) / 4;
  auto any = *Training<>::make(net, Lengths{.largest = largest, .multiples_of = 5},
                               Options{.budget_bytes = budget, .tolerance = 0, .seed = 3});
  const auto* const params = any.params().data();
  const auto* const state = any.state(0).data();
  std::size_t arena = 0;
  for (std::size_t length = 1; length <= longest; ++length) {
    const TokenBatch batch(length, of_length(length), vocab);
    const auto outcome = any.step(batch.input(), batch.targets(), 1e-3);
    REQUIRE(outcome);
    CHECK(outcome->finite);
    CHECK(any.peak_bytes() <= any.arena().size());
    CHECK(any.arena().size() <= budget);
    arena = any.arena().size();
  }
  // Plans that are there use the arena that is there.
  const auto* const place = any.arena().data();
  for (const std::size_t length : {3U, 60U, 22U, 60U, 41U}) {
    const TokenBatch batch(length, of_length(length), vocab);
    REQUIRE(any.step(batch.input(), batch.targets(), 1e-3));
    CHECK(any.arena().data() == place);
    CHECK(any.arena().size() == arena);
  }
  CHECK(any.params().data() == params);
  CHECK(any.state(0).data() == state);
  CHECK(any.memory_use().padded > 0);

  // Another budget is that of all classes, from the next update on.
  const TokenBatch batch(1, of_length(60), vocab), small(1, of_length(21), vocab);
  REQUIRE_FALSE(any.set_budget(*least - 64));
  REQUIRE(any.step(small.input(), small.targets(), 1e-3));
  CHECK(says(any.boundary().update.failed, "smallest"));
  REQUIRE_FALSE(any.set_budget(*least));
  for (const TokenBatch* next : {&small, &batch, &small}) {
    REQUIRE(any.step(next->input(), next->targets(), 1e-3));
    CHECK_FALSE(any.boundary().update.failed);
    CHECK(any.arena().size() <= *least);
    CHECK(any.evolution()->budget_bytes() == *least);
  }
}

TEST_CASE("plans in advance, fused updates, slices") {
  const Lengths lengths{.largest = largest, .multiples_of = 30, .in_advance = true};
  auto any =
      *Training<>::make(net, lengths, Options{.seed = 3, .graph = {.updates = Updates::fused}});
  auto fixed = *Training<>::make(net, of_length(30),
                                 Options{.seed = 3, .graph = {.updates = Updates::fused}});
  const TokenBatch batch(1, of_length(30), vocab), shorter(2, of_length(13), vocab);
  REQUIRE(any.step(batch.input(), batch.targets(), 1e-2));
  REQUIRE(fixed.step(batch.input(), batch.targets(), 1e-2));
  CHECK(same(any.params(), fixed.params()));

  std::int64_t ticks = 0;
  const auto now = [&] { return ++ticks; };
  REQUIRE_FALSE(any.begin(shorter.input(), shorter.targets(), 1e-2));
  CHECK(any.context().lengths.size() == sequences);
  CHECK(says(any.begin(shorter.input(), shorter.targets(), 1e-2), "under way"));
  CHECK(any.context().lengths.size() == sequences);
  const auto slice = any.slice(now, std::numeric_limits<std::int64_t>::max());
  REQUIRE(slice);
  CHECK(slice->ended);
  CHECK(any.context().lengths.empty());
  const auto outcome = any.update(1e-2);
  REQUIRE(outcome);
  CHECK(outcome->finite);
  CHECK(any.updates() == 2);
}

TEST_CASE("a checkpoint has the plans of all classes, and goes on bit for bit") {
  train_test::Folder folder;
  const Lengths lengths{.largest = largest, .multiples_of = 20};
  const Options options{.budget_bytes = 400 * KiB, .seed = 3};
  auto saved = *Training<>::make(net, lengths, options);
  const TokenBatch full(1, largest, vocab), small(2, of_length(17), vocab),
      middle(3, of_length(40), vocab);
  REQUIRE(saved.step(full.input(), full.targets(), 1e-2));
  REQUIRE(saved.step(small.input(), small.targets(), 1e-2));
  REQUIRE_FALSE(saved.save(folder / "any"));
  auto resumed = *Training<>::make(net, lengths, options);
  const auto info = resumed.load(folder / "any");
  if (!info) FAIL(info.error.text());
  for (const TokenBatch* next : {&small, &middle, &full}) {
    const auto a = saved.step(next->input(), next->targets(), 1e-2);
    const auto b = resumed.step(next->input(), next->targets(), 1e-2);
    REQUIRE(b);
    CHECK(a->loss == b->loss);
    CHECK(saved.peak_bytes() == resumed.peak_bytes());
  }
  CHECK(same(saved.params(), resumed.params()));

  // A training of the largest shape alone takes numbers, and its checkpoints are taken.
  auto fixed = *Training<>::make(net, largest, options);
  CHECK(says(fixed.load(folder / "any").error, "of several lengths", "Restore::numbers"));
  REQUIRE(fixed.load(folder / "any", Restore::numbers));
  REQUIRE_FALSE(fixed.save(folder / "fixed"));
  REQUIRE(resumed.load(folder / "fixed"));
  CHECK(same(fixed.params(), resumed.params()));
  std::string bytes = train_test::read_file(folder / "any");
  const std::size_t at = bytes.find("version 1\n60 ");
  REQUIRE(at != std::string::npos);
}

TEST_CASE("lengths that cannot be are refused in words") {
  const auto refused = [](const Lengths& lengths, const char* words) {
    return says(Training<>::make(net, lengths).error, words);
  };
  CHECK(refused({.largest = largest}, "set one of them"));
  CHECK(refused({.largest = largest, .multiples_of = 4, .powers_from = 4}, "set one of them"));
  CHECK(refused({.largest = largest, .multiples_of = 61}, "above the largest length, 60"));
  CHECK(refused({.largest = largest, .multiples_of = 4, .axis = 2}, "extent"));
  CHECK(refused({.largest = Shape(3, 1), .multiples_of = 1}, "no other length"));
  CHECK(refused({.largest = Shape(3, 0), .multiples_of = 1}, "extent"));
  CHECK(says(Training<>::make(net, Lengths{.largest = largest, .multiples_of = 4},
                              Options{.budget_bytes = 10000})
                 .error,
             "smallest"));
  CHECK(says(Training<>::make(net, Lengths{.largest = largest, .multiples_of = 4},
                              Options{.total_bytes = 1000})
                 .error,
             "filled up"));

  auto any = *Training<>::make(net, Lengths{.largest = largest, .multiples_of = 20});
  const auto step = [&](Shape shape, Shape targets) {
    const TokenBatch x(1, shape, vocab), y(1, targets, vocab);
    return any.step(x.input(), y.targets(), 1e-2).error;
  };
  CHECK(says(step(of_length(61), of_length(61)), "lengths from 1 to 60", "61"));
  CHECK(says(step(of_length(0), of_length(0)), "lengths from 1 to 60", "0"));
  CHECK(says(step(Shape(2, 7), Shape(2, 7)), "extent 1 may be less"));
  CHECK(says(step(Shape(7), Shape(7)), "extent 1 may be less"));
  CHECK(says(step(of_length(7), of_length(8)), "takes targets", "7", "8"));
  std::vector<float> wrong(sequences * 7);
  CHECK(says(any.evaluate(View<const float>(wrong.data(), of_length(7)), {}).error, "i32"));
  CHECK_FALSE(step(of_length(7), of_length(7)));
}

TEST_CASE("networks that would read padding take lengths of classes alone") {
  const Network mixing{Sequential{layer(plain::Conv1d{.out = 4})}, plain::MeanSquaredError{}};
  const Network blind{Sequential{layer(Linear{.out = 4})}, plain::MeanSquaredError{}};
  const Shape whole(2, 12, 3);
  const std::vector<float> numbers(whole.elems() * 2, 0.5F);
  const auto steps = [&](auto& training, std::size_t length, std::size_t out) {
    return training
        .step(View<const float>(numbers.data(), Shape(2, length, 3)),
              View<const float>(numbers.data(), Shape(2, out, 4)), 1e-2)
        .error;
  };
  auto one = *Training<>::make(mixing, Lengths{.largest = whole, .multiples_of = 6});
  CHECK_FALSE(steps(one, 6, 4));
  CHECK_FALSE(steps(one, 12, 10));
  CHECK(says(steps(one, 7, 5), "plain_conv1d", "12"));
  auto other = *Training<>::make(blind, Lengths{.largest = whole, .multiples_of = 6});
  CHECK_FALSE(steps(other, 6, 6));
  CHECK(says(steps(other, 7, 7), "ignores none", "12"));
}

TEST_CASE("rows of a batch may be a length, too") {
  const Network rows{Sequential{layer(Linear{.out = 5})}, SoftmaxCrossEntropy{}};
  auto any = *Training<>::make(rows, Lengths{.largest = Shape(32, 16), .powers_from = 4, .axis = 0},
                               Options{.seed = 3});
  auto fixed = *Training<>::make(rows, Shape(9, 16), Options{.seed = 3});
  std::vector<float> x(9 * 16);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const TokenBatch classes(1, Shape(9), 5);
  const View<const float> input(x.data(), Shape(9, 16));
  const auto a = any.accumulate(input, classes.targets());
  const auto b = fixed.accumulate(input, classes.targets());
  REQUIRE(a);
  CHECK(*a == *b);
  CHECK(same(any.gradients(), fixed.gradients()));
}

}}  // namespace lengths_test
