// SPDX-License-Identifier: MIT
/// The buffers alive at an instruction in words, for reports and errors: "8 x activation z 256.0 KiB (262144 bytes)".
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/same_text.hpp"
#include "schedule.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Buffers of one kind, for activations of one name.
struct LiveKind {
  BufferKind kind;
  const char* name;
  int count;
  std::size_t bytes;

  constexpr void append_to(Error& error) const {
    error.append(count);
    error.append(" x ");
    error.append(kind == BufferKind::lasting_gradient ? "gradient" : name_of(kind));
    if (*name != '\0') error.append(" ");
    error.append(name);
    error.append(" ");
    error.append(shown(bytes));
  }
};

/// The kinds alive at instruction `at`, the largest first.
constexpr Array<LiveKind> live_kinds(const Graph& graph, const Schedule& schedule, int at) {
  Array<LiveKind> kinds;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.first < 0 || buffer.first > at || buffer.last < at || buffer.bytes == 0) continue;
    const bool owned = buffer.kind != BufferKind::lasting_gradient;
    const char* const name = owned ? graph.node(buffer.activation).name : "";
    std::size_t i = 0;
    while (i < kinds.size() &&
           (kinds[i].kind != buffer.kind || !detail::same_text(kinds[i].name, name)))
      ++i;
    if (i == kinds.size()) kinds.push_back({buffer.kind, name, 0, 0});
    ++kinds[i].count, kinds[i].bytes += buffer.bytes;
  }
  sort(kinds, [](const LiveKind& a, const LiveKind& b) { return a.bytes > b.bytes; });
  return kinds;
}

}}}  // namespace adacc::v0_1::detail
