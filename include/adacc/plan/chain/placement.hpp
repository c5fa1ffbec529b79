/// From patterns to a plan: a search from the last segment to the first, exact in bytes.
///
/// A partial plan of the segments behind a boundary is known by what it needs on top of whatever
/// lies before (a maximum, so it does not depend on the budget), its seconds and its error. Every
/// one that may still become the best is kept where that is possible; where there are too many, the
/// most promising of each range of needs and errors. Promise is its cost plus the bound for the
/// segments before it. What is dropped is remembered by the smallest of these sums: no plan that
/// was dropped is faster.
#pragma once

#include <cstddef>

#include "prefix.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct PlacementLimits {
  SignedBytes budget = 0;
  double tolerance = 0;
  std::size_t needs = 32;  ///< ranges of needs, per state; 0: look for the smallest need instead
  std::size_t errors = 1;  ///< ranges of errors
  std::size_t labels = 1;  ///< partial plans kept in each range of both
  double cutoff = unreachable;  ///< plans that cost as much are of no interest
  double root = -unreachable;   ///< a bound for all plans
  std::size_t most_extensions = static_cast<std::size_t>(-1);  ///< of partial plans by a move
  double (*now)() = nullptr;
  double deadline = 0;
};

struct PlacedPlan {
  SignedBytes need = 0;
  double seconds = unreachable;  ///< beyond the chain's base
  double error = 0;
  std::size_t trace = 0;
};

class Placement {
 public:
  /// `bounds` may be null only where the smallest need is looked for.
  Placement(const Chain& chain, const PrefixMinima& minima, const PrefixBounds* bounds,
            const PlacementLimits& limits)
      : chain_(chain), minima_(minima), bounds_(bounds), limits_(limits),
        smallest_(limits.needs == 0), dropped_(unreachable) {}

  /// Plans of the whole chain, the best first. Empty where none was found.
  Array<PlacedPlan> run() {
    const auto states = static_cast<std::size_t>(chain_.states);
    labels_.resize(states);
    labels_[0].push_back(Label{});
    labels_[0][0].score = limits_.root;
    for (std::size_t j = chain_.size(); j-- > 0;) {
      if (limits_.now != nullptr && (j & 15) == 0 && limits_.now() > limits_.deadline) {
        timed_out_ = true;
        return {};
      }
      if (extensions_ > limits_.most_extensions) return {};
      extend(j);
    }
    Array<PlacedPlan> plans;
    for (const Label& label : labels_[0])
      plans.push_back({label.need, label.seconds, label.error, label.trace});
    sort(plans, [&](const PlacedPlan& a, const PlacedPlan& b) {
      if (smallest_ && a.need != b.need) return a.need < b.need;
      if (a.seconds != b.seconds) return a.seconds < b.seconds;
      return a.need != b.need ? a.need < b.need : a.trace < b.trace;
    });
    return plans;
  }

  /// No plan that is missing among run()'s is below this: in seconds beyond the base (where the
  /// smallest need is looked for, in bytes).
  double dropped() const { return dropped_; }
  bool timed_out() const { return timed_out_; }
  /// It took more than PlacementLimits::most_extensions: it has no plans, and dropped() says
  /// nothing.
  bool gave_up() const { return extensions_ > limits_.most_extensions; }
  std::size_t extensions() const { return extensions_; }

  /// Which pattern each segment has in a plan.
  Array<int> patterns(const PlacedPlan& plan) const {
    Array<int> patterns(chain_.size());
    std::size_t trace = plan.trace;
    for (std::size_t j = 0; j < chain_.size(); ++j) {
      patterns[j] = traces_[trace].pattern;
      trace = traces_[trace].behind;
    }
    return patterns;
  }

 private:
  struct Label {
    SignedBytes need = no_bytes, on_run = no_bytes, on_making = no_bytes;
    double seconds = 0;
    double error = 0;
    double score = 0;  ///< a bound for every plan that it is part of
    std::size_t trace = 0;
    int pattern = 0;
  };
  /// From the least to the most of some values, cut into equal ranges.
  struct Span {
    double least = unreachable, most = -unreachable;

    void add(double value) {
      if (value < least) least = value;
      if (value > most) most = value;
    }
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

  static SignedBytes larger(SignedBytes a, SignedBytes b) { return a > b ? a : b; }

  void extend(std::size_t j) {
    const SegmentMoves& moves = chain_.moves_of(j);
    for (int from = 0; from < chain_.states; ++from) {
      open(j, from);
      if (minima_.at(j, from).stored >= unreachable) continue;
      for (int to = 0; to < chain_.states; ++to)
        for (const Label& behind : labels_[static_cast<std::size_t>(to)])
          for (const Move& move : moves.between(from, to)) consider(from, behind, move);
      close(from);
    }
    if (!moves.complete)
      for (const Array<Label>& list : labels_)
        for (const Label& label : list) drop(label.score);
    for (std::size_t s = 0; s < labels_.size(); ++s) {
      labels_[s].clear();
      for (Label& label : next_[s]) {
        traces_.push_back({label.trace, label.pattern});
        label.trace = traces_.size() - 1;
        labels_[s].push_back(label);
      }
    }
  }

  void consider(int from, const Label& behind, const Move& move) {
    ++extensions_;
    const PatternBytes& bytes = move.bytes;
    Label label;
    label.need = larger(bytes.need, behind.need + bytes.stored);
    if (move.to > 0) {
      label.need = larger(label.need, behind.on_making + bytes.making_on_stored);
      if (!bytes.keeps_run) label.need = larger(label.need, behind.on_run + bytes.run);
    }
    if (static_cast<double>(label.need) > room_) return;
    label.error = behind.error + move.error;
    if (label.error > room_for_error_) return;
    label.seconds = behind.seconds + move.seconds;
    if (from > 0) {
      label.on_run = bytes.need_on_run;
      label.on_making = bytes.need_on_making;
      if (move.to > 0) {
        label.on_run = larger(label.on_run, behind.on_making + bytes.making_on_run);
        if (bytes.keeps_run) label.on_run = larger(label.on_run, behind.on_run + bytes.run);
        label.on_making = larger(label.on_making, behind.on_making + bytes.making_on_making);
      }
      if (static_cast<double>(label.on_run) > run_room_ ||
          static_cast<double>(label.on_making) > making_room_)
        return;
    }
    label.score = smallest_ ? peak(label) : score(label);
    if (label.score >= limits_.cutoff) return drop(label.score);
    label.trace = behind.trace;
    label.pattern = move.pattern;
    needs_seen_.add(place_of(label));
    errors_seen_.add(label.error);
    pool_.push_back(label);
  }

  /// Labels of runs are told apart by what they need on top of the run.
  double place_of(const Label& label) const {
    return static_cast<double>(is_run_ ? label.on_run : label.need);
  }

  /// The smallest peak that a label may lead to.
  double peak(const Label& label) const {
    double most = static_cast<double>(label.need) + least_.stored;
    const auto raise = [&](SignedBytes need, double least) {
      if (need > no_bytes / 2 && static_cast<double>(need) + least > most)
        most = static_cast<double>(need) + least;
    };
    raise(label.on_run, least_.run);
    raise(label.on_making, least_.making);
    return most;
  }

  double score(const Label& label) const {
    double bound = -unreachable;
    const auto budget = static_cast<double>(limits_.budget);
    const double error = label.error - limits_.tolerance;
    const auto raise = [&](SignedBytes need, const double* values) {
      const double over = static_cast<double>(need) - budget;
      for (std::size_t i = 0; i < bounds_->price_count(); ++i) {
        const Prices& price = bounds_->price(i);
        const double value = values[i] + price.byte * over + price.error * error;
        if (value > bound) bound = value;
      }
    };
    raise(label.need, stored_);
    if (label.on_run > no_bytes / 2) raise(label.on_run, run_);
    if (label.on_making > no_bytes / 2) raise(label.on_making, making_);
    return bound + label.seconds;
  }

  /// Empty ranges for the labels of one boundary and state.
  void open(std::size_t j, int from) {
    boundary_ = j;
    next_.resize(labels_.size());
    next_[static_cast<std::size_t>(from)].clear();
    least_ = minima_.at(j, from);
    if (least_.stored >= unreachable) return;
    is_run_ = from > 0;
    room_for_error_ = limits_.tolerance - least_.error + 1e-12 * limits_.tolerance;
    // Where the smallest need is looked for, any is welcome.
    const auto budget = smallest_ ? unreachable : static_cast<double>(limits_.budget);
    room_ = budget - least_.stored;
    run_room_ = budget - least_.run;
    making_room_ = budget - least_.making;
    if (bounds_ != nullptr) {
      stored_ = bounds_->values(j, from, PrefixBounds::stored);
      run_ = bounds_->values(j, from, PrefixBounds::run);
      making_ = bounds_->values(j, from, PrefixBounds::making);
    }
    if (smallest_) needs_ = is_run_ ? 16 : limits_.labels > 1 ? 4 : 1;
    else needs_ = is_run_ ? (limits_.needs + 1) / 2 : limits_.needs;
    slots_.clear();
    slots_.resize(needs_ * limits_.errors);
    pool_.clear();
    candidates_.clear();
    next_in_slot_.clear();
    needs_seen_ = errors_seen_ = {};
  }

  std::size_t slot_of(const Label& label) const {
    return needs_seen_.range_of(place_of(label), needs_) * limits_.errors +
           errors_seen_.range_of(label.error, limits_.errors);
  }

  void keep(const Label& label) {
    std::size_t& slot = slots_[slot_of(label)];
    std::size_t count = 0, worst = 0;
    for (std::size_t at = slot; at > 0; at = next_in_slot_[at - 1], ++count) {
      Label& holder = candidates_[at - 1];
      if (as_good(holder, label)) return;
      if (as_good(label, holder)) {
        holder = label;
        return;
      }
      if (worst == 0 || holder.score > candidates_[worst - 1].score) worst = at;
    }
    if (count < limits_.labels) {
      candidates_.push_back(label);
      next_in_slot_.push_back(slot);
      slot = candidates_.size();
    } else if (Label& holder = candidates_[worst - 1]; label.score < holder.score) {
      drop(holder.score);
      holder = label;
    } else {
      drop(label.score);
    }
  }

  static bool as_good(const Label& a, const Label& b) {
    return a.need <= b.need && a.seconds <= b.seconds && a.error <= b.error &&
           a.on_run <= b.on_run && a.on_making <= b.on_making;
  }

  /// Keeps the best of what was considered. Hands the candidates on in the order of their ranges,
  /// without those that another dominates.
  void close(int from) {
    for (const Label& label : pool_) keep(label);
    Array<Label>& out = next_[static_cast<std::size_t>(from)];
    for (const std::size_t slot : slots_)
      for (std::size_t at = slot; at > 0; at = next_in_slot_[at - 1]) {
        const Label& label = candidates_[at - 1];
        bool best = true;
        constexpr std::size_t looked_at = 64;
        for (std::size_t i = out.size(), n = 0; i-- > 0 && n < looked_at && best; ++n)
          best = !as_good(out[i], label);
        if (best || (boundary_ == 0 && !smallest_))
          out.push_back(label);  // layouts tell equal plans apart
      }
  }

  void drop(double score) {
    if (!smallest_ && score < limits_.root) score = limits_.root;
    if (score < dropped_) dropped_ = score;
  }

  const Chain& chain_;
  const PrefixMinima& minima_;
  const PrefixBounds* bounds_;
  PlacementLimits limits_;
  bool smallest_;
  double dropped_;
  bool timed_out_ = false;
  std::size_t extensions_ = 0;
  Array<Array<Label>> labels_, next_;  ///< by state
  Array<Trace> traces_{1};
  // Of the boundary and state whose labels are being collected.
  std::size_t boundary_ = 0;
  PrefixMinima::Least least_;
  double room_ = 0, run_room_ = 0, making_room_ = 0, room_for_error_ = 0;
  Span needs_seen_, errors_seen_;
  const double* stored_ = nullptr;
  const double* run_ = nullptr;
  const double* making_ = nullptr;
  bool is_run_ = false;
  std::size_t needs_ = 1;
  Array<std::size_t> slots_;  ///< of each range, its first candidate plus 1
  Array<Label> pool_, candidates_;
  Array<std::size_t> next_in_slot_;
};

}}}  // namespace adacc::v0_1::detail
