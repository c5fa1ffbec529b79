// SPDX-License-Identifier: MIT
#include <adacc/train/save.hpp>

#include <doctest/doctest.h>

#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/train/make.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "growing_net.hpp"
#include "support.hpp"

namespace save_test {

using namespace adacc;
using namespace growing_net;
using train_test::Folder;

namespace {

/// Batch `number`, a function of that alone.
struct Batch {
  std::vector<float> x = std::vector<float>(shape.elems()), y = x;
  explicit Batch(std::uint64_t number) {
    const auto step = static_cast<std::uint32_t>(number);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = 2 * unit_float(random_word({.seed = 1, .step = step}, i)) - 1;
      y[i] = unit_float(random_word({.seed = 2, .step = step}, i)) / 8;
    }
  }
};

template <class Trained>
Result<TrainingOutcome> step(Trained& training) {
  const Batch batch(training.data_position++);
  const Shape seen = training.compiled_step().graph().input;
  return training.step(View<const float>(batch.x.data(), seen),
                       View<const float>(batch.y.data(), seen), 1e-4);
}

using Options = TrainingOptions<Cpu, AdamW>;

/// Times are those of a profile, as they must be for two runs to make the same plans.
Options options(std::size_t percent = 60) {
  const auto graph = make_graph(net, shape);
  return {.budget_bytes = retain_bytes() * percent / 100,
          .seed = 3,
          .planning = {.profile = profile(*graph), .planner = &plan_exhaustively}};
}

Training<> made(Options with = options()) {
  auto training = Training<>::make(net, shape, std::move(with));
  REQUIRE_MESSAGE(training, std::string(training.error.text()));
  return std::move(*training);
}

template <class T>
bool same(View<T> a, View<T> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
bool same(const Training<>& a, const Training<>& b) {
  return same(a.params(), b.params()) && same(a.state(0), b.state(0)) &&
         same(a.state(1), b.state(1)) && a.updates() == b.updates() &&
         a.data_position == b.data_position && a.plan().version == b.plan().version;
}

bool says(const Error& error, const char* what) {
  return std::string(error.text()).find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a training goes on bit for bit while its plan evolves, wherever it stopped" *
          doctest::test_suite("long_run")) {
  const Folder folder;
  injected_from = 40;
  constexpr std::uint64_t steps = 230;
  Training<> whole = made();
  std::vector<double> losses;
  std::vector<std::uint64_t> stops;
  int changes = 0, probes = 0;
  const auto name = [&](std::uint64_t stop) { return folder / std::to_string(stop).c_str(); };
  while (whole.updates() < steps) {
    // Saved each time: which moments are the interesting ones shows behind them.
    REQUIRE_FALSE(whole.save(name(whole.updates()), "a note"));
    const auto outcome = step(whole);
    REQUIRE(outcome);
    losses.push_back(outcome->loss);
    changes += whole.boundary().update.changed ? 1 : 0;
    probes += whole.boundary().looked ? 1 : 0;
    const std::uint64_t at = whole.updates() - 1;
    if (whole.boundary().update.changed) stops.insert(stops.end(), {at - 10, at, at + 1});
    if (whole.boundary().looked) stops.insert(stops.end(), {at, at + 1});
  }
  REQUIRE(changes > 0);
  REQUIRE(probes > 0);
  REQUIRE(whole.plan().version == 1 + static_cast<std::size_t>(changes));
  REQUIRE_FALSE(whole.save(name(steps)));
  for (const std::uint64_t stop : stops) {
    CAPTURE(stop);
    Training<> second = made();
    for (int i = 0; i < 3; ++i) REQUIRE(step(second));  // whatever it did before is forgotten
    const auto info = second.load(name(stop));
    REQUIRE_MESSAGE(info, std::string(info.error.text()));
    CHECK(info->notes == "a note");
    CHECK(second.updates() == stop);
    CHECK(second.data_position == stop);
    while (second.updates() < steps) {
      const auto at = static_cast<std::size_t>(second.updates());
      const auto outcome = step(second);
      REQUIRE(outcome);
      REQUIRE(outcome->loss == losses[at]);
    }
    CHECK(same(second, whole));
    // And what it saves is the same file: all that it has seen is what the other has.
    REQUIRE_FALSE(second.save(folder / "second"));
    CHECK(train_test::read_file(folder / "second") == train_test::read_file(name(steps)));
  }
}

TEST_CASE("options that differ hold" * doctest::test_suite("one_thread")) {
  const Folder folder;
  injected_from = 1000000;
  const std::string path = folder / "run";
  Training<> run = made();
  for (int i = 0; i < 5; ++i) REQUIRE(step(run));
  REQUIRE_FALSE(run.save(path));
  const std::size_t peak = run.peak_bytes();
  const auto goes_on = [&](const Options& with) {
    Training<> training = made(with);
    const auto loaded = training.load(path);
    REQUIRE_MESSAGE(loaded, std::string(loaded.error.text()));
    CHECK(training.peak_bytes() == peak);
    REQUIRE(step(training));
    CHECK(training.updates() == 6);
    return training;
  };
  // More room, less room, less tolerance: planned anew before the next update.
  const Training<> more = goes_on(options(90));
  CHECK(more.boundary().update.changed);
  CHECK(more.boundary().update.changes[0].reason == ChangeReason::budget_changed);
  CHECK(more.peak_bytes() > peak);
  CHECK(goes_on(options(50)).peak_bytes() <= retain_bytes() / 2);
  Options with = options();
  with.tolerance = run.evolution()->outcome().error / 2;
  const Training<> strict = goes_on(with);
  CHECK(strict.boundary().update.changed);
  CHECK(strict.evolution()->outcome().error <= with.tolerance);
  CHECK(strict.peak_bytes() <= with.budget_bytes);
  // The same options: nothing changes. Nor if they were asked for before the checkpoint was read.
  CHECK_FALSE(goes_on(options()).boundary().update.changed);
  Training<> asked = made(options(90));
  REQUIRE_FALSE(asked.set_budget(options().budget_bytes));
  REQUIRE(asked.load(path));
  REQUIRE(step(asked));
  CHECK_FALSE(asked.boundary().update.changed);
  CHECK(asked.peak_bytes() == peak);
}

namespace {

/// Takes scratch for each worker.
struct Scratchy {
  static constexpr auto backward_reads = reads::input;
  static constexpr LayerNeeds needs(Shape, NeedsQuery query) {
    return {.workspace = static_cast<std::size_t>(query.workers) * 16384};
  }

  using input_codecs = CodecList<Bf16>;
  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i) call.y[i] = call.x[i];
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.dy.size(); ++i) call.dx[i] = call.dy[i];
  }
};

}  // namespace

TEST_CASE("a plan that passes the budget with more threads is made anew") {
  const Folder folder;
  const std::string path = folder / "run";
  const Network scratchy{
      Sequential<Layer<Scratchy>, Layer<Scratchy>, Layer<Scratchy>, Layer<Scratchy>>{},
      random_model::HalfSquare{}};
  const train_test::Threads two{2};
  const std::size_t budget = make_program(scratchy, shape)->peak_bytes();
  auto one = Training<>::make(scratchy, shape, {.budget_bytes = budget});
  REQUIRE(one);
  REQUIRE(step(*one));
  REQUIRE_FALSE(one->save(path));
  auto more =
      Training<>::make(scratchy, shape, {.budget_bytes = budget, .context = Cpu(ExecutorRef(two))});
  REQUIRE_MESSAGE(more, std::string(more.error.text()));
  const auto loaded = more->load(path);
  REQUIRE_MESSAGE(loaded, std::string(loaded.error.text()));
  CHECK(more->peak_bytes() > budget);
  REQUIRE(step(*more));
  CHECK(more->boundary().update.changed);
  CHECK(more->peak_bytes() <= budget);
}

TEST_CASE("checkpoints of others are refused, and change nothing" *
          doctest::test_suite("one_thread")) {
  const Folder folder;
  injected_from = 1000000;
  const std::string path = folder / "run";
  Training<> run = made();
  run.model = "this";
  for (int i = 0; i < 3; ++i) REQUIRE(step(run));
  REQUIRE_FALSE(run.save(path));
  const auto refuses = [&](auto& training, const char* what) {
    REQUIRE(step(training));
    const std::vector<float> before(training.params().begin(), training.params().end());
    const std::uint64_t updates = training.updates();
    const auto loaded = training.load(path);
    CHECK_FALSE(loaded);
    CHECK_MESSAGE(says(loaded.error, what), std::string(loaded.error.text()));
    CHECK(training.updates() == updates);
    CHECK(std::memcmp(before.data(), training.params().data(), before.size() * sizeof(float)) == 0);
    CHECK(step(training));
  };
  Training<> named = made();
  named.model = "that";
  refuses(named, "is of \"this\", this model is \"that\"");
  const Net shorter{{{}, {}, {}, Repeat<Layer<Dense>>{7, {}}}, {}};
  auto other = Training<>::make(shorter, shape);
  REQUIRE(other);
  refuses(*other, "parameters, this model has");
  auto sgd = Training<float, Cpu, Sgd>::make(net, shape);
  REQUIRE(sgd);
  refuses(*sgd, "holds the state of AdamW");

  // The same network on another batch: the plan is of another graph, though its lines are the same.
  auto narrow = Training<>::make(net, Shape(32, 64));
  REQUIRE(narrow);
  CHECK(says(narrow->load(path).error, "the plan was made for another graph"));
  CHECK(narrow->updates() == 0);
  // Its numbers are taken on request, and the plan stays.
  const std::size_t peak = narrow->peak_bytes();
  REQUIRE(narrow->load(path, Restore::numbers));
  CHECK(narrow->updates() == 3);
  CHECK(same<const float>(narrow->params(), run.params()));
  CHECK(same<const float>(narrow->state(1), run.state(1)));
  CHECK(narrow->peak_bytes() == peak);

  // A plan that was fixed does not evolve, and one that evolved can be fixed.
  auto fixed = Training<>::make(net, *make_program(net, shape));
  REQUIRE(fixed);
  REQUIRE(fixed->load(path));
  CHECK(fixed->updates() == 3);
  CHECK(fixed->evolution() == nullptr);
  REQUIRE_FALSE(fixed->save(path));
  Training<> evolving = made();
  refuses(evolving, "its plan was fixed");
  // A file that is none.
  train_test::write_file(path, "a letter");
  refuses(evolving, "looks like text");
}

namespace {

using AnyTraining = Training<float, Cpu, AnyOptimizer>;

AnyTraining trained_by(const AnyOptimizer& optimizer) {
  auto training = AnyTraining::make(net, shape, {.seed = 3, .optimizer = optimizer});
  REQUIRE_MESSAGE(training, std::string(training.error.text()));
  return std::move(*training);
}

bool same_all(const AnyTraining& a, const AnyTraining& b) {
  return same(a.params(), b.params()) &&
         std::memcmp(a.state<std::byte>(0).data(), b.state<std::byte>(0).data(),
                     a.table().bytes()) == 0;
}

}  // namespace

TEST_CASE("every optimizer goes on bit for bit, in every form of its moments" *
          doctest::test_suite("one_thread")) {
  const Folder folder;
  const std::string path = folder / "run";
  const AnyOptimizer optimizers[] = {AdamW{},
                                     AdamWWith<Bf16Moments>{},
                                     AdamWWith<Int8Moments>{},
                                     SgdWith<Bf16Moments>{},
                                     Lion{},
                                     LionWith<Int8Moments>{},
                                     Adafactor{}};
  for (const AnyOptimizer& optimizer : optimizers) {
    CAPTURE(optimizer.name);
    AnyTraining whole = trained_by(optimizer), resumed = trained_by(optimizer);
    for (int i = 0; i < 4; ++i) REQUIRE(step(whole));
    REQUIRE_FALSE(whole.save(path));
    REQUIRE(step(resumed));
    const auto loaded = resumed.load(path);
    REQUIRE_MESSAGE(loaded, std::string(loaded.error.text()));
    CHECK(same_all(whole, resumed));
    for (int i = 0; i < 3; ++i) REQUIRE(step(whole));
    for (int i = 0; i < 3; ++i) REQUIRE(step(resumed));
    CHECK(same_all(whole, resumed));
  }
}

TEST_CASE("moments in other forms are converted, and other states refused in words" *
          doctest::test_suite("one_thread")) {
  const Folder folder;
  const std::string path = folder / "run", small = folder / "small";
  AnyTraining full = trained_by(AdamW{}), int8 = trained_by(AdamWWith<Int8Moments>{}),
              back = trained_by(AdamW{}), mixed = trained_by(AdamWWith<Bf16Moments, Int8Moments>{});
  for (int i = 0; i < 4; ++i) REQUIRE(step(full));
  REQUIRE_FALSE(full.save(path));
  for (AnyTraining* training : {&int8, &mixed}) {
    const auto loaded = training->load(path);
    REQUIRE_MESSAGE(loaded, std::string(loaded.error.text()));
    CHECK(training->updates() == 4);
    CHECK(same(training->params(), full.params()));
    REQUIRE_FALSE(training->save(small));
    REQUIRE(back.load(small));
    double distance[2] = {}, norm[2] = {};
    for (std::size_t s = 0; s < 2; ++s)
      for (std::size_t i = 0; i < full.state(s).size(); ++i) {
        const double a = static_cast<double>(full.state(s)[i]);
        const double b = static_cast<double>(back.state(s)[i]);
        distance[s] += (a - b) * (a - b);
        norm[s] += a * a;
      }
    CHECK(norm[0] > 0);
    CHECK(distance[0] > 0);
    CHECK(distance[0] < 1e-3 * norm[0]);
    CHECK(distance[1] < 1e-3 * norm[1]);
    REQUIRE(step(*training));
  }
  // A line that is not what this optimizer keeps.
  CheckpointInfo info = CheckpointFile::open(path)->info();
  const std::string good = info.optimizer;
  const ConstBytes state(full.state<std::byte>(0).data(), Shape(full.table().bytes()));
  for (const char* bad :
       {"AdamW\nfirst moment: full 1", "AdamW\nfirst moment: int4 1\nsecond moment: full 1",
        "AdamW\nfirst moment: int8 1\nsecond moment: full 1", "AdamW\nvelocity: full 1"}) {
    info.optimizer = bad;
    REQUIRE_FALSE(save_checkpoint<float>(path, info, full.params(), state));
    const auto loaded = int8.load(path);
    CHECK_FALSE(loaded);
    CHECK_MESSAGE(says(loaded.error, "it keeps another state"), std::string(loaded.error.text()));
  }
  // A name alone, as version 2 has it: all as it is.
  info.optimizer = "AdamW";
  REQUIRE_FALSE(save_checkpoint<float>(path, info, full.params(), state));
  REQUIRE(back.load(path));
  CHECK(same_all(back, full));
}

TEST_CASE("the seed is the checkpoint's, whatever the training was made with") {
  const Folder folder;
  const std::string path = folder / "run";
  auto run = Training<>::make(net, shape, {.seed = 3}), other = Training<>::make(net, shape);
  REQUIRE(run);
  REQUIRE(other);
  REQUIRE_FALSE(run->save(path));
  CHECK_FALSE(other->context().key.seed == 3);
  REQUIRE(other->load(path));
  CHECK(other->context().key.seed == 3);
  CHECK(same<const float>(other->params(), run->params()));
}

TEST_CASE("what evolved is read with care" * doctest::test_suite("one_thread")) {
  const Folder folder;
  injected_from = 1000000;
  const std::string path = folder / "run";
  Training<> run = made();
  for (int i = 0; i < 12; ++i) REQUIRE(step(run));
  REQUIRE_FALSE(run.save(path));
  CheckpointInfo info = CheckpointFile::open(path)->info();
  const std::string good = info.evolution;
  const ConstBytes state(run.state<std::byte>(0).data(), Shape(run.table().bytes()));
  Training<> training = made();
  const auto loads = [&](const std::string& text) {
    info.evolution = text;
    REQUIRE_FALSE(save_checkpoint<float>(path, info, run.params(), state));
    const auto loaded = training.load(path);
    if (!loaded) CHECK(says(loaded.error, "what evolved"));
    return static_cast<bool>(loaded);
  };
  CHECK(loads(good));
  const auto refused = [&](const char* from, const char* to) {
    CAPTURE(from);
    std::string bad = good;
    const std::size_t at = bad.find(from);
    REQUIRE(at != std::string::npos);
    CHECK_FALSE(loads(bad.replace(at, std::strlen(from), to)));
  };
  refused("version 1", "version 2");
  refused("codecs ", "codecs strange ");
  refused("\nbudget ", "\nbudget -");
  refused("\ntolerance ", "\ntolerance nan ");
  refused("\nforward ", "\nforward 0 ");
  refused("\nforward ", "\nbackward ");
  refused("\nfailed ", "\nfailed 2");
  refused("\nchecked ", "\nchecked");
  CHECK_FALSE(loads(good + "more 1\n"));
  CHECK_FALSE(loads(good.substr(0, good.size() / 2)));
  for (std::size_t size = 1; size < 60; ++size) CHECK_FALSE(loads(good.substr(0, size)));
  CHECK(loads(good));
  REQUIRE(step(training));
  CHECK(training.updates() == 13);
}

}  // namespace save_test
