// SPDX-License-Identifier: MIT
// Training with activations in bfloat16 on threads of the host: its gradients are near fp32's, and no bit of them
// depends on threads, parts, plans, or the form of what is kept.
#include <doctest/doctest.h>

#include <adacc/layer/actor_critic_loss.hpp>
#include <adacc/layer/conv2d.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/pooling.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/silu.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/models/bert.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/models/llama.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "support.hpp"

namespace bf16_test {

using namespace adacc;
using train_test::Folder;
using train_test::says;
using train_test::Threads;
using train_test::TokenBatch;

namespace {

template <class T>
using Trained = Training<T, Cpu, AdamW>;
using Options = TrainingOptions<Cpu, AdamW>;

// Widths and a time where blocks of queries and vectors have ends. Parts of whole sequences are multiples of 32 rows.
constexpr std::size_t sequences = 4, time = 96, vocab = 97;
constexpr gpt::Config gpt_config{2, 3, 42, time, vocab};
const auto gpt_net = gpt::make<gpt::PlannedSet>(gpt_config);
// Its head takes two blocks of words, and rows of more than 512 channels are computed in spans.
const auto wide_net = gpt::make(gpt::Config{1, 4, 520, time, 2101});
const auto llama_net = llama::make(llama::Config{2, 4, 2, 48, 52, time, vocab});
const Network bert_net{
    Sequential{bert::encoder(bert::Config{2, 3, 42, 80, time, vocab}), layer(MeanOverTime{}),
               layer(Linear{.out = 5, .init_stddev = 0.3F})},
    SoftmaxCrossEntropy{}};
const Network dropout_net{
    Sequential{layer(Embedding{.vocab = vocab, .context = time, .channels = 24}),
               layer(Dropout{.rate = 0.1F}),
               Residual{layer(LayerNorm{}), layer(LoraLinear{.out = 24, .rank = 3}), layer(Silu{}),
                        layer(Linear{.out = 24})},
               layer(Relu{}), layer(Linear{.out = 11})},
    SoftmaxCrossEntropy{}};

struct Batch : TokenBatch {
  Batch(std::size_t number, Shape of, std::size_t words, std::size_t classes, bool of_tokens)
      : TokenBatch(number, of, words), targets_shape(of_tokens ? of : Shape(of[0])) {
    for (std::int32_t& target : y) target %= static_cast<std::int32_t>(classes);
  }
  View<const std::int32_t> targets() const { return {y.data(), targets_shape}; }
  Shape targets_shape;
};

template <class T, class Network>
Trained<T> make(const Network& network, const Options& options, Shape shape = {sequences, time}) {
  auto made = Trained<T>::make(network, shape, options);
  REQUIRE_MESSAGE(made, std::string(made.error.text()));
  return std::move(*made);
}

template <class T>
double gradient_of(Trained<T>& training, const Batch& batch) {
  const Result<double> loss = training.accumulate(batch.input(), batch.targets());
  REQUIRE_MESSAGE(loss, std::string(loss.error.text()));
  return *loss;
}

template <class T>
std::vector<float> numbers_of(const View<T>& view) {
  return {view.data(), view.data() + view.size()};
}
std::vector<float> numbers_of(const ParameterBlock<float>& block) {
  return {block.full(), block.full() + block.size()};
}

/// The relative error of bf16's gradient beside fp32's, on the same parameters.
template <class Network>
double error_of_gradient(const Network& network, const Batch& batch, double& loss_error) {
  auto full = make<float>(network, {.seed = 3}, batch.shape);
  auto half = make<bfloat16>(network, {.seed = 3}, batch.shape);
  const double loss = gradient_of(full, batch);
  loss_error = std::fabs(gradient_of(half, batch) - loss) / loss;
  double squares = 0, errors = 0;
  for (std::size_t i = 0; i < full.gradients().size(); ++i) {
    const double at = static_cast<double>(full.gradients()[i]);
    const double off = static_cast<double>(half.gradients()[i]) - at;
    squares += at * at;
    errors += off * off;
  }
  return std::sqrt(errors / squares);
}

template <class Network>
void check_error(const std::string& name, const Network& network, const Batch& batch, double most) {
  double loss_error = 1;
  const double error = error_of_gradient(network, batch, loss_error);
  CAPTURE(name);
  MESSAGE(name, ": gradient error ", error, ", loss error ", loss_error);
  CHECK(error < most);
  CHECK(error > 1e-4);  // fp32's would be 0
  CHECK(loss_error < 1e-3);
}

/// Loss and gradients of a step, and parameters after two updates.
struct Outcome {
  double loss = 0;
  std::vector<float> gradients, parameters;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), 4 * x.size()) == 0;
    };
    return a.loss == b.loss && same(a.gradients, b.gradients) && same(a.parameters, b.parameters);
  }
};

template <class Network>
Outcome outcome_of(const Network& network, const Batch& batch, const Options& options) {
  auto training = make<bfloat16>(network, options, batch.shape);
  Outcome outcome;
  for (int step = 0; step < 2; ++step) {
    outcome.loss = gradient_of(training, batch);
    outcome.gradients = numbers_of(training.gradients());
    REQUIRE(training.update(1e-2));
  }
  outcome.parameters = numbers_of(training.parameters());
  return outcome;
}

template <class Network>
void check_bits(const std::string& name, const Network& network, const Batch& batch) {
  CAPTURE(name);
  const Outcome one = outcome_of(network, batch, {.seed = 3});
  CHECK(std::isfinite(one.loss));
  for (const int count : {2, 3}) {
    const Threads threads{count};
    Options options{.context = Cpu(ExecutorRef(threads)), .seed = 3};
    CHECK(outcome_of(network, batch, options) == one);
  }
  for (const int parts : {2, 3}) {
    Options options{.seed = 3};
    options.graph.parts = parts;
    CHECK(outcome_of(network, batch, options) == one);
  }
  auto retain = make<bfloat16>(network, {.seed = 3}, batch.shape);
  const std::size_t all = retain.compiled_step().arena_bytes();
  // Without tolerance a smaller budget recomputes.
  const Outcome again =
      outcome_of(network, batch, {.budget_bytes = all * 9 / 10, .tolerance = 0, .seed = 3});
  CHECK(again == one);
}

const Batch gpt_batch(1, Shape(sequences, time), vocab, vocab, true);
const Batch bert_batch(1, Shape(sequences, time), vocab, 5, false);
const Batch dropout_batch(1, Shape(sequences, time), vocab, 11, true);

}  // namespace

TEST_CASE("Gradients in bf16 are those of fp32 within bf16's rounding" *
          doctest::test_suite("one_thread")) {
  check_error("gpt", gpt_net, gpt_batch, 1.2e-2);
  check_error("wide gpt", wide_net, Batch(1, Shape(2, time), 2101, 2101, true), 1.2e-2);
  check_error("llama", llama_net, gpt_batch, 1.2e-2);
  check_error("bert", bert_net, bert_batch, 1.5e-2);
  // The slope of ReLU jumps: a three-hundredth of its inputs change their sign, and the square root of this share is
  // the gradient's error.
  check_error("dropout", dropout_net, dropout_batch, 0.1);
}

TEST_CASE("Bits of bf16 do not depend on threads, parts, or plans that keep exact numbers") {
  check_bits("gpt", gpt_net, gpt_batch);
  check_bits("llama", llama_net, gpt_batch);
  check_bits("bert", bert_net, bert_batch);
  check_bits("dropout", dropout_net, dropout_batch);
}

TEST_CASE("A bf16 step uses every byte of its arena, which is half of fp32's, and none behind it" *
          doctest::test_suite("one_thread")) {
  auto half = make<bfloat16>(gpt_net, {.seed = 3});
  auto full = make<float>(gpt_net, {.seed = 3});
  const std::size_t bytes = half.compiled_step().arena_bytes();
  CHECK(static_cast<double>(bytes) < 0.6 * static_cast<double>(full.compiled_step().arena_bytes()));
  for (const char* policy : {"retain", "recompute"}) {
    CAPTURE(policy);
    auto graph = gpt::graph(gpt_config, sequences, time, 3, 1, {.scalar = Dtype::bf16});
    REQUIRE(graph);
    auto program = make_program(
        *graph, gpt::named_plan(policy, gpt_config, sequences, time, {.scalar = Dtype::bf16}));
    REQUIRE_MESSAGE(program, std::string(program.error.text()));
    auto step = Step<bfloat16>::make(gpt_net, std::move(*program));
    REQUIRE_MESSAGE(step, std::string(step.error.text()));
    const std::size_t peak = step->arena_bytes(), guard = 4096;
    auto arena = Block<std::byte>::make(peak + guard, "arena");
    std::vector<float> parameters = numbers_of(full.parameters());
    auto values = Block<float>::make(parameters.size(), "parameters");
    auto gradients = Block<float>::make(parameters.size(), "gradients");
    std::memcpy(values->data(), parameters.data(), 4 * parameters.size());
    const train_test::Backwards executor;
    Cpu cpu{ExecutorRef(executor)};
    std::size_t used = 0;
    for (const int pattern : {0x5A, 0xC3, 0x7E}) {
      std::memset(arena->data(), pattern, arena->size());
      REQUIRE_FALSE(step->bind({arena->data(), Shape(peak)}, View<const float>(values->view()),
                               gradients->view()));
      REQUIRE(step->run(cpu, gpt_batch.input(), gpt_batch.targets()));
      for (std::size_t i = 0; i < arena->size(); ++i)
        if ((*arena)[i] != static_cast<std::byte>(pattern) && i + 1 > used) used = i + 1;
    }
    CHECK(used == peak);
  }
}

TEST_CASE("Parts of bf16 never begin at odd rows") {
  // 3 sequences of 41 tokens: in fp32 thirds of the rows are whole sequences.
  Options options{.seed = 3};
  options.graph.parts = 3;
  auto training = make<bfloat16>(gpt_net, options, Shape(3, 41));
  for (const Node& node : training.compiled_step().graph().nodes)
    if (node.cut.split == Split::rows) CHECK(node.cut.part_items % 2 == 0);
  const Batch batch(1, Shape(3, 41), vocab, vocab, true);
  CHECK(outcome_of(gpt_net, batch, options) == outcome_of(gpt_net, batch, {.seed = 3}));
}

TEST_CASE("Losses of 300 steps in bf16 stay beside those of fp32" *
          doctest::test_suite("long_run")) {
  constexpr gpt::Config config{2, 2, 32, 32, 61};
  const auto net = gpt::make(config);
  auto full = make<float>(net, {.seed = 3, .clip = {1}}, Shape(4, 32));
  auto half = make<bfloat16>(net, {.seed = 3, .clip = {1}}, Shape(4, 32));
  double most = 0, first = 0, last = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    Batch batch(i, Shape(4, 32), 61, 61, true);
    for (std::size_t at = 0; at < batch.x.size(); ++at) batch.y[at] = (batch.x[at] * 5 + 3) % 61;
    const auto wanted = full.step(batch.input(), batch.targets(), 2e-3);
    const auto found = half.step(batch.input(), batch.targets(), 2e-3);
    REQUIRE(wanted);
    REQUIRE(found);
    most = std::fmax(most, std::fabs(found->loss - wanted->loss));
    if (i == 0) first = found->loss;
    last = found->loss;
  }
  MESSAGE("losses from ", first, " to ", last, ", at most ", most, " from fp32's");
  CHECK(last < 0.5 * first);
  CHECK(most < 2e-2);
}

TEST_CASE(
    "Parameters in bf16 and activations in bf16 train together, with the bits of their values in "
    "full") {
  Options options{.seed = 3};
  options.graph.parameters = ParameterForm::bf16;
  auto held = make<bfloat16>(gpt_net, options);
  auto full = make<bfloat16>(gpt_net, {.seed = 3});
  const Result<double> near = full.accumulate(gpt_batch.input(), gpt_batch.targets());
  const Result<double> loss = held.accumulate(gpt_batch.input(), gpt_batch.targets());
  REQUIRE(loss);
  CHECK(*loss == doctest::Approx(*near).epsilon(1e-3));
  REQUIRE(held.update(1e-3));
}

TEST_CASE("A checkpoint of another precision gives its numbers, and its plan is refused in words") {
  const train_test::Folder folder;
  const std::string path = folder / "full";
  Options options{.seed = 3};
  options.planning.evolving = true;
  auto full = make<float>(dropout_net, options);
  REQUIRE(!full.save(path));
  options.seed = 4;
  auto half = make<bfloat16>(dropout_net, options);
  const std::vector<float> before = numbers_of(half.params());
  const auto refused = half.load(path);
  CHECK(says(refused.error.text(), "made for another graph", "Restore::numbers"));
  CHECK(numbers_of(half.params()) == before);
  REQUIRE(half.load(path, Restore::numbers));
  CHECK(numbers_of(half.params()) == numbers_of(full.params()));
}

TEST_CASE("A layer without a form in bf16 is refused by name") {
  const Network pictures{Sequential{layer(Conv2d{.out = 4})}, SoftmaxCrossEntropy{}};
  const auto refused = Trained<bfloat16>::make(pictures, Shape(2, 8, 8, 3), Options{});
  CHECK(says(refused.error.text(), Conv2d::name, "bf16", "f32"));
  const Network actor{Sequential{layer(Linear{.out = 4})}, ActorCriticLoss{}};
  const auto loss = Trained<bfloat16>::make(actor, Shape(2, 8), Options{});
  CHECK(says(loss.error.text(), ActorCriticLoss::name, "bf16", "f32"));
}

}  // namespace bf16_test
