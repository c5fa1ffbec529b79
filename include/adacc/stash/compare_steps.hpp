// SPDX-License-Identifier: MIT
/// Compares the gradients of a trainer's steps under two plans, and in memory with other old contents. It looks at
/// gradients alone, so it is for any memory, also a device's, where a CheckedStash (stash/check.hpp) cannot look.
#pragma once

#include <cstring>
#include <vector>

#include "stash.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A copy of the gradients of a step, which are in fp32 where values are in bf16. Equal gradients have equal bits.
template <class T>
class StepGradients {
 public:
  StepGradients() = default;
  explicit StepGradients(const Array<View<const Wide<T>>>& parts) {
    for (const View<const Wide<T>>& part : parts) parts_.emplace_back(part.begin(), part.end());
  }
  bool operator==(const StepGradients& other) const {
    bool equal = parts_.size() == other.parts_.size();
    for (std::size_t i = 0; equal && i < parts_.size(); ++i) {
      const std::vector<Wide<T>>&a = parts_[i], &b = other.parts_[i];
      equal = a.size() == b.size() &&
              (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Wide<T>)) == 0);
    }
    return equal;
  }
  bool operator!=(const StepGradients& other) const { return !(*this == other); }

 private:
  std::vector<std::vector<Wide<T>>> parts_;
};

/// Recomputes each activation that can be, and retains the others.
inline Plan recompute_all(const Graph& graph) {
  Plan plan = retain_all(graph);
  for (int id = 0; id < graph.node_count(); ++id)
    if (graph.node(id).recomputable && !graph.node(id).is_backward_stage())
      plan.policies[static_cast<std::size_t>(id)] = recompute();
  return plan;
}

inline Error steps_differ() {
  return Error::misuse(
      "two steps under one plan gave different gradients: the step starts from other values or "
      "gradients each time, or adds in another order");
}

}  // namespace detail

namespace testing {

/// Runs steps of a trainer on a Stash in `memory`: with everything retained, where memory held zeros
/// before, or NaN (bytes of 0xFF), and once with everything recomputed. Gradients must have the same bits. Returns the
/// fault, or an empty error. `memory` is where the context's kernels run, and large enough for both plans.
///
/// step(stash) is as for probe_stash().
template <class T, class Context, class TrainStep>
Error compare_steps(const StashModel<T, Context>& model, Context& context, Bytes memory,
                    const TrainStep& step) {
  const Result<Graph> graph = model.graph();
  if (!graph) return graph.error;
  using Gradients = adacc::detail::StepGradients<T>;
  const auto run = [&](const Plan& plan, unsigned char before, Gradients& gradients) -> Error {
    auto stash = Stash<T, Context>::make(model, plan);
    if (!stash) return stash.error;
    if (const Error why = stash->bind(memory)) return why;
    stash->poison_dead(before != 0);
    adacc::detail::fill_bytes(context, memory, before);
    const Result<Array<View<const Wide<T>>>> parts = step(*stash);
    if (!parts) return parts.error;
    gradients = Gradients(*parts);
    return {};
  };
  constexpr unsigned char zeros = 0, poison = 0xFF;
  const Plan retain = retain_all(*graph);
  Gradients wanted, got;
  if (const Error why = run(retain, zeros, wanted)) return why;
  if (const Error why = run(retain, zeros, got)) return why;
  if (got != wanted) return adacc::detail::steps_differ();
  if (const Error why = run(retain, poison, got)) return why;
  if (got != wanted)
    return Error::misuse(
        "the gradients depend on old contents of memory: a kernel or a backward reads values that "
        "nobody wrote, or that are gone by then");
  const Plan again = adacc::detail::recompute_all(*graph);
  if (const Error why = run(again, poison, got)) return why;
  if (got == wanted) return {};
  for (int id = 0; id < model.activation_count(); ++id) {
    if (!graph->node(id).recomputable) continue;
    Plan one = retain;
    one.policies[static_cast<std::size_t>(id)] = recompute();
    if (const Error why = run(one, poison, got)) return why;
    if (got != wanted)
      return Error::misuse("recomputing ", graph->node(id).name, " (", id + 1, " of ",
                           model.activation_count(),
                           ") changes the gradients: its kernel gives other bits when it runs "
                           "again, does not write all, or reads more than its sources");
  }
  return Error::misuse(
      "recomputing everything changes the gradients, and no activation alone does");
}

}  // namespace testing

}}  // namespace adacc::v0_1
