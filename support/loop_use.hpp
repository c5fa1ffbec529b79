// SPDX-License-Identifier: MIT
/// What runs in loops in a step, and what that saves.
#pragma once

#include <adacc/program/program.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace support {

/// How many parts the loops of `schedule` have: "4", or "2 to 4" if some have fewer than others; "" if
/// there are none.
inline std::string parts_text(const adacc::Schedule& schedule) {
  if (schedule.loops.empty()) return {};
  int least = schedule.loops[0].parts, most = least;
  for (const adacc::Loop& loop : schedule.loops)
    least = std::min(least, loop.parts), most = std::max(most, loop.parts);
  return (least < most ? std::to_string(least) + " to " : "") + std::to_string(most);
}

/// The arena of `program` if nothing ran in loops; that of `program` itself if nothing does, and 0 if
/// without loops its plan has too little room for what goes to a store.
inline std::size_t peak_without_loops(const adacc::Program& program) {
  if (program.schedule.loops.empty()) return program.peak_bytes();
  const auto placed = adacc::place_straight_schedule(program.graph, program.plan, program.mode);
  return placed ? placed->layout.arena_bytes : 0;
}

struct LoopUse {
  std::size_t loops = 0, instructions = 0;  ///< loops, and instructions in them
  std::size_t tiles = 0;                    ///< buffers that hold one part of a tensor at a time
  std::size_t packed = 0;                   ///< calls in parts whose weight is packed once
  std::size_t packing = 0;                  ///< calls in parts that pack a weight
  std::size_t straight_peak_bytes = 0;      ///< peak_without_loops()

  static LoopUse of(const adacc::Program& program) {
    LoopUse use;
    use.loops = program.schedule.loops.size();
    for (const adacc::Loop& loop : program.schedule.loops)
      use.instructions += static_cast<std::size_t>(loop.last - loop.first + 1);
    for (const adacc::Buffer& buffer : program.schedule.buffers) use.tiles += buffer.part_buffer ? 1 : 0;
    for (const adacc::Instruction& inst : program.schedule.instructions) {
      if (inst.packed >= 0) ++use.packed;
      if (adacc::packed_bytes(program.graph, inst) > 0) ++use.packing;
    }
    use.straight_peak_bytes = peak_without_loops(program);
    return use;
  }
};

}  // namespace support
