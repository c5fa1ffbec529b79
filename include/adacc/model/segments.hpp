// SPDX-License-Identifier: MIT
/// Cuts of a graph into a chain of segments.
///
/// Cuts follow from the graph's lists alone: nothing but the activation right before a cut is read across the cut, and
/// backward is done with the right side before it begins with the left. In backward only the right side reads this
/// activation, or both sides do: then the cut is shared, as in networks whose layers read their own outputs. Planners
/// alone ask for shared cuts. So residual networks of layers are cut like the blocks of a stash, whose backward stages
/// are nodes of their own behind all activations. Planners take a graph apart here (plan/chain/), and loops over rows
/// end here (loops.hpp), so that the needs of a segment's instructions depend on this segment alone.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/extremes.hpp"
#include "graph.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Activations first..last of a graph, and the backward stages reading them.
struct GraphSegment {
  int first = 0, last = 0;
  int first_stage = 0, stage_end = 0;  ///< backward stages, and the node behind them
  bool has_input = false;              ///< reads activation first - 1
  bool has_output = false;             ///< the next segment reads activation last
  bool has_reader = false;             ///< false for the last segment
  bool shares_input = false;           ///< backward of the segment in front reads the input, too
  bool shares_output = false;          ///< this segment's backward reads the output, too
};

/// Whether both sides of a cut may read the activation right before it in backward.
enum class SharedCuts : unsigned char { no, yes };

/// The segments of `graph` in order, as small as possible.
constexpr Array<GraphSegment> segments_of(const Graph& graph, SharedCuts shared = SharedCuts::no) {
  const int count = graph.node_count();
  int outputs = count;  // the number of activations; all behind them are stages
  while (outputs > 1 && graph.node(outputs - 1).is_backward_stage()) --outputs;
  struct Place {        // behind an activation
    int crossed = 0;    // by so many more reads than the place before
    int stage_end = 0;  // the stages up to here cannot be on the right
    bool left_reads = false, right_reads = false;
    bool right_needs = false;  ///< reads it in backward
  };
  Array<Place> places(static_cast<std::size_t>(count) + 1);
  const auto place = [&](int k) -> Place& { return places[static_cast<std::size_t>(k)]; };
  const auto cross = [&](int from, int to) {  // all places between, both excluded
    if (to > from + 1) ++place(from + 1).crossed, --place(to).crossed;
  };
  for (int k = 0; k < outputs; ++k) {
    graph.forward_reads(k, [&](int id) {
      cross(id, k);
      place(id).right_reads = true;
    });
    for (const int id : graph.backward_reads(k)) {
      if (id == k) place(k).left_reads = true;
      else cross(id < k ? id : k - 1, id < k ? k : id);
      if (id < k) place(id).right_reads = place(id).right_needs = true;
    }
  }
  // A stage is on the left if this stage, or a later one, reads an activation there.
  const auto reads_between = [&](int k, int& least, int& most) {
    for (const int id : graph.backward_reads(k)) lower(least, id), raise(most, id);
  };
  int most_so_far = -1;
  for (int k = outputs; k < count; ++k) {
    int least = count;
    reads_between(k, least, most_so_far);
    if (least == count) continue;
    cross(least, most_so_far);
    raise(place(least + 1).stage_end, k + 1);
  }
  int least_so_far = count;
  for (int k = count; k-- > outputs;) {
    int least = count, most = -1;
    reads_between(k, least, most);
    lower(least_so_far, least);
    if (most >= 0 && least_so_far < most) place(most).left_reads = true;
    if (most >= 0 && least_so_far == least)
      place(least).right_reads = place(least).right_needs = true;
  }
  // The first reader of an activation in backward decodes it: at a shared cut, the right side has to.
  const auto can_share = [&](int k) {
    if (shared == SharedCuts::no) return false;
    const Policy& policy = graph.node(k).policy;
    return place(k).right_needs ||
           (policy.planned() ? graph.candidates_of(k).count == 0 : policy.codec() == nullptr);
  };
  Array<GraphSegment> segments;
  GraphSegment next;
  next.stage_end = outputs;
  int crossed = 0, stage_end = outputs;
  for (int k = 0; k < outputs; ++k) {
    const bool last = k + 1 == outputs;
    crossed += place(k).crossed;
    raise(stage_end, place(k).stage_end);
    // Activations made by one forward stay together.
    const bool both = place(k).left_reads && place(k).right_reads;
    if (!last && (crossed > 0 || graph.made_with_next(k) || (both && !can_share(k)))) continue;
    next.last = k;
    next.first_stage = next.stage_end;
    next.stage_end = last ? count : stage_end;
    next.has_output = !last && place(k).right_reads;
    next.has_reader = !last;
    next.shares_output = !last && both;
    segments.push_back(next);
    next.first = k + 1;
    next.has_input = next.has_output;
    next.shares_input = next.shares_output;
  }
  return segments;
}

}}}  // namespace adacc::v0_1::detail
