// SPDX-License-Identifier: MIT
/// From a schedule to one with updates where gradients of parameters are complete.
///
/// An update comes right behind the last backward that adds to a gradient: for tied layers behind the
/// first, the owner of the parameter. All readers of the parameter's values have run by then, in
/// backward and in recomputations: any later recomputation is of nodes in front of the owner. If
/// backward is part of a loop, the update is behind the loop, whose parts all add to the gradient.
///
/// If updates are fused, gradients die there. An update needs no bytes but its gradients, and all other
/// buffers alive there live at the instruction before, too: updates never raise the bytes alive at
/// once. So searches ignore them.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../model/graph.hpp"
#include "../instruction.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Inserts the updates of Graph::updates into a training step's `schedule`, before transfers.
constexpr void insert_updates(const Graph& graph, Schedule& schedule) {
  if (graph.updates == Updates::separate || graph.gradients.empty()) return;
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  Array<int> first(graph.nodes.size() + 1);  // by node, then the loss: the first gradient completed
  for (int& gradient : first) gradient = -1;
  for (std::size_t i = graph.gradients.size(); i-- > 0;)
    if (graph.gradients[i].complete >= 0)
      first[index(graph.gradients[i].complete)] = static_cast<int>(i);

  Array<Instruction> instructions;
  instructions.reserve(schedule.instructions.size() + graph.gradients.size());
  Array<int> moved(schedule.instructions.size());  // where each instruction is now
  Array<Instruction> due;
  for (std::size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& inst = schedule.instructions[i];
    moved[i] = static_cast<int>(instructions.size());
    instructions.push_back(inst);
    const bool of_loss = inst.op == Op::loss_gradient;
    if (of_loss || inst.op == Op::backward) {
      Instruction update{Op::update, false, inst.node};
      update.gradient = first[of_loss ? graph.nodes.size() : index(inst.node)];
      if (update.gradient >= 0) due.push_back(update);
    }
    if (inst.loop >= 0 && i < index(schedule.loops[index(inst.loop)].last)) continue;
    for (const Instruction& update : due) instructions.push_back(update);
    due.clear();
  }
  for (Buffer& buffer : schedule.buffers) {
    if (buffer.first < 0) continue;
    buffer.first = moved[index(buffer.first)];
    buffer.last = moved[index(buffer.last)];
  }
  for (std::size_t i = 0; i < instructions.size() && graph.fuses_updates(); ++i) {
    if (instructions[i].op != Op::update) continue;
    auto gradient = index(instructions[i].gradient);
    const int node = graph.gradients[gradient].complete;
    for (; gradient < graph.gradients.size() && graph.gradients[gradient].complete == node;
         ++gradient)
      schedule.buffers[gradient].last = static_cast<int>(i);
  }
  for (Loop& loop : schedule.loops) {
    loop.first = moved[index(loop.first)];
    loop.last = moved[index(loop.last)];
  }
  schedule.instructions = static_cast<Array<Instruction>&&>(instructions);
}

}}}  // namespace adacc::v0_1::detail
