// SPDX-License-Identifier: MIT
/// How many bytes live at each instruction: the library sums them here alone.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "instruction.hpp"

namespace adacc { inline namespace v0_1 {

/// Bytes alive at each instruction, alignment included, of the buffers added.
class LiveBytes {
 public:
  /// Empty, for `count` instructions.
  constexpr void reset(std::size_t count) {
    bytes_.clear();
    bytes_.resize(count + 1);
  }
  constexpr void add(const Buffer& buffer) {
    if (buffer.first < 0) return;  // no instruction names this buffer
    const std::size_t bytes = buffer.room();
    std::size_t* changes = bytes_.data();
    changes[buffer.first] += bytes;
    changes[buffer.last + 1] -= bytes;
  }
  /// To be called when all are added; differences may wrap around before.
  constexpr void sum() {
    std::size_t live = 0;
    for (std::size_t& bytes : bytes_) bytes = live += bytes;
    bytes_.pop_back();
  }

  constexpr std::size_t size() const { return bytes_.size(); }
  constexpr std::size_t operator[](std::size_t i) const { return bytes_[i]; }

  /// The first instruction at which most bytes live; 0 if there is none.
  constexpr std::size_t worst() const {
    std::size_t worst = 0;
    for (std::size_t i = 1; i < bytes_.size(); ++i)
      if (bytes_[i] > bytes_[worst]) worst = i;
    return worst;
  }
  /// The bytes alive at worst().
  constexpr std::size_t most() const {
    std::size_t most = 0;
    for (const std::size_t bytes : bytes_)
      if (bytes > most) most = bytes;
    return most;
  }

 private:
  Array<std::size_t> bytes_;
};

constexpr LiveBytes live_bytes_of(const Schedule& schedule) {
  LiveBytes live;
  live.reset(schedule.instructions.size());
  for (const Buffer& buffer : schedule.buffers) live.add(buffer);
  live.sum();
  return live;
}

/// The largest sum of bytes alive at one instruction of `schedule`.
constexpr std::size_t live_bytes(const Schedule& schedule) {
  return live_bytes_of(schedule).most();
}

}}  // namespace adacc::v0_1
