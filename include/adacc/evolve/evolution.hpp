// SPDX-License-Identifier: MIT
/// A plan that evolves while training runs: observations go in, changes of the plan come out.
///
/// Pure logic, without clock or randomness: equal observations give equal plans. Plans change only in advance(),
/// between two steps, for five reasons:
///
///   - the gradient's error exceeds twice the planned error in two consecutive checks. Errors are those probed last,
///     scaled by the codecs' own measure of noise since then. An activation whose error doubled leaves its codec;
///     others change only if the budget forces them;
///   - the error falls below half of the planned one in two consecutive checks, or a rejected codec now shows half the
///     error for which it was rejected: the codec becomes a candidate again;
///   - the budget changes, to be met at the next step;
///   - steps take other times than in the profile, and there is a new profile;
///   - the link to the store is slower or faster than when the plan was made. If the plan does not use the store, the
///     link is measured now and then, because it may have become fast enough.
///
/// A tensor changes policy at most once per change interval, except for a new budget. Every plan has the least error among
/// plans as fast as the planner's (PlanRequest::least_error). If planning again finds nothing, the plan stays, and
/// the update says why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../cost/evaluate.hpp"
#include "../plan/proposals.hpp"
#include "../plan/request.hpp"
#include "../program/layout.hpp"
#include "drift.hpp"
#include "error_watch.hpp"
#include "link_watch.hpp"
#include "options.hpp"
#include "plan_change.hpp"
#include "time_watch.hpp"

namespace adacc { inline namespace v0_1 {

class Evolution {
 public:
  Evolution() = default;

  /// Plans `graph`. Fails like the planner, and if the options make no sense.
  static Result<Evolution> start(Graph graph, CostProfile profile, const PlanRequest& request,
                                 Planner planner, const EvolutionOptions& options = {}) {
    if (!planner) return Error::say("an evolving plan needs a planner");
    if (const Error why = examine(options)) return why;
    Evolution evolution;
    evolution.planner_ = planner;
    evolution.options_ = options;
    evolution.request_ = request;
    evolution.request_.least_error = true;
    Result<PlanOutcome> outcome = planner(graph, profile, evolution.request_);
    if (!outcome) return outcome.error;
    evolution.graph_ = static_cast<Graph&&>(graph);
    evolution.profile_ = static_cast<CostProfile&&>(profile);
    evolution.errors_.start(evolution.profile_);
    evolution.changed_at_.resize(evolution.graph_.nodes.size());
    for (std::uint64_t& at : evolution.changed_at_) at = never;
    evolution.settle(static_cast<PlanOutcome&&>(*outcome));
    return evolution;
  }

  /// Continues an earlier evolution. If `request` has another budget or tolerance, or this graph exceeds the budget
  /// under the plan (made for fewer workers), the next advance() plans anew.
  /// - plan: the earlier plan
  /// - codecs: the codecs of the earlier profile, in its order
  /// - read: read(evolution) fills each_field() of the new evolution from the earlier one
  template <class Read>
  static Result<Evolution> resume(Graph graph, Plan plan, const Array<const CodecInfo*>& codecs,
                                  const PlanRequest& request, Planner planner,
                                  const EvolutionOptions& options, const Read& read) {
    if (!planner) return Error::say("an evolving plan needs a planner");
    if (const Error why = examine(options)) return why;
    if (const Error why = graph_mistake(graph)) return why;
    if (const Error why = examine(graph, plan)) return why;
    Evolution evolution;
    evolution.planner_ = planner;
    evolution.options_ = options;
    evolution.request_ = request;
    evolution.graph_ = static_cast<Graph&&>(graph);
    evolution.profile_ = empty_profile(evolution.graph_);
    evolution.profile_.codecs = codecs;
    evolution.profile_.codec_costs.clear();
    evolution.profile_.codec_costs.resize(evolution.graph_.nodes.size() * codecs.size());
    evolution.outcome_.plan = static_cast<Plan&&>(plan);
    evolution.changed_at_.resize(evolution.graph_.nodes.size());
    evolution.errors_.start(evolution.profile_);
    evolution.errors_.expect(evolution.graph_, evolution.profile_, evolution.plan());
    if (const Error why = read(evolution)) return why;
    const PlanRequest then = evolution.request_;
    evolution.request_.gap = request.gap;
    if (const Error why = examine(evolution.graph_, evolution.profile_, evolution.request_))
      return why;
    // The plan was made with observations up to then; these are in the fields.
    const double seconds = evolution.outcome_.seconds, error = evolution.outcome_.error;
    const CostProfile observed = evolution.observed_profile();
    Proposals known(evolution.graph_, observed, evolution.request_);
    known.raise_bound(evolution.outcome_.bound_seconds, "resumed");
    evolution.outcome_ = known.describe(known.offer(evolution.plan(), "resumed"));
    evolution.outcome_.seconds = seconds;
    evolution.outcome_.error = error;
    evolution.request_ = request;
    evolution.request_.budget_bytes = then.budget_bytes;
    // The link as found earlier: if it has changed, this will be found again.
    if (request.link.exists() && then.link.exists()) evolution.request_.link = then.link;
    if (then.budget_bytes != request.budget_bytes || then.tolerance != request.tolerance ||
        evolution.outcome_.peak_bytes > request.budget_bytes)
      evolution.set_budget(request.budget_bytes);
    return evolution;
  }

  /// Calls visit(name, field) for each remembered field beside the plan, as resume() needs them. A field is a bool,
  /// an int, a std::uint64_t, a double or an Array<double>; names repeat.
  template <class Self, class Visit>
  static void each_field(Self& self, const Visit& visit) {
    visit("budget", self.request_.budget_bytes);
    visit("tolerance", self.request_.tolerance);
    visit("version", self.outcome_.plan.version);
    visit("seconds", self.outcome_.seconds);
    visit("error", self.outcome_.error);
    visit("bound", self.outcome_.bound_seconds);
    for (auto& cost : self.profile_.nodes) {
      visit("forward", cost.forward);
      visit("backward", cost.backward);
      visit("add", cost.add);
      visit("add_gradient", cost.add_gradient);
    }
    for (auto& cost : self.profile_.codec_costs) {
      visit("encode", cost.encode);
      visit("decode", cost.decode);
      visit("codec_error", cost.error);
      visit("carried_error", cost.carried_error);
    }
    visit("write_rate", self.request_.link.write_rate);
    visit("read_rate", self.request_.link.read_rate);
    visit("latency", self.request_.link.latency);
    visit("begin", self.request_.link.begin);
    visit("begin_per_byte", self.request_.link.begin_per_byte);
    visit("loss", self.profile_.loss);
    visit("rest", self.profile_.rest);
    for (auto& at : self.changed_at_) visit("changed_at", at);
    ErrorWatch::each_field(self.errors_, visit);
    TimeWatch::each_field(self.times_, visit);
    LinkWatch::each_field(self.links_, visit);
    visit("checked", self.checked_);
    visit("new_profile", self.new_profile_);
    visit("returned", self.returned_);
    visit("has_new_budget", self.has_new_budget_);
    visit("new_budget", self.new_budget_);
  }

  const Plan& plan() const { return outcome_.plan; }
  const PlanOutcome& outcome() const { return outcome_; }
  const Graph& graph() const { return graph_; }
  const EvolutionOptions& options() const { return options_; }
  std::size_t budget_bytes() const { return request_.budget_bytes; }
  const PlanRequest& request() const { return request_; }
  Planner planner() const { return planner_; }

  /// The profile, with the errors probed last.
  const CostProfile& profile() const { return profile_; }

  /// The gradient's error as observed last, and as planned.
  double observed_error() const { return error_of(graph_, observed_profile(), plan()); }
  double planned_error() const { return errors_.planned(); }

  /// Whether the statistics of step `step` are to be observed, and whether gradient errors are to be probed before
  /// step `step`.
  bool wants_statistics(std::uint64_t step) const { return step % options_.check_every == 0; }
  bool wants_probe(std::uint64_t step) const {
    if (step > 0 && step % options_.probe_every == 0) return true;
    std::uint64_t at = options_.first_probe;
    while (at > 0 && at < step && at < options_.probe_every) at *= 2;
    return step > 0 && step == at && at < options_.probe_every;
  }
  /// Steps take another time than before: observe_profile() is due.
  bool wants_profile() const { return times_.drifted(); }
  /// The time of a step over the predicted time, if off; 0 if not, or after too few steps.
  double times_predicted() const {
    const double usual = times_.usual();
    return usual > 0 && detail::is_off(usual, options_) ? usual : 0;
  }

  /// Whether to measure the link to the store before step `step`: no transfer of the plan shows the link's speed, and
  /// a faster link might help.
  bool wants_link(std::uint64_t step) const {
    return request_.link.exists() && options_.measure_link_every > 0 && step > 0 &&
           step % options_.measure_link_every == 0 && outcome_.written_bytes == 0 &&
           (1 - options_.gain) * outcome_.seconds > outcome_.retain_seconds;
  }

  /// The codec's statistics of `activation` in the last step.
  void observe_statistics(int activation, const CodecStatistics& seen) {
    const int column = profile_.column(plan()[activation].codec());
    if (column < 0 || seen.elements == 0) return;
    errors_.of(activation, column).observe(seen);
    checked_ = true;
  }

  /// A probed error: of the gradient if backward reads `activation` through `codec` or, if `carried`, recomputed from
  /// activations behind `codec`.
  void observe_error(int activation, const CodecInfo* codec, double error, bool carried = false) {
    const int column = profile_.column(codec);
    if (column < 0 || !(error >= 0 && error < ErrorWatch::largest)) return;
    CodecCost& cost = profile_.codec_cost(activation, column);
    (carried ? cost.carried_error : cost.error) = error;
    CodecWatch& watch = errors_.of(activation, column);
    watch.probed();
    checked_ = true;
    if (carried || !watch.failed || !(error < options_.below * watch.failed_error)) return;
    watch.failed = false;
    returned_ = true;
  }

  /// observe_error() for each result of a probe (GradientErrors, cost/probe.hpp): `errors.entries()` name a layer,
  /// whose copies share the error, a codec, and whether the error is carried.
  template <class Errors>
  void observe_errors(const Errors& errors) {
    for (const auto& entry : errors.entries())
      for (int k = 0; k < graph_.node_count(); ++k)
        if (graph_.node(k).layer == entry.what.layer)
          observe_error(k, entry.what.codec, entry.error(), entry.what.carried);
  }

  /// Calls visit(layer, codec, carried) once for each class of errors worth a probe: the errors under the plan, and
  /// those of failed codecs, which might be used again.
  template <class Visit>
  void each_class_to_probe(const Visit& visit) const {
    Array<ErrorOf> seen;
    const auto once = [&](int k, int column, bool carried) {
      const ErrorOf error{graph_.node(k).layer, column, carried};
      for (const ErrorOf& other : seen)
        if (error == other) return;
      seen.push_back(error);
      visit(error.layer, profile_.codecs[static_cast<std::size_t>(column)], carried);
    };
    each_error(graph_, profile_, plan(),
               [&](int k, int column, double) { once(k, column, plan()[k].recomputes()); });
    for (int k = 0; k < graph_.node_count(); ++k)
      for (std::size_t c = 0; c < profile_.codecs.size(); ++c)
        if (errors_.of(k, static_cast<int>(c)).failed) once(k, static_cast<int>(c), false);
  }

  /// The seconds of a step, by the clock of the profile's measurement, and the part of them spent waiting for the
  /// store. The computation is compared with the profile.
  void observe_seconds(double seconds, double stalled = 0) {
    const double planned = outcome_.seconds - outcome_.stall_seconds;
    seconds -= stalled;
    if (!(seconds > 0 && seconds < 1e9)) return;
    observed_seconds_ += seconds;
    times_.observe(seconds / planned, options_);
  }
  /// Of all steps observed by this object.
  double observed_seconds() const { return observed_seconds_; }

  /// The transfers of a step under the plan. `schedule` belongs to its program.
  void observe_transfers(const Schedule& schedule, const TransferTimes& times) {
    if (request_.link.exists()) links_.observe(schedule, times, request_.link, options_);
  }

  /// A new measurement of the link (measure_link()); the plan follows if the link has drifted.
  void observe_link(const LinkCost& link) {
    const LinkCost& planned = request_.link;
    if (!planned.exists() || !link.exists()) return;
    const bool off = detail::is_off(planned.write_rate / link.write_rate, options_) ||
                     detail::is_off(planned.read_rate / link.read_rate, options_);
    new_link_ = off ? link : LinkCost{};
  }

  /// A new measured profile: its times count, errors stay as probed.
  Error observe_profile(CostProfile profile) {
    if (const Error why = examine(graph_, profile)) return why;
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
    errors_.reorder(profile_, profile);
    profile_ = static_cast<CostProfile&&>(profile);
    times_ = {};
    new_profile_ = true;
    return {};
  }

  /// Later plans are to be made in at most `seconds` each.
  void set_deadline(double seconds) { request_.deadline_seconds = seconds; }
  /// Later plans may recompute an activation up to so many times (PlanRequest::most_runs).
  void set_most_runs(int runs) { request_.most_runs = runs; }

  /// The plan becomes the successor of a plan of this version.
  void number_plans_from(std::size_t version) { outcome_.plan.version = version + 1; }

  /// The arena may be as large as this from the next step on.
  void set_budget(std::size_t bytes) {
    new_budget_ = bytes;
    has_new_budget_ = true;
  }
  /// The budget for the next advance().
  std::size_t wanted_budget_bytes() const {
    return has_new_budget_ ? new_budget_ : request_.budget_bytes;
  }

  /// The request for the next advance() and later plans.
  PlanRequest wanted_request() const {
    PlanRequest wanted = request_;
    wanted.budget_bytes = wanted_budget_bytes();
    return wanted;
  }

  /// Later plans take at most so many bytes, like the present one; nothing else changes.
  void limit_budget(std::size_t bytes) {
    if (outcome_.peak_bytes <= bytes) request_.budget_bytes = bytes;
  }

  /// The caller could not run the plan of the last advance(), for example for lack of memory: restores plan and
  /// budget.
  void undo() {
    if (before_.outcome.plan.policies.empty()) return;
    request_.budget_bytes = before_.budget_bytes;
    changed_at_ = before_.changed_at;
    settle(static_cast<PlanOutcome&&>(before_.outcome));
    before_ = {};
  }

  /// The boundary before step `step`: judges the observations since the last boundary, and plans again if due.
  EvolutionUpdate advance(std::uint64_t step) {
    EvolutionUpdate update;
    before_ = {};
    if (has_new_budget_) {
      change_budget(step, update);
      checked_ = false;
    } else if (checked_) {
      checked_ = false;
      check_errors(step, update);
    }
    if (!update.changed && new_profile_) {
      new_profile_ = false;
      follow_times(step, ChangeReason::times_drifted, update);
    } else if (!update.changed && returned_) {
      returned_ = false;
      replan_if_faster(step, ChangeReason::error_fell, update);
    } else if (!update.changed && new_link_.exists()) {
      follow_link(new_link_, step, update);
      new_link_ = {};
    } else if (!update.changed && links_.drifted()) {
      follow_link(links_.found(request_.link), step, update);
    }
    return update;
  }

  /// advance(step); if the plan changed, run() switches to it. If run() fails, all is restored.
  template <class Run>
  EvolutionUpdate advance(std::uint64_t step, const Run& run) {
    EvolutionUpdate update = advance(step);
    const Error why = update.changed ? run() : Error();
    if (!why) return update;
    undo();
    update = {};
    update.failed = why;
    return update;
  }

 private:
  static constexpr std::uint64_t never = static_cast<std::uint64_t>(-1);

  struct ErrorOf {
    int layer = 0;
    int column = 0;
    bool carried = false;
    friend bool operator==(const ErrorOf&, const ErrorOf&) = default;
  };

  CostProfile observed_profile() const { return errors_.observed(graph_, profile_, plan()); }

  /// Adopts `outcome` as the plan; the present errors are the expected ones.
  void settle(PlanOutcome outcome) {
    outcome_ = static_cast<PlanOutcome&&>(outcome);
    errors_.expect(graph_, profile_, plan());
  }

  bool held(int activation, std::uint64_t step) const {
    const std::uint64_t at = changed_at_[static_cast<std::size_t>(activation)];
    return at != never && step < at + options_.change_interval;
  }

  void check_errors(std::uint64_t step, EvolutionUpdate& update) {
    switch (errors_.examine(graph_, profile_, plan(), options_)) {
      case ErrorWatch::Verdict::as_planned: return;
      case ErrorWatch::Verdict::failing: return leave(errors_.failing(), step, update);
      case ErrorWatch::Verdict::fell: replan_if_faster(step, ChangeReason::error_fell, update);
    }
  }

  /// Changes the policy of each `failing` activation; others change only if this is forced.
  void leave(Array<bool> failing, std::uint64_t step, EvolutionUpdate& update) {
    bool any = false;
    for (int k = 0; k < graph_.node_count(); ++k) {
      bool& is_failing = failing[static_cast<std::size_t>(k)];
      is_failing = is_failing && graph_.node(k).policy.planned() && !held(k, step);
      any = any || is_failing;
      const int column = profile_.column(plan()[k].codec());
      if (!is_failing || column < 0) continue;
      CodecWatch& watch = errors_.of(k, column);
      watch.failed = true;
      watch.failed_error = errors_.planned(k);
    }
    if (!any) return;  // fixed by types, or changed recently: the next check looks again
    const CostProfile profile = observed_profile();
    const Deadline deadline = this->deadline();
    Result<PlanOutcome> outcome =
        plan_among(profile, deadline, [&](int k) { return failing[static_cast<std::size_t>(k)]; });
    if (!outcome) {
      // nvcc takes an assignment for a value that is ignored.
      static_cast<void>(outcome =
                            plan_among(profile, deadline, [&](int k) { return !held(k, step); }));
      if (outcome) undo_unforced(profile, deadline, failing, *outcome);
    }
    errors_.restart();
    if (!outcome) {
      // All alternatives are worse: the codecs stay in use, and their present errors are expected.
      update.failed = outcome.error;
      for (int k = 0; k < graph_.node_count(); ++k)
        if (const int column = profile_.column(plan()[k].codec()); column >= 0)
          errors_.of(k, column).failed = false;
      settle(static_cast<PlanOutcome&&>(outcome_));
      return;
    }
    adopt(static_cast<PlanOutcome&&>(*outcome), step, ChangeReason::codec_failed, failing, update);
  }

  /// The deadline of all planning at one boundary.
  Deadline deadline() const { return {request_.clock, request_.deadline_seconds}; }

  /// The plan of least error in which only activations with open(k) change, without failed codecs.
  template <class Open>
  Result<PlanOutcome> plan_among(const CostProfile& profile, const Deadline& deadline,
                                 const Open& open) const {
    Graph graph = graph_;
    graph.candidates.clear();
    for (int k = 0; k < graph.node_count(); ++k) {
      Node& node = graph.nodes[static_cast<std::size_t>(k)];
      const CodecSpan candidates = graph_.candidates_of(node);
      const bool chosen = open(k) && node.policy.planned();
      if (!chosen) node.policy = plan()[k];
      const std::size_t begin = graph.candidates.size();
      for (std::size_t i = 0; i < candidates.count; ++i)
        if (!chosen || !errors_.of(k, profile.column(candidates[i])).failed)
          graph.candidates.push_back(candidates[i]);
      node.candidates = {begin, graph.candidates.size()};
    }
    PlanRequest request = request_;
    if (request.clock) request.deadline_seconds = deadline.left();
    return planner_(graph, profile, request);
  }

  /// Restores the policies of activations that are not `failing`, as far as budget, tolerance and time allow.
  void undo_unforced(const CostProfile& profile, const Deadline& deadline,
                     const Array<bool>& failing, PlanOutcome& outcome) const {
    bool undone = true;
    while (undone) {  // bytes freed by one may allow another
      undone = false;
      for (int k = 0; k < graph_.node_count(); ++k) {
        const auto i = static_cast<std::size_t>(k);
        const Policy changed = outcome.plan[k];
        if (failing[i] || changed == plan()[k]) continue;
        if (deadline.passed()) return;
        outcome.plan.policies[i] = plan()[k];
        if (fits(profile, outcome.plan)) undone = true;
        else outcome.plan.policies[i] = changed;
      }
    }
  }

  bool fits(const CostProfile& profile, const Plan& candidate) const {
    return !examine(graph_, candidate) &&
           error_of(graph_, profile, candidate) <= request_.tolerance &&
           peak_bytes(graph_, candidate) <= request_.budget_bytes;
  }

  void change_budget(std::uint64_t step, EvolutionUpdate& update) {
    const std::size_t before = request_.budget_bytes;
    request_.budget_bytes = new_budget_;
    has_new_budget_ = false;
    Result<PlanOutcome> outcome =
        plan_among(observed_profile(), deadline(), [](int) { return true; });
    if (!outcome) {
      update.failed = outcome.error;
      request_.budget_bytes = before;
      return;
    }
    before_.budget_bytes = before;
    adopt(static_cast<PlanOutcome&&>(*outcome), step, ChangeReason::budget_changed,
          Array<bool>(graph_.nodes.size()), update);
  }

  /// Makes an unforced change if the step gets faster by more than a trifle. Returns the proven bound of a step's
  /// time; 0 without a proof.
  double replan_if_faster(std::uint64_t step, ChangeReason reason, EvolutionUpdate& update) {
    const CostProfile profile = observed_profile();
    Result<PlanOutcome> outcome =
        plan_among(profile, deadline(), [&](int k) { return !held(k, step); });
    if (!outcome) {
      update.failed = outcome.error;
      return 0;
    }
    const double now = evaluate(graph_, profile, plan(), request_.link).seconds;
    const double bound = outcome->bound_seconds;
    if (outcome->seconds < (1 - options_.gain) * now)
      adopt(static_cast<PlanOutcome&&>(*outcome), step, reason, Array<bool>(graph_.nodes.size()),
            update);
    else outcome_.retain_seconds = outcome->retain_seconds;
    return bound;
  }

  /// Plans with the present speed of the link.
  void follow_link(const LinkCost& link, std::uint64_t step, EvolutionUpdate& update) {
    request_.link = link;
    links_ = {};
    update.link_drifted = true;
    follow_times(step, ChangeReason::link_drifted, update);
  }

  /// Instructions or transfers take other times than planned, also under an unchanged plan.
  void follow_times(std::uint64_t step, ChangeReason reason, EvolutionUpdate& update) {
    const PlanCost now = evaluate(graph_, observed_profile(), plan(), request_.link);
    outcome_.seconds = now.seconds;
    outcome_.stall_seconds = now.stall_seconds;
    const double bound = replan_if_faster(step, reason, update);
    if (update.changed) return;  // otherwise the bound is of the old times
    outcome_.bound_seconds = bound < now.seconds ? bound : now.seconds;
    outcome_.gap = (now.seconds - outcome_.bound_seconds) / now.seconds;
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
    update.changed = !update.changes.empty() || outcome.plan.room_bytes != plan().room_bytes;
    outcome.plan.version = plan().version + (update.changed ? 1 : 0);
    // The planner judged a graph with fixed parts, and changes may have been undone since.
    const PlanCost cost = evaluate(graph_, observed_profile(), outcome.plan, request_.link);
    outcome.seconds = cost.seconds;
    outcome.stall_seconds = cost.stall_seconds;
    outcome.written_bytes = cost.written_bytes;
    outcome.error = cost.error;
    outcome.live_bytes = cost.live_bytes;
    outcome.peak_bytes = peak_bytes(graph_, outcome.plan);
    settle(static_cast<PlanOutcome&&>(outcome));
  }

  /// The state to restore by undo().
  struct Before {
    PlanOutcome outcome;
    std::size_t budget_bytes = 0;
    Array<std::uint64_t> changed_at;
  };

  Graph graph_;
  CostProfile profile_;
  PlanRequest request_;
  Planner planner_;
  EvolutionOptions options_;
  PlanOutcome outcome_;
  Before before_;
  ErrorWatch errors_;
  TimeWatch times_;
  double observed_seconds_ = 0;
  LinkWatch links_;
  Array<std::uint64_t> changed_at_;  ///< by activation: the step of its last change
  LinkCost new_link_;                ///< to be followed by the next advance(), if there is one
  std::size_t new_budget_ = 0;
  bool has_new_budget_ = false;
  bool checked_ = false;  ///< there were observations since the last advance()
  bool new_profile_ = false;
  bool returned_ = false;  ///< a failed codec may be used again
};

}}  // namespace adacc::v0_1
