// SPDX-License-Identifier: MIT
/// Random networks under random plans that send activations away, and steps of them in memory of their own.
#pragma once

#include <doctest/doctest.h>

#include <adacc/core/block.hpp>
#include <adacc/store/store.hpp>

#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "step_run.hpp"

namespace offload_case {

using namespace adacc;
using step_run::Backwards;

/// Memory that starts where transfers can.
struct Paged {
  explicit Paged(std::size_t bytes)
      : size((bytes / transfer_alignment + 2) * transfer_alignment),
        block(static_cast<Block<std::byte>&&>(
            *Block<std::byte>::make(size, "a test", transfer_alignment))),
        data(block.data()) {}
  std::size_t size;
  Block<std::byte> block;
  std::byte* data;
};

/// Any mixture of policies that lose nothing.
inline Plan draw_plan(std::mt19937& random, const Graph& graph) {
  Plan plan = retain_all(graph);
  for (Policy& policy : plan.policies) {
    const Policy choices[] = {retain(), offload(),
                              keep({&codec_info<random_model::Verbatim>, Place::store}),
                              compress(&codec_info<random_model::Verbatim>), recompute()};
    policy = choices[random() % 5];
  }
  return plan;
}

struct Ran {
  Result<double> loss;
  std::vector<float> gradients;
  std::size_t used = 0;
  bool guard_intact = true;
};

inline Dispatch<float, Cpu> dispatch_of(const random_model::Network& network) {
  auto dispatch = make_dispatch<float, Cpu>(network);
  dispatch.add_codec<random_model::Verbatim>();
  return dispatch;
}

/// A step with memory of its own, that may run more than once.
class Bound {
 public:
  Bound(const random_model::Network& network, const Program& program, ExecutorRef executor,
        int pattern, StoreRef store)
      : Bound(dispatch_of(network), program, executor, pattern, store) {}

  Bound(Dispatch<float, Cpu> dispatch, const Program& program, ExecutorRef executor, int pattern,
        StoreRef store)
      : cpu_{executor}, pattern_(static_cast<std::byte>(pattern)),
        arena_(program.peak_bytes() + guard), params_(program.graph.parameter_elems * 4),
        gradients_(params_.size), input_(program.graph.input.elems()),
        targets_(program.graph.loss.targets.elems(), 0.3F) {
    cpu_.key.seed = 7;
    auto step = Step<>::make(std::move(dispatch), program);
    REQUIRE_MESSAGE(step, step.error.text());
    step_ = std::move(*step);
    std::memset(arena_.data, pattern, arena_.size);
    const std::size_t elems = step_.graph().parameter_elems;
    auto* p = reinterpret_cast<float*>(params_.data);
    for (std::size_t i = 0; i < elems; ++i) p[i] = 0.01F * static_cast<float>(i % 13) - 0.05F;
    for (std::size_t i = 0; i < input_.size(); ++i)
      input_[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
    const Error bound =
        step_.bind({arena_.data, Shape(step_.arena_bytes())}, {p, Shape(elems)},
                   {reinterpret_cast<float*>(gradients_.data), Shape(elems)}, store);
    REQUIRE_MESSAGE(!bound, bound.text());
  }

  Step<>& step() { return step_; }
  Cpu& cpu() { return cpu_; }
  View<const float> input() const { return {input_.data(), step_.graph().input}; }
  View<const float> targets() const { return {targets_.data(), step_.graph().loss.targets}; }

  /// `drive(step, cpu, input, targets)` runs a step, from gradients that are zero.
  template <class Drive>
  Ran run(const Drive& drive) {
    std::memset(gradients_.data, 0, gradients_.size);
    Ran ran;
    ran.loss = drive(step_, cpu_, input(), targets());
    const auto* g = reinterpret_cast<const float*>(gradients_.data);
    ran.gradients.assign(g, g + step_.graph().parameter_elems);
    const std::size_t bytes = step_.arena_bytes();
    for (std::size_t i = 0; i < bytes + guard; ++i) {
      if (arena_.data[i] == pattern_) continue;
      if (i < bytes) ran.used = i + 1;
      else ran.guard_intact = false;
    }
    return ran;
  }
  Ran run() { return run(step_run::whole); }

 private:
  static constexpr std::size_t guard = 4096;
  Cpu cpu_;
  std::byte pattern_;
  Paged arena_;
  step_run::Aligned params_, gradients_;
  std::vector<float> input_, targets_;
  Step<> step_;  ///< goes before its memory
};

inline Ran run(const random_model::Network& network, const Program& program, int workers,
               int pattern, StoreRef store) {
  const Backwards executor{workers};
  return Bound(network, program, ExecutorRef(executor), pattern, store).run();
}

inline bool same_bits(const Ran& a, const Ran& b) {
  return a.loss && b.loss && std::memcmp(&*a.loss, &*b.loss, sizeof(double)) == 0 &&
         a.gradients.size() == b.gradients.size() &&
         (a.gradients.empty() || std::memcmp(a.gradients.data(), b.gradients.data(),
                                             a.gradients.size() * sizeof(float)) == 0);
}

/// One random network under one random plan with room for as much as `share` of what it could send.
struct Case {
  random_model::Network network;
  Program retained, sent;

  Case(unsigned seed, int workers) : network(random_model::draw(seed, false)) {
    std::mt19937 random(seed);
    const Shape shape(2 + seed % 7, 8 * (1 + seed % 60));
    const auto graph =
        make_graph(network, shape, {.workers = workers, .parts = 1 + static_cast<int>(seed % 3)});
    REQUIRE(graph);
    retained = *make_program(*graph, retain_all(*graph));
    Plan plan = draw_plan(random, *graph);
    const std::size_t least = make_program(*graph, plan)->layout.live_bytes;
    const std::size_t most = live_bytes(make_schedule(*graph, plan));
    if (most > least && random() % 3 != 0)
      plan.room_bytes = (least + random() % (most - least)) / 64 * 64 + 64;
    auto made = make_program(*graph, plan);
    if (!made) {  // a room between two that can be kept may itself be too small
      plan.room_bytes = 0;
      made = make_program(*graph, plan);
    }
    sent = *made;
    if (plan.room_bytes != 0) CHECK(sent.layout.live_bytes <= plan.room_bytes);
  }
};

}  // namespace offload_case
