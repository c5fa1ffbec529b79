// SPDX-License-Identifier: MIT
/// From arcs to plans: a search from the last segment to the first, exact in bytes.
///
/// A label is a partial plan of the segments behind a boundary: seconds, error, and need, the bytes on top
/// of those stored before (a maximum, hence the same for every budget). The score is the label's cost
/// plus the bound for the segments before. Labels of possible best plans are kept; if there are too many,
/// those with the lowest scores in each range of needs. The lowest score dropped is remembered: no
/// dropped plan is faster.
#pragma once

#include <cstddef>

#include "../../core/clock.hpp"
#include "prices.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct PlacementLimits {
  bool smallest = false;  ///< search for the smallest need, whatever the time
  /// With `smallest`, the worth of a unit of error in bytes, for choosing labels if there are too many.
  double error_price = 0;
  SignedBytes budget = 0;
  double tolerance = 0;
  std::size_t needs = 1;     ///< ranges of needs, per boundary and state
  std::size_t labels = 1;    ///< kept in each range
  double cutoff = infinite;  ///< only plans that cost less are of interest
  double root = -infinite;   ///< a bound for all plans
  std::size_t most_extensions = static_cast<std::size_t>(-1);  ///< labels extended by an arc
  PacerRef time;
};

struct PlacedPlan {
  SignedBytes need = 0;
  double seconds = infinite;  ///< beyond the chain's base
  double error = 0;
  std::size_t trace = 0;
};

class Placement {
 public:
  /// `bounds` may be null only if the smallest need is searched for.
  [[gnu::noinline]] Placement(const Chain& chain, const PrefixBounds* bounds,
                              const PlacementLimits& limits)
      : chain_(chain), minima_(chain, minima(), limits.time), bounds_(bounds), limits_(limits) {}

  /// Plans of the whole chain, the best first. Empty if none was found.
  [[gnu::noinline]] Array<PlacedPlan> run() {
    if (limits_.time.look()) return {};
    labels_[0].push_back(Label{});
    labels_[0][0].score = limits_.root;
    for (std::size_t j = chain_.size(); j-- > 0;) {
      if (timed_out() || gave_up()) return {};
      extend(j);
    }
    if (timed_out()) return {};
    Array<PlacedPlan> plans;
    for (const Label& label : labels_[0])
      plans.push_back({label.need, label.seconds, label.error, label.trace});
    sort(plans, [&](const PlacedPlan& a, const PlacedPlan& b) {
      if (limits_.smallest && a.need != b.need) return a.need < b.need;
      if (a.seconds != b.seconds) return a.seconds < b.seconds;
      return a.need != b.need ? a.need < b.need : a.trace < b.trace;
    });
    return plans;
  }

  /// A lower bound on plans missing in the result of run(): seconds beyond the base, or bytes if the smallest
  /// need is searched for.
  double dropped() const { return dropped_; }
  /// Time was up: there are no plans, and dropped() says nothing.
  bool timed_out() const { return limits_.time.passed(); }
  /// The number of labels extended by an arc.
  std::size_t extensions() const { return extensions_; }
  /// The search passed PlacementLimits::most_extensions: there are no plans, and dropped() says nothing.
  bool gave_up() const { return extensions_ > limits_.most_extensions; }

  /// The pattern of each segment in a plan.
  Array<int> patterns(const PlacedPlan& plan) const {
    Array<int> patterns(chain_.size());
    std::size_t trace = plan.trace;
    for (int& pattern : patterns) {
      pattern = traces_[trace].pattern;
      trace = traces_[trace].behind;
    }
    return patterns;
  }

 private:
  struct Label {
    SignedBytes need = no_bytes, on_held = no_bytes, on_peak = no_bytes;
    SignedBytes beside = 0, need_beside = no_bytes;  ///< for the right half of a pair
    SignedBytes waiting = 0;                         ///< PatternBytes::waiting of all segments
    double seconds = 0;
    double error = 0;
    double score = 0;  ///< a bound for every plan with this part
    double rank = 0;   ///< the less, the more promising
    std::size_t trace = 0;
    int pattern = 0;
  };
  /// The interval of some values, divided into equal ranges.
  struct Span {
    double least = infinite, most = -infinite;

    void add(double value) { lower(least, value), raise(most, value); }
    std::size_t range_of(double value, std::size_t count) const {
      if (count == 1 || !(most > least)) return 0;
      const double at = (value - least) / (most - least) * static_cast<double>(count);
      return at >= static_cast<double>(count) ? count - 1 : static_cast<std::size_t>(at);
    }
  };
  struct Trace {
    std::size_t behind = 0;
    int pattern = 0;
  };

  static constexpr std::size_t work_an_arc = 4;

  static Array<PrefixBounds::Weights> minima() {
    Array<PrefixBounds::Weights> weights;
    weights.push_back({0, 1, 0});
    weights.push_back({0, 0, 1});
    return weights;
  }

  void extend(std::size_t j) {
    const ArcSet& arcs = chain_.arcs_of(j);
    for (std::size_t from = 0; from < chain_.used_states; ++from) {
      next_[from].clear();
      if (!open(j, from)) continue;
      for (std::size_t to = 0; to < chain_.used_states; ++to)
        for (const Label& behind : labels_[to]) {
          const ArcSet::Range between = arcs.between(from, to);
          if (limits_.time.spend(work_an_arc *
                                 static_cast<std::size_t>(between.last - between.first)))
            return;
          for (const Arc& arc : between) consider(behind, arc);
        }
      close(from, j == 0);
      if (timed_out()) return;
    }
    if (!arcs.complete)
      for (const Array<Label>& list : labels_)
        for (const Label& label : list) drop(label.score);
    for (std::size_t s = 0; s < states; ++s) {
      labels_[s].clear();
      for (Label& label : next_[s]) {
        traces_.push_back({label.trace, label.pattern});
        label.trace = traces_.size() - 1;
        labels_[s].push_back(label);
      }
    }
  }

  /// Extends a label by an arc, by the recurrence of PrefixBounds from the other end, and pools the result.
  void consider(const Label& behind, const Arc& arc) {
    ++extensions_;
    const PatternBytes& bytes = arc.bytes;
    Label label;
    label.waiting = behind.waiting + bytes.waiting;
    label.need = larger(bytes.need + behind.waiting, behind.need + bytes.stored);
    if (is_replay(arc.to)) {
      raise(label.need, behind.on_peak + bytes.peak_on_stored);
      if (!bytes.keeps_replay) raise(label.need, behind.on_held + bytes.held);
    }
    if (arc.to == paired) {
      raise(label.need, bytes.need_beside + behind.beside + behind.waiting);
      raise(label.need, behind.need_beside + bytes.beside);
    }
    if (static_cast<double>(label.need) > room_) return;
    label.error = behind.error + arc.error;
    if (label.error > room_for_error_) return;
    label.seconds = behind.seconds + arc.seconds;
    if (is_replay(arc.from)) {
      label.on_held = bytes.need_on_held + behind.waiting;
      label.on_peak = bytes.need_on_peak + behind.waiting;
      if (is_replay(arc.to)) {
        raise(label.on_held, behind.on_peak + bytes.peak_on_held);
        if (bytes.keeps_replay) raise(label.on_held, behind.on_held + bytes.held);
        raise(label.on_peak, behind.on_peak + bytes.peak_on_peak);
      }
      if (static_cast<double>(label.on_held) > held_room_ ||
          static_cast<double>(label.on_peak) > peak_room_)
        return;
    }
    if (arc.from == paired) {
      label.beside = bytes.beside;
      label.need_beside = bytes.need_beside + behind.waiting;
    }
    label.score = limits_.smallest ? peak(label) : score(label);
    if (label.score >= limits_.cutoff) return drop(label.score);
    label.rank = label.score + (limits_.smallest ? limits_.error_price * label.error : 0);
    label.trace = behind.trace;
    label.pattern = arc.pattern;
    needs_seen_.add(place_of(label));
    pool_.push_back(label);
  }

  /// The need by which a label's range is found; for labels of a replay, the need on top of the replay.
  double place_of(const Label& label) const {
    return static_cast<double>(is_replay_ ? label.on_held : label.need);
  }

  /// The smallest peak of plans with this label.
  double peak(const Label& label) const {
    double most = static_cast<double>(label.need) + *least_;
    if (label.on_held > no_bytes / 2) raise(most, static_cast<double>(label.on_held) + least_[2]);
    if (label.on_peak > no_bytes / 2) raise(most, static_cast<double>(label.on_peak) + least_[4]);
    return most;
  }

  double score(const Label& label) const {
    double bound = -infinite;
    const auto budget = static_cast<double>(limits_.budget);
    const double error = label.error - limits_.tolerance;
    const std::size_t count = bounds_->count();
    const SignedBytes needs[] = {label.need, label.on_held, label.on_peak};
    for (std::size_t kind = 0; kind < 3; ++kind) {
      if (needs[kind] <= no_bytes / 2) continue;
      const double over = static_cast<double>(needs[kind]) - budget;
      for (std::size_t i = 0; i < count; ++i) {
        const PrefixBounds::Weights& price = bounds_->weights(i);
        raise(bound, ahead_[kind * count + i] + price.byte * over + price.error * error);
      }
    }
    return bound + label.seconds;
  }

  /// Begins the labels of one boundary and state, with empty ranges. False if no path leads there.
  bool open(std::size_t j, std::size_t from) {
    least_ = minima_.values(j, from, PrefixBounds::stored);
    if (*least_ >= infinite) return false;
    if (bounds_ != nullptr) ahead_ = bounds_->values(j, from, PrefixBounds::stored);
    is_replay_ = is_replay(from);
    room_for_error_ = limits_.tolerance - least_[1] + 1e-12 * limits_.tolerance;
    // If the smallest need is searched for, there is no budget.
    const double budget = limits_.smallest ? infinite : static_cast<double>(limits_.budget);
    room_ = budget - least_[0];
    held_room_ = budget - least_[2];
    peak_room_ = budget - least_[4];
    needs_ = !is_replay_        ? limits_.needs
             : limits_.smallest ? ChainTuning::replay_needs
                                : (limits_.needs + 1) / 2;
    slots_.clear();
    slots_.resize(needs_);
    pool_.clear();
    kept_.clear();
    next_in_slot_.clear();
    needs_seen_ = {};
    return true;
  }

  /// Keeps `label` if good enough for its range. Returns the number of labels compared, plus 1.
  std::size_t keep(const Label& label) {
    std::size_t& slot = slots_[needs_seen_.range_of(place_of(label), needs_)];
    std::size_t count = 0, worst = 0;
    for (std::size_t at = slot; at > 0; at = next_in_slot_[at - 1], ++count) {
      Label& holder = kept_[at - 1];
      if (as_good(holder, label)) return count + 1;
      if (as_good(label, holder)) {
        holder = label;
        return count + 1;
      }
      if (worst == 0 || holder.rank > kept_[worst - 1].rank) worst = at;
    }
    if (count < limits_.labels) {
      kept_.push_back(label);
      next_in_slot_.push_back(slot);
      slot = kept_.size();
    } else if (Label& holder = kept_[worst - 1]; label.rank < holder.rank) {
      drop(holder.score);
      holder = label;
    } else {
      drop(label.score);
    }
    return count + 1;
  }

  static bool as_good(const Label& a, const Label& b) {
    return a.need <= b.need && a.seconds <= b.seconds && a.error <= b.error &&
           a.on_held <= b.on_held && a.on_peak <= b.on_peak && a.waiting <= b.waiting &&
           a.beside <= b.beside && a.need_beside <= b.need_beside;
  }

  /// Keeps the best pooled labels, and hands them on by range, without dominated ones. Whole plans are all
  /// handed on, as the layouts of equally good plans differ.
  void close(std::size_t from, bool whole) {
    for (const Label& label : pool_)
      if (limits_.time.spend(keep(label))) return;
    Array<Label>& out = next_[from];
    for (const std::size_t slot : slots_)
      for (std::size_t at = slot; at > 0; at = next_in_slot_[at - 1]) {
        if (limits_.time.spend(ChainTuning::labels_compared / 4)) return;
        const Label& label = kept_[at - 1];
        bool best = true;
        for (std::size_t i = out.size(), n = 0; i-- > 0 && n < ChainTuning::labels_compared && best;
             ++n)
          best = !as_good(out[i], label);
        if (best || (whole && !limits_.smallest)) out.push_back(label);
      }
  }

  void drop(double score) {
    lower(dropped_, limits_.smallest ? score : larger(score, limits_.root));
  }

  const Chain& chain_;
  PrefixBounds minima_;  ///< least bytes, and least error
  const PrefixBounds* bounds_;
  PlacementLimits limits_;
  double dropped_ = infinite;
  std::size_t extensions_ = 0;
  Array<Label> labels_[states], next_[states];
  Array<Trace> traces_{1};
  // For the boundary and state whose labels are being collected:
  const double* least_ = nullptr;  ///< bytes and error: stored, held, peak
  const double* ahead_ = nullptr;
  double room_ = 0, held_room_ = 0, peak_room_ = 0, room_for_error_ = 0;
  Span needs_seen_;
  bool is_replay_ = false;
  std::size_t needs_ = 1;
  Array<std::size_t> slots_;  ///< by range, the first label plus 1
  Array<Label> pool_, kept_;
  Array<std::size_t> next_in_slot_;
};

}}}  // namespace adacc::v0_1::detail
