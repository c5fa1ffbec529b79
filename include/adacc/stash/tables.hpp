// SPDX-License-Identifier: MIT
/// Tables of a stash by activation and by stage, for use in a step: made once, from a model and the
/// program of a plan.
#pragma once

#include <cstddef>

#include "../program/program.hpp"
#include "last_runs.hpp"
#include "model.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T>
struct StashTables {
  // By activation:
  Array<StashRecompute<T>> recompute;
  Array<bool> raw;     ///< registered as bytes
  Array<int> place;    ///< the buffer, if retained; -1: none
  Array<int> scratch;  ///< forward's workspace; -1: none
  // By carried gradient, with the number of the buffer:
  Array<StashCarried> carried;
  // By stage:
  Array<int> stage_at;  ///< the instruction; -1: none

  Array<int> last_runs;  ///< by activation: detail::last_runs()

  std::size_t most_sources = 0;  ///< the most of any callable
  std::size_t most_outputs = 0;
  bool holds = false;  ///< some of forward's values lie in the arena

  StashTables() = default;
  template <class Context>
  StashTables(const StashModel<T, Context>& model, const Program& program) {
    const Graph& graph = program.graph;
    carried = model.carried();
    const int activations = model.activation_count();
    last_runs = detail::last_runs(graph, activations);
    const auto count = static_cast<std::size_t>(activations);
    recompute.resize(count);
    raw.resize(count);
    place.resize(count);
    scratch.resize(count);
    std::size_t outputs = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const int id = static_cast<int>(k);
      recompute[k] = model.recompute_of(id);
      raw[k] = model.is_raw(id);
      holds = holds || !graph.node(id).value_outside;
      const std::size_t sources = graph.sources(id).size();
      if (sources > most_sources) most_sources = sources;
      outputs = graph.maker_of(id) == id ? 1 : outputs + 1;
      if (outputs > most_outputs) most_outputs = outputs;
    }
    for (int stage = activations; stage < graph.node_count(); ++stage) stage_at.push_back(-1);
    const Array<Instruction>& list = program.schedule.instructions;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Instruction& inst = list[i];
      if (inst.op == Op::forward && !inst.again) {
        place[static_cast<std::size_t>(inst.node)] = inst.y;
        scratch[static_cast<std::size_t>(inst.node)] = inst.workspace;
      }
      if (inst.op == Op::backward)
        stage_at[static_cast<std::size_t>(inst.node - activations)] = static_cast<int>(i);
    }
  }
};

}}}  // namespace adacc::v0_1::detail
