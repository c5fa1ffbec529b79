// SPDX-License-Identifier: MIT
/// Pipelines over a group of threads: bits of one rank's accumulation, inside each stage's own peak.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/ranks/save_pipeline.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/train/training.hpp>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "../test_size.hpp"
#include "../train/support.hpp"
#include "pipeline_network.hpp"

namespace pipeline_ranks_test { namespace {

using namespace adacc;

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

/// Checkpoints of a network in `stages` stages, whose ranks each do what they are told to.
class Saving {
 public:
  using Staged = Pipeline<float, Cpu, AdamW>;

  Saving() : network_(make_network(3)), graph_(make_graph(network_, Shape(batch, time_steps))) {
    cpu_.key.seed = 21;
  }

  /// work(stage), or work(stage, member), on every rank of a group: an Error of each.
  template <class Work>
  std::vector<Error> on(ThreadGroup& group, const Work& work) {
    const PipelineOutcome plan = plan_of(*graph_, {group.size(), 3, 1.0, false});
    std::vector<Error> errors(static_cast<std::size_t>(group.size()));
    run_ranks(group, [&](ThreadGroup::Member& member) {
      auto made = Staged::make(network_, *graph_, plan, micro_batches, cpu_, member);
      Error& mine = errors[static_cast<std::size_t>(member.rank())];
      if (!made) {
        mine = made.error;
        return;
      }
      made->clip = clip;
      made->model = "three blocks";
      if constexpr (std::is_invocable_v<const Work&, Staged&, const ThreadGroup::Member&>)
        mine = work(*made, member);
      else mine = work(*made);
    });
    return errors;
  }
  /// The same, where none of the errors is expected.
  template <class Work>
  void fine(int stages, const Work& work) {
    ThreadGroup group(stages, {.hostile = true});
    for (const Error& why : on(group, work)) CHECK_MESSAGE(!why, why.text());
  }

  static Error train(Staged& stage, int from, int to) {
    Error why;
    norms.clear();
    for (int step = from; step < to && !why; ++step) {
      const Data data(step);
      const auto outcome = stage.step(data, data, 1e-2);
      why = outcome.error;
      if (outcome) norms.push_back(outcome->grad_norm);
      stage.data_position = static_cast<std::uint64_t>(100 * step);
    }
    return why;
  }

  /// A training of one rank, which retains everything.
  Training<> one() {
    auto made = Training<>::make(network_, *make_program(*graph_, retain_all(*graph_)), cpu_);
    REQUIRE_MESSAGE(made, made.error.text());
    made->model = "three blocks";
    return std::move(*made);
  }
  static void train(Training<>& training, int from, int to) {
    for (int step = from; step < to; ++step) {
      const Data data(step);
      for (int b = 0; b < micro_batches; ++b) REQUIRE(training.accumulate(data(b), data(b)));
      REQUIRE(training.update(1e-2));
      training.data_position = static_cast<std::uint64_t>(100 * step);
    }
  }

  double clip = 0;
  static thread_local std::vector<double> norms;  ///< of the steps that train() made last

 private:
  decltype(make_network(3)) network_;
  Result<Graph> graph_;
  Cpu cpu_;
};

thread_local std::vector<double> Saving::norms;

TEST_CASE("a pipeline's checkpoint is that of any number of stages, and of one rank") {
  const train_test::Folder folder;
  const auto in = [&](const char* name) { return folder / name; };
  const auto read = [&](const char* name) { return train_test::read_file(in(name)); };
  Saving saving;
  using Staged = Saving::Staged;
  saving.clip = 0.05;
  // At once, and gone on with from 3 stages by 1, by 2.
  saving.fine(1, [&](Staged& stage) {
    const Error why = Saving::train(stage, 0, 3);
    return why ? why : stage.save(in("one"), "notes");
  });
  saving.fine(3, [&](Staged& stage) {
    const Error why = Saving::train(stage, 0, 2);
    return why ? why : stage.save(in("three"));
  });
  for (const int stages : {1, 2}) {
    saving.fine(stages, [&](Staged& stage) {
      Error why = stage.load(in("three"));
      if (!why && (stage.updates() != 2 || stage.data_position != 100))
        why = Error::say("at another place");
      if (!why) why = Saving::train(stage, 2, 3);
      return why ? why : stage.save(in("on"), "notes");
    });
    CHECK(read("one") == read("on"));
  }
  CHECK(read_checkpoint_info(in("one"))->notes == "notes");

  // One rank's, without clipping, whose norm has another order there.
  saving.clip = 0;
  Training<> alone = saving.one();
  Saving::train(alone, 0, 2);
  REQUIRE(!alone.save(in("alone")));
  saving.fine(3, [&](Staged& stage) {
    const Error why = Saving::train(stage, 0, 2);
    return why ? why : stage.save(in("three"));
  });
  Training<> other = saving.one();
  other.context().key.seed = 5;
  REQUIRE(other.load(in("three")));
  REQUIRE(!other.save(in("again")));
  CHECK(read("again") == read("alone"));
  Saving::train(alone, 2, 3);
  saving.fine(2, [&](Staged& stage) {
    Error why = stage.load(in("alone"));
    if (!why) why = Saving::train(stage, 2, 3);
    return why ? why : stage.save(in("staged"));
  });
  REQUIRE(other.load(in("staged")));
  CHECK(std::memcmp(other.params().data(), alone.params().data(), 4 * alone.params().size()) == 0);
  CHECK(std::memcmp(other.state<std::byte>(1).data(), alone.state<std::byte>(1).data(),
                    alone.state<std::byte>(1).size()) == 0);
}

TEST_CASE("the norm of the gradients has the same bits for any number of stages") {
  Saving saving;
  saving.clip = 0.05;
  std::vector<double> one;
  for (const int stages : {1, 3})
    saving.fine(stages, [&](Saving::Staged& stage) {
      const Error why = Saving::train(stage, 0, 12);
      if (stages == 1) one = Saving::norms;
      CHECK(Saving::norms == one);
      return why;
    });
}

TEST_CASE("a checkpoint that a pipeline cannot write or read is an error on all its ranks") {
  const train_test::Folder folder;
  const std::string path = folder / "run";
  Saving saving;
  using Staged = Saving::Staged;
  const auto all_say = [](const std::vector<Error>& errors, const char* words) {
    for (const Error& why : errors) {
      CAPTURE(why.text());
      CHECK(std::strstr(why.text(), words) != nullptr);
    }
  };
  ThreadGroup group(3), again(3);
  all_say(saving.on(group,
                    [&](Staged& stage) {
                      const Error why = stage.save(folder / "nothere/run");
                      // Nothing is lost: it goes on, and can be saved elsewhere.
                      const Error next = Saving::train(stage, 0, 1);
                      CHECK_MESSAGE(!next, next.text());
                      const Error saved = stage.save(path);
                      CHECK_MESSAGE(!saved, saved.text());
                      return why;
                    }),
          "nothere/run");
  all_say(saving.on(again,
                    [&](Staged& stage) {
                      stage.model = "four blocks";
                      const Error why = stage.load(path);
                      CHECK(stage.updates() == 0);
                      const Error saved = stage.save(folder / "other");  // it goes on
                      CHECK_MESSAGE(!saved, saved.text());
                      return why;
                    }),
          "is of \"three blocks\", this model is \"four blocks\"");
  // A stage that dies while it is saved: the old file stays.
  const auto before = read_checkpoint_info(path);
  REQUIRE(before);
  for (const auto fate : {ThreadGroup::Fate::dies, ThreadGroup::Fate::hangs}) {
    std::uint64_t begun = 0;
    for (const std::uint64_t more : {std::uint64_t{0}, std::uint64_t{4}}) {
      ThreadGroup dying(2, {.limit_seconds = 0.5});
      if (more != 0) dying.set_fate(1, fate, begun + more);
      const auto errors = saving.on(dying, [&](Staged& stage, const ThreadGroup::Member& member) {
        if (stage.is_last() && more == 0) begun = member.begun();
        return stage.save(more == 0 ? folder / "fine" : path);
      });
      if (more == 0) continue;
      all_say(errors, "rank");
    }
    const auto after = read_checkpoint_info(path);
    REQUIRE(after);
    CHECK(after->updates == before->updates);
  }
}

}}  // namespace pipeline_ranks_test
