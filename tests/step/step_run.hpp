// SPDX-License-Identifier: MIT
/// One step of a random network in guarded memory, whole or driven otherwise, and what came of it.
#pragma once

#include <doctest/doctest.h>
#include <adacc/core/block.hpp>

#include <algorithm>
#include <cstdlib>

#include "random_model.hpp"

namespace step_run {

using namespace adacc;

/// Runs tiles in reverse order on made-up worker ids.
struct Backwards {
  int count;
  int workers() const { return count; }
  void run(std::size_t tiles, TileFn tile) const {
    for (std::size_t i = tiles; i-- > 0;) tile(i, static_cast<int>(i) % count);
  }
};

struct Aligned {
  explicit Aligned(std::size_t bytes)
      : block(static_cast<Block<std::byte>&&>(
            *Block<std::byte>::make(align_up(bytes + 1), "a test"))),
        data(block.data()), size(block.size()) {}
  Block<std::byte> block;
  std::byte* data;
  std::size_t size;
};

struct Outcome {
  double loss = 0;
  std::vector<float> gradients;
  std::size_t used = 0;  ///< the end of the last arena byte that changed
  bool guard_intact = true;
};

/// One step in an arena filled with `pattern` and followed by a guard; `drive(step, cpu, input,
/// targets)` runs it and returns its Result<double>.
template <class Drive>
Outcome run_made(Result<Step<>> step, const Program& program, int workers, int pattern,
                 const Drive& drive) {
  Backwards executor{workers};
  Cpu cpu{ExecutorRef(executor)};
  cpu.key.seed = 7;
  REQUIRE_MESSAGE(step, step.error.text());
  const Shape shape = program.graph.input;

  constexpr std::size_t guard = 4096;
  const std::size_t bytes = step->arena_bytes(), elems = step->graph().parameter_elems;
  Aligned arena(bytes + guard), params(elems * 4), gradients(elems * 4);
  std::memset(arena.data, pattern, bytes + guard);
  std::memset(gradients.data, 0, gradients.size);
  auto* p = reinterpret_cast<float*>(params.data);
  for (std::size_t i = 0; i < elems; ++i) p[i] = 0.01F * static_cast<float>(i % 13) - 0.05F;
  std::vector<float> input(shape.elems()), targets(step->graph().loss.targets.elems());
  for (std::size_t i = 0; i < input.size(); ++i)
    input[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = 0.3F;

  const Error bound = step->bind({arena.data, Shape(bytes)}, {p, Shape(elems)},
                                 {reinterpret_cast<float*>(gradients.data), Shape(elems)});
  REQUIRE_MESSAGE(!bound, bound.text());
  const Result<double> loss = drive(*step, cpu, View<const float>(input.data(), shape),
                                    View<const float>(targets.data(), step->graph().loss.targets));
  REQUIRE_MESSAGE(loss, loss.error.text());

  Outcome outcome;
  outcome.loss = *loss;
  const auto* g = reinterpret_cast<const float*>(gradients.data);
  outcome.gradients.assign(g, g + elems);
  for (std::size_t i = 0; i < bytes + guard; ++i) {
    if (arena.data[i] == static_cast<std::byte>(pattern)) continue;
    if (i < bytes) outcome.used = i + 1;
    else outcome.guard_intact = false;
  }
  return outcome;
}

/// The same of `program` of `network`.
template <class Net, class Drive>
Outcome run_program(const Net& network, const Program& program, int workers, int pattern,
                    const Drive& drive) {
  return run_made(Step<>::make(network, program), program, workers, pattern, drive);
}

template <class Drive>
Outcome run_step(const random_model::Network& network, Shape shape, int workers, int parts,
                 int pattern, const Drive& drive) {
  auto program = make_program(network, shape, {.workers = workers, .parts = parts});
  REQUIRE_MESSAGE(program, program.error.text());
  return run_program(network, *program, workers, pattern, drive);
}

/// All of it at once.
constexpr auto whole = [](Step<>& step, Cpu& cpu, View<const float> input,
                          View<const float> targets) { return step.run(cpu, input, targets); };

inline Outcome run_step(const random_model::Network& network, Shape shape, int workers, int parts,
                        int pattern) {
  return run_step(network, shape, workers, parts, pattern, whole);
}

inline std::size_t predicted(const random_model::Network& network, Shape shape, int workers,
                             int parts) {
  return make_program(network, shape, {.workers = workers, .parts = parts})->peak_bytes();
}

inline bool same_bits(const Outcome& a, const Outcome& b) {
  return a.gradients.size() == b.gradients.size() &&
         (a.gradients.empty() || std::memcmp(a.gradients.data(), b.gradients.data(),
                                             a.gradients.size() * sizeof(float)) == 0) &&
         std::memcmp(&a.loss, &b.loss, sizeof a.loss) == 0;
}

}  // namespace step_run
