// SPDX-License-Identifier: MIT
/// Pipelines over a group of threads: bits of one rank's accumulation, inside each stage's own peak.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/gpt.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/ranks/pipeline.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/train/training.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "../test_size.hpp"

namespace pipeline_ranks_test { namespace {

using namespace adacc;

constexpr std::size_t batch = 2, time_steps = 16, vocab = 40;
constexpr int micro_batches = 8, steps = 2;

/// A GPT with a head of its own, and dropout in its blocks.
auto make_network(int layers) {
  const std::size_t c = 16;
  const Residual attention{layer<Planned>(LayerNorm{}), layer<Planned>(Linear{.out = 3 * c}),
                           layer<Planned>(CausalAttention{.heads = 2}), layer<Planned>(Dropout{.rate = 0.2F}),
                           layer<Planned>(Linear{.out = c})};
  const Residual mlp{layer<Planned>(LayerNorm{}), layer<Planned>(Linear{.out = 4 * c}),
                     layer<Planned>(Gelu{}), layer<Planned>(Linear{.out = c})};
  Embedding embedding;
  embedding.vocab = vocab, embedding.context = time_steps, embedding.channels = c;
  embedding.tied = nullptr;
  CrossEntropyHead head;
  head.vocab = vocab;
  head.tied = nullptr;
  return Network{Sequential{layer<Planned>(embedding), repeat(layers, Sequential{attention, mlp}),
                            layer<Planned>(LayerNorm{})},
                 head};
}

std::vector<std::int32_t> tokens_of(int step, int b) {
  std::vector<std::int32_t> tokens(batch * time_steps);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(
        random_word({.seed = 9, .step = static_cast<std::uint32_t>(step * 100 + b)}, i) % vocab);
  return tokens;
}

/// All micro-batches of a step; targets are the inputs.
struct Data {
  explicit Data(int step) {
    for (int b = 0; b < micro_batches; ++b) all.push_back(tokens_of(step, b));
  }
  AnyView operator()(int b) const {
    return View<const std::int32_t>(all[static_cast<std::size_t>(b)].data(),
                                    Shape(batch, time_steps));
  }
  std::vector<std::vector<std::int32_t>> all;
};

struct Case {
  int stages;
  int layers;
  double share;  ///< of the memory that retaining everything needs beyond parameters
  bool hostile;
};

/// What a stage did.
struct Ran {
  Error error;
  std::vector<double> losses;
  std::vector<float> params, gradients;
  std::size_t used = 0, arena = 0, held = 0;
};

PipelineOutcome plan_of(const Graph& graph, const Case& the) {
  const CostProfile profile = estimated_profile(graph);
  PipelineRequest request;
  request.micro_batches = micro_batches;
  request.tolerance = 0;
  for (int s = 0; s < the.stages; ++s) request.stages.push_back({std::size_t{1} << 30});
  const auto roomy = plan_pipeline(graph, profile, request);
  REQUIRE_MESSAGE(roomy, roomy.error.text());
  std::size_t most = 0;
  for (const StageOutcome& stage : roomy->stages)
    most = std::max(most, stage.peak_bytes - stage.state_bytes);
  for (StageMachine& machine : request.stages) {
    const std::size_t state = roomy->stages[0].state_bytes;
    machine.memory_bytes =
        state + state / 8 + static_cast<std::size_t>(the.share * static_cast<double>(most));
  }
  auto plan = plan_pipeline(graph, profile, request);
  REQUIRE_MESSAGE(plan, plan.error.text());
  for (std::size_t s = 0; s < plan->stages.size(); ++s)
    CHECK(plan->stages[s].peak_bytes <= request.stages[s].memory_bytes);
  return *plan;
}

void check_pipeline(const Case& the) {
  const auto network = make_network(the.layers);
  const auto graph = make_graph(network, Shape(batch, time_steps));
  REQUIRE_MESSAGE(graph, graph.error.text());
  const PipelineOutcome plan = plan_of(*graph, the);
  Cpu cpu;
  cpu.key.seed = 21;

  // One rank: the stages' plans, one behind the other. What crosses a cut is kept as it is.
  Plan whole;
  for (const StageOutcome& stage : plan.stages) {
    for (const Policy& policy : stage.plan.policies) whole.policies.push_back(policy);
    whole.policies.back() = retain();
  }
  auto program = make_program(*graph, whole);
  REQUIRE_MESSAGE(program, program.error.text());
  auto training = Training<>::make(network, *program, cpu);
  REQUIRE_MESSAGE(training, training.error.text());
  std::vector<double> losses;
  std::vector<float> gradients;
  for (int step = 0; step < steps; ++step) {
    const Data data(step);
    for (int b = 0; b < micro_batches; ++b) REQUIRE(training->accumulate(data(b), data(b)));
    if (step + 1 == steps)
      gradients.assign(training->gradients().begin(), training->gradients().end());
    const auto outcome = training->update(1e-2);
    REQUIRE(outcome);
    losses.push_back(outcome->loss);
  }

  std::vector<Ran> ran(static_cast<std::size_t>(the.stages));
  for (const int pattern : {0x5A, 0xC3}) {
    ThreadGroup group(the.stages, {.hostile = the.hostile});
    run_ranks(group, [&](ThreadGroup::Member& member) {
      Ran& mine = ran[static_cast<std::size_t>(member.rank())];
      mine.losses.clear();
      auto made = Pipeline<>::make(network, *graph, plan, micro_batches, cpu, member);
      if (!made) {
        mine.error = made.error;
        return;
      }
      std::memset(made->arena().data(), pattern, made->arena().size());
      for (int step = 0; step < steps && !mine.error; ++step) {
        const Data data(step);
        if (step + 1 == steps) {  // updates use the gradients up
          mine.error = made->run(data, data).error;
          mine.gradients.assign(made->gradients().begin(), made->gradients().end());
        }
        if (mine.error) break;
        const auto outcome = made->step(data, data, 1e-2);
        mine.error = outcome.error;
        if (outcome) mine.losses.push_back(outcome->loss);
      }
      for (std::size_t i = 0; i < made->arena().size(); ++i)
        if (made->arena().data()[i] != static_cast<std::byte>(pattern))
          mine.used = std::max(mine.used, i + 1);
      mine.arena = made->arena().size();
      mine.held = made->memory_use().total();
      mine.params.assign(made->params().begin(), made->params().end());
    });
  }
  std::size_t at = 0;
  for (int s = 0; s < the.stages; ++s) {
    const Ran& mine = ran[static_cast<std::size_t>(s)];
    CAPTURE(s);
    REQUIRE_MESSAGE(!mine.error, mine.error.text());
    REQUIRE(mine.losses.size() == losses.size());
    CHECK(std::memcmp(mine.losses.data(), losses.data(), losses.size() * sizeof(double)) == 0);
    CHECK(mine.used == mine.arena);
    CHECK(mine.arena == plan.stages[static_cast<std::size_t>(s)].arena_bytes());
    CHECK(mine.held == plan.stages[static_cast<std::size_t>(s)].peak_bytes);
    REQUIRE(at + mine.params.size() <= training->params().size());
    CHECK(std::memcmp(mine.gradients.data(), gradients.data() + at,
                      mine.gradients.size() * sizeof(float)) == 0);
    CHECK(std::memcmp(mine.params.data(), training->params().data() + at,
                      mine.params.size() * sizeof(float)) == 0);
    at += mine.params.size();
  }
  CHECK(at == training->params().size());
  // The plans differ: the first stage has more in flight than the last.
  const auto recomputes = [&](const StageOutcome& stage) {
    int count = 0;
    for (const Policy& policy : stage.plan.policies) count += policy.recomputes();
    return count;
  };
  if (the.share < 1)
    CHECK(recomputes(plan.stages[0]) > recomputes(plan.stages[plan.stages.size() - 1]));
}

TEST_CASE("a pipeline computes the bits of one rank, each stage inside its own peak") {
#ifdef ADACC_TEST_SANITIZED
  const Case cases[] = {{2, 2, 0.6, true}};
#else
  const Case cases[] = {{1, 2, 1.0, false}, {2, 4, 0.6, false}, {4, 6, 0.5, true}};
#endif
  for (const Case& the : cases) {
    CAPTURE(the.stages);
    CAPTURE(the.share);
    check_pipeline(the);
  }
}

TEST_CASE("ranks that do not agree, or that die, are errors on all of them") {
  const auto network = make_network(2);
  const auto graph = make_graph(network, Shape(batch, time_steps));
  REQUIRE(graph);
  const PipelineOutcome plan = plan_of(*graph, {3, 2, 1.0, false});
  PipelineOutcome other = plan;
  const auto cut = stage_of(*graph, other.stages[1].first, graph->node_count() - 1);
  REQUIRE(cut);
  const auto each = [&](ThreadGroup& group, const auto& make) {
    std::vector<Error> errors(3);
    run_ranks(group, [&](ThreadGroup::Member& member) {
      Error& mine = errors[static_cast<std::size_t>(member.rank())];
      auto made = make(member);
      mine = made.error;
      const Data data(0);
      for (int step = 0; step < steps && !mine; ++step) mine = made->step(data, data, 1e-2).error;
    });
    return errors;
  };
  const auto says = [](const Error& error, const char* words) {
    return std::strstr(error.text(), words) != nullptr;
  };
  {
    ThreadGroup group(3, {.limit_seconds = 0.5});
    const auto errors = each(group, [&](ThreadGroup::Member& member) {
      Cpu cpu;
      cpu.key.seed = member.rank() == 1 ? 2 : 1;
      return Pipeline<>::make(network, *graph, plan, micro_batches, cpu, member);
    });
    CHECK(says(errors[0], "ranks 0 and 1 of the pipeline disagree on the seed: 1 and 2"));
    CHECK(says(errors[1], "disagree on the seed: 2 and 1"));
    CHECK(errors[2]);
  }
  {
    ThreadGroup group(3, {.limit_seconds = 0.5});
    const auto errors = each(group, [&](ThreadGroup::Member& member) {
      return Pipeline<>::make(network, *graph, plan, member.rank() == 2 ? 4 : 8, Cpu{}, member);
    });
    CHECK(says(errors[2], "ranks 2 and 1 of the pipeline disagree on the number of micro-batches"));
    for (const Error& error : errors) CHECK(error);
  }
  for (const auto fate : {ThreadGroup::Fate::dies, ThreadGroup::Fate::hangs}) {
    ThreadGroup group(3, {.limit_seconds = 0.5});
    group.set_fate(1, fate, 20);
    const auto errors = each(group, [&](ThreadGroup::Member& member) {
      return Pipeline<>::make(network, *graph, plan, micro_batches, Cpu{}, member);
    });
    for (const Error& error : errors) {
      INFO(error.text());
      CHECK(says(error, "rank"));
    }
  }
  other.stages.pop_back();
  ThreadGroup group(3);
  const auto errors = each(group, [&](ThreadGroup::Member& member) {
    return Pipeline<>::make(network, *graph, other, micro_batches, Cpu{}, member);
  });
  for (const Error& error : errors)
    CHECK(says(error, "the plan has 2 stages, and the group 3 ranks"));
}

}}  // namespace pipeline_ranks_test
