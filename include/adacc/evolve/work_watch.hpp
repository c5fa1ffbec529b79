// SPDX-License-Identifier: MIT
/// Whether a plan's extra work (encoding, decoding, recomputing) takes the time of when its profile was new.
///
/// Made for trainers that time single instructions instead of whole steps. Each kind of layer is watched separately
/// (time_watch.hpp), and encoding, decoding and recomputing apart: if everything slows down, no other plan gets
/// better; if one kind of work does, another plan may.
#pragma once

#include <cstddef>

#include "../cost/profile.hpp"
#include "../program/program.hpp"
#include "options.hpp"
#include "time_watch.hpp"

namespace adacc { inline namespace v0_1 {

class WorkWatch {
 public:
  /// The `seconds` of a step of `program`, by instruction; negative: did not run, or was not timed.
  void observe(const Program& program, const CostProfile& profile, const Array<double>& seconds,
               const EvolutionOptions& options) {
    const Array<Instruction>& list = program.schedule.instructions;
    if (seconds.size() != list.size()) return;
    const std::size_t kinds = 3 * program.graph.nodes.size();
    watches_.resize(kinds);
    Array<double> took(kinds), planned(kinds);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (seconds[i] < 0) continue;
      const std::size_t kind = kind_of(program.graph, list[i]);
      took[kind] += seconds[i];
      planned[kind] += planned_of(program.plan, profile, list[i]);
    }
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      if (!(took[kind] > 0 && took[kind] < 1e9 && planned[kind] > 0)) continue;
      watches_[kind].observe(took[kind] / planned[kind], options);
      drifted_ = drifted_ || watches_[kind].drifted();
    }
  }

  /// Some kind takes another time than usual; with a new profile, assign WorkWatch{}.
  bool drifted() const { return drifted_; }

 private:
  static std::size_t kind_of(const Graph& graph, const Instruction& inst) {
    const auto layer = static_cast<std::size_t>(graph.node(graph.maker_of(inst.node)).layer);
    return 3 * layer + (inst.op == Op::encode ? 0 : inst.op == Op::decode ? 1 : 2);
  }

  static double planned_of(const Plan& plan, const CostProfile& profile, const Instruction& inst) {
    if (inst.op == Op::forward) return profile.node(inst.node).forward;
    const int column = profile.column(plan[inst.node].codec());
    if (column < 0) return 0;
    const CodecCost& cost = profile.codec_cost(inst.node, column);
    return inst.op == Op::encode ? cost.encode : cost.decode;
  }

  Array<TimeWatch> watches_;  ///< by kind of layer and of work
  bool drifted_ = false;
};

}}  // namespace adacc::v0_1
