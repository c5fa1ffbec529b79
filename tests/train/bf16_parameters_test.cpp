// SPDX-License-Identifier: MIT
// Parameters in bfloat16: steps compute what they compute on the same numbers in full, updates round by
// key alone, and everything that a training does with parameters does it with these.
#include <doctest/doctest.h>

#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/adafactor.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/lion.hpp>
#include <adacc/optimizer/sgd.hpp>
#include <adacc/step/cursor.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../step/arena_use.hpp"
#include "support.hpp"

namespace bf16_parameters_test {

using namespace adacc;
using train_test::Folder;
using train_test::state_of;
using Trained = Training<float, Cpu, AnyOptimizer>;
using Options = TrainingOptions<Cpu, AnyOptimizer>;

namespace {

// The head takes two blocks of words, and moments of the table pass through a window in two pieces.
constexpr std::size_t sequences = 4, time = 8, vocab = 2101;
constexpr gpt::Config config{2, 2, 20, time, vocab};
const auto net = gpt::make(config);

struct Batch : train_test::TokenBatch {
  explicit Batch(std::size_t number) : TokenBatch(number, Shape(sequences, time), vocab) {}
};

struct Case {
  AnyOptimizer optimizer = AdamW{};
  const char* policy = "retain";
  int parts = 1;
  const char* trained = nullptr;
};

train_test::Backwards executor;

TrainedSet trained_of(const Case& of) {
  const auto all = gpt::graph(config, sequences, time, 3);
  REQUIRE_MESSAGE(all, all.error.text());
  return *trained_by_name(*all, of.trained == nullptr ? "*" : of.trained);
}

Graph graph_of(const Case& of, ParameterForm form, Updates updates = Updates::separate) {
  const TrainedSet set = trained_of(of);
  gpt::Tuning tuning;
  tuning.trained = &set;
  auto graph = gpt::graph(config, sequences, time, 3, of.parts, tuning);
  REQUIRE_MESSAGE(graph, graph.error.text());
  set_updates(*graph, updates);
  set_parameters(*graph, form);
  return *graph;
}

Program program_of(const Case& of, ParameterForm form, Updates updates = Updates::separate) {
  const TrainedSet set = trained_of(of);
  gpt::Tuning tuning;
  tuning.trained = &set;
  auto program = make_program(graph_of(of, form, updates),
                              gpt::named_plan(of.policy, config, sequences, time, tuning));
  REQUIRE_MESSAGE(program, program.error.text());
  return *program;
}

Dispatch<float, Cpu> dispatch() {
  auto made = make_dispatch<float, Cpu>(net);
  made.add_codec<Int8Outlier>();
  made.add_codec<Int4Outlier>();
  return made;
}

Result<Trained> try_to_make(const Case& of, ParameterForm form, Updates updates = Updates::separate,
                            const MomentStore& store = {}) {
  Cpu cpu{ExecutorRef(executor)};
  cpu.key.seed = 3;
  return Trained::make(dispatch(), program_of(of, form, updates), cpu, 0, of.optimizer, store);
}

Trained made(const Case& of, ParameterForm form, Updates updates = Updates::separate,
             const MomentStore& store = {}) {
  auto training = try_to_make(of, form, updates, store);
  REQUIRE_MESSAGE(training, training.error.text());
  return std::move(*training);
}
Trained made_short(const Case& of, Updates updates = Updates::separate,
                   const MomentStore& store = {}) {
  return made(of, ParameterForm::bf16, updates, store);
}

TrainingOutcome step(Trained& training, std::size_t number) {
  const Batch batch(number);
  const auto outcome = training.step(batch.input(), batch.targets(), 1e-2);
  REQUIRE_MESSAGE(outcome, outcome.error.text());
  CHECK(outcome->finite);
  return *outcome;
}

/// The same numbers.
void copy(const Trained& from, Trained& to) {
  const View<const bfloat16> held = from.params_in_bf16();
  REQUIRE(held.size() == to.params().size());
  for (std::size_t i = 0; i < held.size(); ++i) to.params()[i] = to_float(held[i]);
}

template <class T>
bool equal(View<T> a, View<T> b) {
  // Fused updates leave no block of gradients, and memcmp() takes no null pointer.
  return a.size() == b.size() &&
         (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

bool same(Trained& a, Trained& b) {
  return a.updates() == b.updates() && state_of(a) == state_of(b) &&
         equal(a.params(), b.params()) && equal(a.params_in_bf16(), b.params_in_bf16());
}

bool says(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

/// A millisecond between any two looks at it.
struct Ticking {
  double time = 0;
  double operator()() { return time += 1e-3; }
};

const Case cases[] = {
    {AdamW{.weight_decay = 0.1F}, "retain"},
    {AdamWWith<Int8Moments>{.weight_decay = 0.1F}, "recompute", 4},
    {Sgd{.momentum = 0.9F}, "tolerated", 1, "*.bias,block.1,head"},
    {Lion{}, "int8", 4, "block.0.*weight"},
};

}  // namespace

TEST_CASE("a step has the bits of one whose parameters are the same numbers in full") {
  for (const Case& of : cases) {
    CAPTURE(of.policy);
    Trained held = made_short(of), full = made(of, ParameterForm::full);
    copy(held, full);
    CHECK(held.params().size() == 0);
    if (of.parts > 1) CHECK_FALSE(held.compiled_step().program().schedule.loops.empty());
    for (std::size_t i = 0; i < 2; ++i) {  // two micro-batches
      const Batch batch(i);
      const auto a = held.accumulate(batch.input(), batch.targets());
      const auto b = full.accumulate(batch.input(), batch.targets());
      REQUIRE(a);
      REQUIRE(b);
      CHECK(*a == *b);
    }
    CHECK(equal(held.gradients(), full.gradients()));
    const auto a = held.update(1e-2), b = full.update(1e-2);
    REQUIRE(a);
    REQUIRE(b);
    CHECK(a->grad_norm == b->grad_norm);

    // What the update makes of them is then rounded, by bits that follow from seed, update, parameter
    // and element.
    const Graph& graph = held.compiled_step().graph();
    std::size_t moved = 0;
    std::uint32_t number = 0;
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
      const Parameter& parameter = graph.parameters[p];
      const float* const values = full.params().data() + parameter.offset;
      const bfloat16* const rounded = held.params_in_bf16().data() + parameter.offset;
      const RandomKey key =
          RandomKey{.seed = 3, .step = 1}.with_purpose(Purpose::parameters).with_activation(number);
      if (!parameter.frozen) ++number;
      if (!parameter.owner) continue;
      for (std::size_t i = 0; i < parameter.shape.elems(); ++i) {
        const RandomHalves random(key, i / moment_lanes * moment_lanes);
        const bfloat16 expected = parameter.frozen
                                      ? to_bfloat16(values[i])
                                      : to_bfloat16(values[i], random.get<0>(i % moment_lanes));
        if (!(rounded[i] == expected)) FAIL(parameter.name << " " << i);
        if (!(rounded[i] == to_bfloat16(values[i]))) ++moved;
      }
    }
    CHECK(moved > 100);  // these would be elsewhere if they were rounded to the nearest
    CHECK(state_of(held) == state_of(full));
  }
}

TEST_CASE("fused updates, slices and moments in a store have the bits of separate updates") {
  for (const Case& of : cases) {
    CAPTURE(of.policy);
    const Graph graph = graph_of(of, ParameterForm::bf16, Updates::fused);
    MomentWindow window{4096};  // the least that they pass through
    auto beside = memory_beside_arena(graph, of.optimizer, window);
    for (; !beside; window.bytes += 4096)
      beside = memory_beside_arena(graph, of.optimizer, {window.bytes + 4096});
    std::vector<std::byte> memory(beside->stored);
    MemoryStore store(Bytes(memory.data(), Shape(memory.size())));
    Trained separate = made_short(of), fused = made_short(of, Updates::fused),
            sliced = made_short(of, Updates::fused),
            stored = made_short(of, Updates::fused, {store, window});
    for (std::size_t i = 0; i < 3; ++i) {
      const TrainingOutcome a = step(separate, i), b = step(fused, i), c = step(stored, i);
      CHECK(a.loss == b.loss);
      CHECK(a.loss == c.loss);
      Cursor<>* const cursor = &sliced.cursor();
      const Batch batch(i);
      REQUIRE_FALSE(sliced.begin(batch.input(), batch.targets(), 1e-2));
      while (cursor->active()) REQUIRE(cursor->run(sliced.context(), 1 + i));
      REQUIRE(sliced.update(1e-2));
    }
    CHECK(same(separate, fused));
    CHECK(same(separate, sliced));
    CHECK(same(separate, stored));
  }
}

TEST_CASE("bytes are exact") {
  for (const Case& of : cases)
    for (const Updates updates : {Updates::separate, Updates::fused}) {
      CAPTURE(of.policy);
      Trained held = made_short(of, updates), full = made(of, ParameterForm::full, updates);
      const TrainingMemoryUse a = held.memory_use(), b = full.memory_use();
      CHECK(2 * a.parameters == b.parameters);
      CHECK(a.moments == b.moments);
      CHECK(a.gradients == b.gradients);
      CHECK(a.arena == held.compiled_step().program().layout.arena_bytes);
      auto step = Step<>::make(dispatch(), program_of(of, ParameterForm::bf16, updates));
      REQUIRE(step);
      REQUIRE_FALSE(step->lend_updates(detail::use_no_gradients));
      Cpu cpu{ExecutorRef(executor)};
      const Batch batch(0);
      check_arena_use(*step, cpu, batch.input(), batch.targets());
    }
  // There and back.
  const Graph plain = graph_of({}, ParameterForm::full);
  Graph graph = graph_of({}, ParameterForm::bf16);
  CHECK(peak_bytes(graph, retain_all(graph)) > peak_bytes(plain, retain_all(plain)));
  set_parameters(graph, ParameterForm::bf16);
  CHECK(graph.parameter_bytes() == 2 * plain.parameter_elems);
  set_parameters(graph, ParameterForm::full);
  CHECK(peak_bytes(graph, retain_all(graph)) == peak_bytes(plain, retain_all(plain)));
}

TEST_CASE("a run goes on bit for bit from a checkpoint, and from one in the other form") {
  const Folder folder;
  for (const Case& of : cases) {
    CAPTURE(of.policy);
    Trained whole = made_short(of), resumed = made_short(of, Updates::fused),
            full = made(of, ParameterForm::full), back = made_short(of);
    step(whole, 0);
    REQUIRE_FALSE(whole.save(folder / "held"));
    step(resumed, 7);
    REQUIRE_MESSAGE(resumed.load(folder / "held", Restore::numbers), "");
    CHECK(same(whole, resumed));
    // To full they are exact, and from full the nearest.
    REQUIRE(full.load(folder / "held"));
    Trained other = made(of, ParameterForm::full);
    copy(whole, other);
    CHECK(equal(full.params(), other.params()));
    CHECK(state_of(full) == state_of(whole));
    REQUIRE_FALSE(full.save(folder / "full"));
    REQUIRE(back.load(folder / "full"));
    CHECK(same(whole, back));
    full.params()[5] = 1 + 1.F / 512;  // between two numbers, nearer to the lower
    full.params()[6] = 1 + 1.F / 160;
    REQUIRE_FALSE(full.save(folder / "full"));
    REQUIRE(back.load(folder / "full"));
    CHECK(to_float(back.params_in_bf16()[5]) == 1);
    CHECK(to_float(back.params_in_bf16()[6]) == 1 + 1.F / 128);

    step(whole, 1);
    step(resumed, 1);
    CHECK(same(whole, resumed));
  }
}

TEST_CASE("a total budget knows them, and plans are measured and probed on them") {
  Ticking clock;
  Options options{.seed = 3, .graph = {.updates = Updates::fused}};
  options.graph.parts = 4;
  auto graph =
      make_graph(net, Shape(sequences, time),
                 {.parts = 4, .updates = Updates::fused, .parameters = ParameterForm::bf16});
  REQUIRE(graph);
  const auto beside = memory_beside_arena(*graph, options.optimizer);
  const auto smallest = smallest_peak(*graph, estimated_profile(*graph), {.budget_bytes = 1});
  REQUIRE(beside);
  REQUIRE(smallest);
  options.graph.parameters = ParameterForm::bf16;
  options.total_bytes = beside->total() + *smallest - 1;
  CHECK(says(Trained::make(net, Shape(sequences, time), options).error, "too small"));
  ++options.total_bytes;
  auto training = Trained::make(net, Shape(sequences, time), options);
  REQUIRE_MESSAGE(training, training.error.text());
  CHECK(training->memory_use().total() == options.total_bytes);
  options.total_bytes += 64 * KiB;
  step(*training, 0);

  options.clock = clock;
  options.planning.profile_at_start = true;
  auto measured = Trained::make(net, Shape(sequences, time), options);
  REQUIRE_MESSAGE(measured, measured.error.text());
  step(*measured, 0);
  CHECK(measured->boundary().measured);
  CHECK(equal(measured->params_in_bf16(), training->params_in_bf16()));
}

TEST_CASE("layers that read by rows find them aligned as in a block in full") {
  Parameter table[2];
  table[0].shape = Shape(3, 5);
  table[1].shape = Shape(7, 11);
  table[1].offset = padded_elems(table[0].shape, Dtype::f32);
  const std::size_t elems = table[1].offset + padded_elems(table[1].shape, Dtype::f32);
  auto held = Block<bfloat16>::make(elems, "held");
  auto full = Block<float>::make(elems, "full");
  auto window = Block<float>::make(Params<float>::window_bytes(2 * 11, Dtype::f32) / 4, "window");
  for (std::size_t i = 0; i < elems; ++i) {
    (*held)[i] = to_bfloat16(static_cast<float>(i));
    (*full)[i] = to_float((*held)[i]);
  }
  Cpu cpu;
  const Params<const float> short_ones(window->data(), std::as_const(*held).data(), table, 2),
      long_ones(full->data(), table, 2);
  CHECK(short_ones.in_bf16());
  CHECK_FALSE(long_ones.in_bf16());
  for (std::size_t first = 0; first < 6; ++first) {
    const float* const a = short_ones.rows(cpu, 1, first, 2);
    const float* const b = long_ones.rows(cpu, 1, first, 2);
    CHECK(std::memcmp(a, b, 2 * 11 * sizeof(float)) == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(a) % alignment ==
          reinterpret_cast<std::uintptr_t>(b) % alignment);
    CHECK(a + 2 * 11 <= window->data() + window->size());
    CHECK(to_float(*short_ones.bf16_row(1, first)) == *b);
  }
}

TEST_CASE("what does not go with them is refused in words") {
  CHECK(says(try_to_make({Adafactor{}}, ParameterForm::bf16).error, "elementwise"));
  Trained held = made_short({});
  CHECK(says(held.switch_to(program_of({}, ParameterForm::full)), "same form"));
  auto step = Step<>::make(dispatch(), program_of({}, ParameterForm::full));
  REQUIRE(step);
  CHECK(says(step->bind(held.arena(), held.parameters(), held.gradients()),
             "held in f32, and got bf16"));
}

}  // namespace bf16_parameters_test
