// SPDX-License-Identifier: MIT
/// When buffers live in a step, without the instructions themselves: a sink for a Scheduler.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "instruction.hpp"

namespace adacc { inline namespace v0_1 {

/// A sink that keeps the buffers' lifetimes, and of the instructions only their number.
struct Lifetimes {
  Array<Buffer> buffers;
  int count = 0;

  constexpr void clear() {
    buffers.clear();
    count = 0;
  }
  constexpr int add_buffer(BufferKind kind, int activation, std::size_t bytes) {
    buffers.push_back({kind, activation, bytes, -1, -1});
    return static_cast<int>(buffers.size()) - 1;
  }
  constexpr void append(const Instruction& run) {
    ++count;  // compilers count every call, so none is made for what is not there
    if (run.x >= 0) touch(run.x);
    if (run.y >= 0) touch(run.y);
    if (run.dx >= 0) touch(run.dx);
    if (run.dy >= 0) touch(run.dy);
    if (run.aux >= 0) touch(run.aux);
    if (run.workspace >= 0) touch(run.workspace);
    if (run.blob >= 0) touch(run.blob);
  }
  constexpr void touch(int buffer) {
    if (buffer < 0) return;
    Buffer& used = buffers.data()[buffer];
    used.last = count - 1;
    if (used.first < 0) used.first = used.last;
  }
};

}}  // namespace adacc::v0_1
