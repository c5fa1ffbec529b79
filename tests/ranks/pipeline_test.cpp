// SPDX-License-Identifier: MIT
/// Pipelines over a group of threads: bits of one rank's accumulation, inside each stage's own peak.
#include <doctest/doctest.h>

#include <adacc/ranks/pipeline/pipeline.hpp>
#include <adacc/ranks/pipeline/replan.hpp>
#include <adacc/ranks/pipeline/save.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../test_size.hpp"
#include "../train/uneven_net.hpp"
#include "pipeline_network.hpp"

namespace pipeline_ranks_test { namespace {

using namespace pipeline_network;

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

void check_pipeline(const Case& the) {
  const auto network = make_network(the.layers);
  const auto graph = make_graph(network, Shape(batch, time_steps));
  REQUIRE_MESSAGE(graph, graph.error.text());
  const PipelineOutcome plan = plan_of(*graph, the.stages, the.share);
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

TEST_CASE(
    "with several steps in flight nothing is kept in gaps of the arena, which are other steps'") {
  using namespace uneven_net;
  using Net = Network<Sequential<Layer<Tolerant, Compress<Rough>>, Layer<Tolerant, Compress<Rough>>,
                                 Layer<Tolerant, Compress<Rough>>, Repeat<Layer<Tolerant, Retain>>>,
                      random_model::HalfSquare>;
  const Net net{{{}, {}, {}, Repeat<Layer<Tolerant, Retain>>{5, {}}}, {}};
  const Shape& input = uneven_net::shape;
  const auto graph = make_graph(net, input);
  REQUIRE(graph);
  PipelineRequest request;
  request.micro_batches = micro_batches;
  request.tolerance = 1;
  request.stages.resize(2);
  for (StageMachine& machine : request.stages) machine.memory_bytes = std::size_t{1} << 30;
  const auto plan = plan_pipeline(*graph, uneven_net::profile(*graph), request);
  REQUIRE_MESSAGE(plan, plan.error.text());
  REQUIRE(plan->stages[0].last >= 3);
  REQUIRE(plan->stages[0].in_flight == 2);
  std::vector<float> x(input.elems() * micro_batches);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = (unit_float(random_word({.seed = 4}, i)) - 0.5F) * (i / 32 % 2 == 0 ? 1.0F : 1e-3F);
  const auto batch_of = [&](int b) -> AnyView {
    return View<const float>(x.data() + input.elems() * static_cast<std::size_t>(b), input);
  };
  auto training = Training<>::make(net, *make_program(*graph, plan_from_types(*graph)));
  REQUIRE(training);
  training->compiled_step().judge_encodes(false);
  for (int b = 0; b < micro_batches; ++b) REQUIRE(training->accumulate(batch_of(b), batch_of(b)));
  REQUIRE(training->update(1e-2));
  ThreadGroup group(2);
  Ran ran[2];
  DeclinedCounts declined[2];
  run_ranks(group, [&](ThreadGroup::Member& member) {
    Ran& mine = ran[member.rank()];
    auto made = Pipeline<>::make(net, *graph, *plan, micro_batches, Cpu(), member);
    if (!made) return static_cast<void>(mine.error = made.error);
    const auto outcome = made->step(batch_of, batch_of, 1e-2);
    mine.error = outcome.error;
    if (outcome) declined[member.rank()] = outcome->declined;
    mine.params.assign(made->params().begin(), made->params().end());
  });
  std::size_t at = 0;
  for (int s = 0; s < 2; ++s) {
    REQUIRE_MESSAGE(!ran[s].error, ran[s].error.text());
    CHECK(declined[s] == DeclinedCounts{0, 0, 3 * micro_batches});
    CHECK(std::memcmp(ran[s].params.data(), training->params().data() + at,
                      ran[s].params.size() * sizeof(float)) == 0);
    at += ran[s].params.size();
  }
}

TEST_CASE("budgets of stages change between steps, on all ranks or on none, and no bit does") {
  const auto network = make_network(2);
  const auto graph = make_graph(network, Shape(batch, time_steps));
  REQUIRE(graph);
  const PipelineOutcome roomy = plan_of(*graph, 3, 1.0);
  const CostProfile costs = estimated_profile(*graph);
  struct Stage {
    std::vector<double> losses;
    std::vector<float> params;
    std::vector<std::size_t> arenas;
    std::string refused, unusable;
    Error error;
  };
  const auto train = [&](bool changes, ThreadGroup& group) {
    std::vector<Stage> all(3);
    run_ranks(group, [&](ThreadGroup::Member& member) {
      Stage& mine = all[static_cast<std::size_t>(member.rank())];
      auto made = Pipeline<>::make(network, *graph, roomy, micro_batches, Cpu{}, member);
      if (!made) return static_cast<void>(mine.error = made.error);
      const std::size_t whole = made->arena_bytes();
      const auto step = [&](int i) {
        if (mine.error) return;
        const Data data(i);
        const auto outcome = made->step(data, data, 1e-2);
        if (!outcome) return static_cast<void>(mine.error = outcome.error);
        mine.losses.push_back(outcome->loss);
        mine.arenas.push_back(made->arena().size());
        if (made->arena_bytes() != made->arena().size()) mine.error = Error::say("another arena");
      };
      const auto set_budget = [&](std::size_t bytes) {
        if (changes && !mine.error) mine.error = made->set_budget(bytes, costs, 0);
      };
      step(0);
      set_budget(member.rank() == 0 ? whole * 6 / 10 : whole);
      step(1);
      const Plan small = made->plan();
      if (changes && !mine.error) {
        mine.refused = made->set_budget(member.rank() == 1 ? 100 : whole, costs, 0).text();
        if (!std::equal(small.policies.begin(), small.policies.end(),
                        made->plan().policies.begin()))
          mine.error = Error::say("another plan");
      }
      step(2);
      if (changes && !mine.error)
        mine.unusable =
            made->switch_to(member.rank() == 2 ? Result<Plan>(Plan{}) : made->plan()).text();
      set_budget(whole);
      step(3);
      mine.params.assign(made->params().begin(), made->params().end());
    });
    return all;
  };
  ThreadGroup one(3), two(3);
  const auto plain = train(false, one), changed = train(true, two);
  for (std::size_t r = 0; r < 3; ++r) {
    CAPTURE(r);
    REQUIRE_MESSAGE(!plain[r].error, plain[r].error.text());
    REQUIRE_MESSAGE(!changed[r].error, changed[r].error.text());
    CHECK(changed[r].losses == plain[r].losses);
    REQUIRE(changed[r].params.size() == plain[r].params.size());
    CHECK(std::memcmp(changed[r].params.data(), plain[r].params.data(),
                      4 * plain[r].params.size()) == 0);
    const std::size_t whole = plain[r].arenas[0];
    CHECK(changed[r].arenas[0] == whole);
    if (r == 0) CHECK(changed[r].arenas[1] <= whole * 6 / 10);
    else CHECK(changed[r].arenas[1] <= whole);
    CHECK(changed[r].arenas[2] == changed[r].arenas[1]);
    CHECK(changed[r].arenas[3] <= whole);
    if (r == 0) CHECK(changed[r].arenas[3] > changed[r].arenas[1]);
    const std::string from = r == 1 ? "" : "rank 1: ";
    CHECK(!changed[r].unusable.empty());
    CHECK((changed[r].unusable.find("rank 2: ") == 0) == (r != 2));
    CHECK(changed[r].refused.find(from + "no plan fits into a budget of 100 bytes") == 0);
  }
}

TEST_CASE("ranks that do not agree, or that die, are errors on all of them") {
  const auto network = make_network(2);
  const auto graph = make_graph(network, Shape(batch, time_steps));
  REQUIRE(graph);
  const PipelineOutcome plan = plan_of(*graph, 3, 1.0);
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
  {
    ThreadGroup group(3, {.limit_seconds = 0.5});
    const auto errors = each(group, [&](ThreadGroup::Member& member) {
      AdamW optimizer;
      if (member.rank() == 1) optimizer.beta1 = 0.8F;
      return Pipeline<>::make(network, *graph, plan, micro_batches, Cpu{}, member, optimizer);
    });
    for (const Error& error : errors)
      CHECK(says(error, "the ranks disagree on the beta1 of AdamW: rank 0 has 0.9, rank 1 0.8"));
  }
  {
    ThreadGroup group(3, {.limit_seconds = 2});
    run_ranks(group, [&](ThreadGroup::Member& member) {
      auto made = Pipeline<>::make(network, *graph, plan, micro_batches, Cpu{}, member);
      REQUIRE_MESSAGE(made, made.error.text());
      const Data data(0);
      CHECK(says(made->step(data, data, HUGE_VAL).error, "rate of an update must be a finite"));
      made->clip = -1;
      CHECK(says(made->step(data, data, 0.01).error, "clipped to must be 0"));
      made->clip = {};
      made->optimizer.epsilon = 0;
      CHECK(says(made->step(data, data, 0.01).error, "AdamW: epsilon must be above 0"));
      made->optimizer = {};
      CHECK(made->updates() == 0);
      CHECK(made->step(data, data, 0.01));
    });
  }
  for (const int before : {0, 1, 2}) {  // updates, and then some ranks load
    ThreadGroup group(3, {.limit_seconds = 2});
    std::vector<Error> errors(3);
    run_ranks(group, [&](ThreadGroup::Member& member) {
      auto made = Pipeline<>::make(network, *graph, plan, micro_batches, Cpu{}, member);
      REQUIRE_MESSAGE(made, made.error.text());
      const Data data(0);
      for (int i = 0; i < before; ++i) CHECK(made->step(data, data, 0.01));
      errors[static_cast<std::size_t>(member.rank())] =
          member.rank() == 1 ? made->load("none.ckpt") : made->step(data, data, 0.01).error;
    });
    for (const Error& error : errors)
      CHECK_MESSAGE(std::string(error.text()) ==
                        "the ranks disagree on the call that comes first: rank 0 has accumulate(), "
                        "rank 1 load()",
                    error.text());
  }
  {  // In an update: an error on all of them, and the next is made.
    ThreadGroup group(3, {.limit_seconds = 5});
    run_ranks(group, [&](ThreadGroup::Member& member) {
      auto made = Pipeline<>::make(network, *graph, plan, micro_batches, Cpu{}, member);
      REQUIRE_MESSAGE(made, made.error.text());
      const Data data(0);
      const std::vector<float> before(made->params().begin(), made->params().end());
      const bool differs = member.rank() == 2;
      CHECK(std::string(made->step(data, data, differs ? 0.02 : 0.01).error.text()) ==
            "the ranks disagree on the learning rate: rank 0 has 0.01, rank 2 0.02");
      made->optimizer.epsilon = differs ? 1e-6F : 1e-8F;
      CHECK(says(made->step(data, data, 0.01).error, "disagree on the epsilon of AdamW"));
      made->optimizer.epsilon = 1e-8F;
      CHECK(std::memcmp(before.data(), made->params().data(), 4 * before.size()) == 0);
      CHECK(made->updates() == 0);
      const auto outcome = made->step(data, data, 0.01);
      CHECK_MESSAGE(outcome, outcome.error.text());
      CHECK(made->updates() == 1);
    });
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
