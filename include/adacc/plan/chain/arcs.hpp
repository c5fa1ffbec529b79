// SPDX-License-Identifier: MIT
/// What the patterns of a segment cost, as arcs from one boundary between segments to the next.
///
/// At a boundary the activation before it is in a state (patterns.hpp). The error that a replay carries
/// into a segment is not counted, so sums of errors are a bound; it matters little, and whole plans are
/// checked. Arcs between the same two states that are no better in anything are dropped: of a
/// transformer's half block about a hundred remain.
#pragma once

#include <cstddef>

#include "../../core/clock.hpp"
#include "../../cost/evaluate.hpp"
#include "patterns.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// One pattern between two states.
struct Arc {
  PatternBytes bytes;
  double seconds = 0;  ///< beyond a step that retains everything
  double error = 0;    ///< without what a replay carries into it
  int pattern = 0;
  std::uint8_t from = 0;
  std::uint8_t to = 0;
};

/// What counts of an arc if its need does not.
struct StoringArc {
  double seconds = 0, bytes = 0, error = 0;
  std::size_t arc = 0;
};

/// One option of one activation by itself.
struct LooseOption {
  double seconds = 0, bytes = 0, error = 0;
};

/// The arcs of all segments of one cost class, by `to`, then `from`.
struct ArcSet {
  Array<Arc> arcs;                   ///< of each (to, from) in the order of their seconds
  Array<std::size_t> first;          ///< of (to, from), at to * states + from; one more at the end
  Array<StoringArc> storing;         ///< without those that others dominate
  Array<std::size_t> first_storing;  ///< as `first`
  /// If patterns were left out: the options of each activation. No pattern costs less than the best
  /// option of each.
  bool complete = true;
  Array<Array<LooseOption>> loose;

  struct Range {
    const Arc* first;
    const Arc* last;
    const Arc* begin() const { return first; }
    const Arc* end() const { return last; }
  };
  Range between(std::size_t from, std::size_t to) const {
    const std::size_t at = to * states + from;
    return {arcs.data() + first[at], arcs.data() + first[at + 1]};
  }

  /// What no pattern costs less than, if a second, a byte and an error cost so much. Valid, but
  /// without a meaning, if patterns are complete.
  LooseOption least(double second, double byte, double error) const {
    LooseOption sum;
    for (const Array<LooseOption>& options : loose) {
      const LooseOption* best = nullptr;
      double least = infinite;
      for (const LooseOption& option : options) {
        const double cost = second * option.seconds + byte * option.bytes + error * option.error;
        if (cost < least) least = cost, best = &option;
      }
      sum.seconds += best->seconds;
      sum.bytes += best->bytes;
      sum.error += best->error;
    }
    return sum;
  }

  /// Appends the arcs between two states, the fastest first, without those that others dominate. If time
  /// is up, some are missing.
  void append_pair(const Arc* all, std::size_t count, PacerRef time);
  /// Ends the last pair, and lists what stores.
  void close();
  /// Makes all seconds 0: what is left are the arcs that count if time does not. The same holds.
  void forget_time(PacerRef time);
};

/// Whether `a` is at least as good as `b` in everything that matters.
inline bool dominates(const Arc& a, const Arc& b) {
  const PatternBytes &x = a.bytes, &y = b.bytes;
  return a.seconds <= b.seconds && a.error <= b.error && x.need <= y.need && x.stored <= y.stored &&
         x.waiting <= y.waiting && x.keeps_replay == y.keeps_replay &&
         x.need_on_held <= y.need_on_held && x.need_on_peak <= y.need_on_peak && x.held <= y.held &&
         x.peak_on_stored <= y.peak_on_stored && x.peak_on_held <= y.peak_on_held &&
         x.peak_on_peak <= y.peak_on_peak && x.beside <= y.beside && x.need_beside <= y.need_beside;
}

inline void ArcSet::append_pair(const Arc* all, std::size_t count, PacerRef time) {
  struct Key {  // what most often tells that one does not dominate, close together in memory
    double seconds = 0, error = 0;
    SignedBytes need = 0, stored = 0;
    std::size_t arc = 0;
  };
  Array<Key> keys(count);
  for (std::size_t i = 0; i < count; ++i)
    keys[i] = {all[i].seconds, all[i].error, all[i].bytes.need, all[i].bytes.stored, i};
  sort(keys, [](const Key& a, const Key& b) {
    if (a.seconds != b.seconds) return a.seconds < b.seconds;
    if (a.stored != b.stored) return a.stored < b.stored;
    return a.error != b.error ? a.error < b.error : a.arc < b.arc;
  });
  first.push_back(arcs.size());
  std::size_t kept = 0;
  for (const Key& key : keys) {
    if (time.spend(1 + kept / 4)) break;
    bool best = true;
    for (std::size_t k = 0; k < kept && best; ++k)
      best = keys[k].need > key.need || keys[k].stored > key.stored || keys[k].error > key.error ||
             !dominates(all[keys[k].arc], all[key.arc]);
    if (!best) continue;
    arcs.push_back(all[key.arc]);
    keys[kept++] = key;
  }
}

inline void ArcSet::close() {
  first.push_back(arcs.size());
  for (std::size_t at = 0; at + 1 < first.size(); ++at) {
    const std::size_t begin = storing.size();
    first_storing.push_back(begin);
    for (std::size_t i = first[at]; i < first[at + 1]; ++i) {
      const auto bytes = static_cast<double>(arcs[i].bytes.stored);
      bool best = true;
      for (std::size_t k = begin; k < storing.size() && best; ++k)
        best = storing[k].bytes > bytes || storing[k].error > arcs[i].error;
      if (best) storing.push_back({arcs[i].seconds, bytes, arcs[i].error, i});
    }
  }
  first_storing.push_back(storing.size());
}

inline void ArcSet::forget_time(PacerRef time) {
  Array<Arc> all = static_cast<Array<Arc>&&>(arcs);
  const Array<std::size_t> ends = static_cast<Array<std::size_t>&&>(first);
  for (Arc& arc : all) arc.seconds = 0;
  for (std::size_t pair = 0; pair + 1 < ends.size(); ++pair)
    append_pair(all.data() + ends[pair], ends[pair + 1] - ends[pair], time);
  first.push_back(arcs.size());
}

/// The arcs of a plan's segments.
struct Chain {
  Array<std::size_t> classes, structures;  ///< of its segments
  Array<ArcSet> arcs;                      ///< by class
  double base_seconds = 0;                 ///< of a step that retains everything
  /// The least that a replay takes on top of what is stored, at [boundary * states + state].
  struct Replay {
    double held = infinite, peak = infinite;
    double beside = infinite;  ///< of the right half of a pair
  };
  Array<Replay> replays;
  std::size_t used_states = kept;  ///< no arc has a state from here on

  std::size_t size() const { return classes.size(); }
  const ArcSet& arcs_of(std::size_t segment) const { return arcs[classes[segment]]; }

  /// Fills `replays` and `used_states`, once the arcs are complete.
  [[gnu::noinline]] void settle() {
    replays.resize((size() + 1) * states);
    for (std::size_t j = 0; j < size(); ++j)
      for (const Arc& arc : arcs_of(j).arcs) {
        const PatternBytes& bytes = arc.bytes;
        if (arc.to == kept) used_states = states;
        if (arc.from == paired)
          lower(replays[j * states + paired].beside, static_cast<double>(bytes.beside));
        if (!is_replay(arc.to)) continue;
        const Replay from = replays[j * states + arc.from];
        Replay& to = replays[(j + 1) * states + arc.to];
        const auto stored = static_cast<double>(bytes.stored);
        lower(to.held,
              (bytes.keeps_replay ? from.held : 0) + static_cast<double>(bytes.held) - stored);
        double peak = static_cast<double>(bytes.peak_on_stored);
        if (is_replay(arc.from)) {
          raise(peak, from.held + static_cast<double>(bytes.peak_on_held));
          raise(peak, from.peak + static_cast<double>(bytes.peak_on_peak));
        }
        lower(to.peak, peak - stored);
      }
  }

  /// The least that an arc of `segment` needs on top of what is stored before it: perhaps nothing,
  /// for that is there anyway.
  double need(std::size_t segment, const Arc& arc) const {
    double need = larger(static_cast<double>(arc.bytes.need), 0.0);
    if (arc.to == paired && arc.bytes.need_beside > no_bytes)
      raise(need, replays[(segment + 1) * states + paired].beside +
                      static_cast<double>(arc.bytes.need_beside));
    if (!is_replay(arc.from)) return need;
    const Replay& replay = replays[segment * states + arc.from];
    raise(need, replay.held + static_cast<double>(arc.bytes.need_on_held));
    raise(need, replay.peak + static_cast<double>(arc.bytes.need_on_peak));
    return need;
  }
};

/// Puts seconds and errors to the patterns of a structure.
class ArcMaker {
 public:
  ArcMaker(const Graph& graph, const CostProfile& profile) : graph_(graph), profile_(profile) {}

  /// If time is up, arcs are missing.
  [[gnu::noinline]] ArcSet make(const Patterns& patterns, const Segment& segment,
                                PacerRef time = {}) {
    price(patterns, segment);
    ArcSet out;
    Array<int> originals;  // of the nodes
    Array<bool> outgoing;
    for (std::size_t k = 0; k < patterns.nodes(); ++k) {
      originals.push_back(segment.original(static_cast<int>(k)));
      outgoing.push_back(patterns.is_outgoing(k));
    }
    Array<Arc> groups[states * states];
    for (std::size_t p = 0; p < patterns.all.size() && !time.spend(patterns.nodes()); ++p) {
      const Pattern& pattern = patterns.all[p];
      Arc arc;
      arc.bytes = pattern.bytes;
      arc.pattern = static_cast<int>(p);
      arc.from = pattern.from;
      arc.to = pattern.to;
      bool together = false;  // of what one forward makes, some of those so far are made again
      for (std::size_t k = 0; k < patterns.nodes(); ++k) {
        const Choice& choice = patterns.choice(pattern, k);
        const Option& option = options_[first_option_[k] + choice.option];
        if (choice.needed) arc.seconds += option.seconds;
        if (const int node = originals[k]; node >= segment.first) {
          const bool again = choice.needed && option.recompute, last = !graph_.made_with_next(node);
          if (last && together && !again)
            arc.seconds += profile_.node(graph_.maker_of(node)).forward;
          together = !last && (together || again);
        }
        if (outgoing[k]) continue;
        arc.error += option.recompute ? carried(originals[k], choice.lossy) : option.error;
      }
      groups[arc.to * states + arc.from].push_back(arc);
    }
    for (const Array<Arc>& group : groups) out.append_pair(group.data(), group.size(), time);
    out.close();
    out.complete = patterns.complete;
    if (!out.complete) loosen(segment, out.loose);
    return out;
  }

 private:
  struct Option {
    double seconds = 0;
    double error = 0;
    bool recompute = false;
  };

  void price(const Patterns& patterns, const Segment& segment) {
    options_.clear();
    first_option_.clear();
    for (std::size_t k = 0; k < patterns.nodes(); ++k) {
      const int node = segment.original(static_cast<int>(k));
      first_option_.push_back(options_.size());
      for (const Policy& policy : patterns.options[k])
        options_.push_back({seconds_here(segment, node, policy),
                            error_of(graph_, profile_, node, policy), policy.recomputes()});
    }
  }

  /// The segment in front makes the incoming activation again.
  double seconds_here(const Segment& segment, int node, const Policy& policy) const {
    return node < segment.first && policy.recomputes() ? 0
                                                       : seconds_of(graph_, profile_, node, policy);
  }

  double carried(int node, std::uint64_t lossy) const {
    double sum = 0;
    for (int c = 0; lossy != 0 && graph_.node(node).read_in_backward; ++c, lossy >>= 1)
      if ((lossy & 1) != 0) sum += profile_.codec_cost(node, c).carried_error;
    return sum;
  }

  void loosen(const Segment& segment, Array<Array<LooseOption>>& out) const {
    const int count = segment.in_front() + segment.last + 1 - segment.first;
    for (int i = static_cast<int>(segment.standing_inputs.size()); i < count; ++i) {
      const int k = segment.original(i);
      Array<LooseOption> options;
      options.push_back(
          {0, k < segment.first ? 0 : static_cast<double>(align_up(graph_.node(k).aux_bytes)), 0});
      out.push_back(options);
      const IdSpan outputs(segment.outputs.data(), segment.outputs.size());
      if (!graph_.node(k).read_in_backward || outputs.contains(k)) continue;
      options.clear();
      for (const Policy& policy : policies_of(graph_, k))
        options.push_back({seconds_here(segment, k, policy),
                           static_cast<double>(stored_bytes(graph_, k, policy)),
                           error_of(graph_, profile_, k, policy)});
      out.push_back(options);
    }
  }

  const Graph& graph_;
  const CostProfile& profile_;
  Array<Option> options_;
  Array<std::size_t> first_option_;
};

}}}  // namespace adacc::v0_1::detail
