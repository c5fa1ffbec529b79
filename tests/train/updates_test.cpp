// SPDX-License-Identifier: MIT
// Updates in the middle of a step have the bits of those behind it, whatever the optimizer, the plan,
// the threads and the slices; what cannot be had with them is refused in words.
#include <doctest/doctest.h>

#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/number_text.hpp>
#include <adacc/cost/probe.hpp>
#include <adacc/io/file_format.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/step/cursor.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support.hpp"

namespace fused_updates_test {

using namespace adacc;
using train_test::Folder;
using Trained = Training<float, Cpu, AnyOptimizer>;
using Options = TrainingOptions<Cpu, AnyOptimizer>;

namespace {

constexpr std::size_t sequences = 4, time = 12;
constexpr gpt::Config config{2, 2, 16, time, 40};  // the embedding and the head share a matrix
const auto net = gpt::make(config);

struct Batch : train_test::TokenBatch {
  explicit Batch(std::size_t number) : TokenBatch(number, Shape(sequences, time), 40) {}
};

struct Case {
  AnyOptimizer optimizer;
  const char* policy = "retain";
  int parts = 1;
  const char* trained = nullptr;
};

train_test::Backwards executor;

Trained made(const Case& of, Updates updates) {
  TrainedSet set;
  gpt::Tuning tuning;
  if (of.trained != nullptr) {
    const auto all = gpt::graph(config, sequences, time, 3);
    set = *trained_by_name(*all, of.trained);
    tuning.trained = &set;
  }
  auto graph = gpt::graph(config, sequences, time, 3, of.parts, tuning);
  REQUIRE_MESSAGE(graph, graph.error.text());
  set_updates(*graph, updates);
  auto plan = gpt::named_plan(of.policy, config, sequences, time, tuning);
  auto program = make_program(*graph, plan);
  REQUIRE_MESSAGE(program, program.error.text());
  auto dispatch = make_dispatch<float, Cpu>(net);
  dispatch.add_codec<Int8Outlier>();
  dispatch.add_codec<Int4Outlier>();
  Cpu cpu{ExecutorRef(executor)};
  cpu.key.seed = 3;
  auto training = Trained::make(dispatch, *program, cpu, 0, of.optimizer);
  REQUIRE_MESSAGE(training, training.error.text());
  return std::move(*training);
}

TrainingOutcome step(Trained& training, std::size_t number, double rate = 1e-2) {
  const Batch batch(number);
  const auto outcome = training.step(batch.input(), batch.targets(), rate);
  REQUIRE_MESSAGE(outcome, outcome.error.text());
  return *outcome;
}

bool same(Trained& a, Trained& b) {
  for (std::size_t i = 0; i < a.table().states(); ++i) {
    const auto x = a.state<std::byte>(i), y = b.state<std::byte>(i);
    if (x.size() != y.size() || std::memcmp(x.data(), y.data(), x.size()) != 0) return false;
  }
  return a.updates() == b.updates() && a.params().size() == b.params().size() &&
         std::memcmp(a.params().data(), b.params().data(), a.params().size() * sizeof(float)) == 0;
}

bool says(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("fused updates have the bits of separate ones") {
  const AdamW decaying{.weight_decay = 0.1F};
  const Case cases[] = {
      {decaying, "retain"},
      {decaying, "recompute", 4},
      {decaying, "tolerated", 1, "*.bias,block.1,head"},
      {AdamWWith<Bf16Moments, Int8Moments>{}, "mixed"},
      {Sgd{.momentum = 0.9F}, "recompute"},
      {Sgd{}, "retain", 2, "block.0.*weight"},
      {Lion{.weight_decay = 0.1F}, "int8", 4},
      {Adafactor{.weight_decay = 0.1F}, "mixed", 2},
  };
  for (const Case& of : cases) {
    CAPTURE(std::string(of.optimizer.name) + ", " + of.policy);
    Trained separate = made(of, Updates::separate), fused = made(of, Updates::fused),
            sliced = made(of, Updates::fused);
    CHECK(fused.gradients().size() == 0);
    CHECK(fused.memory_use().gradients == 0);
    CHECK(fused.memory_use().total() < separate.memory_use().total());
    CHECK(fused.memory_use().arena == fused.compiled_step().program().layout.arena_bytes);
    for (std::size_t i = 0; i < 3; ++i) {
      const double rate = 1e-2 / static_cast<double>(i + 1);
      const TrainingOutcome a = step(separate, i, rate), b = step(fused, i, rate);
      CHECK(a.loss == b.loss);
      CHECK(a.grad_norm == doctest::Approx(b.grad_norm).epsilon(1e-12));
      CHECK(b.finite);
      CHECK(b.skipped == 0);

      Cursor<>* const cursor = &sliced.cursor();
      const Batch batch(i);
      REQUIRE_FALSE(sliced.begin(batch.input(), batch.targets(), rate));
      while (cursor->active()) REQUIRE(cursor->run(sliced.context(), 1 + i));
      const auto c = sliced.update(rate);
      REQUIRE_MESSAGE(c, c.error.text());
      CHECK(c->loss == a.loss);
      CHECK(c->grad_norm == b.grad_norm);
    }
    CHECK(fused.updates() == 3);
    CHECK(same(separate, fused));
    CHECK(same(separate, sliced));
  }
}

TEST_CASE("what fused updates cannot give is refused, and what instead is said") {
  Trained training = made({AdamW{}}, Updates::fused);
  const Batch batch(0);
  CHECK(says(training.accumulate(batch.input(), batch.targets()).error, "accumulated"));
  CHECK(says(training.update(1e-2).error, "there are no gradients"));
  Cursor<>* const cursor = &training.cursor();
  CHECK(says(training.begin(batch.input(), batch.targets()), "with their rate"));
  REQUIRE_FALSE(training.begin(batch.input(), batch.targets(), 1e-2));
  const char* const not_counted = "call update() behind its end, and then save()";
  CHECK(says(training.save("fused_step_under_way"), not_counted));
  while (cursor->active()) REQUIRE(cursor->run(training.context(), 100));
  CHECK(says(training.save("fused_step_under_way"), not_counted));
  CHECK(says(training.update(1e-3).error, "at another rate"));
  CHECK(says(training.begin(batch.input(), batch.targets(), 1e-2), "update() says"));
  REQUIRE(training.update(1e-2));

  training.clip = 1;
  const Error refused = training.step(batch.input(), batch.targets(), 1e-2).error;
  CHECK(says(refused, "Updates::separate"));
  CHECK(says(refused, "ClipBy::previous"));
  const auto with_options =
      Trained::make(net, Shape(sequences, time), {.clip = 1, .graph = {.updates = Updates::fused}});
  CHECK(says(with_options.error, "ClipBy::previous"));
  training.clip.by = ClipBy::previous;
  step(training, 1);

  // An abandoned step has updated what backward had come to, under a number of its own.
  const std::uint64_t before = training.updates();
  REQUIRE_FALSE(training.begin(batch.input(), batch.targets(), 1e-2));
  REQUIRE(cursor->run(training.context(), training.compiled_step().instruction_count() - 1));
  training.compiled_step().abandon();
  CHECK(says(training.save("fused_step_under_way"), not_counted));
  step(training, 2);
  CHECK(training.updates() == before + 2);

  auto separate = made({AdamW{}}, Updates::separate);
  CHECK(says(separate.switch_to(training.compiled_step().program()), "updates of the same kind"));
}

TEST_CASE("clipping by the norm before, fused or not; checkpoints go on with it, and exchange") {
  const auto clipped = [](Updates updates) {
    Trained training = made({AdamW{}, "recompute"}, updates);
    training.clip = 0.5;
    training.clip.by = ClipBy::previous;
    return training;
  };
  Trained separate = clipped(Updates::separate), fused = clipped(Updates::fused);
  Trained unclipped = made({AdamW{}, "recompute"}, Updates::fused);
  const Folder folder;
  for (std::size_t i = 0; i < 6; ++i) {
    const TrainingOutcome a = step(separate, i), b = step(fused, i);
    step(unclipped, i);
    CHECK(a.grad_norm == b.grad_norm);
    CHECK(a.grad_norm > 0.5);
    if (i != 0) continue;
    CHECK(same(fused, unclipped));  // there was no norm before
    REQUIRE_FALSE(fused.save(folder / "fused"));
    REQUIRE_FALSE(separate.save(folder / "separate"));
    REQUIRE_FALSE(unclipped.save(folder / "unclipped"));
  }
  CHECK(same(separate, fused));
  CHECK_FALSE(same(fused, unclipped));
  for (const char* from : {"fused", "separate", "unclipped"})
    for (const Updates updates : {Updates::separate, Updates::fused}) {
      CAPTURE(std::string(from));
      Trained resumed = clipped(updates);
      const auto loaded = resumed.load(folder / from);
      REQUIRE_MESSAGE(loaded, loaded.error.text());
      for (std::size_t i = 1; i < 6; ++i) step(resumed, i);
      CHECK(same(resumed, fused) == (std::string(from) != "unclipped"));
    }
}

namespace {

constexpr char norm_line[] = "\nnorm of the gradients: ";

/// A checkpoint whose norm of the gradients is written as `norm`, all else being as it was.
std::string with_norm(std::string file, const std::string& norm) {
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, file.data() + at, 8);
    return value;
  };
  const auto padded = [](std::uint64_t size) { return (size + 7) / 8 * 8; };
  const std::size_t start = 144 + padded(word(104)), size = word(112);
  std::string text = file.substr(start, size);
  text.resize(text.find(norm_line) + std::strlen(norm_line));
  text += norm;
  const std::uint64_t bytes = text.size();
  text.resize(padded(bytes), '\0');
  file.replace(start, padded(size), text);
  std::memcpy(file.data() + 112, &bytes, 8);
  const std::uint64_t all = file.size();
  std::memcpy(file.data() + 16, &all, 8);
  Checksum sum;
  sum.add(file.data(), file.size() - 8);
  const std::uint64_t value = sum.value();
  std::memcpy(file.data() + file.size() - 8, &value, 8);
  return file;
}

}  // namespace

TEST_CASE("the norm that a checkpoint keeps is read to its end, in any host and of any version") {
  const auto clipped = [] {
    Trained training = made({AdamW{}}, Updates::separate);
    training.clip = 0.5;
    training.clip.by = ClipBy::previous;
    return training;
  };
  Trained first = clipped();
  const double norm = step(first, 0).grad_norm;
  const Folder folder;
  const std::string path = folder / "saved";
  REQUIRE_FALSE(first.save(path));
  const std::string saved = train_test::read_file(path);
  CHECK(saved.find(norm_line + std::string(NumberText::shortest(norm))) != std::string::npos);
  step(first, 1);
  const auto load = [&](const std::string& text, Trained& into) {
    train_test::write_file(path, with_norm(saved, text));
    return into.load(path).error;
  };
  // What earlier versions wrote, where the host had no decimal comma.
  char old[64];
  std::snprintf(old, sizeof old, "%a", norm);
  if (char* const comma = std::strchr(old, ',')) *comma = '.';
  for (const std::string& text : {std::string(old), std::string(NumberText::shortest(norm))}) {
    CAPTURE(text);
    Trained resumed = clipped();
    const Error why = load(text, resumed);
    REQUIRE_MESSAGE(!why, why.text());
    step(resumed, 1);
    CHECK(same(resumed, first));
  }
  // And where it had one; and what is no norm at all.
  for (const char* text : {"0x1,8p+3", "0x1.8p+3 ", "1,5", "1.5x", "", "-1", "nan", "0x", "many"}) {
    CAPTURE(std::string(text));
    Trained resumed = clipped();
    const Error why = load(text, resumed);
    CHECK(says(why, "its norm of the gradients is \""));
    CHECK(resumed.updates() == 0);
  }
}

namespace {

/// x times (1 + weight); its backward adds something that is no number to the weight's gradient if told.
struct Poisoned {
  static constexpr const char* name = "poisoned";
  static constexpr auto backward_reads = reads::input;
  const bool* poison = nullptr;
  static constexpr std::array<ParameterSpec, 1> parameters(Shape in) {
    return {{{"weight", Shape(in.cols()), Init::uniform(0.5F)}}};
  }
  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] = call.x[i] * (1 + call.params[0][i % call.x.cols()]);
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      call.dparams[0][i % call.x.cols()] += call.dy[i] * call.x[i];
      call.dx[i] = call.dy[i] * (1 + call.params[0][i % call.x.cols()]);
    }
    if (poison != nullptr && *poison) call.dparams[0][1] = std::numeric_limits<T>::infinity();
  }
};

struct Squares {
  template <class T>
  double forward(Cpu&, const LossCall<T>& call) const {
    double sum = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i)
      sum +=
          0.5 * static_cast<double>((call.x[i] - call.targets[i]) * (call.x[i] - call.targets[i]));
    return sum;
  }
  template <class T>
  double forward_backward(Cpu& cpu, const LossCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i) call.dx[i] = call.x[i] - call.targets[i];
    return forward(cpu, call);
  }
};

}  // namespace

TEST_CASE("a gradient that is not finite keeps its own parameters as they are, and no others") {
  bool poison = false;
  const Network poisoned{Sequential{layer(Poisoned{}), layer(Poisoned{&poison}), layer(Poisoned{})},
                         Squares{}};
  auto made =
      Trained::make(poisoned, Shape(2, 16), {.seed = 3, .graph = {.updates = Updates::fused}});
  REQUIRE_MESSAGE(made, made.error.text());
  Trained& training = *made;
  std::vector<float> x(32, 0.7F), t(32, 0.3F);
  const auto step = [&] {
    const auto outcome = training.step(View<const float>(x.data(), Shape(2, 16)),
                                       View<const float>(t.data(), Shape(2, 16)), 1e-2);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    return *outcome;
  };
  CHECK(step().finite);
  const std::vector<float> values(training.params().begin(), training.params().end());
  const std::vector<float> moments(training.state(0).begin(), training.state(0).end());
  poison = true;
  const TrainingOutcome bad = step();
  CHECK_FALSE(bad.finite);
  CHECK(bad.skipped == 1);
  CHECK_FALSE(std::isfinite(bad.grad_norm));
  CHECK(training.updates() == 2);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t at = training.compiled_step().graph().parameters[i].offset;
    CHECK((training.params()[at] == values[at]) == (i == 1));
    CHECK((training.state(0)[at] == moments[at]) == (i == 1));
  }
  poison = false;
  CHECK(step().finite);  // nothing of it is left
  // A loss that is none: nothing is updated, and the next batch has the number of this one.
  x[3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before(training.params().begin(), training.params().end());
  const TrainingOutcome worse = step();
  CHECK_FALSE(worse.finite);
  CHECK(worse.skipped == 3);
  CHECK(training.updates() == 3);
  CHECK(std::memcmp(before.data(), training.params().data(), before.size() * sizeof(float)) == 0);
  x[3] = 0.7F;
  CHECK(step().finite);
  CHECK(training.updates() == 4);
}

TEST_CASE("a probe sketches gradients where they live, and updates nothing") {
  Trained separate = made({AdamW{}}, Updates::separate), fused = made({AdamW{}}, Updates::fused);
  const std::vector<float> values(fused.params().begin(), fused.params().end());
  const Batch batch(0);
  const auto sketch = [&](Trained& training) {
    GradientProbe<float, Cpu> probe(
        training.context(), training.compiled_step().dispatch(), training.compiled_step().graph(),
        training.arena(), training.params(), training.gradients(), batch.input(), batch.targets());
    const auto made = probe.sketch(training.plan());
    REQUIRE_MESSAGE(made, made.error.text());
    return *made;
  };
  const GradientSketch a = sketch(separate), b = sketch(fused), again = sketch(fused);
  CHECK(b.squared_norm == doctest::Approx(a.squared_norm).epsilon(1e-12));
  CHECK(b.squared_norm > 0);
  CHECK(squared_distance(b, again) == 0);
  CHECK(std::memcmp(values.data(), fused.params().data(), values.size() * sizeof(float)) == 0);
}

TEST_CASE("a total that separate updates cannot meet is met by fused ones, exactly") {
  Options options{.seed = 3, .graph = {.updates = Updates::fused}, .planning = {.evolving = false}};
  const Shape shape(sequences, time);
  const auto retain = Trained::make(net, shape, options);  // as its types say: nothing is planned
  REQUIRE(retain);
  options.total_bytes = retain->memory_use().total();
  auto fused = Trained::make(net, shape, options);
  REQUIRE_MESSAGE(fused, fused.error.text());
  CHECK(fused->memory_use().total() == options.total_bytes);
  CHECK(fused->memory_use().arena == fused->peak_bytes());
  step(*fused, 0);
  options.total_bytes -= 1;
  CHECK(says(Trained::make(net, shape, options).error, "the least known is"));
  options.total_bytes += 1;
  options.graph.updates = Updates::separate;
  CHECK(says(Trained::make(net, shape, options).error, "fused updates"));
}

}  // namespace fused_updates_test
