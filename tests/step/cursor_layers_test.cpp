// SPDX-License-Identifier: MIT
// The ready-made layers in slices: bits of the whole step, gradients of the uncut one, and no part
// that does more than a tenth of a step's work.
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/block.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/rms_norm.hpp>
#include <adacc/layer/silu.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/initialize.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../test_size.hpp"

namespace cursor_layers_test {

using namespace adacc;

namespace {

struct Outcome {
  double loss = 0;
  std::vector<float> gradients;
  bool operator==(const Outcome& other) const {
    return std::memcmp(&loss, &other.loss, sizeof loss) == 0 &&
           gradients.size() == other.gradients.size() &&
           std::memcmp(gradients.data(), other.gradients.data(), gradients.size() * 4) == 0;
  }
};

/// One step with `parts`, whole where slice_parts is 0.
template <class X, class Y, class Net>
Outcome run(const Net& net, Shape shape, int threads, int parts, std::size_t slice_parts) {
  EigenPool pool(threads);
  Cpu cpu{ExecutorRef(pool)};
  cpu.key.seed = 3;
  auto program = make_program(net, shape, {.workers = threads, .parts = parts});
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  step->judge_encodes(
      false);  // what is kept otherwise follows the gaps of the arena, which parts and workers change
  const std::size_t elems = step->graph().parameter_elems;
  auto arena = Block<std::byte>::make(step->arena_bytes(), "arena");
  auto params = Block<float>::make(elems, "p"), grads = Block<float>::make(elems, "g");
  initialize_parameters(cpu, step->graph().parameters, params->view(), 5);
  REQUIRE_FALSE(step->bind(arena->view(), params->view(), grads->view()));
  auto x = Block<X>::make(shape.elems(), "x");
  auto y = Block<Y>::make(step->graph().loss.targets.elems(), "y");
  for (std::size_t i = 0; i < x->size(); ++i) {
    if constexpr (std::is_same_v<X, float>) (*x)[i] = 2 * unit_float(random_word({}, i)) - 1;
    else (*x)[i] = static_cast<X>(random_word({}, i) % 16);
  }
  for (std::size_t i = 0; i < y->size(); ++i) (*y)[i] = static_cast<Y>(i * 7 % 10);
  const View<const X> input(x->data(), shape);
  const View<const Y> targets(y->data(), step->graph().loss.targets);
  Outcome outcome;
  if (slice_parts == 0) {
    const auto loss = step->run(cpu, input, targets);
    REQUIRE_MESSAGE(loss, loss.error.text());
    outcome.loss = *loss;
  } else {
    auto cursor = Cursor<>::make(*step);
    REQUIRE_FALSE(cursor->begin(input, targets));
    while (cursor->active()) REQUIRE(cursor->run(cpu, slice_parts));
    outcome.loss = cursor->loss();
  }
  outcome.gradients.assign(grads->data(), grads->data() + elems);
  return outcome;
}

template <class X, class Y, class Net>
void check(const Net& net, Shape shape) {
  const Outcome uncut = run<X, Y>(net, shape, 1, 1, 0);
  for (const int parts : {2, 5, 10}) {
    CAPTURE(parts);
    const Outcome whole = run<X, Y>(net, shape, 1, parts, 0);
    CHECK(run<X, Y>(net, shape, 1, parts, 1) == whole);
    CHECK(run<X, Y>(net, shape, 2, parts, 7) == whole);
    CHECK(whole.loss == doctest::Approx(uncut.loss).epsilon(1e-5));
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < uncut.gradients.size(); ++i) {
      const double a = whole.gradients[i], b = uncut.gradients[i];
      difference += (a - b) * (a - b);
      norm += b * b;
    }
    CHECK(difference <= 1e-8 * norm);
    CHECK(norm > 0);
  }
}

template <class Policy>
auto mlp() {
  using Model = Sequential<Layer<Linear, Policy>, Layer<LayerNorm, Policy>, Layer<Gelu, Policy>,
                           Layer<Dropout, Policy>,
                           Residual<Layer<RmsNorm, Policy>, Layer<Linear, Policy>,
                                    Layer<Silu, Policy>, Layer<Linear, Policy>>,
                           Layer<Relu, Policy>, Layer<Linear, Policy>>;
  return Model{{Linear{.out = 48}},
               {},
               {},
               {{.rate = 0.25F}},
               {{}, {Linear{.out = 40}}, {}, {Linear{.out = 48}}},
               {},
               {Linear{.out = 10}}};
}

/// Multiply-adds of a part, with ten for each element that is only passed over (twice to encode it:
/// ranges, then codes): an estimate of its own, not the library's.
double work(const Program& program, const Instruction& inst, std::size_t part) {
  const Graph& graph = program.graph;
  if (inst.op == Op::encode || inst.op == Op::decode) {
    const Cut cut = codec_cut(graph, inst.node, *program.plan[inst.node].codec());
    return (inst.op == Op::encode ? 20.0 : 10.0) *
           static_cast<double>(graph.node(inst.node).output.elems()) *
           static_cast<double>(cut.count(part)) / static_cast<double>(cut.items);
  }
  if (inst.op == Op::add || inst.op == Op::add_gradient)
    return 10.0 * static_cast<double>(graph.node(inst.node).output.elems()) / inst.parts;
  const bool loss = inst.op == Op::loss_gradient;
  const Node& node = graph.node(inst.node);
  const Cut& cut = loss ? graph.loss.cut : node.cut;
  const double share = static_cast<double>(cut.count(part)) / static_cast<double>(cut.items);
  const Shape in = loss ? graph.output() : node.input;
  const double in_elems = static_cast<double>(in.elems()), passes = inst.op == Op::forward ? 1 : 2;
  const std::string name = loss ? graph.loss.name : node.name;
  if (name == "linear") return share * passes * in_elems * static_cast<double>(node.output.cols());
  if (name == "cross_entropy_head")
    return share * 3 * in_elems *
           static_cast<double>(graph.parameters[graph.loss.parameters.first].shape[0]);
  if (name == "causal_attention") {
    const std::size_t blocks = (in[1] + 63) / 64;
    double sum = 0;  // of the query blocks of this part, each against the keys before its end
    for (std::size_t i = cut.first(part); i < cut.first(part) + cut.count(part); ++i) {
      const std::size_t block = inst.op == Op::forward ? blocks - 1 - i % blocks : i % blocks;
      const double heads = static_cast<double>(cut.items / blocks / in[0]);
      sum += 64.0 * 64 * static_cast<double>(block + 1) * static_cast<double>(in[2] / 3) / heads *
             (inst.op == Op::forward ? 2 : 5);
    }
    return sum;
  }
  return share * 10 * passes *
         static_cast<double>(name == "embedding" ? node.output.elems() : in.elems());
}

/// The largest share that a part, of instructions that `counts` names, has in the step's work.
template <class Counts>
double largest_share(const Program& program, const Counts& counts) {
  double total = 0, largest = 0;
  for (const Instruction& inst : program.schedule.instructions)
    for (std::size_t part = 0; part < static_cast<std::size_t>(inst.parts); ++part) {
      const double done = work(program, inst, part);
      total += done;
      if (counts(inst.op)) largest = std::fmax(largest, done);
    }
  return largest / total;
}
double largest_share(const Program& program) {
  return largest_share(program, [](Op) { return true; });
}

}  // namespace

TEST_CASE("cuts at multiples of 32 rows, or between sequences, change no bit") {
  // Products are one sum over rows, norms add up chunks of 32 rows, losses one row after the other.
  const auto same = [](const auto& net, Shape shape, auto x, auto y, int parts) {
    CAPTURE(parts);
    using X = decltype(x);
    using Y = decltype(y);
    const Outcome uncut = run<X, Y>(net, shape, 1, 1, 0);
    const Outcome cut = run<X, Y>(net, shape, 2, parts, 0);
    CHECK(std::memcmp(&cut.loss, &uncut.loss, sizeof cut.loss) == 0);
    CHECK(cut == uncut);
  };
  const Network classes{mlp<Retain>(), SoftmaxCrossEntropy{}};
  const Network squares{mlp<Recompute>(), MeanSquaredError{}};
  for (const int parts : {2, 5, 10}) {
    same(classes, Shape(320, 20), float{}, std::int32_t{}, parts);
    same(squares, Shape(1280, 20), float{}, float{}, parts);
  }
  gpt::Config config{2, 2, 32, 64, 128};
  const auto net = gpt::make<gpt::RetainSet>(config);
  for (const int parts : {2, 4, 8}) same(net, Shape(8, 64), std::int32_t{}, std::int32_t{}, parts);
}

TEST_CASE(
    "random numbers of rows and parts: a step of whole layers and one of cut layers have the same "
    "bits") {
  const Network classes{mlp<Retain>(), SoftmaxCrossEntropy{}};
  const Network squares{mlp<Recompute>(), MeanSquaredError{}};
  const auto random = [](std::uint32_t seed, std::uint32_t which, std::size_t from,
                         std::size_t to) {
    return from + random_word({.seed = 11, .step = seed}, which) % (to - from + 1);
  };
  int odd = 0;  // cases in which equal parts would not be multiples of 32
  for (std::uint32_t seed = 0; seed < (test_sanitized ? 6 : 40); ++seed) {
    const std::size_t rows = random(seed, 0, 64, 600), entries = random(seed, 1, 2, 7);
    const Shape shape = seed % 2 == 0 ? Shape(rows, 20) : Shape(entries, rows / entries, 20);
    const auto parts = static_cast<int>(random(seed, 2, 2, shape.rows() / summed_rows));
    CAPTURE(shape.rows());
    CAPTURE(parts);
    const std::size_t equal = div_up(shape.rows(), static_cast<std::size_t>(parts));
    if (shape.rank() == 3 && equal % shape[1] == 0 && equal % summed_rows != 0)
      continue;  // whole entries
    odd += equal % summed_rows != 0;
    const auto same = [&](const auto& net, auto y) {
      const Outcome uncut = run<float, decltype(y)>(net, shape, 1, 1, 0);
      CHECK(run<float, decltype(y)>(net, shape, 2, parts, 0) == uncut);
    };
    if (random(seed, 3, 0, 1) == 0) same(classes, std::int32_t{});
    else same(squares, float{});
    const auto graph = make_graph(squares, shape, {.parts = parts});
    for (const Node& node : graph->nodes) {
      CHECK(node.cut.parts() > 1);
      CHECK(node.cut.part_items % summed_rows == 0);
    }
  }
  CHECK(odd > (test_sanitized ? 3 : 30));
  for (std::uint32_t seed = 0; seed < (test_sanitized ? 2 : 12); ++seed) {
    const std::size_t batch = random(seed, 4, 2, 7), length = 32 * random(seed, 5, 1, 3);
    const auto parts = static_cast<int>(random(seed, 6, 2, batch * length / summed_rows));
    CAPTURE(batch);
    CAPTURE(length);
    CAPTURE(parts);
    gpt::Config config{1, 2, 16, 96, 128};
    const auto net = gpt::make<gpt::RetainSet>(config);
    using Id = std::int32_t;
    CHECK(run<Id, Id>(net, Shape(batch, length), 2, parts, 0) ==
          run<Id, Id>(net, Shape(batch, length), 1, 1, 0));
  }
}

TEST_CASE("the layers of a network in slices, cut by rows") {
  const Network classifier{mlp<Retain>(), SoftmaxCrossEntropy{}};
  check<float, std::int32_t>(classifier, Shape(70, 24));
  const Network frugal{mlp<Recompute>(), MeanSquaredError{}};
  check<float, float>(frugal, Shape(3, 29, 24));
  CHECK(run<float, float>(frugal, Shape(70, 24), 1, 10, 3) ==
        run<float, float>(Network{mlp<Retain>(), MeanSquaredError{}}, Shape(70, 24), 1, 10, 0));
}

TEST_CASE("a GPT in slices, cut by rows, sequences and blocks of queries") {
  const gpt::Config config{2, 3, 48, 150, 16};
  check<std::int32_t, std::int32_t>(gpt::make<gpt::RetainSet>(config), Shape(3, 131));
  check<std::int32_t, std::int32_t>(gpt::make<gpt::MixedSet>(config), Shape(2, 40));
}

TEST_CASE("in ten parts no instruction does more than a tenth of a step's work") {
  const auto share = [](const auto& net, Shape shape, int parts) {
    const auto program = make_program(net, shape, {.parts = parts});
    REQUIRE_MESSAGE(program, program.error.text());
    return largest_share(*program);
  };
  using Wide = Sequential<Layer<Linear>, Layer<Gelu>, Layer<Linear>>;
  const Network wide{Wide{{Linear{.out = 64}}, {}, {Linear{.out = 4}}}, MeanSquaredError{}};
  CHECK(share(wide, Shape(256, 32), 1) > 0.3);  // uncut, it is one large layer
  CHECK(share(wide, Shape(256, 32), 10) <= 0.1);
  CHECK(share(wide, Shape(64, 32), 10) <= 0.1);
  const Network one{Sequential<Layer<LayerNorm>>{Layer<LayerNorm>{}}, MeanSquaredError{}};
  CHECK(share(one, Shape(64, 32), 10) <= 0.1);
  const Network deep{mlp<Recompute>(), MeanSquaredError{}};
  CHECK(share(deep, Shape(64, 48), 10) <= 0.1);
  for (const std::size_t time : std::vector<std::size_t>{128, 256, 1024}) {
    const gpt::Config config{1, 4, 64, 1024, 256};
    CAPTURE(time);
    CHECK(share(gpt::make(config), Shape(1, time), 10) <= 0.1);
    CHECK(share(gpt::make<gpt::RecomputeSet>(config), Shape(1, time), 10) <= 0.1);
    CHECK(share(gpt::make<gpt::MixedSet>(config), Shape(1, time), 10) <= 0.1);
  }
}

template <class Codec>
void check_codec() {
  CAPTURE(Codec::name);
  using Lossy = Compress<Codec>;
  check<float, float>(Network{mlp<Lossy>(), MeanSquaredError{}}, Shape(3, 70, 24));
  const Network<Sequential<Layer<Gelu, Lossy>, Layer<Gelu>>, MeanSquaredError> narrow{};
  const auto share = [&](int parts) {
    const auto program = make_program(narrow, Shape(640, 256), {.parts = parts});
    REQUIRE_MESSAGE(program, program.error.text());
    CHECK(largest_share(*program) <= (parts == 1 ? 1 : 0.1));
    return largest_share(*program, [](Op op) { return op == Op::encode; });
  };
  CHECK(share(1) > 0.1);  // uncut, to encode is too much by itself
  CHECK(share(10) <= 0.02);
}

TEST_CASE("codecs in slices, cut by blocks of rows or spans of elements") {
  check_codec<Int8Outlier>();
  check_codec<Int4OutlierWith<Int4Options{.rounding = Rounding::stochastic}>>();
  check_codec<Bf16>();
}

}  // namespace cursor_layers_test
