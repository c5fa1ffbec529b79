// SPDX-License-Identifier: MIT
/// Checkpoints of pipelines: those of any number of stages, and of one rank.
#include <doctest/doctest.h>

#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/ranks/pipeline/save.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/train/training.hpp>

#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "../train/support.hpp"
#include "pipeline_network.hpp"

namespace save_pipeline_test { namespace {

using namespace pipeline_network;

/// Checkpoints of a network in `stages` stages, whose ranks each do what they are told to.
template <class T>
class SavingOf {
 public:
  using Staged = Pipeline<T, Cpu, AnyOptimizer>;
  using Alone = Training<T, Cpu, AnyOptimizer>;

  SavingOf()
      : network_(make_network(3)),
        graph_(make_graph(network_, Shape(batch, time_steps), {.scalar = dtype_of<T>})) {
    cpu_.key.seed = 21;
  }

  /// work(stage), or work(stage, member), on every rank of a group: an Error of each.
  template <class Work>
  std::vector<Error> on(ThreadGroup& group, const Work& work) {
    const auto [known, fresh] = plans_.try_emplace(group.size());
    if (fresh) known->second = plan_of(*graph_, group.size(), 1.0);
    const PipelineOutcome& plan = known->second;
    std::vector<Error> errors(static_cast<std::size_t>(group.size()));
    run_ranks(group, [&](ThreadGroup::Member& member) {
      auto made = Staged::make(network_, *graph_, plan, micro_batches, cpu_, member, optimizer);
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
  Alone one() {
    auto made =
        Alone::make(network_, *make_program(*graph_, retain_all(*graph_)), cpu_, 0, optimizer);
    REQUIRE_MESSAGE(made, made.error.text());
    made->model = "three blocks";
    return std::move(*made);
  }
  static void train(Alone& training, int from, int to) {
    for (int step = from; step < to; ++step) {
      const Data data(step);
      for (int b = 0; b < micro_batches; ++b) REQUIRE(training.accumulate(data(b), data(b)));
      REQUIRE(training.update(1e-2));
      training.data_position = static_cast<std::uint64_t>(100 * step);
    }
  }

  double clip = 0;
  AnyOptimizer optimizer{};
  static inline thread_local std::vector<double> norms;  ///< of the steps that train() made last

 private:
  decltype(make_network(3)) network_;
  Result<Graph> graph_;
  Cpu cpu_;
  std::map<int, PipelineOutcome>
      plans_;  // by the number of stages: they take longer than what is tested
};

using Saving = SavingOf<float>;

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
  Saving::Alone alone = saving.one();
  Saving::train(alone, 0, 2);
  REQUIRE(!alone.save(in("alone")));
  saving.fine(3, [&](Staged& stage) {
    const Error why = Saving::train(stage, 0, 2);
    return why ? why : stage.save(in("three"));
  });
  Saving::Alone other = saving.one();
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

TEST_CASE(
    "a pipeline in bf16 has the bits of one rank, and its checkpoint goes on in any precision") {
  const train_test::Folder folder;
  const auto in = [&](const char* name) { return folder / name; };
  using Half = SavingOf<bfloat16>;
  Half saving;
  Half::Alone alone = saving.one(), other = saving.one();
  Half::train(alone, 0, 3);
  saving.fine(3, [&](Half::Staged& stage) {
    const Error why = Half::train(stage, 0, 2);
    return why ? why : stage.save(in("three"));
  });
  saving.fine(2, [&](Half::Staged& stage) {
    Error why = stage.load(in("three"));
    if (!why) why = Half::train(stage, 2, 3);
    return why ? why : stage.save(in("two"));
  });
  REQUIRE(other.load(in("two")));
  CHECK(std::memcmp(other.params().data(), alone.params().data(), 4 * alone.params().size()) == 0);
  CHECK(std::memcmp(other.state<std::byte>(1).data(), alone.state<std::byte>(1).data(),
                    alone.state<std::byte>(1).size()) == 0);
  Saving full;
  Saving::Alone in_full = full.one();
  REQUIRE(in_full.load(in("two")));
  CHECK(std::memcmp(in_full.params().data(), alone.params().data(), 4 * alone.params().size()) ==
        0);
}

TEST_CASE("state in any form has the bits of one rank: saved, and gone on with on either side") {
  const train_test::Folder folder;
  const auto in = [&](const char* name) { return folder / name; };
  using Staged = Saving::Staged;
  Saving saving;
  const auto staged = [&](int stages, const char* from, int first, int last, const char* to) {
    saving.fine(stages, [&](Staged& stage) {
      Error why = first > 0 ? stage.load(in(from)) : Error();
      if (!why) why = Saving::train(stage, first, last);
      return why ? why : stage.save(in(to));
    });
  };
  const auto alone = [&](const char* from, int first, int last, const char* to) {
    Saving::Alone one = saving.one();
    if (first > 0) REQUIRE_MESSAGE(one.load(in(from)), from);
    Saving::train(one, first, last);
    REQUIRE(!one.save(in(to)));
  };
  // Checkpoints of a pipeline have no plan: one rank reads and writes both.
  const auto same = [&](int steps, const char* a, const char* b) {
    alone(a, steps, steps, "a");
    alone(b, steps, steps, "b");
    return train_test::read_file(in("a")) == train_test::read_file(in("b"));
  };
  for (const AnyOptimizer& optimizer :
       {AnyOptimizer(AdamWWith<Int8Moments>{}), AnyOptimizer(LionWith<Bf16Moments>{}),
        AnyOptimizer(Adafactor{})}) {
    CAPTURE(optimizer.name);
    saving.optimizer = optimizer;
    alone("", 0, 1, "one, 1");
    staged(3, "", 0, 1, "three, 1");
    CHECK(same(1, "one, 1", "three, 1"));
    alone("three, 1", 1, 2, "one, 2");
    staged(2, "one, 1", 1, 2, "two, 2");
    CHECK(same(2, "one, 2", "two, 2"));
  }
  // In another form than it was saved in: rounded alike on either side.
  saving.optimizer = AdamW{};
  alone("", 0, 1, "full");
  saving.optimizer = AdamWWith<Int8Moments>{};
  staged(3, "full", 1, 1, "three");
  CHECK(same(1, "full", "three"));
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

}}  // namespace save_pipeline_test
