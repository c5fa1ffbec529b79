// SPDX-License-Identifier: MIT
// Trainings of which some is frozen, or that learn adapters: what changes, what is kept, what is saved.
#include <doctest/doctest.h>

#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "support.hpp"

namespace frozen_training_test {

using namespace adacc;
using train_test::Folder;

namespace {

constexpr gpt::Config config{2, 2, 16, 12, 40};
const auto net = gpt::make(config);
const auto adapted = gpt::make_lora(config, {.rank = 3, .alpha = 6});

struct Batch : train_test::TokenBatch {
  explicit Batch(std::size_t number, std::size_t sequences = 4)
      : TokenBatch(number, Shape(sequences, 12), 40) {}
};

template <class Net>
Training<> made(const Net& of, const char* patterns = nullptr, std::size_t sequences = 4) {
  const Shape shape(sequences, 12);
  const auto graph = make_graph(of, shape);
  REQUIRE_MESSAGE(graph, graph.error.text());
  TrainingOptions<Cpu, AdamW> options{.seed = 3, .planning = {.evolving = false}};
  options.optimizer.weight_decay = 0.1F;
  TrainedSet set;
  if (patterns != nullptr) {
    auto found = trained_by_name(*graph, patterns);
    REQUIRE_MESSAGE(found, found.error.text());
    set = *found;
    options.graph.trained = &set;
  }
  auto training = Training<>::make(of, shape, options);
  REQUIRE_MESSAGE(training, training.error.text());
  return std::move(*training);
}

void steps(Training<>& training, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    const Batch batch(i);
    const auto outcome = training.step(batch.input(), batch.targets(), 1e-2);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    REQUIRE(outcome->finite);
  }
}

const Parameter& parameter(const Training<>& training, std::size_t i) {
  return training.compiled_step().graph().parameters[i];
}
/// Parameter `i`, or what a block of the optimizer's state has of it.
std::vector<float> values(View<const float> block, const Parameter& of) {
  if (of.offset >= block.size()) return {};
  return {block.data() + of.offset, block.data() + of.offset + of.shape.elems()};
}
std::vector<float> values(const Training<>& training, std::size_t i) {
  return values(training.params(), parameter(training, i));
}
std::vector<float> moments(const Training<>& training, std::size_t i) {
  return values(training.state(1), parameter(training, i));
}

}  // namespace

TEST_CASE("an update changes what is trained, as if all were, and nothing else") {
  Training<> all = made(net), some = made(net, "*.bias,block.1.layer_norm2,head");
  const Graph& graph = some.compiled_step().graph();
  const std::size_t count = graph.parameters.size();
  std::vector<std::vector<float>> before;
  for (std::size_t i = 0; i < count; ++i) {
    before.push_back(values(some, i));
    CHECK(values(all, i) == before[i]);  // drawn alike, wherever they lie
  }
  CHECK(some.gradients().size() == graph.gradient_elems);
  CHECK(some.state(0).size() == graph.gradient_elems);
  CHECK(2 * graph.gradient_elems < graph.parameter_elems);
  steps(all, 0, 1);
  steps(some, 0, 1);
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(parameter_name(graph, i));
    CHECK(values(some, i) == (graph.parameters[i].frozen ? before[i] : values(all, i)));
    CHECK(moments(some, i) ==
          (graph.parameters[i].frozen ? std::vector<float>{} : moments(all, i)));
  }
}

namespace {

/// Counts what it is told of.
struct Looking {
  [[maybe_unused]] static constexpr const char* name = "looking";
  static constexpr std::size_t state_count = 1;
  static inline std::atomic<int> trained = 0, frozen = 0;

  StateSpec state(std::size_t, const ParameterSpec& of) const {
    return {.name = "nothing", .elems = of.shape.elems()};
  }
  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms&) const {
    ++(range.parameter.frozen ? frozen : trained);
  }
};

}  // namespace

TEST_CASE("an optimizer is told of what is trained, and of nothing else") {
  const auto graph = make_graph(net, Shape(4, 12));
  REQUIRE(graph);
  const TrainedSet set = *trained_by_name(*graph, "block.1.linear");
  TrainingOptions<Cpu, Looking> options{.planning = {.evolving = false}};
  options.graph.trained = &set;
  auto training = Training<float, Cpu, Looking>::make(net, Shape(4, 12), options);
  REQUIRE_MESSAGE(training, training.error.text());
  const Batch batch(0);
  REQUIRE(training->step(batch.input(), batch.targets(), 1e-2));
  CHECK(Looking::trained == 2);
  CHECK(Looking::frozen == 0);
}

TEST_CASE("checkpoints do not depend on what is frozen: the same set goes on bit for bit") {
  const Folder folder;
  const std::string path = folder / "checkpoint";
  Training<> some = made(net, "block.1");
  steps(some, 0, 3);
  REQUIRE_FALSE(some.save(path));
  Training<> again = made(net, "block.1"), other = made(net, "block.1.linear,layer_norm"),
             all = made(net);
  REQUIRE(again.load(path, Restore::numbers));
  REQUIRE(other.load(path, Restore::numbers));
  REQUIRE(all.load(path, Restore::numbers));
  const Graph& graph = some.compiled_step().graph();
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    CAPTURE(parameter_name(graph, i));
    CHECK(values(other, i) == values(some, i));
    CHECK(values(all, i) == values(some, i));
    // Moments that there were go on; others begin at zero.
    const std::vector<float> zeros(parameter(all, i).shape.elems());
    const std::vector<float> known = graph.parameters[i].frozen ? zeros : moments(some, i);
    if (parameter(all, i).owner) CHECK(moments(all, i) == known);
    if (!parameter(other, i).frozen) CHECK(moments(other, i) == known);
  }
  steps(some, 3, 2);
  steps(again, 3, 2);
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    CHECK(values(again, i) == values(some, i));
    CHECK(moments(again, i) == moments(some, i));
  }
  // And from one of which all is trained.
  steps(all, 3, 1);
  REQUIRE_FALSE(all.save(path));
  REQUIRE(some.load(path, Restore::numbers));
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    CHECK(values(some, i) == values(all, i));
    if (!graph.parameters[i].frozen) CHECK(moments(some, i) == moments(all, i));
  }
  Training<> adapter = made(adapted);
  const auto refused = adapter.load(path, Restore::numbers);
  REQUIRE_FALSE(refused);
  CHECK(std::string(refused.error.text()).find("parameters") != std::string::npos);
}

namespace {

/// y = x + w, of which several layers share w.
struct Shared {
  static constexpr auto backward_reads = reads::none;
  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    return {ParameterSpec{.name = "w", .shape = Shape(in.cols()), .tied = "w"},
            ParameterSpec{.name = "own", .shape = Shape(3)}};
  }
  void forward(Cpu&, View<const float>, View<float>) const {}
  void backward(Cpu&, View<const float>, View<float>) const {}
};

}  // namespace

TEST_CASE("files have parameters where a network has them of which all is trained") {
  const Network<Sequential<Layer<Shared>, Layer<Shared>, Layer<Shared>>> shares;
  const auto all = make_graph(shares, Shape(2, 20));
  REQUIRE(all);
  const TrainedSet last = *trained_by_name(*all, "layer3.own");
  const auto some = make_graph(shares, Shape(2, 20), {.trained = &last});
  REQUIRE(some);
  const auto offsets = adacc::detail::offsets_in_files(*some);
  REQUIRE(offsets.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(offsets[i] == all->parameters[i].offset);
  CHECK(some->parameters[5].offset == 0);
  CHECK(some->parameters[4].offset == some->parameters[0].offset);
}

TEST_CASE("adapters start as the network that they adapt, and alone are trained") {
  Training<> plain = made(net), lora = made(adapted);
  const Graph& graph = lora.compiled_step().graph();
  std::size_t base = 0, adapters = 0;
  std::vector<std::vector<float>> before;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const Parameter& mine = graph.parameters[i];
    const bool is_adapter = std::string(mine.name).rfind("lora_", 0) == 0;
    CHECK(mine.frozen == !is_adapter);
    adapters += is_adapter;
    before.push_back(values(lora, i));
    if (is_adapter || !mine.owner) continue;
    std::memcpy(plain.params().data() + plain.compiled_step().graph().parameters[base].offset,
                before[i].data(), before[i].size() * sizeof(float));
    ++base;
  }
  CHECK(adapters == 2 * 4 * 2);
  const Batch batch(0);
  const auto a = plain.accumulate(batch.input(), batch.targets());
  const auto b = lora.accumulate(batch.input(), batch.targets());
  REQUIRE(a);
  REQUIRE(b);
  CHECK(*b == doctest::Approx(*a).epsilon(1e-6));
  REQUIRE(lora.update(1e-2));
  double first = 0, last = 0;
  for (std::size_t i = 0; i < 30; ++i) {
    const auto outcome = lora.step(batch.input(), batch.targets(), 1e-2);
    REQUIRE(outcome);
    (i == 0 ? first : last) = outcome->loss;
  }
  CHECK(last < 0.97 * first);
  for (std::size_t i = 0; i < graph.parameters.size(); ++i)
    CHECK((values(lora, i) == before[i]) == graph.parameters[i].frozen);
}

TEST_CASE("micro-batches of b sequences are one batch of all of them") {
  for (const char* patterns : {"*", "block.1"}) {
    CAPTURE(patterns);
    Training<> whole = made(net, patterns, 8), parts = made(net, patterns, 2);
    const Batch all(0, 8);
    REQUIRE(whole.accumulate(all.input(), all.targets()));
    double loss = 0;
    for (std::size_t m = 0; m < 4; ++m) {
      const Batch batch(m, 2);
      const auto one = parts.accumulate(batch.input(), batch.targets());
      REQUIRE(one);
      loss += *one / 4;
    }
    double apart = 0, norm = 0;
    for (std::size_t i = 0; i < whole.gradients().size(); ++i) {
      const double g = static_cast<double>(whole.gradients()[i]);
      const double d = g - static_cast<double>(parts.gradients()[i]) / 4;
      apart += d * d;
      norm += g * g;
    }
    CHECK(norm > 0);
    CHECK(std::sqrt(apart / norm) < 1e-6);
    const auto a = whole.update(1e-2), b = parts.update(1e-2);
    REQUIRE(a);
    REQUIRE(b);
    CHECK(std::fabs(b->loss - a->loss) < 1e-6 * a->loss);
    CHECK(std::fabs(b->grad_norm - a->grad_norm) < 1e-6 * a->grad_norm);
    CHECK(std::fabs(loss - a->loss) < 1e-6 * a->loss);
  }
}

}  // namespace frozen_training_test
