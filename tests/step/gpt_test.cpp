// SPDX-License-Identifier: MIT
/// Promises of the step on a real network: a GPT with dropout on Eigen's thread pool.
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/block.hpp>
#include <adacc/layer/causal_attention.hpp>
#include <adacc/layer/cross_entropy_head.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/embedding.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/adamw.hpp>
#include <adacc/train/initialize.hpp>

#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "arena_use.hpp"
#include "in_turn.hpp"
#include "random_model.hpp"

namespace gpt_test {

using namespace adacc;

namespace {

template <class Inner, class Outer>
using DropoutBlock =
    Sequential<Residual<Layer<LayerNorm, Inner>, Layer<Linear, Inner>,
                        Layer<CausalAttention, Inner>, Layer<Linear, Inner>, Layer<Dropout, Inner>>,
               Residual<Layer<LayerNorm, Inner>, Layer<Linear, Inner>, Layer<Gelu, Inner>,
                        Layer<Linear, Inner>, Layer<Dropout, Outer>>>;

template <class Inner, class Outer>
using DropoutGpt = Network<Sequential<Layer<Embedding, Outer>, Layer<Dropout, Outer>,
                                      Repeat<DropoutBlock<Inner, Outer>>, Layer<LayerNorm, Inner>>,
                           CrossEntropyHead>;

template <class Inner, class Outer>
DropoutGpt<Inner, Outer> dropout_gpt() {
  constexpr std::size_t c = 24;
  DropoutGpt<Inner, Outer> net;
  const DropoutBlock<Inner, Outer> block{
      {{}, {Linear{.out = 3 * c}}, {{.heads = 3}}, {Linear{.out = c}}, {{.rate = 0.1F}}},
      {{}, {Linear{.out = 4 * c}}, {}, {Linear{.out = c}}, {{.rate = 0.2F}}}};
  Embedding embedding;
  embedding.vocab = 40, embedding.context = 32, embedding.channels = c;
  net.model = {{embedding}, {{.rate = 0.1F}}, {3, block}, {}};
  net.loss.vocab = 40;
  return net;
}

struct Trained {
  std::vector<double> losses;
  std::vector<float> gradients, params;
  bool operator==(const Trained& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(losses, other.losses) && same(gradients, other.gradients) &&
           same(params, other.params);
  }
};

/// Three steps of AdamW on fixed tokens.
template <class Net>
Trained train(const Net& net, int threads) {
  constexpr std::size_t batch = 3, time = 29;
  EigenPool pool(threads);
  Cpu cpu{ExecutorRef(pool)};
  cpu.key.seed = 11;
  auto program = make_program(net, Shape(batch, time), {.workers = threads});
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  const std::size_t elems = step->graph().parameter_elems;
  auto arena = Block<std::byte>::make(step->arena_bytes(), "arena");
  auto params = Block<float>::make(elems, "p"), grads = Block<float>::make(elems, "g");
  auto m = Block<float>::make(elems, "m"), v = Block<float>::make(elems, "v");
  initialize_parameters(cpu, step->graph().parameters, params->view(), 5);
  REQUIRE_FALSE(step->bind({arena->data(), Shape(arena->size())}, params->view(), grads->view()));
  std::vector<std::int32_t> tokens(batch * time), targets(batch * time);
  Trained out;
  for (std::uint32_t s = 0; s < 3; ++s) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((i * 7 + s) % 40);
      targets[i] = static_cast<std::int32_t>((i * 5 + s * 3) % 40);
    }
    cpu.key.step = s;
    const Shape shape(batch, time);
    auto loss = step->run(cpu, View<const std::int32_t>(tokens.data(), shape),
                          View<const std::int32_t>(targets.data(), shape));
    REQUIRE_MESSAGE(loss, loss.error.text());
    out.losses.push_back(*loss);
    out.gradients.insert(out.gradients.end(), grads->data(), grads->data() + elems);
    AdamW{}.step(cpu, params->view(), grads->view(), m->view(), v->view(), step->graph().parameters,
                 s + 1, 1e-2);
  }
  out.params.assign(params->data(), params->data() + elems);
  return out;
}

}  // namespace

TEST_CASE("with dropout: recompute and lossless codecs give retain's bits, on 1 to 3 threads") {
  const Trained retain = train(dropout_gpt<Retain, Retain>(), 1);
  CHECK(retain.losses[0] != retain.losses[1]);
  CHECK(retain.losses[0] > 3);
  using Lossless = Compress<random_model::Verbatim>;
  for (int threads = 1; threads <= 3; ++threads) {
    CAPTURE(threads);
    CHECK(train(dropout_gpt<Retain, Retain>(), threads) == retain);
    CHECK(train(dropout_gpt<Recompute, Retain>(), threads) == retain);
    CHECK(train(dropout_gpt<Recompute, Recompute>(), threads) == retain);
    CHECK(train(dropout_gpt<Recompute, Lossless>(), threads) == retain);
    CHECK(train(dropout_gpt<Lossless, Recompute>(), threads) == retain);
  }
  CHECK_FALSE(train(dropout_gpt<Compress<random_model::Truncate>, Retain>(), 1) == retain);
}

TEST_CASE("a GPT's measured bytes are the predicted ones, for every policy and worker count") {
  const gpt::Config config{2, 2, 16, 40, 50};
  constexpr std::size_t batch = 2, time = 33;
  const auto net = gpt::make(config);
  for (const char* policy : gpt::set_names) {
    for (int workers = 1; workers <= 3; ++workers) {
      CAPTURE(policy);
      CAPTURE(workers);
      InTurn executor{workers};
      Cpu cpu{ExecutorRef(executor)};
      auto graph = make_graph(net, Shape(batch, time), {.workers = workers});
      REQUIRE(graph);
      auto program = make_program(*graph, gpt::named_plan(policy, config, batch, time));
      REQUIRE(program);
      auto dispatch = make_dispatch<float, Cpu>(net);
      dispatch.add_codec<Int8Outlier>();
      dispatch.add_codec<Int4Outlier>();
      auto step = Step<>::make(std::move(dispatch), *program);
      REQUIRE(step);
      std::vector<std::int32_t> tokens(batch * time, 7);
      const View<const std::int32_t> view(tokens.data(), Shape(batch, time));
      check_arena_use(*step, cpu, view, view);
    }
  }
}

TEST_CASE("arenas of the 6-layer GPT: sizes by count, and layouts without waste") {
  const gpt::Config config{6, 6, 384, 256, 256};
  constexpr double llmc = 2.0 * 62680064 * 4;
  auto graph = gpt::graph(config, 4, 256, 2);
  REQUIRE(graph);
  std::size_t peaks[2] = {};
  for (int i = 0; i < static_cast<int>(std::size(gpt::set_names)); ++i) {
    CAPTURE(gpt::set_names[i]);
    const auto program = make_program(*graph, gpt::named_plan(gpt::set_names[i], config, 4, 256));
    REQUIRE(program);
    if (i < 2) peaks[i] = program->peak_bytes();
    CHECK(static_cast<double>(program->layout.arena_bytes) <=
          1.05 * static_cast<double>(program->layout.live_bytes));
  }
  CHECK(static_cast<double>(peaks[0]) <= 0.34 * llmc);
  CHECK(static_cast<double>(peaks[1]) <= 0.28 * static_cast<double>(peaks[0]));
}

TEST_CASE("two dropouts of a network drop different numbers") {
  using Net = Network<Sequential<Layer<Dropout>, Layer<Dropout>>, MeanSquaredError>;
  Net net;
  net.model = {{{.rate = 0.5F}}, {{.rate = 0.5F}}};
  const Shape shape(64, 64);
  const auto program = make_program(net, shape);
  REQUIRE_MESSAGE(program, program.error.text());
  auto step = Step<>::make(net, *program);
  REQUIRE_MESSAGE(step, step.error.text());
  auto arena = Block<std::byte>::make(step->arena_bytes(), "arena");
  REQUIRE_FALSE(step->bind({arena->data(), Shape(arena->size())}, {}, {}));
  const std::vector<float> ones(shape.elems(), 1), zeros(shape.elems());
  Cpu cpu;
  cpu.key.seed = 3;
  const auto loss =
      step->run(cpu, View<const float>(ones.data(), shape), View<const float>(zeros.data(), shape));
  REQUIRE_MESSAGE(loss, loss.error.text());
  // What both leave is 4: a quarter of all numbers, or a half if both drop the same.
  CHECK(*loss == doctest::Approx(4).epsilon(0.1));
}

}  // namespace gpt_test
