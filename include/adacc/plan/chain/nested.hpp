// SPDX-License-Identifier: MIT
/// Plans of long chains that recompute activations more than once, for budgets too small for other plans.
///
/// With each activation recomputed at most once, n equal layers take about sqrt(2 n) activations.
/// Binomial checkpointing (Griewank and Walther, revolve) takes fewer: with s activations kept at a time
/// and each recomputed at most t times, up to C(s + t + 1, s) layers can be reversed. Here layers are the
/// segments of a chain, of any sizes, and memory is counted in bytes:
///
///   - a range of segments, whose input is there, keeps some of the activations between its segments while
///     a run goes through to the last segment. These split the range into parts. Backward takes the parts
///     from the last to the first. Each part is a range again, with the memory left by the parts in front,
///     and with one more run of its inner activations;
///   - the longest range within some memory and number of runs has parts as long as possible with one run
///     less;
///   - a shorter range has the shortest first part that leaves the rest within memory, but is not shorter
///     than the reach of two runs less: for equal segments this takes the fewest forwards (Griewank's
///     theorem).
///
/// A plan gives each activation a number of runs (recompute(runs)), and the scheduler does the rest. Inside
/// a segment everything is recomputed right before the segment's backward. Needs of segments are
/// estimates: Proposals lay the plans out.
#pragma once

#include <cstddef>

#include "../../core/bytes.hpp"
#include "../../core/extremes.hpp"
#include "../../program/schedule.hpp"
#include "nested_table.hpp"
#include "tables.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// How often each boundary between segments is recomputed.
class NestedRuns {
 public:
  struct Range {
    SignedBytes input = 0;  ///< what comes in from the segment before
    SignedBytes need = 0;   ///< of backward of the segment, and of forward again, with the input
  };
  /// `segments` must outlive this.
  constexpr explicit NestedRuns(const Array<Range>& segments) : segments_(segments) {}

  constexpr int count() const { return static_cast<int>(segments_.size()); }

  /// The segment behind the longest range from `first` on that takes at most `memory`, if everything is
  /// computed at most `times` times beyond the first.
  constexpr int reach(int first, SignedBytes memory, int times) const {
    if (first >= count() || at(first).need > memory) return first;
    if (times == 0) return first + 1;
    int end = first;
    while (end < count()) {
      const int next = reach(end, memory, times - 1);
      if (next == end) break;
      memory -= at(end).input;
      end = next;
    }
    return end;
  }

  /// The fewest times with which the whole chain takes at most `memory`; above `most` if there are none.
  constexpr int times(SignedBytes memory, int most) const {
    int times = 0;
    while (times <= most && reach(0, memory, times) < count()) ++times;
    return times;
  }

  /// For each segment but the last, how often the activation behind it is recomputed, less than `most` times;
  /// empty if these are too few.
  constexpr Array<int> runs(SignedBytes memory, int most) const {
    Array<int> out;
    const int needed = times(memory, most);
    if (needed > most) return out;
    out.resize(segments_.size());
    split(0, count(), memory, needed, 0, out);
    return out;
  }

 private:
  constexpr const Range& at(int segment) const {
    return segments_[static_cast<std::size_t>(segment)];
  }

  /// Splits the range from `first` to `end`, which is within reach, and its parts.
  constexpr void split(int first, int end, SignedBytes memory, int times, int run,
                       Array<int>& out) const {
    while (end - first > 1) {
      while (times > 1 && reach(first, memory, times - 1) >= end) --times;
      const SignedBytes rest = memory - at(first).input;
      // The first part ends in front of `low` .. `high`; with `high` the rest is within reach.
      int low = times > 1 ? reach(first, memory, times - 2) : first + 1;
      int high = reach(first, memory, times - 1);
      if (high > end - 1) high = end - 1;
      if (low > high) low = high;
      while (low < high) {
        const int middle = low + (high - low) / 2;
        if (reach(middle, rest, times) >= end) high = middle;
        else low = middle + 1;
      }
      out[static_cast<std::size_t>(high - 1)] = run;
      split(first, high, memory, times - 1, run + 1, out);
      first = high;
      memory = rest;
    }
  }

  const Array<Range>& segments_;
};

/// Nested plans of one graph, by memory.
class NestedPlans {
 public:
  /// All arguments must outlive this. `most` is the largest number of runs of an activation.
  [[gnu::cold]] NestedPlans(const Graph& graph, const CostProfile& profile,
                            const ChainTables& tables, int most)
      : graph_(graph), profile_(profile), tables_(tables), limit_(most) {
    // Activations inside of segments, but for the last one, take one run more than those between.
    bool inside = false;
    Array<Needs> needs;  // by structure
    for (const Segment& segment : tables.segments) {
      for (const int id : segment.standing) standing_ += bytes_of(id);
      for (int id = segment.first; id <= segment.last; ++id)
        inside = inside || (segment.has_reader && is_open(id) && !is_output(segment, id));
      const auto structure = static_cast<std::size_t>(segment.structure);
      if (structure == needs.size()) needs.push_back(needs_of(segment));
      NestedRuns::Range range;
      for (const int id : segment.inputs) range.input += bytes_of(id);
      range.need = needs[structure].step;
      ranges_.push_back(range);
      forward_needs_.push_back(needs[structure].forward);
    }
    most_ = inside ? most - 1 : most;
  }

  /// The least memory for which plan() has one.
  [[gnu::cold]] SignedBytes least_memory() const {
    const NestedRuns nested(ranges_);
    SignedBytes low = 0, high = 0;
    for (const NestedRuns::Range& range : ranges_) {
      raise(low, range.need);
      high += range.input;
    }
    high += low;
    while (high - low >= static_cast<SignedBytes>(alignment)) {
      const SignedBytes middle = low + (high - low) / 2;
      if (nested.times(middle, most_ + 1) <= most_ + 1) high = middle;
      else low = middle + 1;
    }
    return high + standing_;
  }

  /// A plan for `memory` live bytes, as estimated; without policies if there is none.
  [[gnu::cold]] Plan plan(SignedBytes memory) const {
    const Array<int> runs = NestedRuns(ranges_).runs(memory - standing_, most_ + 1);
    Plan plan;
    if (runs.empty()) return plan;
    int most = 0;
    for (const int run : runs) raise(most, run);
    plan = plan_inside(most + 1);
    for (std::size_t j = 0; j < runs.size(); ++j)
      for (const int id : tables_.segments[j].outputs) keep_in(plan, id, runs[j]);
    return plan;
  }

  /// Whether patterns of the segments can be chosen one by one: none leaves anything to a neighbour.
  bool has_stages() const {
    for (const Segment& segment : tables_.segments)
      if (segment.shares_input || segment.shares_output) return false;
    return true;
  }

  /// The segments for a NestedTable with units of `unit` bytes.
  [[gnu::cold]] Array<NestedTable::Stage> stages(SignedBytes unit) const {
    const auto units = [&](SignedBytes bytes) {
      return static_cast<int>((bytes + unit - 1) / unit);
    };
    Array<NestedTable::Stage> out;
    for (std::size_t j = 0; j < ranges_.size(); ++j) {
      const Segment& segment = tables_.segments[j];
      NestedTable::Stage stage;
      stage.input = units(ranges_[j].input);
      stage.forward = units(forward_needs_[j]);
      for (int k = segment.first; k <= segment.last; ++k)
        stage.forward_seconds += seconds_of(graph_, profile_, k, recompute());
      for (const Arc& arc :
           tables_.chain.arcs[static_cast<std::size_t>(segment.cost)].between(at_hand, at_hand)) {
        if (!is_plain(segment, arc)) continue;
        raise(stage.again_seconds, arc.seconds);
        stage.options.push_back(
            {units(arc.bytes.stored), units(arc.bytes.need), arc.seconds, arc.pattern});
      }
      out.push_back(static_cast<NestedTable::Stage&&>(stage));
    }
    return out;
  }

  /// The plan of a NestedTable's steps; without policies if there are more runs than wanted.
  [[gnu::cold]] Plan plan(const Array<NestedTable::Step>& steps) const {
    int most = 0;
    for (const NestedTable::Step& step : steps) raise(most, step.run);
    Plan plan;
    if (most > most_) return plan;
    plan = plan_inside(most + 1);
    // A later step of a segment is of a later run: what an earlier run keeps is there.
    for (std::size_t i = steps.size(); i-- > 0;) {
      const NestedTable::Step& step = steps[i];
      const Segment& segment = tables_.segments[static_cast<std::size_t>(step.stage)];
      for (const int id : segment.inputs) keep_in(plan, id, step.run);
      if (step.option < 0) continue;
      for (int id = segment.first; id <= segment.last; ++id)
        if (!is_output(segment, id) && !recomputes(segment, step.option, id))
          keep_in(plan, id, step.run);
    }
    return plan;
  }

 private:
  /// Live bytes of a step, and of forward, of a segment alone that keeps its input and nothing else.
  struct Needs {
    SignedBytes step = 0, forward = 0;
  };

  SignedBytes bytes_of(int id) const {
    return static_cast<SignedBytes>(align_up(graph_.node(id).output_bytes));
  }
  bool is_open(int id) const {
    return graph_.node(id).policy.planned() && graph_.node(id).recomputable;
  }

  /// The plan that keeps nothing but what stands or must be kept, and recomputes all else up to `runs` times.
  Plan plan_inside(int runs) const {
    if (runs > limit_) runs = limit_;
    Plan plan = plan_from_types(graph_);
    for (const Segment& segment : tables_.segments) {
      for (int id = segment.first; id <= segment.last; ++id)
        if (is_open(id)) plan.policies[static_cast<std::size_t>(id)] = recompute(runs);
      for (const int id : segment.standing) keep_in(plan, id, 0);
    }
    return plan;
  }

  /// Activation `id` is kept from run `run` on; run 0 is forward itself.
  void keep_in(Plan& plan, int id, int run) const {
    if (is_open(id))
      plan.policies[static_cast<std::size_t>(id)] = run == 0 ? retain() : recompute(run);
  }

  const Patterns& patterns_of(const Segment& segment) const {
    return tables_.patterns[static_cast<std::size_t>(segment.structure)];
  }
  const Policy& policy_in(const Segment& segment, int pattern, int id) const {
    const Patterns& patterns = patterns_of(segment);
    const auto node = static_cast<std::size_t>(segment.local(id));
    return patterns
        .options[node]
                [patterns.choice(patterns.all[static_cast<std::size_t>(pattern)], node).option];
  }
  static bool is_output(const Segment& segment, int id) {
    for (const int output : segment.outputs)
      if (output == id) return true;
    return false;
  }
  bool recomputes(const Segment& segment, int pattern, int id) const {
    return policy_in(segment, pattern, id).recomputes();
  }
  /// Whether an arc's pattern encodes no activation that is open.
  bool is_plain(const Segment& segment, const Arc& arc) const {
    for (const int id : segment.inputs)
      if (graph_.node(id).policy.planned() && policy_in(segment, arc.pattern, id).encodes())
        return false;
    for (int id = segment.first; id <= segment.last; ++id)
      if (!is_output(segment, id) && graph_.node(id).policy.planned() &&
          policy_in(segment, arc.pattern, id).encodes())
        return false;
    return true;
  }

  Needs needs_of(const Segment& segment) const {
    Graph own = graph_of(graph_, segment);
    if (segment.has_reader && !segment.shares_output)
      own.nodes.back().backward_reads.count = 0;  // gone once backward gets here
    Plan plan = plan_from_types(own);
    const int end = segment.in_front() + segment.last + 1 - segment.first;
    for (int k = segment.in_front(); k < end; ++k)
      if (own.node(k).policy.planned() && own.node(k).recomputable)
        plan.policies[static_cast<std::size_t>(k)] = recompute();
    const Schedule schedule = make_straight_schedule(own, plan);
    const LiveBytes live = live_bytes_of(schedule);
    Needs needs;
    bool forward = true;
    for (std::size_t i = 0; i < live.size(); ++i) {
      const Op op = schedule.instructions[i].op;
      forward = forward && op != Op::loss && op != Op::loss_gradient && op != Op::hand_over;
      const auto bytes = static_cast<SignedBytes>(live[i]);
      raise(needs.step, bytes);
      if (forward) raise(needs.forward, bytes);
    }
    return needs;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const ChainTables& tables_;
  int limit_;     ///< runs of any activation
  int most_ = 0;  ///< runs of an activation between segments
  Array<NestedRuns::Range> ranges_;
  Array<SignedBytes> forward_needs_;
  SignedBytes standing_ = 0;
};

}}}  // namespace adacc::v0_1::detail
