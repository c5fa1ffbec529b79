// SPDX-License-Identifier: MIT
/// Bytes of a step's arena without a buffer while an activation waits for backward.
///
/// A layout leaves gaps: between buffers, and everywhere at instructions below the peak. Declined activations
/// (program/declinable.hpp) may wait there, and in place of their own blobs. The search looks only at buffers and at
/// activations declined before in the same step, and the arena stays as large as promised.
#pragma once

#include <cstddef>

#include "../program/program.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Whether buffer `b` of `program` is an unused blob, because its activation is kept otherwise.
inline bool is_vacated(const Program& program, std::size_t b) {
  const Buffer& buffer = program.schedule.buffers[b];
  if (buffer.kind != BufferKind::encoded) return false;
  const Declinable* const of = find_declinable(program.declinables, buffer.activation);
  return of != nullptr && of->blob == static_cast<int>(b) && of->now.otherwise();
}

inline constexpr std::size_t no_room = static_cast<std::size_t>(-1);

/// The lowest place for `bytes` bytes of `mine` until backward; no_room if there is none.
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
