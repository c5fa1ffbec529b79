// SPDX-License-Identifier: MIT
/// The planner for large graphs: patterns of segments, priced bounds, exact placement.
///
/// A graph is cut into a chain of segments (segments.hpp), each segment's patterns are listed once
/// per structure (patterns.hpp) and priced once per class (arcs.hpp). Prices of bytes and error give a
/// bound for all plans (tune_prices.hpp); a search from the end, exact in bytes, places patterns
/// under both constraints, guided by the bounds (placement.hpp), and its own bound is the better one
/// if few segments leave no room for averages. Time grows linearly with the number of segments.
#pragma once

#include <cstddef>

#include "../lp/count_program.hpp"
#include "../proposals.hpp"
#include "../request.hpp"
#include "../simple_plans.hpp"
#include "placement.hpp"
#include "reduce.hpp"
#include "tables.hpp"
#include "tune_prices.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

constexpr const char* by_chain = "chain";

/// What planners of one graph tell each other whose requests differ in the budget alone.
struct ChainFindings {
  SmallestPlan smallest;       ///< without policies until it was looked for
  std::size_t extensions = 0;  ///< partial plans looked at, as a measure of work
};

/// Proposes plans. All seconds are beyond the chain's base.
class ChainPlanner {
 public:
  /// `tables` are those of `graph` and `profile`. All that is passed must outlive it.
  [[gnu::cold]] ChainPlanner(const ChainTables& tables, const Graph& graph,
                             const CostProfile& profile, const PlanRequest& request,
                             const ChainTuning& tuning, Proposals& proposals,
                             ChainFindings& findings)
      : tables_(tables), graph_(graph), profile_(profile), request_(request), tuning_(tuning),
        proposals_(proposals), findings_(findings), time_(proposals.time()),
        tolerance_(request.tolerance) {}

  /// Proposes the fastest plan that it finds; if there is none, the smallest.
  [[gnu::cold]] void search() {
    if (tables_.complete) look();
    else note_no_tables();
    if (!proposals_.found()) propose_smallest();
    if (proposals_.found() && tables_.complete) finish();
  }

  /// The same, but ends without a plan once it has proven that none takes less than `most_seconds`.
  [[gnu::cold]] void search_below(double most_seconds) {
    if (!tables_.complete) return;
    of_interest_ = most_seconds - chain_.base_seconds;
    look();
    if (!proposals_.found() && promising()) propose_smallest();
    finish();
  }

  /// Looks at no other plan that was found, so that a budget that is named once can be met later. What is
  /// found before time is up is only what is known.
  [[gnu::cold]] void propose_smallest() {
    if (smallest_proposed_ || squeezing_) return;
    smallest_proposed_ = true;
    Pacer& time = proposals_.shared_time();
    if (findings_.smallest.plan.policies.empty() && tables_.complete && !time.passed())
      findings_.smallest = find_smallest(time);
    if (time.passed()) proposals_.offer_known(findings_.smallest.plan, name);
    else proposals_.offer_smallest(findings_.smallest, name);
  }

 private:
  static constexpr const char* name = by_chain;

  /// Time was up before patterns and their costs were listed.
  void note_no_tables() {
    if (request_.prices.by == Solver::lp_solve)
      proposals_.note(Error::say("planning ran out of time before ", request_.prices.linear->name,
                                 " was asked: the plan is one that takes no search"));
  }

  [[gnu::cold]] SmallestPlan find_smallest(Pacer& time) const {
    Chain chain = chain_;
    for (ArcSet& arcs : chain.arcs) arcs.forget_time(time);
    Proposals found(graph_, profile_, request_);
    const SmallestPlan& smallest = found.smallest();
    PlacementLimits limits;
    limits.smallest = true;
    limits.tolerance = request_.tolerance;
    limits.time = time;
    std::size_t least = propose_smaller(chain, limits, found);
    // In a long chain, what spends the tolerance on its end leaves none for its beginning.
    if (request_.tolerance > 0)
      for (const double factor : tuning_.error_prices) {
        if (least >= smallest.arena_bytes || time.passed()) break;
        limits.error_price =
            factor * static_cast<double>(smallest.arena_bytes) / request_.tolerance;
        raise(least, propose_smaller(chain, limits, found));
      }
    limits.error_price = 0;
    if (least < smallest.arena_bytes && chain.size() <= tuning_.smallest_segments &&
        !time.passed()) {
      limits.cutoff = static_cast<double>(smallest.arena_bytes);
      limits.needs = limits.labels = 4;
      raise(least, propose_smaller(chain, limits, found));
    }
    const std::size_t padding = most_padding() + most_unlisted_bytes();
    found.raise_least_bytes(least > padding ? least - padding : 0);
    // Layouts have gaps, so that the smallest arena may be that of a plan with larger needs. The
    // search for the fastest plan looks at others: as long as it finds a smaller one, that is it.
    for (bool smaller = squeezes(); smaller;) {
      if (smallest.proven() || smallest.plan.policies.empty() || time.passed()) break;
      PlanRequest tighter = request_;
      tighter.budget_bytes = smallest.arena_bytes - 1;
      Proposals squeezed(graph_, profile_, tighter, time.deadline());
      ChainPlanner narrower(tables_, graph_, profile_, tighter, tuning_, squeezed, findings_);
      narrower.squeezing_ = true;
      narrower.look();
      smaller = squeezed.found();
      if (smaller) static_cast<void>(found.offer(squeezed.best().plan, name));
    }
    return smallest;
  }

  /// Whether plans just below the smallest known one were searched for.
  bool squeezes() const { return chain_.size() <= tuning_.squeezed_segments; }

  /// Once plans were looked for: what follows for them and for the bound.
  [[gnu::cold]] void finish() {
    const bool found = proposals_.found();
    if (found && request_.prices.linear != nullptr && request_.prices.by != Solver::search)
      close_gap();
    lower(bound_, larger(bound_of_unlisted(), 0.0));
    proposals_.raise_bound(chain_.base_seconds + bound_, bound_by_);
    if (found && request_.least_error) lessen_error();
  }

  /// What no plan goes below, listed or not. Retaining a restricted activation takes its bytes more, and saves
  /// what another policy costs: under the tuned prices, no plan is better by more than that.
  [[gnu::cold]] double bound_of_unlisted() const {
    if (tables_.restricted.empty()) return infinite;
    const double byte = tuned_.prices.byte(), error = tuned_.prices.error;
    double bound = tuned_.bound;
    for (const Restricted& one : tables_.restricted) {
      const auto bytes = static_cast<double>(stored_bytes(graph_, one.id, retain()));
      double least = one.longer ? -byte * bytes : 0;
      for (const Policy& policy : policies_of(graph_, one.id)) {
        const auto stored = static_cast<double>(stored_bytes(graph_, one.id, policy));
        lower(least, seconds_of(graph_, profile_, one.id, policy) - byte * (bytes - stored) +
                         error * error_of(graph_, profile_, one.id, policy));
      }
      bound += least;
    }
    return bound;
  }
  /// Bytes that plans may store less than those listed.
  [[gnu::cold]] std::size_t most_unlisted_bytes() const {
    std::size_t bytes = 0;
    for (const Restricted& one : tables_.restricted)
      bytes += stored_bytes(graph_, one.id, retain());
    return bytes;
  }

  /// Proposes the fastest plan that it finds, if it finds one.
  [[gnu::cold]] void look() {
    tune();
    // If none fits, the bound knows no limit.
    if (bound_ > 10 * chain_.base_seconds || bound_ >= of_interest_) return;
    const ChainReducer reducer(chain_, tuned_.prices, tuning_);
    widen(reducer);
    tighten(reducer);
  }

  /// For sums of whole buffers: an arena ends with its last byte, they with the padding behind it.
  SignedBytes budget() const { return static_cast<SignedBytes>(align_up(request_.budget_bytes)); }

  /// Behind any one buffer.
  [[gnu::cold]] std::size_t most_padding() const {
    if (graph_.parts > 1) return alignment - 1;  // parts of buffers may have any
    std::size_t most = 0;
    const auto add = [&](std::size_t bytes) { raise(most, align_up(bytes) - bytes); };
    for (int k = 0; k < graph_.node_count(); ++k) {
      const Node& node = graph_.node(k);
      for (const std::size_t bytes :
           {node.output_bytes, node.aux_bytes, node.forward_workspace, node.backward_workspace})
        add(bytes);
      for (const Policy& policy : policies_of(graph_, k))
        if (policy.keeps()) add(policy.form().bytes(node.output, graph_.scalar));
    }
    if (graph_.has_lasting_gradients())
      for (const LastingGradient& gradient : graph_.gradients) add(gradient.bytes);
    add(graph_.loss.backward_workspace);
    add(graph_.input.elems() * bytes_of(graph_.scalar));
    return most;
  }

  Plan plan_of(const Array<int>& patterns) const {
    Plan plan = plan_from_types(graph_);
    for (std::size_t j = 0; j < chain_.size(); ++j) {
      const Segment& segment = tables_.segments[j];
      const Patterns& mine = patterns_[static_cast<std::size_t>(segment.structure)];
      const Pattern& pattern = mine.all[static_cast<std::size_t>(patterns[j])];
      for (std::size_t k = 0; k < mine.nodes(); ++k)
        if (!mine.is_outgoing(k))
          plan.policies[static_cast<std::size_t>(segment.original(static_cast<int>(k)))] =
              mine.options[k][mine.choice(pattern, k).option];
    }
    return plan;
  }

  /// Of the arenas of all plans that `limits` do not leave out, whole buffers: no more than the
  /// smallest.
  [[gnu::cold]] std::size_t propose_smaller(const Chain& chain, const PlacementLimits& limits,
                                            Proposals& proposals) const {
    Placement placement(chain, nullptr, limits);
    const Array<PlacedPlan> plans = placement.run();
    findings_.extensions += placement.extensions();
    if (placement.timed_out()) return 0;
    const std::size_t& smallest = proposals.smallest().arena_bytes;
    // Layouts have gaps: the smallest arena may be that of another plan.
    const std::size_t most =
        graph_.nodes.size() < tuning_.smallest_many ? tuning_.smallest_layouts : 4;
    for (std::size_t i = 0; i < plans.size() && i < most; ++i) {
      if (plans[i].need >= static_cast<SignedBytes>(smallest) || (i > 0 && limits.time.look()))
        break;
      static_cast<void>(proposals.offer(plan_of(placement.patterns(plans[i])), name));
    }
    double least = placement.dropped();
    if (!plans.empty()) lower(least, static_cast<double>(plans[0].need));
    return least <= 0 ? 0 : least >= infinite ? smallest : static_cast<std::size_t>(least);
  }

  [[gnu::cold]] void tune() {
    by_ = name;
    if (request_.prices.by != Solver::lp_solve || !ask_solver())
      tuned_ = PriceTuner(chain_, static_cast<double>(budget()), tolerance_, tuning_, time_).run();
    bound_ = larger(tuned_.bound, 0.0);
    bound_by_ = by_;
  }

  /// Takes prices from the linear solver; false if it has none, or, unless it is to plan alone,
  /// none that prove more.
  [[gnu::cold]] bool ask_solver() {
    const LinearSolver& solver = *request_.prices.linear;
    Error why;
    const TunedPrices found =
        count_prices(chain_, static_cast<double>(budget()), tolerance_, solver,
                     time_.deadline().part(ChainTuning::solver_share), tuning_, why);
    if (why) proposals_.note(Error::say(why.text(), ": prices were tuned without it"));
    if (why || (request_.prices.by != Solver::lp_solve && found.bound <= tuned_.bound))
      return false;
    tuned_ = found;
    by_ = solver.name;
    return true;
  }

  void raise_bound(double seconds, const char* by) {
    if (seconds > bound_) bound_ = seconds, bound_by_ = by;
  }

  /// If the search leaves a gap, a linear solver may know a higher bound, and, with few
  /// segments, its program in integers one that is higher still.
  [[gnu::cold]] void close_gap() {
    if (good_enough() || time_.look()) return;
    if (request_.prices.by == Solver::automatic && ask_solver()) {
      raise_bound(tuned_.bound, by_);
      if (!good_enough()) widen(ChainReducer(chain_, tuned_.prices, tuning_));
    }
    if (good_enough() || time_.look()) return;
    for (const ArcSet& arcs : chain_.arcs)
      if (!arcs.complete) return;
    const ChainReducer reducer(chain_, tuned_.prices, tuning_);
    double left_out = 0;
    Chain reduced = reducer.reduce(best_seconds() - tuned_.bound, tuning_.whole_arcs, left_out);
    reduced.settle();
    CountProgram program(reduced, static_cast<double>(budget()), tolerance_, tuning_);
    program.add_all();
    if (!program.holds_all_plans() || program.columns() > tuning_.most_whole) return;
    const LinearSolution whole = request_.prices.linear->solve(
        program.program(true), {time_.deadline(), tuning_.most_whole_polls});
    if (whole.verdict != LinearSolution::Verdict::optimal) return;
    double proven = whole.objective - 1e-8 * chain_.base_seconds;  // for its tolerances
    lower(proven, tuned_.bound + left_out);
    lower(proven, best_seconds());
    raise_bound(proven, request_.prices.linear->name);
  }

  double best_seconds() const {
    return proposals_.found() ? proposals_.best().cost.seconds - chain_.base_seconds : infinite;
  }
  bool good_enough() const {
    if (proposals_.found() && most_seconds_ < infinite)
      return proposals_.best().cost.error <= tolerance_;
    if (bound_ >= of_interest_) return true;
    if (!proposals_.found()) return false;
    return best_seconds() - bound_ <= request_.gap * proposals_.best().cost.seconds;
  }

  /// Whether a plan may be faster, by more than the gap asked for, than what is of interest.
  bool promising() const {
    return of_interest_ - bound_ > request_.gap * (chain_.base_seconds + bound_);
  }

  /// Wider and wider, until the gap is closed or time is up.
  [[gnu::cold]] void widen(const ChainReducer& reducer) {
    constexpr ChainTuning::Reach early = ChainTuning::early, late = ChainTuning::late;
    for (std::size_t i = 0; i < tuning_.effort_count;) {
      if (i == tuning_.wide && !promising()) return;
      // Before it takes long, a plan must be known, if not a good one.
      for (double reach = early.first;
           i == tuning_.wide && !proposals_.found() && reach < early.end; reach *= early.factor)
        if (!place(reducer, i - 1, reach)) return;
      if (i == tuning_.wide && !proposals_.found()) propose_smallest();
      // The same search did not even find a plan just below the smallest one.
      if (i == tuning_.wide && !proposals_.found() && smallest_proposed_ && squeezes()) return;
      if (i == tuning_.wide && far_off()) tighten(reducer);
      const double before = bound_;
      if (!place(reducer, i, 1) || good_enough()) return;
      // If there is none that fast, the next search begins at a higher bound.
      if (placed_ == 0 &&
          bound_ - before > ChainTuning::raised * request_.gap * (chain_.base_seconds + bound_))
        continue;
      ++i;
    }
    // What is faster than the best plan known may only have layouts with gaps: the next may fit.
    double before = 0;
    for (double reach = late.first; reach < late.end; reach *= late.factor) {
      const double limit = cutoff(reach);
      if (limit == before) return;  // as wide as it gets: nothing else would come of it
      before = limit;
      const bool last = limit >= best_seconds();
      if (!place(reducer, tuning_.wide, reach) || good_enough()) return;
      if (!place(reducer, tuning_.effort_count - 1, reach) || good_enough() || last) return;
    }
  }

  /// Whether the best plan known may be slower than need be by some times the gap asked for.
  bool far_off() const {
    return best_seconds() - bound_ >
           ChainTuning::far_off * request_.gap * (chain_.base_seconds + bound_);
  }

  /// If the fastest plans have layouts with gaps, or too many are as good for a search to end: plans of fewer
  /// live bytes, with searches that take little.
  [[gnu::cold]] void tighten(const ChainReducer& reducer) {
    if (tightened_ || squeezing_ || !proposals_.found() || good_enough()) return;
    tightened_ = true;
    for (const double share : ChainTuning::tighter)
      for (std::size_t effort = 0; effort < tuning_.wide; ++effort)
        if (time_.look() || !place(reducer, effort, ChainTuning::late.end, share) || good_enough())
          return;
  }

  /// Plans slower than this need not be looked at: either a faster one is good enough, or there is
  /// none, which raises the bound up to here.
  double cutoff(double reach) const {
    if (most_seconds_ < infinite) return most_seconds_;
    const double gap = larger(request_.gap, 1e-5) * reach;
    double good = bound_ + (gap < 0.5 ? gap / (1 - gap) : 1) * (chain_.base_seconds + bound_);
    lower(good, best_seconds());
    lower(good, of_interest_);
    return good;
  }

  /// Looks for plans below the cutoff and proposes them; raises the bound by what it proved. False
  /// if time is up. With a share, plans within that much of the budget, which proves nothing.
  [[gnu::cold]] bool place(const ChainReducer& reducer, std::size_t effort, double reach,
                           double share = 1) {
    const ChainTuning::Effort& how = tuning_.efforts[effort];
    double left_out = 0;
    const Chain reduced = reducer.reduce(cutoff(reach) - tuned_.bound, how.arcs, left_out);
    Array<PrefixBounds::Weights> prices;
    const double typical = chain_.base_seconds / static_cast<double>(request_.budget_bytes);
    const double byte =
        tuned_.prices.byte() > 0 ? tuned_.prices.byte() : ChainTuning::least_byte * typical;
    for (std::size_t i = 0; i < tuning_.factor_count; ++i) {
      const ChainTuning::Factors& factor = tuning_.factors[i];
      if (factor.error == 1 || tuned_.prices.error > 0)
        prices.push_back({1, factor.byte * byte, factor.error * tuned_.prices.error});
    }
    const PrefixBounds bounds(reduced, static_cast<Array<PrefixBounds::Weights>&&>(prices), time_);
    PlacementLimits limits;
    limits.budget = budget();
    if (share < 1)
      limits.budget = static_cast<SignedBytes>(share * static_cast<double>(limits.budget));
    limits.tolerance = tolerance_;
    limits.needs = how.needs;
    limits.labels = how.labels;
    if (effort >= tuning_.wide) limits.most_extensions = tuning_.most_extensions;
    limits.root = bound_;
    limits.cutoff = cutoff(reach);
    limits.time = time_;
    Placement placement(reduced, &bounds, limits);
    const Array<PlacedPlan> plans = placement.run();
    findings_.extensions += placement.extensions();
    if (placement.timed_out()) proposals_.time_out();
    if (placement.timed_out() || placement.gave_up()) return false;
    if (share < 1) {
      propose(placement, plans);
      return true;
    }
    double proven = placement.dropped();
    lower(proven, tuned_.bound + left_out);
    if (!plans.empty()) lower(proven, plans[0].seconds);
    lower(proven, best_seconds());
    if (proven < infinite) raise_bound(proven, by_);
    placed_ = plans.size();
    propose(placement, plans);
    return true;
  }

  /// A layout's gaps come from all of a plan, not from one instruction: the fastest plan first,
  /// then those that leave it more room.
  [[gnu::cold]] void propose(const Placement& placement, const Array<PlacedPlan>& plans) {
    SignedBytes need = 0;
    int tried = 0;
    for (std::size_t i = 0; i < plans.size() && tried < tuning_.layouts; ++i) {
      if (most_seconds_ >= infinite && plans[i].seconds >= best_seconds()) return;
      if (2 * tried >= tuning_.layouts && plans[i].need > need) continue;
      if (tried > 0 && time_.look()) return;
      ++tried;
      const Proposal& found = proposals_.offer(plan_of(placement.patterns(plans[i])), by_);
      if (proposals_.meets(found)) return;
      need = plans[i].need - (static_cast<SignedBytes>(found.arena_bytes) - budget()) / 2;
    }
  }

  /// Lowers the tolerance as long as there are plans as fast as they may be.
  [[gnu::cold]] void lessen_error() {
    most_seconds_ = proposals_.seek_least_error() - chain_.base_seconds;
    double low = 0;
    tolerance_ = 0;
    for (int i = 0; i < tuning_.error_rounds && proposals_.best().cost.error > low && !time_.look();
         ++i) {
      tune();
      if (bound_ <= most_seconds_) {
        const ChainReducer reducer(chain_, tuned_.prices, tuning_);
        if (!place(reducer, 0, 1)) return;
      }
      if (!good_enough()) low = tolerance_;
      // Errors span orders of magnitude, so the first steps go down by more than halves.
      const double error = proposals_.best().cost.error;
      tolerance_ = low > 0 ? (low + error) / 2 : error / 8;
    }
  }

  const ChainTables& tables_;
  const Graph& graph_;
  const CostProfile& profile_;
  const PlanRequest& request_;
  const ChainTuning& tuning_;
  Proposals& proposals_;
  ChainFindings& findings_;
  Pacer& time_;
  const Array<Patterns>& patterns_ = tables_.patterns;
  const Chain& chain_ = tables_.chain;
  bool smallest_proposed_ = false;
  bool squeezing_ = false;  ///< on behalf of find_smallest()
  bool tightened_ = false;
  double tolerance_;
  const char* by_ = name;        ///< what prices are from
  const char* bound_by_ = name;  ///< what proved bound_
  TunedPrices tuned_;
  double bound_ = 0;                ///< within tolerance_
  double most_seconds_ = infinite;  ///< once the least error is sought
  double of_interest_ = infinite;   ///< plans as slow as this are not
  std::size_t placed_ = 0;          ///< plans that the last placement found
};

/// Proposes the fastest plan that it finds; if there is none, the smallest.
[[gnu::cold]] inline void search_chain(const Graph& graph, const CostProfile& profile,
                                       const PlanRequest& request, const ChainTuning& tuning,
                                       Proposals& proposals) {
  const ChainTables tables(graph, profile, tuning, request.in_flight, proposals.time());
  ChainFindings findings;
  ChainPlanner(tables, graph, profile, request, tuning, proposals, findings).search();
}

}  // namespace detail

/// A Planner for graphs of any size.
[[gnu::cold]] inline Result<PlanOutcome> plan_chain(const Graph& graph, const CostProfile& profile,
                                                    const PlanRequest& request,
                                                    const ChainTuning& tuning) {
  if (const Error why = examine(graph, profile, request)) return why;
  Proposals proposals(graph, profile, request);
  if (!proposals.retain_fits()) {
    detail::search_chain(graph, profile, request, tuning, proposals);
    detail::propose_simple(graph, false, detail::by_chain, proposals);
  }
  return proposals.outcome();
}

inline Result<PlanOutcome> plan_chain(const Graph& graph, const CostProfile& profile,
                                      const PlanRequest& request) {
  return plan_chain(graph, profile, request, ChainTuning{});
}

}}  // namespace adacc::v0_1
