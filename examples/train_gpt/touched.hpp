// SPDX-License-Identifier: MIT
/// How much of an arena steps touch: it is filled with a pattern before, and looked at behind them.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/view.hpp>

#include <cstddef>
#include <cstring>

inline constexpr std::byte untouched{0xA5};

inline void mark_untouched(adacc::Bytes arena) {
  if (!arena.empty()) std::memset(arena.data(), static_cast<int>(untouched), arena.size());
}

/// The end of the last cache line among the first `end` bytes that differs from the pattern.
inline std::size_t touched_bytes(adacc::Bytes arena, std::size_t end) {
  while (end > 0) {
    const std::size_t line = (end - 1) / adacc::alignment * adacc::alignment;
    for (std::size_t i = line; i < end; ++i)
      if (arena[i] != untouched) return end;
    end = line;
  }
  return 0;
}
