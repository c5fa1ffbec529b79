// SPDX-License-Identifier: MIT
/// A small GPT with its memory and a fixed batch: what measuring and probing are tested on.
#pragma once

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/training.hpp>

#include <cstring>
#include <vector>

namespace small_gpt {

using namespace adacc;

struct Run {
  static constexpr std::size_t batch = 2, time = 24, vocab = 50;

  explicit Run(int layers = 3, std::size_t channels = 16)
      : config{layers, 2, channels, time, vocab}, net(gpt::make(config)), tokens(batch * time) {
    cpu.key.seed = 3;
    auto program = make_program(net, Shape(batch, time));
    REQUIRE_MESSAGE(program, program.error.text());
    auto made = Training<>::make(net, *program, cpu);
    REQUIRE_MESSAGE(made, made.error.text());
    training = std::move(*made);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(random_word({.seed = 9}, i) % vocab);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  View<const std::int32_t> view() const { return {tokens.data(), Shape(batch, time)}; }
  const Graph& graph() const { return training.compiled_step().graph(); }
  Dispatch<float, Cpu> dispatch() const { return make_dispatch<float, Cpu>(net); }

  /// One step of AdamW; the loss.
  double step() {
    const auto outcome = training.step(view(), view(), 1e-2);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    return outcome->loss;
  }

  struct Ran {
    double loss = 0;
    std::vector<float> gradient;
  };

  /// One step under `plan`, without the update.
  Ran run(const Plan& plan) { return run(graph(), plan); }
  /// The same of a graph that may be in parts.
  Ran run(const Graph& of, const Plan& plan) {
    auto program = make_program(of, plan);
    REQUIRE_MESSAGE(program, program.error.text());
    auto step = Step<>::make(dispatch(), *program);
    REQUIRE_MESSAGE(step, step.error.text());
    auto arena = Block<std::byte>::make(step->arena_bytes(), "arena");
    auto grads = Block<float>::make(graph().parameter_elems, "gradients");
    REQUIRE_FALSE(
        step->bind({arena->data(), Shape(arena->size())}, training.params(), grads->view()));
    Cpu context = training.context();
    const auto loss = step->run(context, view(), view());
    REQUIRE_MESSAGE(loss, loss.error.text());
    return {*loss, {grads->data(), grads->data() + grads->size()}};
  }
  std::vector<float> gradient(const Plan& plan) { return run(plan).gradient; }

  gpt::Config config;
  gpt::Gpt<gpt::RetainSet> net;
  Cpu cpu;
  Training<> training;
  std::vector<std::int32_t> tokens;
};

inline std::vector<float> copy(View<float> view) { return {view.begin(), view.end()}; }

inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline double squared_norm(const std::vector<float>& g) {
  double sum = 0;
  for (const float x : g) sum += double{x} * double{x};
  return sum;
}

inline double squared_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - double{b[i]};
    sum += d * d;
  }
  return sum;
}

}  // namespace small_gpt
