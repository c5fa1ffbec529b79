// SPDX-License-Identifier: MIT
/// The optional abilities of a step: programs run without the code of unneeded ones.
///
/// A step that runs any program has code, some kilobytes, for transfers, updates, parts, parameters that
/// are decoded, and tensors unfit for their plan's codec. A constant program names its needs at compile
/// time, and a device, short of room, leaves out the rest:
///
///     using Steps = adacc::Step<float, adacc::Cpu, decltype(fixed)::Abilities>;  // fixed: a FixedProgram
#pragma once

#include "program.hpp"

namespace adacc { inline namespace v0_1 {

template <bool has_transfers, bool has_updates, bool has_parts, bool has_decoded,
          bool has_declining = false>
struct StepAbilities {
  static constexpr bool transfers = has_transfers;         ///< sends activations to a store
  static constexpr bool updates = has_updates;             ///< says when gradients are complete
  static constexpr bool parts = has_parts;                 ///< layers, sums or codecs are cut
  static constexpr bool decoded_parameters = has_decoded;  ///< not in full, or in a file
  static constexpr bool declining = has_declining;  ///< some codec judges the rows of tensors
};
using AllAbilities = StepAbilities<true, true, true, true, true>;

namespace detail {

constexpr bool needs_parts(const Program& program) {
  for (const Instruction& inst : program.schedule.instructions)
    if (inst.parts > 1) return true;
  return false;
}
constexpr bool needs_transfers(const Program& program) {
  return !program.schedule.transfers.empty();
}
constexpr bool needs_updates(const Program& program) { return !program.graph.gradients.empty(); }
constexpr bool needs_decoded_parameters(const Program& program) {
  return program.graph.parameter_form != ParameterForm::full || program.graph.stored_bytes != 0;
}
constexpr bool needs_declining(const Program& program) { return !program.declinables.empty(); }

/// The first need of `program` for which `Abilities` have no code, in words; null if there is none.
template <class Abilities>
constexpr const char* missing_in(const Program& program) {
  if (!Abilities::transfers && needs_transfers(program)) return "sends activations to a store";
  if (!Abilities::updates && needs_updates(program)) return "says when gradients are complete";
  if (!Abilities::parts && needs_parts(program)) return "runs layers in parts";
  if (!Abilities::decoded_parameters && needs_decoded_parameters(program))
    return "takes parameters in bfloat16, with copies, or from a file";
  if (!Abilities::declining && needs_declining(program)) return "has codecs that judge their rows";
  return nullptr;
}

}  // namespace detail

}}  // namespace adacc::v0_1
