// SPDX-License-Identifier: MIT
/// A training step allocates nothing after set-up, under every policy and on several threads, whole
/// or in micro-batches, evaluation included.
///
/// The C allocation functions are interposed, because Eigen bypasses operator new.
#include <doctest/doctest.h>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/train/forward_only.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/trainer.hpp>

#include <support/count_allocations.hpp>

#include <vector>

#include "../train/uneven_net.hpp"

using namespace adacc;

TEST_CASE("the interposed functions see Eigen's and our own allocations") {
  const long before = allocations;
  auto block = Block<float>::make(100, "test");
  CHECK(allocations == before + 1);
  Eigen::MatrixXf matrix = Eigen::MatrixXf::Zero(64, 64);
  CHECK(allocations == before + 2);
}

namespace {

const gpt::Config config{2, 3, 48, 80, 256};
constexpr std::size_t batch = 3, seq = 70;
std::int32_t tokens[batch * seq + 1];

View<const std::int32_t> inputs() { return {tokens, Shape(batch, seq)}; }
View<const std::int32_t> targets() { return {tokens + 1, Shape(batch, seq)}; }

/// The allocations of some steps.
long count(Training<>& training) {
  const long before = allocations;
  bool fine = true;
  for (int i = 0; i < 3; ++i) {
    const auto outcome = training.step(inputs(), targets(), 1e-3);
    fine = fine && outcome && outcome->finite;
    for (int k = 0; k < 2; ++k) fine = fine && training.accumulate(inputs(), targets());
    fine = fine && training.update(1e-3);
  }
  const long after = allocations;
  CHECK(fine);
  return after - before;
}

/// The network evaluates, answers and is trained in slices without an allocation, from the first call on.
template <Trainer Trained>
void count_passes(Trained& training) {
  static float answers[batch * seq * 48];
  const View<float> output(answers, Shape(batch, seq, 48));
  const auto now = [] { return std::int64_t{}; };
  const long before = allocations;
  const auto loss = training.evaluate(inputs(), targets());
  const Error inferred = training.infer(inputs(), output);
  const Error begun = training.begin(inputs(), targets());
  const auto slice = training.slice(now, 1);
  const auto outcome = training.update(1e-6);
  CHECK(allocations == before);
  CHECK(loss);
  CHECK_MESSAGE(!inferred, inferred.text());
  CHECK_FALSE(begun);
  CHECK(slice);
  CHECK(outcome);
}

}  // namespace

TEST_CASE("a step allocates nothing, all policies, 1 to 3 threads") {
  for (std::size_t i = 0; i < batch * seq + 1; ++i)
    tokens[i] = static_cast<std::int32_t>(i * i % 251);
  const auto net = gpt::make(config);
  for (int threads = 1; threads <= 3; ++threads) {
    CAPTURE(threads);
    EigenPool pool(threads);
    Cpu cpu{ExecutorRef(pool)};
    const auto graph = gpt::graph(config, batch, seq, threads);
    REQUIRE(graph);
    auto evaluate = Step<>::make(net, *make_program(*graph, retain_all(*graph), Mode::evaluate));
    REQUIRE(evaluate);
    for (const char* policy : {"retain", "recompute", "int8", "mixed"}) {
      CAPTURE(policy);
      auto dispatch = make_dispatch<float, Cpu>(net);
      dispatch.add_codec<Int8Outlier>();
      auto program = make_program(*graph, gpt::named_plan(policy, config, batch, seq));
      REQUIRE(program);
      auto training = Training<>::make(dispatch, *program, cpu, evaluate->arena_bytes());
      REQUIRE_MESSAGE(training, training.error.text());
      REQUIRE_FALSE(evaluate->bind(training->arena(), training->params()));
      CHECK(count(*training) == 0);
      const long before = allocations;
      const auto loss = evaluate->run(cpu, inputs(), targets());
      CHECK(allocations == before);
      CHECK(loss);
      count_passes(*training);
    }
    // Nor does one whose plan is kept for it, but does not evolve.
    auto planned =
        Training<>::make(net, Shape(batch, seq),
                         {.context = Cpu(ExecutorRef(pool)), .planning = {.evolving = false}});
    REQUIRE_MESSAGE(planned, planned.error.text());
    CHECK(count(*planned) == 0);
    // Nor one that sends activations to a store, as they are or encoded.
    Plan away = retain_all(*graph);
    for (std::size_t k = 0; k + 1 < graph->nodes.size(); ++k)
      away.policies[k] =
          k % 3 == 0 ? keep(Form{&codec_info<Int8Outlier>, Place::store}) : offload();
    auto sends = make_program(*graph, away);
    REQUIRE_MESSAGE(sends, sends.error.text());
    CHECK(sends->schedule.transfers.size() > 10);
    auto large = Block<std::byte>::make(sends->schedule.store_bytes, "a store", huge_page);
    MemoryStore far(large->view());
    far.hostile = true;
    auto dispatch = make_dispatch<float, Cpu>(net);
    dispatch.add_codec<Int8Outlier>();
    auto sending = Training<>::make(dispatch, *sends, cpu, 0, AdamW{}, {}, far);
    REQUIRE_MESSAGE(sending, sending.error.text());
    CHECK(count(*sending) == 0);
    CHECK(far.begun() == 9 * 2 * sends->schedule.transfers.size());
    // Nor one whose moments are in a store.
    auto room = Block<std::byte>::make(2 * MiB, "a store", huge_page);
    MemoryStore store(room->view());
    auto stored = Training<>::make(net, *make_program(*graph, retain_all(*graph)), cpu, 0, AdamW{},
                                   {store, {}});
    REQUIRE_MESSAGE(stored, stored.error.text());
    CHECK(count(*stored) == 0);
    auto forward = ForwardOnly<>::make(net, Shape(batch, seq),
                                       {.directions = 2, .context = Cpu(ExecutorRef(pool))});
    REQUIRE_MESSAGE(forward, forward.error.text());
    const long before = allocations;
    const auto outcome = forward->step(inputs(), targets(), 1e-6);
    CHECK(allocations == before);
    CHECK(outcome);
    count_passes(*forward);
  }
}

TEST_CASE("a step that declines what codecs lose allocates nothing, whatever becomes of it") {
  using namespace uneven_net;
  uneven_from = 0;
  std::vector<float> x(shape.elems());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
  const View<const float> batch_of(x.data(), shape);
  DeclinedCounts all;
  for (const int parts : {1, 3})
    // The layout's own room, and as much as nothing else has: an arena that borrowers made larger.
    for (const std::size_t more : {std::size_t{0}, 7 * KiB, 64 * KiB}) {
      CAPTURE(parts);
      CAPTURE(more);
      auto program = make_program(net<Compress<Rough>>, shape, {.parts = parts});
      REQUIRE(program);
      program->layout.arena_bytes += more;
      auto training = Training<>::make(net<Compress<Rough>>, *program);
      REQUIRE_MESSAGE(training, training.error.text());
      const long before = allocations;
      bool fine = true;
      for (int i = 0; i < 3; ++i) {
        const auto outcome = training->step(batch_of, batch_of, 1e-3);
        fine = fine && outcome && outcome->declined.total() >= 4;
        if (outcome) all = all + outcome->declined;
      }
      CHECK(allocations == before);
      CHECK(fine);
    }
  CHECK(all.exactly > 0);
  CHECK(all.milder > 0);
  CHECK(all.over_bound > 0);
}
