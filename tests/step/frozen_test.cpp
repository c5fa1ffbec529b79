// SPDX-License-Identifier: MIT
// Frozen parameters: what is trained gets the bits that it gets when all is, from steps that keep and
// compute less.
#include <doctest/doctest.h>

#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/program/plan.hpp>

#include "../test_size.hpp"
#include "step_run.hpp"

namespace frozen_test {

using namespace adacc;
using step_run::Aligned;

namespace {

/// A step's loss and gradients, each in the order of Graph::parameters; empty if it is frozen.
struct Ran {
  double loss = 0;
  std::vector<std::vector<float>> gradients;
  std::size_t peak = 0, used = 0;
  std::size_t backwards = 0;  ///< instructions
};

/// One step, with parameters that do not depend on where they lie.
template <class Net>
Ran run(const Net& net, const Graph& graph, const Plan& plan, AnyView input, AnyView targets) {
  constexpr std::size_t guard = 4096;
  auto program = make_program(graph, plan);
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  const std::size_t bytes = step->arena_bytes();
  Aligned arena(bytes + guard), params(graph.parameter_elems * 4),
      gradients(graph.gradient_elems * 4);
  std::memset(arena.data, 0x01, bytes + guard);  // floats to which adding anything shows
  std::memset(gradients.data, 0, gradients.size);
  auto* const p = reinterpret_cast<float*>(params.data);
  for (std::size_t i = 0; i < graph.parameters.size(); ++i)
    for (std::size_t e = 0; e < graph.parameters[i].shape.elems() && graph.parameters[i].owner; ++e)
      p[graph.parameters[i].offset + e] =
          0.3F * (unit_float(random_word({.seed = 5, .activation = std::uint32_t(i)}, e)) - 0.5F);
  step_run::Backwards executor{graph.workers};
  Cpu cpu{ExecutorRef(executor)};
  cpu.key.seed = 7;
  const Error bound =
      step->bind({arena.data, Shape(bytes)}, {p, Shape(graph.parameter_elems)},
                 {reinterpret_cast<float*>(gradients.data), Shape(graph.gradient_elems)});
  REQUIRE_MESSAGE(!bound, bound.text());
  const auto loss = step->run(cpu, input, targets);
  REQUIRE_MESSAGE(loss, loss.error.text());
  Ran ran;
  ran.loss = *loss;
  ran.peak = bytes;
  const auto* const g = reinterpret_cast<const float*>(gradients.data);
  for (const Parameter& parameter : graph.parameters) {
    ran.gradients.emplace_back();
    if (parameter.frozen) continue;
    REQUIRE(parameter.offset + parameter.shape.elems() <= graph.gradient_elems);
    ran.gradients.back().assign(g + parameter.offset,
                                g + parameter.offset + parameter.shape.elems());
  }
  for (std::size_t i = 0; i < bytes + guard; ++i)
    if (arena.data[i] != std::byte{0x01}) ran.used = i + 1;
  for (const Instruction& instruction : step->program().schedule.instructions)
    ran.backwards += instruction.op == Op::backward;
  return ran;
}

/// What is trained has the bits that it has among all, inside an exact peak.
void check_part(const Ran& part, const Ran& all, const Graph& graph) {
  CHECK(std::memcmp(&part.loss, &all.loss, sizeof all.loss) == 0);
  CHECK(part.used == part.peak);
  for (std::size_t i = 0; i < all.gradients.size(); ++i) {
    const auto &some = part.gradients[i], &full = all.gradients[i];
    if (some.empty()) continue;
    CAPTURE(parameter_name(graph, i));
    REQUIRE(some.size() == full.size());
    CHECK(std::memcmp(some.data(), full.data(), some.size() * sizeof(float)) == 0);
  }
}

constexpr gpt::Config config{3, 2, 32, 24, 50};
const Shape tokens_shape(2, 24);

struct GptBatch {
  std::vector<std::int32_t> x, y;
  GptBatch() {
    for (std::size_t i = 0; i < tokens_shape.elems(); ++i) {
      x.push_back(static_cast<std::int32_t>(i * 7 % 50));
      y.push_back(static_cast<std::int32_t>(i * 5 % 50));
    }
  }
};

struct Trained {
  Graph graph;
  Ran ran;
};

/// One step of the GPT of which `patterns` are trained, or all.
template <class Set = gpt::RetainSet>
Trained train_gpt(const char* patterns, int workers = 1, int parts = 1) {
  const GptBatch batch;
  const auto net = gpt::make<Set>(config);
  auto graph = gpt::graph<Set>(config, 2, 24, workers, parts);
  REQUIRE_MESSAGE(graph, graph.error.text());
  TrainedSet trained;
  if (patterns != nullptr) {
    auto found = trained_by_name(*graph, patterns);
    REQUIRE_MESSAGE(found, found.error.text());
    trained = *found;
    graph = gpt::graph<Set>(config, 2, 24, workers, parts, {.trained = &trained});
    REQUIRE_MESSAGE(graph, graph.error.text());
  }
  return {*graph, run(net, *graph, plan_from_types(*graph),
                      View<const std::int32_t>(batch.x.data(), tokens_shape),
                      View<const std::int32_t>(batch.y.data(), tokens_shape))};
}

constexpr const char* sets[] = {"*.bias,*layer_norm*",
                                "block.2,layer_norm",
                                "block.1.linear3.weight",
                                "block.0.linear.bias",
                                "block.2.layer_norm2.bias",
                                "embedding.wpe",
                                "head",
                                "layer_norm.weight,block.0.linear2.weight",
                                "*"};

}  // namespace

TEST_CASE("a GPT of which some is trained: bits of full training, exact peaks") {
  const Ran all = train_gpt(nullptr).ran;
  const Ran in_parts = train_gpt(nullptr, 2, 3).ran;
  for (const char* set : sets) {
    CAPTURE(set);
    const Trained some = train_gpt(set);
    check_part(some.ran, all, some.graph);
    CHECK(some.ran.peak <= all.peak);
    const Trained again = train_gpt<gpt::RecomputeSet>(set, 2);
    check_part(again.ran, all, again.graph);
    const Trained parts = train_gpt(set, 2, 3);
    check_part(parts.ran, in_parts, parts.graph);
  }
}

TEST_CASE("what nobody reads is not kept, and what nobody wants not computed") {
  const Trained all = train_gpt(nullptr), thin = train_gpt("*.bias,*layer_norm*"),
                upper = train_gpt("block.2,layer_norm"), last = train_gpt("layer_norm");
  CHECK(all.ran.backwards == 26);
  CHECK(thin.ran.backwards == 25);  // all but the embedding
  CHECK(upper.ran.backwards == 9);  // block 2 and the last norm
  CHECK(last.ran.backwards == 1);
  const auto kept = [](const Graph& graph) {
    std::size_t bytes = 0;
    for (const Node& node : graph.nodes) bytes += node.read_in_backward ? node.output_bytes : 0;
    return bytes;
  };
  const std::size_t c = 2 * 24 * 32 * 4;  // of one activation as wide as the stream
  CHECK(kept(all.graph) == (3 * 16 + 1) * c);
  CHECK(kept(thin.graph) == (3 * 10 + 1) * c);
  CHECK(kept(upper.graph) == (16 + 1) * c);
  CHECK(kept(last.graph) == c);
  CHECK(thin.graph.gradient_elems == 3 * 13 * 32 + 2 * 32);
  CHECK(thin.graph.parameter_elems == all.graph.parameter_elems);
  CHECK(thin.graph.fingerprint.structure != all.graph.fingerprint.structure);
}

namespace {

/// Where networks of layers that know nothing of frozen parameters are drawn.
TrainedSet draw_set(std::mt19937& random, std::size_t count) {
  TrainedSet set(count);
  bool any = false;
  for (bool& trained : set) any |= trained = random() % 3 != 0;
  if (!any && count > 0) set[random() % count] = true;
  return set;
}

}  // namespace

TEST_CASE("random networks of layers without reads_when, of which some is trained") {
  std::mt19937 random(11);
  int frozen = 0, shorter = 0;
  for (unsigned seed = 0; seed < test_networks / 6; ++seed) {
    CAPTURE(seed);
    const auto net = random_model::draw(seed, false);
    const Shape shape = random_model::draw_shape(seed);
    const int parts = 1 + static_cast<int>(seed % 3);
    auto all = make_graph(net, shape, {.workers = 2, .parts = parts});
    REQUIRE_MESSAGE(all, all.error.text());
    if (all->parameters.empty()) continue;
    const TrainedSet set = draw_set(random, all->parameters.size());
    auto some = make_graph(net, shape, {.workers = 2, .parts = parts, .trained = &set});
    REQUIRE_MESSAGE(some, some.error.text());
    std::vector<float> x(shape.elems()), y(some->loss.targets.elems(), 0.3F);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
    const View<const float> input(x.data(), shape), targets(y.data(), some->loss.targets);
    const Ran expected = run(net, *all, plan_from_types(*all), input, targets);
    const Ran ran = run(net, *some, plan_from_types(*some), input, targets);
    check_part(ran, expected, *some);
    frozen += some->gradient_elems < some->parameter_elems;
    shorter += ran.backwards < expected.backwards;
  }
  CHECK(frozen > 0);
  CHECK(shorter > 0);
}

namespace {

template <class First, class Last>
using Net = Network<Sequential<First, Last>, MeanSquaredError>;

/// A linear layer of a size that its type knows.
template <std::size_t size>
struct Dense : plain::Linear {
  constexpr Dense() { out = size; }
};
template <class... Rest>
using Stack = Sequential<Layer<Dense<64>>, Layer<Gelu>, Layer<Dense<64>>, Rest...>;
constexpr Shape rows(96, 64);

static_assert(peak_bytes<Net<Frozen<Stack<>>, Layer<Dense<4>>>>(rows) <
              peak_bytes<Net<Stack<>, Layer<Dense<4>>>>(rows) / 2);
// A frozen weight reads no input: that of the second layer is not kept. GELU's is.
static_assert(peak_bytes<Net<Stack<>, Frozen<Layer<Dense<64>>>>>(rows) <
              peak_bytes<Net<Stack<>, Layer<Dense<64>>>>(rows));

}  // namespace

TEST_CASE("frozen in types: a part, its biases, the loss; what is inside stays as frozen as that") {
  using Both = Network<
      Sequential<Frozen<Layer<Dense<8>>>,
                 Frozen<Repeat<Frozen<Layer<Dense<8>>>>, Freeze::all_but_biases>, Layer<Dense<8>>>,
      MeanSquaredError>;
  const auto graph = make_graph(Both{{{}, {{2, {}}}, {}}, {}}, Shape(4, 8));
  REQUIRE_MESSAGE(graph, graph.error.text());
  const bool expected[] = {true, true, true, true, true, true, false, false};
  REQUIRE(graph->parameters.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) CHECK(graph->parameters[i].frozen == expected[i]);
  CHECK(graph->gradient_elems == 64 + 16);
  CHECK(graph->parameters[6].offset == 0);
  for (int k = 0; k < 4; ++k) CHECK(graph->node(k).runs_backward == (k == 3));

  const auto biases = make_graph(
      Network{Sequential{frozen_but_biases(layer(Dense<8>{})), frozen(layer(Dense<8>{}))},
              MeanSquaredError{}},
      Shape(4, 8));
  REQUIRE(biases);
  for (std::size_t i = 0; i < 4; ++i) CHECK(biases->parameters[i].frozen == (i != 1));
  CHECK(biases->node(0).reads == Reads::none);

  const auto nested = make_graph(
      Network{Sequential{frozen(frozen_but_biases(layer(Dense<8>{}))), layer(Dense<8>{})},
              MeanSquaredError{}},
      Shape(4, 8));
  REQUIRE(nested);
  for (std::size_t i = 0; i < 4; ++i) CHECK(nested->parameters[i].frozen == (i < 2));

  CrossEntropyHead head;
  head.vocab = 8;
  const auto headless =
      make_graph(Network{Sequential{layer(Dense<8>{})}, frozen(head)}, Shape(4, 8));
  REQUIRE_MESSAGE(headless, headless.error.text());
  CHECK(headless->parameters[2].frozen);
}

TEST_CASE("names, and what is said of those that are none") {
  const auto graph = gpt::graph(config, 2, 24, 1);
  REQUIRE(graph);
  CHECK(parameter_name(*graph, 0) == "embedding.wte");
  CHECK(parameter_name(*graph, 4) == "block.0.linear.weight");
  CHECK(parameter_name(*graph, 12 + 1) == "block.0.linear4.bias");
  CHECK(parameter_name(*graph, 14) == "block.1.layer_norm.weight");
  CHECK(parameter_name(*graph, 2 + 3 * 12) == "layer_norm.weight");
  CHECK(parameter_name(*graph, 2 + 3 * 12 + 2) == "head.weight");
  const auto head = trained_by_name(*graph, "head");
  REQUIRE(head);
  CHECK((*head)[0]);  // the same storage
  CHECK_FALSE((*head)[1]);
  const auto says = [&](const char* patterns, const char* what) {
    const auto set = trained_by_name(*graph, patterns);
    REQUIRE_FALSE(set);
    CHECK_MESSAGE(std::string(set.error.text()).find(what) != std::string::npos, set.error.text());
  };
  says("block.5.*", "\"block.5.*\"; the nearest is \"block.0\"");
  says("*.bias,haed", "\"haed\"; the nearest is \"head\"");
  says("block.1.linaer", "\"block.1.linear\"");
  says("", "\"\"");
  TrainedSet nothing(graph->parameters.size());
  const auto frozen = gpt::graph(config, 2, 24, 1, 1, {.trained = &nothing});
  REQUIRE_FALSE(frozen);
  CHECK(std::string(frozen.error.text()) == "all parameters are frozen: there is nothing to train");
  TrainedSet other(3);
  CHECK(gpt::graph(config, 2, 24, 1, 1, {.trained = &other}).error);
}

}  // namespace frozen_test
