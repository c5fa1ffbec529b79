// SPDX-License-Identifier: MIT
/// Bytes of a step's arena that no buffer has while an activation waits for backward.
///
/// A layout leaves gaps: between buffers, and everywhere at instructions that are not the worst. What is
/// declined (program/declinable.hpp) may wait there, and in place of its own blob. The search looks at
/// buffers and at what was declined before in the same step, so it depends on nothing else, and the arena
/// stays as large as it was promised.
#pragma once

#include <cstddef>

#include "../program/program.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Whether buffer `b` of `program` is a blob that nobody needs, as its activation is kept otherwise.
inline bool is_vacated(const Program& program, std::size_t b) {
  const Buffer& buffer = program.schedule.buffers[b];
  if (buffer.kind != BufferKind::encoded) return false;
  const Declinable* const of = find_declinable(program.declinables, buffer.activation);
  return of != nullptr && of->blob == static_cast<int>(b) && of->now.otherwise();
}

inline constexpr std::size_t no_room = static_cast<std::size_t>(-1);

/// The lowest place for `bytes` bytes that wait for backward of `mine`; no_room if there is none.
inline std::size_t spare_room(const Program& program, const Declinable& mine, std::size_t bytes) {
  std::size_t place = 0;
  for (;;) {
    if (bytes > program.layout.arena_bytes || place > program.layout.arena_bytes - bytes)
      return no_room;
    std::size_t behind = place;  // the end of all that is in the way
    const auto meet = [&](int first, int last, std::size_t at, std::size_t size) {
      const bool meets =
          first <= mine.last && last >= mine.first && at < place + bytes && at + size > place;
      if (meets && at + size > behind) behind = at + size;
    };
    for (std::size_t b = 0; b < program.schedule.buffers.size(); ++b) {
      const Buffer& buffer = program.schedule.buffers[b];
      if (buffer.first < 0 || static_cast<int>(b) == mine.blob || is_vacated(program, b)) continue;
      meet(buffer.first, buffer.last, program.layout.offsets[b], buffer.room());
    }
    for (const Declinable& other : program.declinables)
      if (&other != &mine && other.now.otherwise())
        meet(other.first, other.last, other.now.place, other.now.bytes);
    if (behind == place) return place;
    place = align_up(behind);
  }
}

}}}  // namespace adacc::v0_1::detail
