/// A plan that evolves while training runs: what is observed goes in, changes of the plan come out.
///
/// Pure logic, without clock or randomness of its own: the same observations give the same plans.
/// Nothing happens but in advance(), between two steps. Four things make it plan again:
///
///   - the gradient's error passes twice what was planned, in two checks running. Errors are those
///     probed last, scaled by the codecs' own measure of their noise since then. Whoever doubled
///     leaves its codec; others change only where the budget forces them to;
///   - it falls below half of what was planned in two checks running, or a new probe shows half of
///     the error that a codec was left for: what was lost may return;
///   - the budget changes, to be met at the next step;
///   - steps take another time than the profile says, and a new profile is there.
///
/// A tensor changes its policy at most once per window, but for what a new budget takes. Every plan
/// is one of least error among those as fast as the planner's (least_error.hpp). A re-plan that
/// finds nothing keeps the plan, and says why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../codec/statistics.hpp"
#include "../step/layout.hpp"
#include "evaluate.hpp"
#include "least_error.hpp"

namespace adacc::inline v0_1 {

enum class ChangeReason : std::uint8_t {
  codec_failed,    ///< its error passed twice what was planned
  made_room,       ///< for one whose codec failed: the budget forced it
  error_fell,      ///< less error than planned leaves room for a faster policy
  times_drifted,   ///< under the times measured last, this is faster
  budget_changed,  ///< by the caller
};

constexpr const char* name_of(ChangeReason reason) {
  constexpr const char* names[] = {"codec failed", "made room", "error fell", "times drifted",
                                   "budget changed"};
  return names[static_cast<int>(reason)];
}

/// One activation's change of policy, in force from `step` on.
struct PlanChange {
  std::uint64_t step = 0;
  int activation = 0;
  Policy from, to;
  ChangeReason reason = ChangeReason::codec_failed;

  friend constexpr bool operator==(const PlanChange&, const PlanChange&) = default;
};

struct EvolutionOptions {
  std::uint64_t check_every = 10;    ///< steps from one look at the codecs' statistics to the next
  std::uint64_t probe_every = 1000;  ///< steps from one probe of gradient errors to the next
  std::uint64_t window = 100;        ///< steps in which a tensor changes policy at most once
  int checks = 2;                    ///< running, that have to agree
  double above = 2;                  ///< times the planned error: a codec fails
  double below = 0.5;                ///< times the planned error: what was lost may return
  double drift = 0.25;   ///< share by which steps get slower or faster before times are measured
  int timed_steps = 16;  ///< whose median is one check of times
  double gain = 0.02;    ///< share of a step that a change must win, where nothing forces it
  int rounds = 6;        ///< of plan_least_error
};

struct EvolutionUpdate {
  bool changed = false;  ///< the plan is another one, and its program must be compiled
  Array<PlanChange> changes;
  Error failed;  ///< why something that was asked for, or seemed due, left the plan as it was
};

class Evolution {
 public:
  Evolution() = default;

  /// Plans `graph`. Fails as the planner does, and where the options make no sense.
  static Result<Evolution> start(Graph graph, CostProfile profile, const PlanRequest& request,
                                 Planner planner, const EvolutionOptions& options = {}) {
    if (planner == nullptr) return Error::say("an evolving plan needs a planner");
    if (options.check_every == 0 || options.probe_every == 0 || options.checks < 1 ||
        options.timed_steps < 1 || !(options.above > 1) || !(options.below < 1) ||
        !(options.below >= 0) || !(options.drift > 0) || !(options.gain >= 0))
      return Error::say(
          "an evolving plan checks every 1 step or more, above 1 and below 1 times "
          "the planned error, with a drift above 0 and a gain of 0 or more");
    Evolution made;
    made.planner_ = planner;
    made.options_ = options;
    made.request_ = request;
    Result<PlanOutcome> outcome =
        plan_least_error(planner, graph, profile, request, options.rounds);
    if (!outcome) return outcome.error;
    made.graph_ = static_cast<Graph&&>(graph);
    made.profile_ = static_cast<CostProfile&&>(profile);
    made.watches_.resize(made.profile_.codec_costs.size());
    made.changed_at_.resize(made.graph_.nodes.size());
    for (std::uint64_t& at : made.changed_at_) at = never;
    made.settle(static_cast<PlanOutcome&&>(*outcome));
    return made;
  }

  const Plan& plan() const { return outcome_.plan; }
  const PlanOutcome& outcome() const { return outcome_; }
  const Graph& graph() const { return graph_; }
  const EvolutionOptions& options() const { return options_; }
  std::size_t budget_bytes() const { return request_.budget_bytes; }

  /// The profile, with the errors probed last.
  const CostProfile& profile() const { return profile_; }

  /// The gradient's error as observed last, and as planned.
  double observed_error() const { return error_of(graph_, observed_profile(), plan()); }
  double planned_error() const { return planned_error_; }

  /// Whether step `step` is one whose statistics are to be observed, or before which gradient
  /// errors are to be probed.
  bool wants_statistics(std::uint64_t step) const { return step % options_.check_every == 0; }
  bool wants_probe(std::uint64_t step) const {
    return step > 0 && step % options_.probe_every == 0;
  }
  /// Steps take another time than they did: observe_profile() is waited for.
  bool wants_profile() const { return wants_profile_; }

  /// What the codec of `activation` saw in the step that ran last.
  void observe_statistics(int activation, const CodecStatistics& seen) {
    const int column = profile_.column(plan()[activation].codec);
    if (column < 0 || seen.elements == 0) return;
    Watch& watch = watch_of(activation, column);
    checked_ = true;
    watch.misfit = seen.samples == 0 && seen.unplaced > 0;
    const double noise = seen.bulk_noise, signal = seen.bulk_signal;
    if (!(signal > 0 && signal < largest && noise >= 0 && noise < largest)) return;
    watch.ratio = noise / signal;
    if (watch.at_probe <= 0) watch.at_probe = watch.ratio;
  }

  /// A probed error: what backward's gradient suffers where it reads `activation` through `codec`
  /// or, where `carried`, computed again from what went through it.
  void observe_error(int activation, const CodecInfo* codec, double error, bool carried = false) {
    const int column = profile_.column(codec);
    if (column < 0 || !(error >= 0 && error < largest)) return;
    CodecCost& cost = profile_.codec_cost(activation, column);
    (carried ? cost.carried_error : cost.error) = error;
    Watch& watch = watch_of(activation, column);
    if (plan()[activation].codec != codec) watch.ratio = 0;  // long ago, if ever
    watch.at_probe = watch.ratio;  // the noise that belongs to this error; 0: what is seen next
    checked_ = true;
    if (carried || !watch.failed || !(error < options_.below * watch.failed_error)) return;
    watch.failed = false;
    returned_ = true;
  }

  /// The same for all that a probe measured (GradientErrors, step/probe.hpp): `errors.entries()`
  /// name a layer, whose copies share the error, a codec, and whether it is carried.
  template <class Errors>
  void observe_errors(const Errors& errors) {
    for (const auto& entry : errors.entries())
      for (int k = 0; k < graph_.node_count(); ++k)
        if (graph_.node(k).layer == entry.what.layer)
          observe_error(k, entry.what.codec, entry.error(), entry.what.carried);
  }

  /// visit(layer, codec, carried) once for every class of errors that is worth a probe: those that
  /// the plan lives with, and those of codecs that failed and might be used again.
  template <class Visit>
  void each_class_to_probe(const Visit& visit) const {
    Array<ErrorOf> seen;
    const auto once = [&](int k, int column, bool carried) {
      const ErrorOf mine{graph_.node(k).layer, column, carried};
      for (const ErrorOf& other : seen)
        if (mine == other) return;
      seen.push_back(mine);
      visit(mine.layer, profile_.codecs[static_cast<std::size_t>(column)], carried);
    };
    each_error(graph_, profile_, plan(), [&](int k, int column, double) {
      once(k, column, plan()[k].kind == PolicyKind::recompute);
    });
    for (int k = 0; k < graph_.node_count(); ++k)
      for (std::size_t c = 0; c < profile_.codecs.size(); ++c)
        if (watch_of(k, static_cast<int>(c)).failed) once(k, static_cast<int>(c), false);
  }

  /// What a step took, in seconds of the clock that the profile was measured with.
  void observe_seconds(double seconds) {
    if (!(seconds > 0 && seconds < largest)) return;
    times_.push_back(seconds / outcome_.seconds);
    if (times_.size() < static_cast<std::size_t>(options_.timed_steps)) return;
    sort(times_, [](double a, double b) { return a < b; });
    const double now = times_[times_.size() / 2];
    times_.clear();
    if (!(usual_time_ > 0)) usual_time_ = now;
    const double ratio = now / usual_time_, limit = 1 + options_.drift;
    drifted_ = ratio > limit || ratio * limit < 1 ? drifted_ + 1 : 0;
    if (drifted_ >= options_.checks) wants_profile_ = true;
  }

  /// A profile measured anew; its times count, errors stay those that were probed.
  Error observe_profile(CostProfile profile) {
    if (const Error why = check(graph_, profile)) return why;
    for (int k = 0; k < graph_.node_count(); ++k)
      for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
        const int known = profile_.column(profile.codecs[c]);
        if (known < 0) return Error::say("the profile names a codec that the plan does not know");
        CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
        cost.error = profile_.codec_cost(k, known).error;
        cost.carried_error = profile_.codec_cost(k, known).carried_error;
      }
    if (profile.codecs.size() != profile_.codecs.size())
      return Error::say("the profile knows ", profile.codecs.size(), " codecs, and the plan ",
                        profile_.codecs.size());
    Array<Watch> watches(profile.codec_costs.size());
    for (int k = 0; k < graph_.node_count(); ++k)
      for (std::size_t c = 0; c < profile.codecs.size(); ++c)
        watches[static_cast<std::size_t>(k) * profile.codecs.size() + c] =
            watch_of(k, profile_.column(profile.codecs[c]));
    watches_ = static_cast<Array<Watch>&&>(watches);
    profile_ = static_cast<CostProfile&&>(profile);
    wants_profile_ = false;
    drifted_ = 0;
    usual_time_ = 0;
    times_.clear();
    new_profile_ = true;
    return {};
  }

  /// The arena may be as large as this from the next step on.
  void set_budget(std::size_t bytes) {
    new_budget_ = bytes;
    has_new_budget_ = true;
  }

  /// The caller could not run the plan of the last advance(), say for want of memory: plan and
  /// budget are what they were before it.
  void undo() {
    if (before_.outcome.plan.policies.empty()) return;
    request_.budget_bytes = before_.budget_bytes;
    changed_at_ = before_.changed_at;
    settle(static_cast<PlanOutcome&&>(before_.outcome));
    before_ = {};
  }

  /// The boundary before step `step`: judges what was observed since the last one, and plans again
  /// where that is due.
  EvolutionUpdate advance(std::uint64_t step) {
    EvolutionUpdate update;
    before_ = {};
    if (has_new_budget_) {
      change_budget(step, update);
      checked_ = false;
    } else if (checked_) {
      checked_ = false;
      judge(step, update);
    }
    if (!update.changed && new_profile_) {
      new_profile_ = false;
      replan_if_faster(step, ChangeReason::times_drifted, update);
    } else if (!update.changed && returned_) {
      returned_ = false;
      replan_if_faster(step, ChangeReason::error_fell, update);
    }
    return update;
  }

 private:
  static constexpr std::uint64_t never = static_cast<std::uint64_t>(-1);
  static constexpr double largest = 1e9;

  /// One activation under one codec.
  struct Watch {
    double at_probe = 0;  ///< bulk noise over bulk signal when its error was probed; 0: not seen
    double ratio = 0;     ///< the same, seen last
    double failed_error = 0;  ///< the error planned for it when it failed
    bool failed = false;      ///< not to be used
    bool misfit = false;      ///< a codec that keeps few values met others
    double scale() const { return at_probe > 0 ? ratio / at_probe : 1; }
  };

  struct ErrorOf {
    int layer = 0;
    int column = 0;
    bool carried = false;
    friend bool operator==(const ErrorOf&, const ErrorOf&) = default;
  };

  Watch& watch_of(int activation, int column) {
    return watches_[static_cast<std::size_t>(activation) * profile_.codecs.size() +
                    static_cast<std::size_t>(column)];
  }
  const Watch& watch_of(int activation, int column) const {
    return const_cast<Evolution*>(this)->watch_of(activation, column);
  }

  /// Errors in use, scaled by the noise observed since they were probed.
  CostProfile observed_profile() const {
    CostProfile seen = profile_;
    const std::size_t codecs = profile_.codecs.size();
    Array<double> behind(seen.codec_costs.size());  // the largest scale an activation carries
    for (int k = 0; k < graph_.node_count(); ++k) {
      const std::size_t row = static_cast<std::size_t>(k) * codecs;
      const Policy& policy = plan()[k];
      if (const int column = profile_.column(policy.codec);
          policy.kind == PolicyKind::compress && column >= 0) {
        const Watch& watch = watch_of(k, column);
        CodecCost& cost = seen.codec_cost(k, column);
        cost.error = limited(cost.error * watch.scale());
        behind[row + static_cast<std::size_t>(column)] = watch.scale();
      } else if (policy.kind == PolicyKind::recompute) {
        graph_.forward_reads(k, [&](int source) {
          const std::size_t from = static_cast<std::size_t>(source) * codecs;
          for (std::size_t c = 0; c < codecs; ++c)
            if (behind[from + c] > behind[row + c]) behind[row + c] = behind[from + c];
        });
        for (std::size_t c = 0; c < codecs; ++c) {
          CodecCost& cost = seen.codec_cost(k, static_cast<int>(c));
          if (behind[row + c] > 0)
            cost.carried_error = limited(cost.carried_error * behind[row + c]);
        }
      }
    }
    return seen;
  }
  static double limited(double error) { return error < largest ? error : largest; }

  /// `outcome` is the plan from now on; what it promises is what is observed right now.
  void settle(PlanOutcome outcome) {
    outcome_ = static_cast<PlanOutcome&&>(outcome);
    const CostProfile seen = observed_profile();
    planned_.clear();
    planned_.resize(graph_.nodes.size());
    planned_error_ = 0;
    each_error(graph_, seen, plan(), [&](int k, int, double error) {
      planned_[static_cast<std::size_t>(k)] += error;
      planned_error_ += error;
    });
    fell_below_ = planned_error_;
    high_ = low_ = 0;
  }

  bool held(int activation, std::uint64_t step) const {
    const std::uint64_t at = changed_at_[static_cast<std::size_t>(activation)];
    return at != never && step < at + options_.window;
  }

  void judge(std::uint64_t step, EvolutionUpdate& update) {
    const CostProfile seen = observed_profile();
    Array<bool> failing(graph_.nodes.size());
    Array<double> errors(graph_.nodes.size());
    bool misfit = false;
    double sum = 0;
    each_error(graph_, seen, plan(), [&](int k, int, double error) {
      errors[static_cast<std::size_t>(k)] += error;
      sum += error;
    });
    for (std::size_t i = 0; i < errors.size(); ++i)
      failing[i] = errors[i] > options_.above * planned_[i];
    for (int k = 0; k < graph_.node_count(); ++k) {
      const int column = profile_.column(plan()[k].codec);
      if (column < 0) continue;
      const Watch& watch = watch_of(k, column);
      bool& mine = failing[static_cast<std::size_t>(k)];
      if (watch.misfit) mine = misfit = true;
      if (watch.scale() > options_.above && !plan()[k].codec->lossless) mine = true;
    }
    high_ = sum > options_.above * planned_error_ || misfit ? high_ + 1 : 0;
    low_ = sum < options_.below * fell_below_ ? low_ + 1 : 0;
    if (high_ >= options_.checks) {
      keep_worst(failing, errors, sum);
      leave(failing, step, update);
    } else if (low_ >= options_.checks) {
      low_ = 0;
      fell_below_ = sum;
      replan_if_faster(step, ChangeReason::error_fell, update);
    }
  }

  /// Of those `failing`, the worst, until the rest is no reason to plan again.
  void keep_worst(Array<bool>& failing, const Array<double>& errors, double sum) const {
    Array<std::size_t> order;
    for (std::size_t i = 0; i < failing.size(); ++i) {
      // What only others are made from has no error of its own: theirs is its doing.
      const bool own = errors[i] > 0 && !watched_misfit(static_cast<int>(i));
      if (failing[i] && own) order.push_back(i);
    }
    sort(order, [&](std::size_t a, std::size_t b) {
      const double x = errors[a] - planned_[a], y = errors[b] - planned_[b];
      return x != y ? x > y : a < b;
    });
    for (const std::size_t i : order) {
      failing[i] = sum > options_.above * planned_error_;
      if (failing[i]) sum -= errors[i] - planned_[i];
    }
  }

  bool watched_misfit(int activation) const {
    const int column = profile_.column(plan()[activation].codec);
    return column >= 0 && watch_of(activation, column).misfit;
  }

  /// Moves those that are `failing` off what they are, and others only where that is forced.
  void leave(Array<bool>& failing, std::uint64_t step, EvolutionUpdate& update) {
    bool any = false;
    for (int k = 0; k < graph_.node_count(); ++k) {
      bool& mine = failing[static_cast<std::size_t>(k)];
      mine = mine && graph_.node(k).policy.kind == PolicyKind::planned && !held(k, step);
      any = any || mine;
      const int column = profile_.column(plan()[k].codec);
      if (!mine || column < 0) continue;
      Watch& watch = watch_of(k, column);
      watch.failed = true;
      watch.failed_error = planned_[static_cast<std::size_t>(k)];
    }
    if (!any) return;  // fixed by their types, or changed a moment ago: looked at again next time
    const CostProfile profile = observed_profile();
    Result<PlanOutcome> outcome =
        plan_among(profile, [&](int k) { return failing[static_cast<std::size_t>(k)]; });
    if (!outcome) {
      outcome = plan_among(profile, [&](int k) { return !held(k, step); });
      if (outcome) undo_unforced(profile, failing, *outcome);
    }
    high_ = 0;
    if (!outcome) {
      // All that is left is worse: the codecs stay in use, and what they cost is expected now.
      update.failed = outcome.error;
      for (int k = 0; k < graph_.node_count(); ++k)
        if (const int column = profile_.column(plan()[k].codec); column >= 0)
          watch_of(k, column).failed = false;
      settle(static_cast<PlanOutcome&&>(outcome_));
      return;
    }
    adopt(static_cast<PlanOutcome&&>(*outcome), step, ChangeReason::codec_failed, failing, update);
  }

  /// The plan of least error where all but the activations for which open(k) stay as they are, and
  /// codecs that failed are no candidates.
  template <class Open>
  Result<PlanOutcome> plan_among(const CostProfile& profile, const Open& open) const {
    Graph graph = graph_;
    graph.candidates.clear();
    for (int k = 0; k < graph.node_count(); ++k) {
      Node& node = graph.nodes[static_cast<std::size_t>(k)];
      const CodecSpan candidates = graph_.candidates_of(node);
      const bool chosen = open(k) && node.policy.kind == PolicyKind::planned;
      if (!chosen) node.policy = plan()[k];
      node.first_candidate = graph.candidates.size();
      for (std::size_t i = 0; i < candidates.count; ++i)
        if (!chosen || !watch_of(k, profile.column(candidates[i])).failed)
          graph.candidates.push_back(candidates[i]);
      node.candidate_count = graph.candidates.size() - node.first_candidate;
    }
    return plan_least_error(planner_, graph, profile, request_, options_.rounds);
  }

  /// Gives those that are not `failing` their policies back, as far as budget and tolerance allow.
  void undo_unforced(const CostProfile& profile, const Array<bool>& failing,
                     PlanOutcome& outcome) const {
    bool undone = true;
    while (undone) {  // what gives bytes back may let another have its own
      undone = false;
      for (int k = 0; k < graph_.node_count(); ++k) {
        const auto i = static_cast<std::size_t>(k);
        const Policy changed = outcome.plan[k];
        if (failing[i] || changed == plan()[k]) continue;
        outcome.plan.policies[i] = plan()[k];
        if (fits(profile, outcome.plan)) undone = true;
        else outcome.plan.policies[i] = changed;
      }
    }
  }

  bool fits(const CostProfile& profile, const Plan& candidate) const {
    return !check(graph_, candidate) &&
           error_of(graph_, profile, candidate) <= request_.tolerance &&
           peak_bytes(graph_, candidate) <= request_.budget_bytes;
  }

  void change_budget(std::uint64_t step, EvolutionUpdate& update) {
    const std::size_t before = request_.budget_bytes;
    request_.budget_bytes = new_budget_;
    has_new_budget_ = false;
    Result<PlanOutcome> outcome = plan_among(observed_profile(), [](int) { return true; });
    if (!outcome) {
      update.failed = outcome.error;
      request_.budget_bytes = before;
      return;
    }
    before_.budget_bytes = before;
    adopt(static_cast<PlanOutcome&&>(*outcome), step, ChangeReason::budget_changed,
          Array<bool>(graph_.nodes.size()), update);
  }

  /// A change that nothing forces is made where the step gets faster by more than a trifle.
  void replan_if_faster(std::uint64_t step, ChangeReason reason, EvolutionUpdate& update) {
    const CostProfile profile = observed_profile();
    Result<PlanOutcome> outcome = plan_among(profile, [&](int k) { return !held(k, step); });
    if (!outcome) {
      update.failed = outcome.error;
      return;
    }
    const double now = evaluate(graph_, profile, plan()).seconds;
    if (!(outcome->seconds < (1 - options_.gain) * now)) return;
    adopt(static_cast<PlanOutcome&&>(*outcome), step, reason, Array<bool>(graph_.nodes.size()),
          update);
  }

  void adopt(PlanOutcome outcome, std::uint64_t step, ChangeReason reason,
             const Array<bool>& failing, EvolutionUpdate& update) {
    if (before_.budget_bytes == 0) before_.budget_bytes = request_.budget_bytes;
    before_.outcome = outcome_;
    before_.changed_at = changed_at_;
    for (int k = 0; k < graph_.node_count(); ++k) {
      const Policy &from = plan()[k], &to = outcome.plan[k];
      if (from == to) continue;
      const auto i = static_cast<std::size_t>(k);
      const bool forced = reason == ChangeReason::codec_failed && !failing[i];
      update.changes.push_back({step, k, from, to, forced ? ChangeReason::made_room : reason});
      changed_at_[i] = step;
    }
    update.changed = !update.changes.empty();
    outcome.plan.version = plan().version + (update.changed ? 1 : 0);
    // The planner judged a graph in which much was fixed, and others may have been undone since.
    const PlanCost cost = evaluate(graph_, observed_profile(), outcome.plan);
    outcome.seconds = cost.seconds;
    outcome.error = cost.error;
    outcome.live_bytes = cost.live_bytes;
    outcome.peak_bytes = peak_bytes(graph_, outcome.plan);
    settle(static_cast<PlanOutcome&&>(outcome));
  }

  /// For undo().
  struct Before {
    PlanOutcome outcome;
    std::size_t budget_bytes = 0;
    Array<std::uint64_t> changed_at;
  };

  Graph graph_;
  CostProfile profile_;
  PlanRequest request_;
  Planner planner_ = nullptr;
  EvolutionOptions options_;
  PlanOutcome outcome_;
  Before before_;
  Array<Watch> watches_;  ///< a row per activation, a column per codec, as in the profile
  Array<std::uint64_t> changed_at_;  ///< by activation: the step of its last change
  Array<double> planned_;            ///< by activation: the error when the plan was made
  Array<double> times_;              ///< of the last steps, in units of the predicted one
  double planned_error_ = 0;
  double fell_below_ = 0;                 ///< what "half of what was planned" refers to
  double usual_time_ = 0;                 ///< median of times_ when the profile was new
  int high_ = 0, low_ = 0, drifted_ = 0;  ///< checks running
  std::size_t new_budget_ = 0;
  bool has_new_budget_ = false;
  bool checked_ = false;  ///< something was observed since the last advance()
  bool wants_profile_ = false;
  bool new_profile_ = false;
  bool returned_ = false;  ///< a codec that failed may be used again
};

}  // namespace adacc::inline v0_1
