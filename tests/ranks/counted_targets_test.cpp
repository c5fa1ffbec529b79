// SPDX-License-Identifier: MIT
/// Targets that are ignored, in all trainers: each counted target weighs as much as any other, however batches are cut.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/layer/cross_entropy_head.hpp>
#include <adacc/layer/embedding.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/ranks/data_parallel/data_parallel.hpp>
#include <adacc/ranks/pipeline/pipeline.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/train/forward_only.hpp>
#include <adacc/train/make.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../train/support.hpp"

namespace counted_targets_test { namespace {

using namespace adacc;

constexpr std::size_t vocab = 61, time = 128, sequences = 4;
constexpr std::size_t counted[sequences] = {5, 17, 90, 128};

using Net = Network<Sequential<Layer<Embedding>, Layer<plain::Tanh>, Layer<plain::Linear>>,
                    CrossEntropyHead>;
const Net net{
    {{Embedding{.vocab = vocab, .context = time, .channels = 24}}, {}, {plain::Linear{.out = 20}}},
    CrossEntropyHead{.vocab = vocab, .tied = nullptr, .init_stddev = 0.3F}};

/// Four sequences, of which the last 5, 17, 90 and 128 targets count.
struct Batch {
  std::vector<std::int32_t> x, y;
  Batch() {
    for (std::size_t s = 0; s < sequences; ++s)
      for (std::size_t t = 0; t < time; ++t) {
        const std::size_t at = s * time + t;
        x.push_back(static_cast<std::int32_t>(random_word({.seed = 1}, at) % vocab));
        y.push_back(t < time - counted[s]
                        ? ignored_target
                        : static_cast<std::int32_t>(random_word({.seed = 2}, at) % vocab));
      }
  }
  View<const std::int32_t> input(std::size_t s, std::size_t count = 1) const {
    return {x.data() + s * time, Shape(count, time)};
  }
  View<const std::int32_t> targets(std::size_t s, std::size_t count = 1) const {
    return {y.data() + s * time, Shape(count, time)};
  }
};
const Batch batch;
const std::vector<std::int32_t> none(sequences* time, ignored_target);

/// The outcome of one update at the rate 1: a step of gradient descent, so parameters move by the gradient.
struct Seen {
  double loss = 0, norm = 0;
  bool none_counted = false;
  std::uint64_t updates = 0;
  std::vector<float> params;
};

template <class Trained>
Seen seen(Trained& trained, double rate = 1) {
  const auto outcome = trained.update(rate);
  REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
  const auto params = [&] {
    if constexpr (requires { trained.training(); }) return trained.training().params();
    else return trained.params();
  }();
  return {outcome->loss,
          outcome->grad_norm,
          outcome->none_counted,
          trained.updates(),
          {params.begin(), params.end()}};
}

using Descent = Training<float, Cpu, Sgd>;
using Options = Descent::Options;

Descent make_training(std::size_t each, Options options = {}) {
  options.seed = 3;
  auto made = Descent::make(net, Shape(each, time), options);
  REQUIRE_MESSAGE(made, std::string(made.error.text()));
  return std::move(*made);
}

/// One update on the batch, with `each` sequences in a micro-batch.
Seen trained(std::size_t each, const Options& options = {}) {
  Descent training = make_training(each, options);
  for (std::size_t s = 0; s < sequences; s += each)
    REQUIRE(training.accumulate(batch.input(s, each), batch.targets(s, each)));
  CHECK(training.targets() == TargetCount{240, 512});
  return seen(training);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    most = (std::fmax)(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

void check_same(const Seen& a, const Seen& b) {
  CHECK_FALSE(b.none_counted);
  CHECK(b.updates == 1);
  CHECK(std::fabs(a.loss - b.loss) < 1e-6);
  CHECK(std::fabs(a.norm - b.norm) < 1e-6);
  CHECK(distance(a.params, b.params) < 1e-6);
}

/// The batch in one piece.
const Seen& whole() {
  static const Seen made = trained(sequences);
  return made;
}

TEST_CASE("micro-batches weigh by their counted targets") {
  check_same(whole(), trained(1));
  check_same(whole(), trained(2));
  // evaluate() returns the mean over counted targets, and so does each micro-batch.
  Descent training = make_training(sequences);
  CHECK(std::fabs(*training.evaluate(batch.input(0, 4), batch.targets(0, 4)) - whole().loss) <
        1e-12);
  Descent one = make_training(1);
  double sum = 0;
  for (std::size_t s = 0; s < sequences; ++s) {
    const double mean = *one.accumulate(batch.input(s), batch.targets(s));
    CHECK(std::fabs(mean - *one.evaluate(batch.input(s), batch.targets(s))) < 1e-12);
    sum += mean * static_cast<double>(counted[s]);
  }
  CHECK(std::fabs(sum / 240 - whole().loss) < 1e-6);
}

TEST_CASE("parts of a step, and slices, weigh by their counted targets") {
  Options options;
  options.graph.parts = 5;
  check_same(whole(), trained(sequences, options));
  Descent training = make_training(1, options);
  std::int64_t ticks = 0;
  const auto clock = [&] { return ++ticks; };
  for (std::size_t s = 0; s < sequences; ++s) {
    REQUIRE_FALSE(training.begin(batch.input(s), batch.targets(s)));
    for (bool ended = false; !ended;) ended = training.slice(clock, ticks + 4)->ended;
  }
  check_same(whole(), seen(training));
}

TEST_CASE("fused updates divide by the counted share") {
  Options options;
  options.graph.updates = Updates::fused;
  Descent training = make_training(sequences, options);
  const auto outcome = training.step(batch.input(0, 4), batch.targets(0, 4), 1);
  REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
  check_same(whole(), {outcome->loss,
                       outcome->grad_norm,
                       outcome->none_counted,
                       training.updates(),
                       {training.params().begin(), training.params().end()}});
}

TEST_CASE("a ForwardOnly weighs slopes by counted targets") {
  const auto moved = [](std::size_t each) {
    auto made = ForwardOnly<double>::make(net, Shape(each, time),
                                          {.epsilon = 1e-4, .directions = 3, .seed = 3});
    REQUIRE_MESSAGE(made, std::string(made.error.text()));
    for (std::size_t s = 0; s < sequences; s += each)
      REQUIRE(made->accumulate(batch.input(s, each), batch.targets(s, each)));
    const auto outcome = made->update(1);
    REQUIRE(outcome);
    return *outcome;
  };
  const TrainingOutcome one = moved(4), four = moved(1);
  CHECK(std::fabs(one.loss - four.loss) < 1e-9);
  CHECK(std::fabs(one.grad_norm - four.grad_norm) < 1e-8);
}

TEST_CASE("ranks and shards weigh by their counted targets") {
  for (const bool sharded : {false, true})
    for (const int ranks : {1, 2, 4}) {
      CAPTURE(sharded);
      CAPTURE(ranks);
      std::vector<Seen> all(static_cast<std::size_t>(ranks));
      std::vector<Error> errors(all.size());
      ThreadGroup group(ranks);
      run_ranks(group, [&](ThreadGroup::Member& member) {
        const auto rank = static_cast<std::size_t>(member.rank());
        Options options;
        options.seed = 3;
        auto made = DataParallel<float, Cpu, Sgd>::make(
            member, net, Shape(1, time), options, {.shards = 4, .sharded_gradients = sharded});
        errors[rank] = made.error;
        for (int i = 0; !errors[rank] && i < made->shard_count(); ++i) {
          const auto s = static_cast<std::size_t>(made->shard(i));
          errors[rank] = made->accumulate(batch.input(s), batch.targets(s)).error;
        }
        if (!errors[rank]) all[rank] = seen(*made);
      });
      for (const Error& why : errors) REQUIRE_MESSAGE(!why, std::string(why.text()));
      for (const Seen& one : all) {
        check_same(whole(), one);
        CHECK(distance(one.params, all[0].params) == 0);
      }
    }
}

Pipeline<float, Cpu, Sgd> make_pipeline(GroupRef group) {
  const auto graph = make_graph(net, Shape(1, time));
  REQUIRE(graph);
  PipelineRequest request;
  request.micro_batches = sequences;
  request.tolerance = 0;
  for (int s = 0; s < group.size(); ++s) request.stages.push_back({std::size_t{1} << 30});
  const auto plan = plan_pipeline(*graph, estimated_profile(*graph), request);
  REQUIRE_MESSAGE(plan, std::string(plan.error.text()));
  Cpu cpu;
  cpu.key.seed = 3;
  auto made = Pipeline<float, Cpu, Sgd>::make(net, *graph, *plan, sequences, cpu, group);
  REQUIRE_MESSAGE(made, std::string(made.error.text()));
  return std::move(*made);
}

TEST_CASE("stages of a pipeline weigh by counted targets, which the last one alone sees") {
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    std::vector<Seen> all(static_cast<std::size_t>(ranks));
    std::vector<Seen> without(all.size());
    ThreadGroup group(ranks);
    run_ranks(group, [&](ThreadGroup::Member& member) {
      const auto rank = static_cast<std::size_t>(member.rank());
      auto stage = make_pipeline(member);
      for (std::size_t s = 0; s < sequences; ++s)
        static_cast<void>(stage.accumulate(batch.input(s), batch.targets(s)));
      all[rank] = seen(stage);
      for (std::size_t s = 0; s < sequences; ++s)
        static_cast<void>(stage.accumulate(batch.input(s),
                                           View<const std::int32_t>(none.data(), Shape(1, time))));
      without[rank] = seen(stage);
    });
    std::vector<float> params;
    for (const Seen& one : all) {
      CHECK(std::fabs(one.loss - whole().loss) < 1e-6);
      CHECK(std::fabs(one.norm - whole().norm) < 1e-6);
      params.insert(params.end(), one.params.begin(), one.params.end());
    }
    if (ranks == 1) CHECK(distance(params, whole().params) < 1e-6);
    for (std::size_t r = 0; r < all.size(); ++r) {
      CHECK(without[r].none_counted);
      CHECK(without[r].loss == 0);
      CHECK(without[r].updates == 1);
      CHECK(distance(without[r].params, all[r].params) == 0);
    }
  }
}

/// An update with no counted target has the loss 0, changes nothing, and says so; the next one goes on.
template <class Make>
void update_without_targets(const Make& make) {
  const View<const std::int32_t> nothing(none.data(), Shape(sequences, time));
  auto trained = make();
  const std::vector<float> before(trained.params().begin(), trained.params().end());
  CHECK(*trained.evaluate(batch.input(0, 4), nothing) == 0);
  const auto outcome = trained.step(batch.input(0, 4), nothing, 1);
  REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
  CHECK(outcome->none_counted);
  CHECK(outcome->finite);
  CHECK(outcome->loss == 0);
  CHECK(outcome->grad_norm == 0);
  CHECK(trained.updates() == 0);
  CHECK(distance({trained.params().begin(), trained.params().end()}, before) < 1e-6);
  const auto next = trained.step(batch.input(0, 4), batch.targets(0, 4), 1);
  REQUIRE_MESSAGE(next, std::string(next.error.text()));
  CHECK_FALSE(next->none_counted);
  CHECK(trained.updates() == 1);
  CHECK(distance({trained.params().begin(), trained.params().end()}, before) > 1e-3);
}

TEST_CASE("an update without a counted target changes nothing, and says so") {
  update_without_targets([] { return make_training(sequences); });
  update_without_targets([] {
    Options options;
    options.graph.updates = Updates::fused;
    return make_training(sequences, options);
  });
  update_without_targets([] {
    auto result = ForwardOnly<>::make(net, Shape(sequences, time), {.seed = 3});
    return std::move(*result);
  });
}

TEST_CASE("an id outside of the vocabulary is an error that names id and position") {
  Descent training = make_training(sequences);
  const std::vector<float> before(training.params().begin(), training.params().end());
  for (const std::int32_t id : {61, -1, -99, 2000000000}) {
    CAPTURE(id);
    std::vector<std::int32_t> wrong = batch.y;
    wrong[2 * time + 77] = id;
    const View<const std::int32_t> targets(wrong.data(), Shape(sequences, time));
    const auto says = [&](const Error& why) {
      CHECK_MESSAGE(train_test::says(why.text(), std::to_string(id).c_str(), "position 77", "row 2",
                                     "0 to 60"),
                    std::string(why.text()));
    };
    says(training.step(batch.input(0, 4), targets, 1).error);
    says(training.accumulate(batch.input(0, 4), targets).error);
    says(training.evaluate(batch.input(0, 4), targets).error);
    says(training.begin(batch.input(0, 4), targets));
  }
  CHECK(training.updates() == 0);
  CHECK(distance({training.params().begin(), training.params().end()}, before) == 0);
  check_same(whole(), [&] {
    REQUIRE(training.accumulate(batch.input(0, 4), batch.targets(0, 4)));
    return seen(training);
  }());
}

}}  // namespace counted_targets_test
