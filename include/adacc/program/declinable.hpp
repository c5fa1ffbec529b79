// SPDX-License-Identifier: MIT
/// Encodes that a step may decline: those by codecs that judge them row by row (codec/row_errors.hpp).
///
/// What a program says of them is when their blobs wait, and so when something else could wait in their
/// place. What became of each in the step that ran last is noted beside that: whoever has the memory for a
/// program has that for declining, and a step takes none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/array.hpp"
#include "instruction.hpp"
#include "plan.hpp"

namespace adacc { inline namespace v0_1 {

/// What became of an activation whose plan has it encoded.
enum class KeptAs : std::uint8_t {
  as_planned,  ///< no row was over the bound, or nobody judged
  exactly,     ///< as it was, beside or in place of the blob
  milder,      ///< by a codec that loses less of it: one with a scale per row, or one with more bits
  over_bound,  ///< as planned, with rows over the bound: the arena had no room for another form
};

constexpr const char* name_of(KeptAs kept) {
  constexpr const char* names[] = {"kept as planned", "kept exactly", "kept by a milder codec",
                                   "left with rows over the bound"};
  return names[static_cast<int>(kept)];
}

/// How the encode of an activation went.
struct Declined {
  KeptAs kept = KeptAs::as_planned;
  RowErrors errors;                  ///< of the plan's codec; without rows if it was not judged
  const CodecInfo* codec = nullptr;  ///< the milder one, if one keeps it
  std::size_t place = 0, bytes = 0;  ///< in the arena, of what is kept otherwise

  constexpr bool otherwise() const { return kept == KeptAs::exactly || kept == KeptAs::milder; }
};

/// How many activations were declined, and what became of them.
struct DeclinedCounts {
  std::size_t exactly = 0, milder = 0, over_bound = 0;

  constexpr std::size_t total() const { return exactly + milder + over_bound; }
  constexpr void add(KeptAs kept) {
    exactly += kept == KeptAs::exactly ? 1 : 0;
    milder += kept == KeptAs::milder ? 1 : 0;
    over_bound += kept == KeptAs::over_bound ? 1 : 0;
  }
  friend constexpr DeclinedCounts operator+(const DeclinedCounts& a, const DeclinedCounts& b) {
    return {a.exactly + b.exactly, a.milder + b.milder, a.over_bound + b.over_bound};
  }
  friend constexpr bool operator==(const DeclinedCounts&, const DeclinedCounts&) = default;
};

struct Declinable {
  int activation = 0;
  int first = 0,
      last = 0;   ///< instructions, from its encode to its last decode, with loops around them
  int blob = -1;  ///< the buffer between them; -1: it travels, and its place is others'
  /// It may be kept otherwise: behind its encode all of the activation is in memory, and none of it was
  /// decoded yet, as by a loop that encodes and decodes a part of the rows after the other.
  bool movable = false;
  bool by_parts = false;  ///< a decode runs part by part with its readers
  Declined now;           ///< in the step that ran last
};

/// All of `schedule`, in the order of activations.
constexpr Array<Declinable> declinables_of(const Graph& graph, const Plan& plan,
                                           const Schedule& schedule) {
  Array<Declinable> found;
  bool any = false;
  for (const Policy& policy : plan.policies)
    any = any || (policy.encodes() && policy.codec()->row_bound > 0);
  if (!any) return found;
  Array<Declinable> of(graph.nodes.size());
  for (std::size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& inst = schedule.instructions[i];
    if (inst.op != Op::encode && inst.op != Op::decode) continue;
    if (!(plan[inst.node].codec()->row_bound > 0)) continue;
    Declinable& mine = of[static_cast<std::size_t>(inst.node)];
    const Loop* const loop =
        inst.loop < 0 ? nullptr : &schedule.loops[static_cast<std::size_t>(inst.loop)];
    mine.last = loop != nullptr ? loop->last : static_cast<int>(i);
    if (inst.op == Op::decode) {
      mine.by_parts = mine.by_parts || loop != nullptr;
      if (loop != nullptr && mine.first == loop->first) mine.movable = false;
      continue;
    }
    mine.activation = inst.node;
    mine.first = loop != nullptr ? loop->first : static_cast<int>(i);
    mine.blob = schedule.buffer(inst.blob).travels ? -1 : inst.blob;
    mine.movable = inst.x < 0 || !schedule.buffer(inst.x).tile;
  }
  for (const Declinable& mine : of)
    if (mine.last > 0) found.push_back(mine);  // no step begins with an encode
  return found;
}

/// That of activation `id`; null if its encode, if it has one, is not judged.
constexpr Declinable* find_declinable(Array<Declinable>& all, int id) {
  std::size_t first = 0, end = all.size();
  while (first < end) {
    const std::size_t middle = (first + end) / 2;
    if (all[middle].activation < id) first = middle + 1;
    else end = middle;
  }
  return first < all.size() && all[first].activation == id ? &all[first] : nullptr;
}
constexpr const Declinable* find_declinable(const Array<Declinable>& all, int id) {
  return find_declinable(const_cast<Array<Declinable>&>(all), id);
}

/// What became of activation `id`.
constexpr Declined declined_of(const Array<Declinable>& all, int id) {
  const Declinable* const mine = find_declinable(all, id);
  return mine == nullptr ? Declined() : mine->now;
}
/// How many were declined.
constexpr DeclinedCounts counts_of(const Array<Declinable>& all) {
  DeclinedCounts counts;
  for (const Declinable& one : all) counts.add(one.now.kept);
  return counts;
}

}}  // namespace adacc::v0_1
