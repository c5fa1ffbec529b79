// SPDX-License-Identifier: MIT
/// A network whose layers take as long as tests say on a clock that is made up, data parallel runs of it,
/// and what they come to.
#pragma once

#include <doctest/doctest.h>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/policy/retain.hpp>
#include <adacc/ranks/data_parallel/data_parallel.hpp>
#include <adacc/ranks/thread_group.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace slow_network {

using namespace adacc;
using Member = ThreadGroup::Member;
using Parallel = DataParallel<>;
using Options = Parallel::Options;
using plain::Linear;
using plain::Tanh;

/// This rank's clock, which moves as layers say.
inline thread_local double now = 0;
/// What one forward of the first and the second kind of slow layer takes on this rank.
inline thread_local double takes[2] = {};
struct Clock {
  double operator()() const { return now; }
};
inline const Clock made_up_clock;

/// Passes on what it gets, and takes its time.
template <int kind>
struct Slow {
  static constexpr auto backward_reads = reads::none;
  static void forward(Cpu&, View<const float> x, View<float> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i];
    now += takes[kind];
  }
  static void backward(Cpu&, View<const float> dy, View<float> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i];
    now += 1e-4;
  }
};

/// Linear layers read what slow ones make, which can be made again from what Tanh left; all else stays.
using Dense = Layer<Linear, Retain>;
using Bend = Layer<Tanh, Retain>;
using Net = Network<Sequential<Dense, Bend, Layer<Slow<0>>, Dense, Bend, Layer<Slow<1>>, Dense,
                               Bend, Dense, Bend, Dense>,
                    plain::MeanSquaredError>;
inline const Shape shape(16, 8), target_shape(16, 1);
inline const Linear hidden{.out = 24};
inline const Net net{
    {{hidden}, {}, {}, {hidden}, {}, {}, {hidden}, {}, {hidden}, {}, {Linear{.out = 1}}}, {}};
inline constexpr int first_slow = 2, second_slow = 5;  // activations

/// The peak of the plan that makes one activation again.
inline std::size_t bytes_without(int activation, bool fused) {
  auto graph = make_graph(net, shape);
  if (fused) set_updates(*graph, Updates::fused);
  Plan plan = retain_all(*graph);
  plan.policies[static_cast<std::size_t>(activation)] = recompute();
  return peak_bytes(*graph, plan);
}

/// A budget for which one of the two has to be made again; gradients of steps may be in the arena.
inline Options options(bool fused = false) {
  return {
      .budget_bytes = std::max(bytes_without(first_slow, fused), bytes_without(second_slow, fused)),
      .tolerance = 0,
      .clock = made_up_clock,
      .seed = 3,
      .clip = 0.05,
      .planning =
          {.evolution = {.check_every = 4, .first_probe = 0, .checks = 1, .timed_steps = 2}},
      .model = "slow"};
}

struct Batch {
  Shape in, out;
  std::vector<float> x, y;
  Batch(std::size_t number, Shape input, Shape target)
      : in(input), out(target), x(in.elems()), y(out.elems()) {
    const RandomKey key{.seed = 5, .step = static_cast<std::uint32_t>(number)};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2 * unit_float(random_word(key, i)) - 1;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i * x.size() / y.size()] / 4;
  }
  View<const float> input() const { return {x.data(), in}; }
  View<const float> targets() const { return {y.data(), out}; }
};

/// What a run comes to.
struct Run {
  std::vector<double> numbers;                   ///< loss and norm of each update
  std::vector<std::string> plans;                ///< behind each
  std::vector<std::vector<PlanChange>> changes;  ///< before each
  std::vector<float> params;
  std::string refused;
  int measured = 0, looked = 0;  ///< boundaries
  Error error;
};

inline bool same_bits(const Run& a, const Run& b) {
  return !a.error && !b.error && a.numbers.size() == b.numbers.size() && !a.params.empty() &&
         a.params.size() == b.params.size() &&
         std::memcmp(a.numbers.data(), b.numbers.data(), 8 * a.numbers.size()) == 0 &&
         std::memcmp(a.params.data(), b.params.data(), 4 * a.params.size()) == 0;
}

inline void update(Parallel& parallel, std::size_t number, Run& run) {
  const Shape input = parallel.training().compiled_step().graph().input;
  for (int i = 0; i < parallel.shard_count(); ++i) {
    const Batch batch(number * static_cast<std::size_t>(parallel.shards()) +
                          static_cast<std::size_t>(parallel.shard(i)),
                      input, input == shape ? target_shape : input);
    const auto loss = parallel.accumulate(batch.input(), batch.targets());
    if (!loss) return static_cast<void>(run.error = loss.error);
  }
  const PlanBoundary& boundary = parallel.training().boundary();
  const auto outcome = parallel.update(1e-2);
  if (!outcome) return static_cast<void>(run.error = outcome.error);
  run.numbers.push_back(outcome->loss);
  run.numbers.push_back(outcome->grad_norm);
  const Training<>& training = parallel.training();
  run.plans.push_back(plan_text(training.compiled_step().graph(), training.plan()));
  run.changes.emplace_back(boundary.update.changes.begin(), boundary.update.changes.end());
  run.measured += boundary.measured ? 1 : 0;
  run.looked += boundary.looked ? 1 : 0;
  if (boundary.update.failed) run.refused = boundary.update.failed.text();
  CHECK(boundary.update.changed == !boundary.update.changes.empty());
  CHECK(parallel.training().arena().size() == training.peak_bytes());
  CHECK(parallel.memory_use().arena == training.peak_bytes());
  CHECK(std::string(plan_text(training.compiled_step().graph(), training.evolution()->plan())) ==
        run.plans.back());
  const View<const float> params = training.params();
  run.params.assign(params.begin(), params.end());
}

/// body(member) of every rank, in the order of ranks.
template <class Body>
auto on_ranks(ThreadGroup& group, const Body& body) {
  std::vector<decltype(body(std::declval<Member&>()))> made(static_cast<std::size_t>(group.size()));
  run_ranks(group, [&](Member& member) {
    now = 1;
    takes[0] = 1e-3, takes[1] = 2e-3;
    made[static_cast<std::size_t>(member.rank())] = body(member);
  });
  return made;
}

}  // namespace slow_network
