// SPDX-License-Identifier: MIT
/// Encodes a step may decline: by codecs with a bound for the errors of rows (codec/row_errors.hpp).
///
/// A program notes when each of their blobs waits, for then another form could wait in the blob's place.
/// The outcome of each in the latest step is noted beside: memory for a program includes memory for
/// declining, and a step takes none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/array.hpp"
#include "instruction.hpp"
#include "plan.hpp"

namespace adacc { inline namespace v0_1 {

/// The fate of an activation planned to be encoded.
enum class KeptAs : std::uint8_t {
  as_planned,  ///< no row was over the bound, or nobody judged
  exactly,     ///< with the bits of forward, beside or in place of the blob
  milder,      ///< by a codec with smaller errors: one with a scale per row, or one with more bits
  over_bound,  ///< in the plan's form, with rows over the bound: the arena had no room for another
};

constexpr const char* name_of(KeptAs kept) {
  constexpr const char* names[] = {"kept as planned", "kept exactly", "kept by a milder codec",
                                   "left with rows over the bound"};
  return names[static_cast<int>(kept)];
}

/// How the encode of an activation went.
struct Declined {
  KeptAs kept = KeptAs::as_planned;
  RowErrors errors;                  ///< by the plan's codec; without rows if nobody judged them
  const CodecInfo* codec = nullptr;  ///< the milder one, if the activation is kept by one
  std::size_t place = 0, bytes = 0;  ///< in the arena, of the form kept instead

  constexpr bool otherwise() const { return kept == KeptAs::exactly || kept == KeptAs::milder; }
};

/// How many activations were declined, by their fate.
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
      last = 0;   ///< instructions, from the encode to the last decode, with loops around them
  int blob = -1;  ///< the buffer between them; -1: the blob travels, and others use its place
  /// The activation may be kept in another form: behind the encode all of it is in memory, and no part
  /// is decoded yet. False in a loop that encodes and decodes part by part.
  bool movable = false;
  bool by_parts = false;  ///< a decode runs part by part with the readers
  Declined now;           ///< in the step that ran last
};

/// All declinable encodes of `schedule`, in the order of activations.
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
    Declinable& entry = of[static_cast<std::size_t>(inst.node)];
    const Loop* const loop =
        inst.loop < 0 ? nullptr : &schedule.loops[static_cast<std::size_t>(inst.loop)];
    entry.last = loop != nullptr ? loop->last : static_cast<int>(i);
    if (inst.op == Op::decode) {
      entry.by_parts = entry.by_parts || loop != nullptr;
      if (loop != nullptr && entry.first == loop->first) entry.movable = false;
      continue;
    }
    entry.activation = inst.node;
    entry.first = loop != nullptr ? loop->first : static_cast<int>(i);
    entry.blob = schedule.buffer(inst.blob).travels ? -1 : inst.blob;
    entry.movable = inst.x < 0 || !schedule.buffer(inst.x).part_buffer;
  }
  for (const Declinable& entry : of)
    if (entry.last > 0) found.push_back(entry);  // no step begins with an encode
  return found;
}

/// The declinable encode of activation `id`; null if there is none.
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

/// The fate of activation `id`.
constexpr Declined declined_of(const Array<Declinable>& all, int id) {
  const Declinable* const found = find_declinable(all, id);
  return found == nullptr ? Declined() : found->now;
}
/// How many activations were declined.
constexpr DeclinedCounts counts_of(const Array<Declinable>& all) {
  DeclinedCounts counts;
  for (const Declinable& one : all) counts.add(one.now.kept);
  return counts;
}

}}  // namespace adacc::v0_1
