// SPDX-License-Identifier: MIT
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/testing/archetypes.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../fallible_codec.hpp"
#include "../test_size.hpp"
#include "support.hpp"

namespace training_test {

using namespace adacc;

namespace {

using Hidden = Sequential<Layer<Gelu>, Layer<Dropout>, Layer<Linear>>;
using Net = Network<Sequential<Layer<Linear>, Repeat<Hidden>, Layer<Linear>>, MeanSquaredError>;
const Shape shape(64, 8), target_shape(64, 1);

Net make_net(float dropout = 0) {
  return {{{Linear{.out = 32}},
           {4, {{}, {{.rate = dropout}}, {Linear{.out = 32}}}},
           {Linear{.out = 1}}},
          {}};
}
const Net net = make_net(), dropping = make_net(0.5F);

struct Batch {
  std::vector<float> x = std::vector<float>(64 * 8), y = std::vector<float>(64);
  explicit Batch(std::uint32_t number) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = 2 * unit_float(random_word({.seed = 5, .step = number}, i)) - 1;
    for (std::size_t r = 0; r < y.size(); ++r) y[r] = x[8 * r] * x[8 * r + 1];
  }
  View<const float> input() const { return {x.data(), shape}; }
  View<const float> targets() const { return {y.data(), target_shape}; }
};

template <class Trained>
Result<TrainingOutcome> step(Trained& training, const Batch& batch, double lr = 1e-2) {
  return training.step(batch.input(), batch.targets(), lr);
}

template <class T>
bool same(View<T> a, View<T> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
bool same(Training<>& a, Training<>& b) {
  return same(a.params(), b.params()) && same(a.state(0), b.state(0)) &&
         same(a.state(1), b.state(1));
}

template <class Trained = Training<>>
Trained made(const Net& of, typename Trained::Options options = {}) {
  options.seed = 3;
  auto training = Trained::make(of, shape, std::move(options));
  REQUIRE_MESSAGE(training, std::string(training.error.text()));
  return std::move(*training);
}

std::size_t retain_bytes() { return made(net).peak_bytes(); }

bool says(const Error& error, const char* what) {
  return std::string(error.text()).find(what) != std::string::npos;
}

#if defined(__cpp_exceptions)
/// y = x, and dx = dy unless backward is to throw.
struct Throwing {
  static constexpr auto backward_reads = reads::none;
  static inline bool throws = false;
  void forward(Cpu&, View<const float> x, View<float> y) const {
    std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
  }
  void backward(Cpu&, View<const float> dy, View<float> dx) const {
    if (throws) throw 7;
    std::memcpy(dx.data(), dy.data(), dy.size() * sizeof(float));
  }
};
#endif

/// Seconds that pass as they are asked for.
struct Ticks {
  double now = 0;
  double operator()() { return now += 1e-6; }
};

}  // namespace

TEST_CASE("one call: a plan within the budget, and what it promises") {
  Training<> all = made(net);
  for (const Policy& policy : all.plan().policies) CHECK(policy.retains());
  CHECK(all.arena().size() == all.peak_bytes());
  CHECK(all.evolution()->outcome().peak_bytes == all.peak_bytes());
  for (const std::size_t percent : {46U, 60U, 80U}) {
    const std::size_t budget = all.peak_bytes() * percent / 100;
    Training<> training = made(net, {.budget_bytes = budget});
    CHECK(training.peak_bytes() <= budget);
    CHECK(training.arena().size() == training.peak_bytes());
    CHECK(training.evolution()->outcome().error <= 1e-2);
    double first = 0, last = 0;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const auto outcome = step(training, Batch(i));
      REQUIRE(outcome);
      REQUIRE(outcome->finite);
      (i == 0 ? first : last) = outcome->loss;
    }
    CHECK(last < first / 4);
    CHECK(training.updates() == 100);
  }
  const auto none = Training<>::make(net, shape, {.budget_bytes = 100});
  CHECK_FALSE(none);
  CHECK(says(none.error, "that can be met is"));
  CHECK_FALSE(Training<>::make(net, shape, {.tolerance = std::nan("")}));
  CHECK_FALSE(Training<>::make(net, shape, {.clip = std::nan("")}));
  CHECK_FALSE(Training<>::make(net, shape, {.clip = -1}));
  CHECK(says(Training<>::make(net, Shape()).error, "a tensor of shape () has no elements"));
  CHECK(says(Training<>::make(net, shape, {.planning = {.profile_at_start = true}}).error,
             "takes a clock"));
  CHECK(says(Training<>::make(net, shape, {.planning = {.link = {1e9, 1e9}}}).error,
             "set planning.store"));
  CHECK(says(Training<>::make(net, shape, {.planning = {.most_written_bytes = KiB}}).error,
             "set planning.store"));
  CHECK(says(Training<>::make(net, shape, {.moment_store = {.window = {MiB}}}).error,
             "set moment_store.store"));
  Ticks clock;
  for (const double seconds : {-1.0, std::nan("")})
    CHECK(says(
        Training<>::make(net, shape, {.clock = clock, .planning = {.deadline_seconds = seconds}})
            .error,
        "deadline must be 0 seconds or more"));
  CHECK_FALSE(Training<>::make(net, Shape(0, 8)));
  CHECK_FALSE(Training<>::make(Dispatch<float, Cpu>{}, Graph{}));
}

TEST_CASE("a total covers parameters, gradients, moments and arena") {
  const Training<> all = made(net);
  const TrainingMemoryUse whole = all.memory_use();
  const std::size_t elems = all.compiled_step().graph().parameter_elems;
  CHECK(whole.parameters == 4 * elems);
  CHECK(whole.gradients == 4 * elems);
  CHECK(whole.moments == 8 * elems);
  CHECK(whole.arena == all.peak_bytes());
  CHECK(whole.total() == 16 * elems + all.peak_bytes());
  const std::size_t fixed = 16 * elems;

  Training<> half = made(net, {.total_bytes = fixed + all.peak_bytes() / 2});
  CHECK(half.memory_use().total() <= fixed + all.peak_bytes() / 2);
  CHECK(half.evolution()->budget_bytes() == all.peak_bytes() / 2);
  REQUIRE(step(half, Batch(0)));
  // The smaller of the two holds.
  CHECK(made(net, {.budget_bytes = all.peak_bytes() * 6 / 10, .total_bytes = 2 * whole.total()})
            .evolution()
            ->budget_bytes() == all.peak_bytes() * 6 / 10);
  // Room for more than retain takes.
  CHECK(made(net, {.total_bytes = 2 * whole.total()}).memory_use().total() == whole.total());

  const auto refuses = [&](std::size_t total, const char* limit) {
    const auto none = Training<>::make(net, shape, {.total_bytes = total});
    REQUIRE_FALSE(none);
    CHECK_MESSAGE(says(none.error, limit), none.error.text());
    CHECK_MESSAGE(says(none.error, "the least known is"), none.error.text());
    return std::string(none.error.text());
  };
  refuses(4 * elems - 1, "limited by the parameters themselves");
  refuses(fixed - 1, "limited by what is held beside the arena");
  const std::string said = refuses(fixed + 1, "limited by the arena");
  // What it names can be met.
  const auto smallest = smallest_peak(all.compiled_step().graph(), all.evolution()->profile(),
                                      {.budget_bytes = 1, .tolerance = 1e-2});
  REQUIRE(smallest);
  CHECK(said.find(Error::say(shown(fixed + *smallest)).text()) != std::string::npos);
  CHECK(made(net, {.total_bytes = fixed + *smallest}).memory_use().total() <= fixed + *smallest);
  CHECK_FALSE(Training<>::make(net, shape, {.total_bytes = fixed + *smallest - 64}));
  CHECK(says(Training<>::make(net, shape,
                              {.total_bytes = fixed + *smallest, .arena_bytes = all.peak_bytes()})
                 .error,
             "those who borrow it need"));
}

TEST_CASE("seeds and threads: same seed same bits, whatever the number of threads") {
  const train_test::Threads three{3};
  Training<> a = made(net), b = made(net, {.context = Cpu(ExecutorRef(three))});
  auto other = Training<>::make(net, shape, {.seed = 4});
  for (std::uint32_t i = 0; i < 5; ++i) {
    REQUIRE(step(a, Batch(i)));
    REQUIRE(step(b, Batch(i)));
    REQUIRE(step(*other, Batch(i)));
  }
  CHECK(same(a, b));
  CHECK_FALSE(same(a.params(), other->params()));
  // Planned for as many threads, one has the same plan.
  const std::size_t budget = retain_bytes() * 75 / 100;
  const Training<> one = made(net, {.budget_bytes = budget, .graph = {.workers = 3}});
  const Training<> all = made(net, {.budget_bytes = budget, .context = Cpu(ExecutorRef(three))});
  CHECK(one.peak_bytes() == all.peak_bytes());
  for (int k = 0; k < one.compiled_step().graph().node_count(); ++k)
    CHECK(one.plan()[k] == all.plan()[k]);
  CHECK(made(net, {.graph = {.workers = 3}}).compiled_step().graph().workers == 3);
  CHECK(made(net, {.context = Cpu(ExecutorRef(three)), .graph = {.workers = 2}})
            .compiled_step()
            .graph()
            .workers == 3);
}

TEST_CASE("a batch that is not finite costs nothing but itself") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t budget : {std::size_t{0}, retain_bytes() / 2}) {
    for (const float value : {nan, 3e38F, -std::numeric_limits<float>::infinity()}) {
      CAPTURE(value);
      CAPTURE(budget);
      Training<> training = made(net, {.budget_bytes = budget}),
                 clean = made(net, {.budget_bytes = budget});
      for (std::uint32_t i = 0; i < 12; ++i) {
        if (i == 4) {
          Batch bad(100);
          bad.x[17] = value;
          const std::vector<float> before(training.params().begin(), training.params().end());
          const auto outcome = step(training, bad);
          REQUIRE(outcome);
          CHECK_FALSE(outcome->finite);
          CHECK(training.updates() == 4);
          CHECK(std::memcmp(before.data(), training.params().data(),
                            before.size() * sizeof(float)) == 0);
        }
        const auto outcome = step(training, Batch(i)), expected = step(clean, Batch(i));
        REQUIRE(outcome);
        CHECK(outcome->finite);
        CHECK(outcome->loss == expected->loss);
        CHECK(outcome->grad_norm == expected->grad_norm);
      }
      CHECK(same(training, clean));
      CHECK(training.updates() == clean.updates());
    }
  }
  // One of several micro-batches: all of them are given up.
  Training<> training = made(net), clean = made(net);
  Batch bad(100);
  bad.x[0] = nan;
  REQUIRE(training.accumulate(Batch(0).input(), Batch(0).targets()));
  REQUIRE(training.accumulate(bad.input(), bad.targets()));
  const auto outcome = training.update(1e-2);
  REQUIRE(outcome);
  CHECK_FALSE(outcome->finite);
  CHECK(training.batches() == 0);
  REQUIRE(step(training, Batch(1)));
  REQUIRE(step(clean, Batch(1)));
  CHECK(same(training, clean));
}

TEST_CASE(
    "an update at a rate that is no number, clipped to none, or by mistaken options, is refused "
    "and "
    "leaves nothing") {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  for (const Updates updates : {Updates::separate, Updates::fused}) {
    const bool fused = updates == Updates::fused;
    Training<> training = made(net, {.graph = {.updates = updates}}),
               clean = made(net, {.graph = {.updates = updates}});
    for (const double rate : {nan, infinity, -infinity, 1e300}) {
      CAPTURE(rate);
      const Batch batch(1);
      const auto outcome = training.step(batch.input(), batch.targets(), rate);
      CHECK(says(outcome.error, "must be a finite number"));
      CHECK(training.updates() == 0);
      CHECK(training.batches() == 0);
    }
    for (const double clip : {nan, -1.0}) {
      training.clip = {clip, fused ? ClipBy::previous : ClipBy::this_step};
      CHECK(says(step(training, Batch(1)).error, "0 (off) or more"));
    }
    training.clip = {};
    training.optimizer.beta1 = 1;
    CHECK(says(step(training, Batch(1)).error, "beta1 and beta2 must be 0 or more, and below 1"));
    training.optimizer = {.epsilon = static_cast<float>(nan)};
    CHECK(says(step(training, Batch(1)).error, "epsilon must be a finite number"));
    training.optimizer = {};
    REQUIRE(step(training, Batch(2)));
    REQUIRE(step(clean, Batch(2)));
    CHECK(same(training, clean));
  }
}

TEST_CASE("a training that was not made, or was moved away, refuses every call") {
  Training<> training = made(net);
  const Training<> moved = std::move(training);
  Training<> unmade;
  const Batch batch(1);
  std::vector<float> out(64);
  for (Training<>* none : {&training, &unmade})
    for (const Error& why :
         {step(*none, batch).error, none->begin(batch.input(), batch.targets()),
          none->prepare(batch.input(), batch.targets()), none->update(1e-2).error,
          none->evaluate(batch.input(), batch.targets()).error,
          none->infer(batch.input(), View<float>(out.data(), target_shape)),
          none->save("none.ckpt"), none->load("none.ckpt").error})
      CHECK_MESSAGE(says(why, "holds nothing"), why.text());
}

TEST_CASE("an optimizer of another state than at set-up is refused and leaves nothing") {
  using Any = Training<float, Cpu, AnyOptimizer>;
  for (const Updates updates : {Updates::separate, Updates::fused}) {
    Any training = made<Any>(net, {.optimizer = Sgd{}, .graph = {.updates = updates}}),
        clean = made<Any>(net, {.optimizer = Sgd{}, .graph = {.updates = updates}});
    for (const AnyOptimizer& other :
         {AnyOptimizer(AdamW{}), AnyOptimizer(Lion{}), AnyOptimizer(SgdWith<Bf16Moments>{})}) {
      training.optimizer = other;
      const auto outcome = step(training, Batch(1));
      CHECK_MESSAGE(says(outcome.error, "is that of SGD from set-up"), outcome.error.text());
    }
    AnyOptimizer kept = Sgd{.momentum = 0.5F};
    training.optimizer = std::move(kept);
    training.optimizer = std::move(kept);  // a move leaves an optimizer
    clean.optimizer = Sgd{.momentum = 0.5F};
    REQUIRE(step(training, Batch(2)));
    REQUIRE(step(clean, Batch(2)));
    CHECK(same(training.params(), clean.params()));
    CHECK(same(training.state(0), clean.state(0)));
  }
}

#if defined(__cpp_exceptions)
TEST_CASE("behind an exception of a layer, the step is given up, and training goes on") {
  const Network throwing{
      Sequential{layer(Linear{.out = 4}), layer(Throwing{}), layer(Linear{.out = 1})},
      MeanSquaredError{}};
  auto training = Training<>::make(throwing, shape), clean = Training<>::make(throwing, shape);
  REQUIRE(training);
  Throwing::throws = true;
  CHECK_THROWS_AS(static_cast<void>(step(*training, Batch(1))), int);
  Throwing::throws = false;
  CHECK(says(step(*training, Batch(1)).error, "compiled_step().abandon()"));
  training->compiled_step().abandon();
  REQUIRE(step(*training, Batch(1)));
  REQUIRE(step(*clean, Batch(1)));
  CHECK(same(*training, *clean));
}
#endif

TEST_CASE("a step that failed leaves nothing in the gradients") {
  const Network failing{Sequential<Layer<Linear, Compress<Fallible>>, Layer<Gelu>, Layer<Linear>>{
                            {Linear{.out = 32}}, {}, {Linear{.out = 1}}},
                        MeanSquaredError{}};
  auto training = Training<>::make(failing, *make_program(failing, shape));
  auto clean = Training<>::make(failing, *make_program(failing, shape));
  REQUIRE(training);
  for (std::uint32_t i = 0; i < 6; ++i) {
    Fallible::fails = i == 3;
    if (i == 3) {
      REQUIRE(training->accumulate(Batch(7).input(), Batch(7).targets()).error);
      const auto failed = step(*training, Batch(7));
      CHECK(says(failed.error, "told to fail"));
      CHECK(training->batches() == 0);
      CHECK(training->update(1e-2).error);  // there is nothing to update from
      Fallible::fails = false;
    }
    REQUIRE(step(*training, Batch(i)));
    REQUIRE(step(*clean, Batch(i)));
  }
  CHECK(same(*training, *clean));
  // What is refused before it runs changes nothing: what was summed stays.
  REQUIRE(training->accumulate(Batch(0).input(), Batch(0).targets()));
  CHECK(
      training
          ->accumulate(View<const float>(Batch(0).input().data(), Shape(8, 8)), Batch(0).targets())
          .error);
  CHECK(training->batches() == 1);
  REQUIRE(training->update(1e-2));
  REQUIRE(step(*clean, Batch(0)));
  CHECK(same(*training, *clean));
}

TEST_CASE("slices: a whole one counts, an abandoned one leaves nothing, and plans may change") {
  const std::size_t whole = retain_bytes();
  // Lossless: a plan that changes must not show in the bits.
  Training<> training = made(net, {.budget_bytes = whole, .tolerance = 0});
  Training<> clean = made(net, {.budget_bytes = whole, .tolerance = 0});
  Cursor<>* const cursor = &training.cursor();
  for (std::uint32_t i = 0; i < 12; ++i) {
    CAPTURE(i);
    const Batch batch(i), other(50 + i);
    if (i == 5) REQUIRE_FALSE(training.set_budget(whole * 6 / 10));
    if (i == 9) REQUIRE_FALSE(training.set_budget(whole));
    if (i % 3 == 1) {  // begun, run in part, abandoned
      REQUIRE_FALSE(training.begin(other.input(), other.targets()));
      REQUIRE(cursor->run(training.context(), training.compiled_step().instruction_count() - 2));
      CHECK(training.update(1e-2).error);  // it is under way
      CHECK(step(training, batch).error);
      CHECK(training.switch_to(training.compiled_step().program()));
      training.compiled_step().abandon();
    }
    if (i % 2 == 0) {
      REQUIRE_FALSE(training.begin(batch.input(), batch.targets()));
      while (cursor->active()) REQUIRE(cursor->run(training.context(), 3));
      const auto outcome = training.update(1e-2);
      REQUIRE_MESSAGE(outcome, outcome.error.text());
      CHECK(outcome->batches == 1);
    } else {
      REQUIRE(step(training, batch));
    }
    REQUIRE(step(clean, batch));
    CHECK(training.boundary().update.changed == (i == 5 || i == 9));
    CHECK(training.peak_bytes() <= (i >= 5 && i < 9 ? whole * 6 / 10 : whole));
  }
  CHECK(same(training, clean));
  // A training may move while a step of it is under way.
  const Batch last(12);
  REQUIRE_FALSE(training.begin(last.input(), last.targets()));
  REQUIRE(training.cursor().run(training.context(), 3));
  Training<> moved = std::move(training);
  std::int64_t ticks = 0;
  const auto now = [&] { return ticks++; };
  for (bool ended = false; !ended;) {
    const auto slice = moved.slice(now, ticks + 8);
    REQUIRE(slice);
    ended = slice->ended;
  }
  REQUIRE(moved.update(1e-2));
  REQUIRE(step(clean, last));
  CHECK(same(moved, clean));
  CHECK(says(moved.slice(now, ticks + 8).error, "has ended"));
}

TEST_CASE("a training with fused updates may move while a step of it is under way") {
  const Training<>::Options fused{.graph = {.updates = Updates::fused}};
  Training<> training = made(net, fused), clean = made(net, fused);
  const Batch batch(1);
  REQUIRE_FALSE(training.begin(batch.input(), batch.targets(), 1e-2));
  REQUIRE(training.cursor().run(training.context(), 3));
  Training<> moved = std::move(training);
  REQUIRE(moved.slice([] { return std::int64_t{0}; }, 1)->ended);
  REQUIRE(moved.update(1e-2));
  REQUIRE(step(clean, batch));
  CHECK(same(moved, clean));
}

TEST_CASE("micro-batches are summed in order, and the update takes their mean") {
  const Batch first(1), second(2), third(3);
  Training<> training = made(dropping), by_hand = made(dropping);
  Step<>& compiled = by_hand.compiled_step();
  double losses = 0;
  std::uint16_t number = 0;
  for (const Batch* batch : {&first, &second, &third}) {
    const auto loss = training.accumulate(batch->input(), batch->targets());
    by_hand.context().key.micro_step = number++;
    const auto expected = compiled.run(by_hand.context(), batch->input(), batch->targets());
    REQUIRE(loss);
    REQUIRE(expected);
    CHECK(*loss == *expected);
    CHECK(same(training.gradients(), by_hand.gradients()));
    losses += *loss;
  }
  CHECK(training.batches() == 3);
  Cpu cpu;
  const double norm = gradient_norm(cpu, by_hand.gradients()) / 3;
  const auto outcome = training.update(1e-2);
  REQUIRE(outcome);
  CHECK(outcome->batches == 3);
  CHECK(outcome->loss == losses / 3);
  CHECK(outcome->grad_norm == norm);
  CHECK(training.updates() == 1);
  AdamW{}.step(cpu, by_hand.params(), by_hand.gradients(), by_hand.state(0), by_hand.state(1),
               compiled.graph().parameters, 1, 1e-2, 1.0 / 3);
  CHECK(same(training, by_hand));
  for (const float g : training.gradients()) REQUIRE(g == 0);

  // The same batch twice draws other numbers the second time; without dropout it is the same.
  for (const bool drops : {true, false}) {
    Training<> twice = made(drops ? dropping : net);
    const auto a = twice.accumulate(first.input(), first.targets());
    const auto b = twice.accumulate(first.input(), first.targets());
    REQUIRE(a);
    REQUIRE(b);
    CHECK((*a == *b) == !drops);
  }
  CHECK(training.update(1e-2).error);
}

TEST_CASE("clipping scales the update to the norm that is asked for") {
  using Plain = Training<float, Cpu, Sgd>;
  for (const double clip : {0.0, 1e-3, 1e9}) {
    CAPTURE(clip);
    Plain training = made<Plain>(net, {.clip = clip, .optimizer = {.momentum = 0}});
    const std::vector<float> before(training.params().begin(), training.params().end());
    const auto outcome = step(training, Batch(0), 0.5);
    REQUIRE(outcome);
    double moved = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double d = static_cast<double>(training.params()[i]) - static_cast<double>(before[i]);
      moved += d * d;
    }
    const double expected = clip == 1e-3 ? 1e-3 : outcome->grad_norm;
    CHECK(outcome->grad_norm > 1e-2);
    CHECK(std::sqrt(moved) == doctest::Approx(0.5 * expected).epsilon(1e-3));
  }
}

TEST_CASE("SGD computes its formula") {
  Array<Parameter> table;
  std::size_t elems = 0;
  train_test::add_parameter(table, elems, Shape(40000));
  train_test::add_parameter(table, elems, Shape(3, 5)).decay = false;
  std::vector<float> p(elems, 2), g(elems), v(elems);
  double pe[2] = {2, 2}, ve = 0;
  const Sgd sgd{.momentum = 0.5F, .weight_decay = 0.1F};
  const train_test::Threads threads{3};
  Cpu cpu{ExecutorRef(threads)};
  const auto update = UpdateTable::make(sgd, table, Dtype::f32);
  REQUIRE(update->bytes() == elems * sizeof(float));
  const Bytes state(reinterpret_cast<std::byte*>(v.data()), Shape(update->bytes()));
  for (std::uint64_t t = 1; t < 5; ++t) {
    for (float& value : g) value = 0.25F * static_cast<float>(t);
    update->update(sgd, cpu, table,
                   UpdateMemory<float>{{p.data(), Shape(elems)}, {g.data(), Shape(elems)}, state},
                   UpdateTerms{t, 0.125, 2});
    ve = 0.5 * ve + 2 * 0.25 * static_cast<double>(t);
    pe[0] -= 0.125 * (ve + 0.1 * pe[0]);
    pe[1] -= 0.125 * ve;
    CHECK(static_cast<double>(p[39999]) == doctest::Approx(pe[0]).epsilon(1e-6));
    CHECK(static_cast<double>(p[table[1].offset + 14]) == doctest::Approx(pe[1]).epsilon(1e-6));
    CHECK(p[table[1].offset + 15] == 2);  // padding
    CHECK(g[0] == 0);
    CHECK(g[table[1].offset + 14] == 0);
  }
}

namespace {

/// No more than a context of one's own on the host needs: the archetype, but for copies.
struct Minimal : testing::ContextArchetype {
  Minimal() = default;
  Minimal(const Minimal&) : ContextArchetype() {}
  Minimal& operator=(const Minimal&) { return *this; }
};

struct Scale {
  static constexpr auto backward_reads = reads::input;
  using input_codecs = CodecList<>;
  constexpr std::array<ParameterSpec, 1> parameters(Shape in) const {
    return {{{"factor", Shape(in.cols()), Init::constant(1)}}};
  }
  void forward(Minimal&, const ForwardCall<float>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] = call.x[i] * call.params[0][i % call.x.cols()];
  }
  void backward(Minimal&, const BackwardCall<float>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      call.dparams[0][i % call.x.cols()] += call.x[i] * call.dy[i];
      call.dx[i] = call.dy[i] * call.params[0][i % call.x.cols()];
    }
  }
};
struct Half {
  double forward(Minimal& context, const LossCall<float>& call) const {
    return forward_backward(context, call);
  }
  double forward_backward(Minimal&, const LossCall<float>& call) const {
    double sum = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const float d = call.x[i] - call.targets[i];
      sum += 0.5 * static_cast<double>(d) * static_cast<double>(d);
      if (!call.dx.empty()) call.dx[i] = d;
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("steps on the host are not captured") {
  Training<> training = made(net);
  CHECK(step(training, Batch(0)));
  CHECK(training.captured_steps() == 0);
}

TEST_CASE("any context on the host and any optimizer will do") {
  const Network small{Sequential<Layer<Scale>, Layer<Scale>>{}, Half{}};
  using Mine = Training<float, Minimal, testing::OptimizerArchetype>;
  auto training = Mine::make(small, Shape(4, 8), {.optimizer = testing::OptimizerArchetype(1)});
  REQUIRE_MESSAGE(training, training.error.text());
  std::vector<float> x(32, 1), y(32, 3);
  double first = 0, last = 0;
  for (int i = 0; i < 50; ++i) {
    const auto outcome = training->step(View<const float>(x.data(), Shape(4, 8)),
                                        View<const float>(y.data(), Shape(4, 8)), 1e-2);
    REQUIRE(outcome);
    (i == 0 ? first : last) = outcome->loss;
  }
  CHECK(last < 1e-3 * first);
}

TEST_CASE("options with which an optimizer would spoil parameters are refused at set-up") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    AnyOptimizer optimizer;
    const char* words;
  } cases[] = {
      {AdamW{.beta1 = 1}, "AdamW: beta1 and beta2 must be 0 or more, and below 1"},
      {AdamW{.beta2 = -0.5F}, "AdamW: beta1 and beta2"},
      {AdamW{.epsilon = 0}, "AdamW: epsilon must be above 0"},
      {AdamW{.weight_decay = nan}, "AdamW: weight decay must be a finite number"},
      {Sgd{.momentum = 1}, "SGD: momentum must be 0 or more, and below 1"},
      {Lion{.beta2 = 2}, "Lion: beta1 and beta2"},
      {Adafactor{.clip = 0}, "Adafactor: decay_power and clip must be above 0"},
  };
  for (const auto& wrong : cases) {
    const auto training =
        Training<float, Cpu, AnyOptimizer>::make(net, Shape(4, 8), {.optimizer = wrong.optimizer});
    CHECK_MESSAGE(says(training.error, wrong.words), training.error.text());
  }
  CHECK(says(Training<>::make(net, Shape(4, 8), {.optimizer = {.beta1 = nan}}).error,
             "AdamW: beta1 must be a finite number"));
}

TEST_CASE("a program that cannot have its memory is refused, and all is as it was") {
  Training<> training = made(net, {.tolerance = 0}), clean = made(net, {.tolerance = 0});
  REQUIRE(step(training, Batch(0)));
  REQUIRE(step(clean, Batch(0)));
  REQUIRE(training.accumulate(Batch(1).input(), Batch(1).targets()));
  Program huge = training.compiled_step().program();
  huge.layout.arena_bytes = std::numeric_limits<std::size_t>::max() / 2;
  const Error why = training.switch_to(std::move(huge));
  CHECK(says(why, "activations: there is no memory for"));
  REQUIRE(training.update(1e-2));  // what was summed is still there
  REQUIRE(step(clean, Batch(1)));
  for (std::uint32_t i = 2; i < 5; ++i) {
    REQUIRE(step(training, Batch(i)));
    REQUIRE(step(clean, Batch(i)));
  }
  CHECK(same(training, clean));
}

namespace {

/// As the planner, but from the second plan on with a codec that no dispatch table has.
int plans_made = 0;
Result<PlanOutcome> plan_strangely(const Graph& graph, const CostProfile& profile,
                                   const PlanRequest& request) {
  Result<PlanOutcome> outcome = make_plan(graph, profile, request);
  static constexpr CodecInfo stranger{
      "stranger", [](std::size_t, std::size_t, Dtype) { return std::size_t{64}; }, true, true, 7};
  if (outcome && ++plans_made > 1) outcome->plan.policies[0] = compress(&stranger);
  return outcome;
}

}  // namespace

TEST_CASE("a change of plan that cannot be made is undone, and said") {
  plans_made = 0;
  const std::size_t whole = retain_bytes();
  Training<> training = made(net, {.tolerance = 0, .planning = {.planner = plan_strangely}});
  Training<> clean = made(net, {.tolerance = 0});
  for (std::uint32_t i = 0; i < 6; ++i) {
    if (i == 2) REQUIRE_FALSE(training.set_budget(whole * 6 / 10));
    REQUIRE(step(training, Batch(i)));
    REQUIRE(step(clean, Batch(i)));
    CHECK(static_cast<bool>(training.boundary().update.failed) == (i == 2));
    if (i == 2) CHECK(says(training.boundary().update.failed, "stranger"));
    CHECK_FALSE(training.boundary().update.changed);
    CHECK(training.evolution()->budget_bytes() == whole);
    CHECK(training.plan().version == 1);
    CHECK(training.peak_bytes() == whole);
  }
  CHECK(same(training, clean));
}

TEST_CASE("with a clock, costs are measured before the first step that a budget limits") {
  const std::size_t whole = retain_bytes();
  Ticks clock;
  // Lossless: what is measured must not show in the bits.
  const auto lossless = [&](std::size_t budget, ClockRef lent) {
    return made(net, {.budget_bytes = budget, .tolerance = 0, .clock = lent});
  };
  Training<> timed = lossless(whole * 6 / 10, clock), plain = lossless(whole * 6 / 10, {});
  Training<> free = lossless(whole, clock);
  const double estimated = timed.evolution()->outcome().seconds;
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (i == 2) REQUIRE_FALSE(free.set_budget(whole * 6 / 10));
    for (Training<>* training : {&timed, &plain, &free}) {
      const auto outcome = step(*training, Batch(i));
      REQUIRE_MESSAGE(outcome, outcome.error.text());
    }
    CHECK(timed.boundary().measured == (i == 0));
    CHECK_FALSE(plain.boundary().measured);
    CHECK(free.boundary().measured == (i == 2));
    CHECK(timed.arena().size() == timed.peak_bytes());
    CHECK(timed.peak_bytes() <= whole * 6 / 10);
    CHECK(free.peak_bytes() <= (i < 2 ? whole : whole * 6 / 10));
  }
  CHECK(free.plan().version == 2);
  CHECK(timed.plan().version == 1);
  CHECK(timed.evolution()->outcome().seconds != estimated);
  CHECK(same(timed, plain));
  CHECK(same(free, plain));
  // Asked for, it is measured before: the first step then does not.
  Training<> asked = lossless(whole * 6 / 10, clock);
  REQUIRE_FALSE(asked.prepare(Batch(0).input(), Batch(0).targets()));
  CHECK(asked.boundary().measured);
  REQUIRE(step(asked, Batch(0)));
  CHECK_FALSE(asked.boundary().measured);
  // A profile that was brought is believed.
  Training<> brought = made(net, {.budget_bytes = whole * 6 / 10,
                                  .clock = clock,
                                  .planning = {.profile = timed.evolution()->profile()}});
  REQUIRE(step(brought, Batch(0)));
  CHECK_FALSE(brought.boundary().measured);
}

TEST_CASE("costs that no arena can be measured in are scaled to the time that steps take") {
  const std::size_t budget = retain_bytes() * 46 / 100;
  for (const bool watched : {true, false}) {
    CAPTURE(watched);
    double time = 0;
    const auto clock = [&] { return time += 7e-3; };  // of a batch, and again of an update
    Training<> training =
        made(net, {.budget_bytes = budget,
                   .clock = clock,
                   .planning = {.watch_times = watched, .deadline_seconds = 1e6}});
    const Evolution& evolution = *training.evolution();
    REQUIRE(least_measuring_bytes(evolution.graph()) > budget);
    const double estimated = evolution.outcome().seconds;
    const double layer = evolution.profile().nodes[1].forward;
    const EvolutionOptions options;
    const std::uint32_t seen =
        static_cast<std::uint32_t>(options.timed_steps) + 2;  // two were watched
    for (std::uint32_t i = 0; i <= seen; ++i) {
      REQUIRE(step(training, Batch(i)));
      REQUIRE_FALSE(training.boundary().measured);
      if (i < seen) CHECK(evolution.outcome().seconds == estimated);
    }
    if (!watched) {
      CHECK(evolution.outcome().seconds == estimated);
      continue;
    }
    CHECK(evolution.outcome().seconds / 14e-3 == doctest::Approx(1));
    CHECK(evolution.profile().nodes[1].forward / layer == doctest::Approx(14e-3 / estimated));
    CHECK(evolution.outcome().retain_seconds < evolution.outcome().seconds);
    CHECK(evolution.outcome().retain_seconds > 1e-3);
    CHECK(evolution.outcome().gap < 0.5);
  }
}

TEST_CASE("errors are probed in a hundredth of the steps, and times measured in one of the time" *
          doctest::test_suite("one_thread")) {
  const std::size_t budget = retain_bytes() * 6 / 10;
  std::uint64_t looked = 0;
  Training<> training = made(net, {.budget_bytes = budget});
  REQUIRE(training.evolution()->outcome().error > 0);
  const double estimated = training.evolution()->outcome().error;
  for (std::uint32_t i = 0; i < (test_sanitized ? 210 : 420); ++i) {
    REQUIRE(step(training, Batch(i % 20), 1e-3));
    if (training.boundary().looked) {
      ++looked;
      CHECK(i % 200 == 0);
      CHECK(i > 0);
    }
  }
  CHECK(looked == (test_sanitized ? 1 : 2));  // two steps for each 200
  double now = 0;
  const CostProfile& seen = training.evolution()->profile();
  const CostProfile guess = estimated_profile(training.evolution()->graph());
  for (std::size_t i = 0; i < guess.codec_costs.size(); ++i)
    now += seen.codec_costs[i].error != guess.codec_costs[i].error ? 1 : 0;
  CHECK(now > 0);
  CHECK(estimated > 0);

  // Steps that become four times as slow: times are measured anew once that takes no more than a
  // hundredth of the time, and not if nobody wants that.
  for (const bool watched : {true, false}) {
    double time = 0, speed = 1;
    const auto clock = [&] { return time += 1e-6 * speed; };
    Training<> slow =
        made(net, {.budget_bytes = budget, .clock = clock, .planning = {.watch_times = watched}});
    std::uint32_t measured = 0;
    for (std::uint32_t i = 0; i < 6000 && measured == 0; ++i) {
      time += 1e-3 * speed;
      if (i == 200) speed = 4;
      REQUIRE(step(slow, Batch(i % 20), 1e-4));
      if (slow.boundary().looked && i > 200 && i % 200 != 0) measured = i;
    }
    CHECK((measured > 200) == watched);
  }
}

}  // namespace training_test
