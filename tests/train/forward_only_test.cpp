// SPDX-License-Identifier: MIT
// Training by forward passes alone: what an update is, what it costs, what it leaves alone.
#include <doctest/doctest.h>

#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/train/forward_only.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../test_size.hpp"
#include "support.hpp"

namespace forward_only_test {

using namespace adacc;
using train_test::says;

namespace {

using Bowl = Network<Sequential<Layer<plain::Linear>>, plain::MeanSquaredError>;
using Net = Network<Sequential<Layer<plain::Linear>, Layer<plain::Tanh>, Layer<plain::Linear>>,
                    plain::MeanSquaredError>;
const Bowl bowl{Sequential{layer(plain::Linear{.out = 2})}, {}};
const Net net{{{plain::Linear{.out = 4}}, {}, {plain::Linear{.out = 2}}}, {}};
/// The first weight takes two tiles of an update.
const Net wide{{{plain::Linear{.out = 600}}, {}, {plain::Linear{.out = 2}}}, {}};

template <class T>
struct Batch {
  Shape in, out;
  std::vector<T> x, y;

  explicit Batch(std::size_t rows, std::size_t width, std::uint64_t seed = 5)
      : in(rows, width), out(rows, 2), x(in.elems()), y(out.elems()) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<T>(2 * unit_float(random_word({.seed = seed}, i)) - 1);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i / 2 * width] - x[i / 2 * width + i % 2];
  }
  View<const T> input() const { return {x.data(), in}; }
  View<const T> targets() const { return {y.data(), out}; }
};

template <class T, class Model>
ForwardOnly<T> made(const Model& of, const Batch<T>& batch, ForwardOnlyOptions<Cpu> options = {}) {
  options.seed = 3;
  auto training = ForwardOnly<T>::make(of, batch.in, std::move(options));
  REQUIRE_MESSAGE(training, std::string(training.error.text()));
  return std::move(*training);
}

template <class T>
std::vector<T> values(View<T> block) {
  return {block.begin(), block.end()};
}

template <class T>
TrainingOutcome step(ForwardOnly<T>& training, const Batch<T>& batch, double lr) {
  const auto outcome = training.step(batch.input(), batch.targets(), lr);
  REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
  return *outcome;
}

}  // namespace

TEST_CASE("forward only: a quadratic bowl is descended") {
  const Batch<float> batch(16, 3);
  auto training = made(bowl, batch, {.directions = 2});
  const TrainingOutcome first = step(training, batch, 0.05);
  for (int i = 0; i < 400; ++i) step(training, batch, 0.05);
  CHECK(first.loss > 0.1);
  CHECK(*training.evaluate(batch.input(), batch.targets()) < 1e-4 * first.loss);
  CHECK(training.updates() == 401);
}

TEST_CASE("forward only: the mean over directions is the gradient, with the error that is said") {
  const Batch<double> batch(8, 3);
  constexpr int directions = test_networks > 500 ? 20000 : 2000;
  auto training = made(net, batch, {.epsilon = 1e-4, .directions = directions});
  const std::vector<double> before = values(training.params());
  auto backprop = Step<double>::make(net, *make_program(net, batch.in, {.scalar = Dtype::f64}));
  REQUIRE(backprop);
  auto arena = Block<std::byte>::make(backprop->arena_bytes(), "arena");
  auto gradient = Block<double>::make(before.size(), "gradient");
  REQUIRE_FALSE(backprop->bind(arena->view(), training.params(), gradient->view()));
  const auto loss = backprop->run(training.context(), batch.input(), batch.targets());
  const TrainingOutcome outcome = step(training, batch, 1);
  double error = 0, norm = 0, elems = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double estimate = before[i] - training.params()[i];
    error += (estimate - (*gradient)[i]) * (estimate - (*gradient)[i]);
    norm += (*gradient)[i] * (*gradient)[i];
  }
  for (const Parameter& parameter : training.compiled_step().graph().parameters)
    elems += static_cast<double>(parameter.shape.elems());
  const double expected = (elems - 1) / directions;
  CHECK(error / norm > 0.5 * expected);
  CHECK(error / norm < 1.6 * expected);
  CHECK(outcome.grad_norm == doctest::Approx(std::sqrt(norm)).epsilon(0.05));
  CHECK(outcome.loss == doctest::Approx(*loss).epsilon(1e-6));
}

TEST_CASE("forward only: an update is what the header says, of bits that anybody can draw again") {
  const Batch<double> batch(8, 3);
  auto training = made(net, batch, {.epsilon = 1e-3, .weight_decay = 0.25});
  const auto expect = [&](std::uint32_t update) {
    const std::vector<double> before = values(training.params());
    // The losses on either side, by hand.
    const Graph& graph = training.compiled_step().graph();
    std::vector<double> signs(before.size());
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      for (std::size_t e = 0; e < graph.parameters[p].shape.elems(); ++e) {
        const RandomKey key{3, update, 0, static_cast<std::uint32_t>(p), Purpose::directions};
        signs[graph.parameters[p].offset + e] =
            (random_word(key, e / 32) >> e % 32 & 1U) != 0 ? -1 : 1;
      }
    double losses[2] = {};
    for (const int side : {0, 1}) {
      for (std::size_t i = 0; i < before.size(); ++i)
        training.params()[i] = before[i] + (side == 0 ? 1e-3 : -1e-3) * signs[i];
      losses[side] = *training.evaluate(batch.input(), batch.targets());
    }
    std::memcpy(training.params().data(), before.data(), before.size() * sizeof(double));
    const double slope = (losses[0] - losses[1]) / 2e-3;
    const TrainingOutcome outcome = step(training, batch, 0.1);
    CHECK(outcome.grad_norm == doctest::Approx(std::abs(slope)).epsilon(1e-9));
    for (const Parameter& parameter : graph.parameters)
      for (std::size_t e = 0; e < parameter.shape.elems(); ++e) {
        const std::size_t i = parameter.offset + e;
        const double decay = parameter.decay ? 0.25 * before[i] : 0;
        CHECK(training.params()[i] ==
              doctest::Approx(before[i] - 0.1 * (slope * signs[i] + decay)).epsilon(1e-9));
      }
  };
  expect(0);
  expect(1);
}

TEST_CASE("forward only: parameters come back but for rounding, which is bounded") {
  const Batch<float> batch(4, 70);
  auto training = made(wide, batch, {.epsilon = 1e-3, .directions = 3});
  const std::vector<float> before = values(training.params());
  step(training, batch, 0);
  bool differ = false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const float far = std::abs(before[i]) + 2e-3F;
    const double ulp = std::nextafter(far, std::numeric_limits<float>::infinity()) - far;
    CHECK(std::abs(training.params()[i] - before[i]) <= (2 * 3 + 2) * 0.5 * ulp);
    differ = differ || training.params()[i] != before[i];
  }
  CHECK(differ);  // or the bound would not be needed, and the header should say so
}

TEST_CASE("forward only: the same bits for any number of threads") {
  const Batch<float> batch(4, 70);
  std::vector<float> params;
  for (const int count : {1, 2, 4}) {
    const train_test::Threads threads{count};
    auto training = made(wide, batch, {.directions = 2, .context = Cpu(ExecutorRef(threads))});
    for (int i = 0; i < 3; ++i) step(training, batch, 1e-3);
    if (count == 1) params = values(training.params());
    else
      CHECK(std::memcmp(params.data(), training.params().data(), params.size() * sizeof(float)) ==
            0);
  }
}

TEST_CASE("forward only: what is frozen is not touched, and what is trained is moved as if alone") {
  const Batch<float> batch(4, 3);
  const auto graph = make_graph(net, batch.in);
  const auto set = trained_by_name(*graph, "*.bias");
  REQUIRE(set);
  auto training = made(net, batch, {.graph = {.trained = &*set}});
  const std::vector<float> before = values(training.params());
  const Graph& part = training.compiled_step().graph();
  for (int i = 0; i < 5; ++i) step(training, batch, 1e-2);
  for (std::size_t p = 0; p < part.parameters.size(); ++p) {
    const Parameter& of = part.parameters[p];
    const std::size_t bytes = of.shape.elems() * sizeof(float);
    CHECK((std::memcmp(before.data() + of.offset, training.params().data() + of.offset, bytes) ==
           0) == of.frozen);
  }
}

TEST_CASE("forward only: parameters and the arena of an evaluation are all that is held") {
  const Batch<float> batch(4, 70);
  const auto training = made(wide, batch, {.directions = 3});
  const auto evaluation = make_program(wide, batch.in, {}, Mode::evaluate);
  const TrainingMemoryUse memory = training.memory_use();
  CHECK(memory.arena == evaluation->peak_bytes());
  CHECK(memory.total() ==
        evaluation->peak_bytes() + evaluation->graph.parameter_elems * sizeof(float));
}

TEST_CASE("forward only: clipping is by the slopes") {
  const Batch<double> batch(8, 3);
  auto free = made(net, batch), clipped = made(net, batch, {.clip = 1e-3});
  const std::vector<double> before = values(free.params());
  const double norm = step(free, batch, 1).grad_norm;
  CHECK(step(clipped, batch, 1).grad_norm == norm);
  REQUIRE(norm > 1e-3);
  for (std::size_t i = 0; i < before.size(); ++i)
    CHECK((clipped.params()[i] - before[i]) * norm ==
          doctest::Approx((free.params()[i] - before[i]) * 1e-3).epsilon(1e-6));
}

TEST_CASE("forward only: a run goes on from its checkpoint bit for bit") {
  const train_test::Folder folder;
  const std::string path = folder / "run";
  const Batch<float> batch(4, 3);
  const auto graph = make_graph(net, batch.in);
  const auto set = trained_by_name(*graph, "plain_linear2");
  REQUIRE(set);
  const ForwardOnlyOptions<Cpu> options{.directions = 2, .graph = {.trained = &*set}};
  auto whole = made(net, batch, options);
  for (int i = 0; i < 3; ++i) step(whole, batch, 1e-2);
  whole.data_position = 7;
  REQUIRE_FALSE(whole.save(path, "mine"));
  for (int i = 0; i < 3; ++i) step(whole, batch, 1e-2);

  auto resumed = made(net, batch, options);
  resumed.context().key.seed = 9;  // the file's seed holds
  const auto info = resumed.load(path);
  REQUIRE_MESSAGE(info, std::string(info.error.text()));
  CHECK(info->notes == "mine");
  CHECK(resumed.data_position == 7);
  CHECK(resumed.updates() == 3);
  for (int i = 0; i < 3; ++i) step(resumed, batch, 1e-2);
  CHECK(values(resumed.params()) == values(whole.params()));

  auto back = Training<>::make(net, batch.in, {.seed = 3, .planning = {.evolving = false}});
  REQUIRE(back);
  CHECK(says(back->load(path).error.text(), "forward-only", "AdamW"));
  REQUIRE_FALSE(back->save(path));
  const std::vector<float> before = values(resumed.params());
  CHECK(says(resumed.load(path).error.text(), "AdamW", "forward-only"));
  CHECK(values(resumed.params()) == before);
}

TEST_CASE("forward only: a batch that is not finite changes nothing but rounding") {
  Batch<float> batch(4, 3), bad = batch;
  bad.x[2] = std::numeric_limits<float>::quiet_NaN();
  auto training = made(net, batch);
  const std::vector<float> before = values(training.params());
  CHECK_FALSE(step(training, bad, 1e-2).finite);
  CHECK(training.updates() == 0);
  for (std::size_t i = 0; i < before.size(); ++i)
    CHECK(training.params()[i] == doctest::Approx(before[i]).epsilon(1e-5));
  CHECK(step(training, batch, 1e-2).finite);
}

TEST_CASE("forward only: what cannot be is refused in words") {
  const Batch<float> batch(4, 3);
  const auto refusal = [&](const ForwardOnlyOptions<Cpu>& options) {
    const auto made = ForwardOnly<>::make(net, batch.in, options);
    return std::string(made ? "" : made.error.text());
  };
  for (const double epsilon : {0.0, -1e-3, std::nan(""), HUGE_VAL})
    CHECK(says(refusal({.epsilon = epsilon}).c_str(), "epsilon", "more than 0"));
  for (const int directions : {0, -1, 65537})
    CHECK(says(refusal({.directions = directions}).c_str(), "from 1 to 65536",
               std::to_string(directions).c_str()));
  CHECK(says(refusal({.clip = -1}).c_str(), "clip"));
  CHECK(says(refusal({.weight_decay = std::nan("")}).c_str(), "weight decay must be a finite"));
  CHECK(says(refusal({.weight_decay = -1}).c_str(), "weight decay must be 0 or more"));
  const TrainedSet none(make_graph(net, batch.in)->parameters.size());
  CHECK(says(refusal({.graph = {.trained = &none}}).c_str(), "all parameters are frozen"));
  CHECK(says(refusal({.graph = {.parameters = ParameterForm::bf16}}).c_str(), "held in full"));
  CHECK(says(refusal({.graph = {.updates = Updates::fused}}).c_str(), "no gradients"));

  auto training = made(net, batch);
  const std::vector<float> before = values(training.params());
  CHECK(says(training.step(batch.targets(), batch.targets(), 1).error.text(), "input"));
  CHECK(values(training.params()) == before);
  training.epsilon = 0;
  CHECK(says(training.step(batch.input(), batch.targets(), 1).error.text(), "epsilon"));
  ForwardOnly<> unmade, moved = std::move(training);
  training = std::move(moved);
  std::vector<float> out(4);
  for (ForwardOnly<>* nothing : {&unmade, &moved})
    for (const Error& why : {nothing->step(batch.input(), batch.targets(), 1).error,
                             nothing->evaluate(batch.input(), batch.targets()).error,
                             nothing->infer(batch.input(), View<float>(out.data(), Shape(4, 1))),
                             nothing->save("none.ckpt"), nothing->load("none.ckpt").error})
      CHECK_MESSAGE(says(why.text(), "holds nothing"), why.text());
  training.epsilon = 1e-3;
  training.weight_decay = HUGE_VAL;
  CHECK(
      says(training.step(batch.input(), batch.targets(), 1).error.text(), "weight decay must be"));
  CHECK(training.updates() == 0);
}

}  // namespace forward_only_test
