// SPDX-License-Identifier: MIT
/// When buffers live in a step, without the instructions themselves: a sink for a Scheduler.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "instruction.hpp"

namespace adacc { inline namespace v0_1 {

/// A sink for the buffers' lifetimes, and the number of instructions.
struct Lifetimes {
  Array<Buffer> buffers;
  int count = 0;

  constexpr void clear() {
    buffers.clear();
    count = 0;
  }
  constexpr int add_buffer(BufferKind kind, int activation, std::size_t bytes) {
    buffers.push_back(
        {.kind = kind, .activation = activation, .bytes = bytes, .first = -1, .last = -1});
    return static_cast<int>(buffers.size()) - 1;
  }
  constexpr void append(const Instruction& inst) {
    ++count;  // compilers count every call: none is made for an operand of -1
    if (inst.x >= 0) use(inst.x);
    if (inst.y >= 0) use(inst.y);
    if (inst.dx >= 0) use(inst.dx);
    if (inst.dy >= 0) use(inst.dy);
    if (inst.aux >= 0) use(inst.aux);
    if (inst.workspace >= 0) use(inst.workspace);
    if ((inst.blob & inst.added) < 0) return;  // most instructions have neither: both are -1
    if (inst.blob >= 0) use(inst.blob);
    if (inst.added >= 0) use(inst.added);
  }
  constexpr void touch(int buffer) {
    if (buffer >= 0) use(buffer);
  }

 private:
  constexpr void use(int buffer) {
    Buffer& used = buffers.data()[buffer];
    used.last = count - 1;
    if (used.first < 0) used.first = used.last;
  }
};

}}  // namespace adacc::v0_1
