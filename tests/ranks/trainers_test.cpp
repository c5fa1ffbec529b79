// SPDX-License-Identifier: MIT
/// The contract of a trainer (train/trainer.hpp), held against all that there are.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/policy/recompute.hpp>
#include <adacc/ranks/data_parallel/data_parallel.hpp>
#include <adacc/ranks/pipeline/pipeline.hpp>
#include <adacc/ranks/pipeline/replan.hpp>
#include <adacc/ranks/pipeline/save.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/testing/trainer_archetype.hpp>
#include <adacc/train/forward_only.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#include <adacc/train/trainer.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../train/support.hpp"

namespace trainers_test {
namespace {

using namespace adacc;
using train_test::Folder;

bool says(const Error& error, const char* what) { return train_test::says(error.text(), what); }

static_assert(Trainer<Training<>>);
static_assert(Trainer<Training<float, Cpu, AnyOptimizer>>);
static_assert(Trainer<ForwardOnly<>>);
static_assert(Trainer<DataParallel<>>);
static_assert(Trainer<Pipeline<>>);
static_assert(Trainer<testing::TrainerArchetype>);
static_assert(!Trainer<int>);

using Net = Network<Sequential<Layer<plain::Linear>, Layer<plain::Tanh>, Layer<Dropout>,
                               Layer<plain::Linear>, Layer<plain::Tanh>, Layer<plain::Linear>>,
                    plain::MeanSquaredError>;
const Net net{{{plain::Linear{.out = 24}},
               {},
               {{.rate = 0.25F}},
               {plain::Linear{.out = 24}},
               {},
               {plain::Linear{.out = 3}}},
              {}};
const Shape shape(16, 8), output_shape(16, 3);

struct Batch {
  std::vector<float> x = std::vector<float>(shape.elems()),
                     y = std::vector<float>(output_shape.elems());
  explicit Batch(std::uint32_t number) {
    const RandomKey key{.seed = 5, .step = number};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2 * unit_float(random_word(key, i)) - 1;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] * x[i + 1];
  }
  View<const float> input() const { return {x.data(), shape}; }
  View<const float> targets() const { return {y.data(), output_shape}; }
};

/// Ticks that pass as they are asked for.
std::int64_t now_ticks = 0;
std::int64_t now() { return ++now_ticks; }

template <class Trained>
std::vector<float> params_of(const Trained& trained) {
  if constexpr (requires { trained.training(); }) return params_of(trained.training());
  else return {trained.params().begin(), trained.params().end()};
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// A micro-batch in slices of a few ticks.
template <Trainer Trained>
void accumulate_in_slices(Trained& trained, const Batch& batch) {
  REQUIRE_FALSE(trained.begin(batch.input(), batch.targets()));
  int slices = 0;
  for (bool ended = false; !ended; ++slices) {
    const Result<Slice> slice = trained.slice(now, now_ticks + 4);
    REQUIRE_MESSAGE(slice, slice.error.text());
    ended = slice->ended;
    if (ended) break;
    CHECK(says(trained.update(1e-2).error, "under way"));
    CHECK(says(trained.evaluate(batch.input(), batch.targets()).error, "under way"));
    std::vector<float> out(output_shape.elems());
    CHECK(says(trained.infer(batch.input(), View<float>(out.data(), output_shape)), "under way"));
  }
  CHECK(slices > 1);
  CHECK(trained.slice(now, now_ticks + 4).error);
}

/// `make()` makes the same trainer every time, of two micro-batches an update.
template <class Make>
void hold_to_the_contract(const Make& make, const Folder& folder, const char* file) {
  auto plain = make(), watched = make();
  std::vector<float> out(output_shape.elems());
  const View<float> output(out.data(), output_shape);
  std::vector<float> first_out;
  for (std::uint32_t u = 0; u < 3; ++u) {
    CAPTURE(u);
    const Batch a(2 * u), b(2 * u + 1);
    // Whatever is asked between two calls, and however these are cut, the bits are the same.
    const auto before = params_of(watched);
    const auto loss = watched.evaluate(a.input(), a.targets());
    REQUIRE_MESSAGE(loss, loss.error.text());
    REQUIRE_FALSE(watched.infer(a.input(), output));
    double squares = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double off = static_cast<double>(out[i]) - static_cast<double>(a.y[i]);
      squares += off * off;
    }
    CHECK(squares / static_cast<double>(out.size()) == doctest::Approx(*loss).epsilon(1e-5));
    CHECK(*watched.evaluate(a.input(), a.targets()) == *loss);
    CHECK(same(params_of(watched), before));
    REQUIRE(plain.accumulate(a.input(), a.targets()));
    REQUIRE(plain.accumulate(b.input(), b.targets()));
    CHECK(plain.batches() == 2);
    accumulate_in_slices(watched, a);
    accumulate_in_slices(watched, b);
    CHECK(watched.batches() == 2);
    const auto expected = plain.update(1e-2), outcome = watched.update(1e-2);
    REQUIRE_MESSAGE(expected, expected.error.text());
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    CHECK(outcome->loss == expected->loss);
    CHECK(outcome->grad_norm == expected->grad_norm);
    CHECK(outcome->batches == expected->batches);
    CHECK(same(params_of(watched), params_of(plain)));
    CHECK_FALSE(same(params_of(watched), before));
    CHECK(watched.updates() == u + 1);
    CHECK(watched.batches() == 0);
  }
  CHECK(says(watched.update(1e-2).error, "accumulate"));
  CHECK(says(watched.infer(Batch(0).input(), View<float>(out.data(), Shape(3, 16))), "(16, 3)"));
  CHECK(watched.evaluate(Batch(0).targets(), Batch(0).targets()).error);
  CHECK(watched.plan().policies.size() > 0);
  CHECK(watched.memory_use().arena >= watched.peak_bytes());
  CHECK_FALSE(watched.set_budget(watched.memory_use().arena));

  // A trainer that goes on from its file goes on with the same bits.
  const std::string path = folder / file;
  REQUIRE_FALSE(watched.save(path, "notes"));
  auto resumed = make();
  static_cast<void>(resumed.load(path));
  CHECK(resumed.updates() == 3);
  CHECK(same(params_of(resumed), params_of(watched)));
  const Batch a(10), b(11);
  for (auto* trained : {&watched, &resumed}) {
    REQUIRE(trained->accumulate(a.input(), a.targets()));
    REQUIRE(trained->accumulate(b.input(), b.targets()));
    REQUIRE(trained->update(1e-2));
  }
  CHECK(same(params_of(resumed), params_of(watched)));
}

TEST_CASE("a Training keeps the contract of a trainer") {
  const Folder folder;
  hold_to_the_contract(
      [] {
        auto made = Training<>::make(net, shape, {.seed = 3, .clip = 1});
        REQUIRE_MESSAGE(made, made.error.text());
        return std::move(*made);
      },
      folder, "training");
}

TEST_CASE("a ForwardOnly keeps the contract of a trainer") {
  const Folder folder;
  hold_to_the_contract(
      [] {
        auto made = ForwardOnly<>::make(net, shape, {.directions = 3, .clip = 1, .seed = 3});
        REQUIRE_MESSAGE(made, made.error.text());
        return std::move(*made);
      },
      folder, "forward_only");
}

TEST_CASE("a DataParallel keeps the contract of a trainer") {
  const Folder folder;
  hold_to_the_contract(
      [] {
        auto made = DataParallel<>::make({}, net, shape, {.seed = 3, .clip = 1},
                                         {.shards = 1, .micro_batches = 2});
        REQUIRE_MESSAGE(made, made.error.text());
        return std::move(*made);
      },
      folder, "data_parallel");
}

TEST_CASE("ranks that train in slices have the bits of those that do not") {
  constexpr int ranks = 2, updates = 3;
  const auto train = [&](bool sharded, bool in_slices) {
    std::vector<std::vector<float>> params(ranks);
    std::vector<Error> errors(ranks);
    ThreadGroup group(ranks);
    run_ranks(group, [&](ThreadGroup::Member& member) {
      const auto rank = static_cast<std::size_t>(member.rank());
      Error& why = errors[rank];
      auto made = DataParallel<>::make(member, net, shape, {.seed = 3, .clip = 1},
                                       {.shards = 4, .sharded_gradients = sharded});
      why = made.error;
      std::int64_t ticks = 0;
      const auto clock = [&] { return ++ticks; };
      for (int u = 0; u < updates && !why; ++u) {
        for (int i = 0; i < made->shard_count() && !why; ++i) {
          const Batch batch(static_cast<std::uint32_t>(10 * u + made->shard(i)));
          if (!in_slices) {
            why = made->accumulate(batch.input(), batch.targets()).error;
            continue;
          }
          why = made->begin(batch.input(), batch.targets());
          // What comes at the wrong time is refused, and changes nothing.
          if (!made->set_budget(1 << 20) || made->update(1e-2) || made->step({}, {}, 1e-2))
            why = Error::say("a micro-batch is under way, and nobody says so");
          for (bool ended = false; !ended && !why;) {
            const auto slice = made->slice(clock, ticks + 4);
            why = slice.error;
            ended = slice && slice->ended;
          }
        }
        if (!why) why = made->update(1e-2).error;
      }
      if (!why) params[rank] = params_of(*made);
    });
    for (const Error& why : errors) REQUIRE_MESSAGE(!why, why.text());
    CHECK(same(params[0], params[1]));
    return params[0];
  };
  for (const bool sharded : {false, true}) {
    CAPTURE(sharded);
    CHECK(same(train(sharded, true), train(sharded, false)));
  }
}

Pipeline<> make_pipeline(GroupRef group, int micro_batches) {
  const auto graph = make_graph(net, shape);
  REQUIRE(graph);
  PipelineRequest request;
  request.micro_batches = micro_batches;
  request.tolerance = 0;
  for (int s = 0; s < group.size(); ++s) request.stages.push_back({std::size_t{1} << 30});
  const auto plan = plan_pipeline(*graph, estimated_profile(*graph), request);
  REQUIRE_MESSAGE(plan, plan.error.text());
  Cpu cpu;
  cpu.key.seed = 3;
  auto made = Pipeline<>::make(net, *graph, *plan, micro_batches, cpu, group);
  REQUIRE_MESSAGE(made, made.error.text());
  return std::move(*made);
}

TEST_CASE("a Pipeline keeps the contract of a trainer") {
  const Folder folder;
  hold_to_the_contract([] { return make_pipeline({}, 2); }, folder, "pipeline");
}

TEST_CASE("stages of a pipeline evaluate, infer and train in slices with the bits of one rank") {
  constexpr int micro = 4, ranks = 2;
  Pipeline<> alone = make_pipeline({}, micro);
  std::vector<double> losses;
  std::vector<float> expected_out(output_shape.elems());
  const auto number = [](int step, int b) { return static_cast<std::uint32_t>(10 * step + b); };
  for (int step = 0; step < 2; ++step) {
    losses.push_back(*alone.evaluate(Batch(90).input(), Batch(90).targets()));
    for (int b = 0; b < micro; ++b) {
      const Batch batch(number(step, b));
      REQUIRE(alone.accumulate(batch.input(), batch.targets()));
    }
    losses.push_back(alone.update(1e-2)->loss);
  }
  const Batch last(91);
  REQUIRE_FALSE(alone.infer(last.input(), View<float>(expected_out.data(), output_shape)));
  const std::vector<float> params = params_of(alone);

  struct Ran {
    Error error;
    std::vector<double> losses;
    std::vector<float> params, out;
    bool waited = false;
    Error refused;
  };
  std::vector<Ran> ran(ranks);
  ThreadGroup group(ranks);
  run_ranks(group, [&](ThreadGroup::Member& member) {
    Ran& mine = ran[static_cast<std::size_t>(member.rank())];
    Pipeline<> stage = make_pipeline(member, micro);
    std::int64_t ticks = 0;
    const auto clock = [&] { return ++ticks; };
    for (int step = 0; step < 2 && !mine.error; ++step) {
      const Batch judged(90);
      const auto loss = stage.evaluate(judged.input(), judged.targets());
      mine.error = loss.error;
      mine.losses.push_back(loss ? *loss : 0);
      std::vector<Batch> batches;
      for (int b = 0; b < micro; ++b) batches.emplace_back(number(step, b));
      for (int b = 0; b < micro && !mine.error; ++b) {
        const Batch& batch = batches[static_cast<std::size_t>(b)];
        mine.error = stage.begin(batch.input(), batch.targets());
        for (bool ended = false; !ended && !mine.error;) {
          const auto slice = stage.slice(clock, ticks + 4);
          mine.error = slice.error;
          if (slice) ended = slice->ended, mine.waited = mine.waited || slice->waiting;
        }
      }
      if (mine.error) break;
      const auto outcome = stage.update(1e-2);
      mine.error = outcome.error;
      mine.losses.push_back(outcome ? outcome->loss : 0);
    }
    if (mine.error) return;
    mine.out.resize(output_shape.elems());
    mine.error = stage.infer(last.input(), View<float>(mine.out.data(), output_shape));
    // An input that the first stage refuses is an error on all, and all go on.
    mine.refused = stage.infer(last.targets(), View<float>(mine.out.data(), output_shape));
    if (!mine.error) mine.error = stage.evaluate(last.input(), last.targets()).error;
    mine.params = params_of(stage);
  });
  std::size_t at = 0;
  for (const Ran& mine : ran) {
    REQUIRE_MESSAGE(!mine.error, mine.error.text());
    CHECK(mine.losses == losses);
    CHECK(mine.refused);
    CHECK(mine.waited);
    REQUIRE(at + mine.params.size() <= params.size());
    CHECK(std::memcmp(mine.params.data(), params.data() + at, mine.params.size() * sizeof(float)) ==
          0);
    at += mine.params.size();
  }
  CHECK(at == params.size());
  CHECK(same(ran[ranks - 1].out, expected_out));
  CHECK(says(ran[1].refused, "stage 0"));
}

TEST_CASE("a forward pass that the arena has no room for is refused, and says what it takes") {
  // A step in parts holds a part of the output at a time; whoever asks for the output wants all of it.
  using Wide = Network<Sequential<Layer<Linear, Recompute>>, MeanSquaredError>;
  const Wide wide{Sequential{layer<Recompute>(Linear{.out = 256})}, {}};
  const Shape rows(256, 8), wide_rows(256, 256);
  auto made = Training<>::make(wide, rows, {.graph = {.parts = 8}});
  REQUIRE_MESSAGE(made, made.error.text());
  std::vector<float> x(rows.elems()), out(wide_rows.elems());
  const View<const float> input(x.data(), rows);
  const View<float> output(out.data(), wide_rows);
  CAPTURE(made->arena().size());
  const Error why = made->infer(input, output);
  CHECK(says(why, "a forward pass takes an arena of"));
  CHECK(says(why, "arena_bytes"));
  REQUIRE(made->evaluate(input, output));

  auto roomy = Training<>::make(wide, rows, {.graph = {.parts = 8}, .arena_bytes = 1 << 20});
  REQUIRE(roomy);
  CHECK_FALSE(roomy->infer(input, output));
}

}  // namespace
TEST_CASE("trainers on several ranks refuse weights that stay in a file") {
  const BlockFormat format{"F32", 1, 4, nullptr};
  const float weight[8 * 3] = {};
  const void* const data = weight;
  StoredParameters stored;
  stored.add({0, 0, 0}, {Shape(3, 8), {{&format, static_cast<const std::byte*>(data), 3, 0}}, 1});
  const Network part{
      Sequential{frozen(layer(plain::Linear{.out = 3})), layer(plain::Linear{.out = 3})},
      plain::MeanSquaredError{}};
  TrainingOptions<Cpu, AdamW> options;
  options.graph.stored = &stored;
  CHECK(
      says(DataParallel<>::make(GroupRef{}, part, shape, options).error, "none of them in a file"));
  const auto graph = make_graph(part, shape, options.graph);
  REQUIRE(graph);
  CHECK(graph->stored_bytes == sizeof weight);
  PipelineOutcome plan;
  plan.stages.resize(1);
  CHECK(says(Pipeline<>::make(part, *graph, plan, 1, Cpu()).error, "are in a file"));
}

}  // namespace trainers_test
