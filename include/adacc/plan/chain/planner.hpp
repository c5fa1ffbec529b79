// SPDX-License-Identifier: MIT
/// The planner for large graphs: patterns of segments, priced bounds, exact placement.
///
///   segments.hpp     a graph is cut into a chain of segments
///   patterns.hpp     patterns of segments are listed, once per structure
///   arcs.hpp         patterns get costs, once per class
///   tune_prices.hpp  prices of bytes and error give a bound for all plans
///   placement.hpp    a search from the end, exact in bytes, places patterns under both constraints
///   nested.hpp       if no plan fits that recomputes every activation at most once: plans that do more often
///
/// The bound guides the search. With few segments, the search itself proves a higher bound. Time grows linearly
/// with the number of segments.
#pragma once

#include <cstddef>

#include "../lp/count_program.hpp"
#include "../proposals.hpp"
#include "../request.hpp"
#include "../simple_plans.hpp"
#include "nested.hpp"
#include "placement.hpp"
#include "reduce.hpp"
#include "tables.hpp"
#include "tune_prices.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

constexpr const char *by_chain = "chain", *by_nested = "nested";

/// Findings that planners of one graph share, if their requests differ only in the budget.
struct ChainFindings {
  SmallestPlan smallest;       ///< without policies until searched for
  std::size_t extensions = 0;  ///< partial plans looked at, as a measure of work
};

/// Proposes plans. All seconds are on top of the chain's base.
class ChainPlanner {
 public:
  /// `tables` must be made from `graph` and `profile`. Every argument must outlive the planner.
  [[gnu::cold]] ChainPlanner(const ChainTables& tables, const Graph& graph,
                             const CostProfile& profile, const PlanRequest& request,
                             const ChainTuning& tuning, Proposals& proposals,
                             ChainFindings& findings)
      : tables_(tables), graph_(graph), profile_(profile), request_(request), tuning_(tuning),
        proposals_(proposals), findings_(findings), time_(proposals.time()),
        tolerance_(request.tolerance) {}

  /// Proposes the fastest plan found; if there is none, the smallest.
  [[gnu::cold]] void search() {
    if (tables_.complete) look();
    else note_no_tables();
    if (!proposals_.found()) propose_once();
    if (proposals_.found() && tables_.complete) return finish();
    if (!nests()) return;
    propose_nested();
    if (!proposals_.found()) propose_smallest_nested();
    proposals_.raise_bound(chain_.base_seconds, by_nested);
  }

  /// Proposes the fastest plan found. Ends early if no plan, as proven, takes less than `most_seconds`.
  [[gnu::cold]] void search_below(double most_seconds) {
    if (!tables_.complete) return;
    of_interest_ = most_seconds - chain_.base_seconds;
    look();
    if (!proposals_.found() && promising()) propose_once();
    finish();
  }

  /// Proposes the smallest plan, found regardless of plans found so far: a budget named in an error can be met
  /// later. If time is up, proposes the smallest plan known by then.
  [[gnu::cold]] void propose_smallest() {
    propose_once();
    if (nests()) propose_smallest_nested();
  }

 private:
  static constexpr const char* name = by_chain;

  /// Proposes the smallest plan that recomputes every activation at most once.
  [[gnu::cold]] void propose_once() {
    if (smallest_proposed_ || squeezing_) return;
    smallest_proposed_ = true;
    Pacer& time = proposals_.shared_time();
    if (findings_.smallest.plan.policies.empty() && tables_.complete && !time.passed())
      findings_.smallest = find_smallest(time);
    if (time.passed()) proposals_.offer_known(findings_.smallest.plan, name);
    else proposals_.offer_smallest(findings_.smallest, name);
  }

  /// Whether plans may recompute activations more than once.
  bool nests() const {
    return tables_.complete && request_.most_runs > 1 && request_.in_flight == 1 &&
           !request_.link.exists() && graph_.parts <= 1 && chain_.size() >= tuning_.nested_segments;
  }

  /// Proposes nested plans: of those within the budget, the ones for the most memory as estimated.
  [[gnu::cold]] void propose_nested() {
    const NestedPlans nested(graph_, profile_, tables_, request_.most_runs);
    const SignedBytes most = budget() + budget() / 4;
    const auto seek = [&](SignedBytes low, SignedBytes high, const auto& plan_of) {
      for (int i = 0; i < tuning_.nested_layouts && low <= high && !time_.look(); ++i) {
        const SignedBytes memory = low + (high - low) / 2;
        const Proposal& found = proposals_.offer(plan_of(memory), by_nested);
        if (found.arena_bytes <= request_.budget_bytes) low = memory + 1;
        else high = memory - 1;
      }
    };
    seek(nested.least_memory(), most, [&](SignedBytes memory) { return nested.plan(memory); });
    with_table(nested, most, time_, [&](const NestedTable& table, int least) {
      seek(least, tuning_.nested_units,
           [&](SignedBytes memory) { return nested.plan(table.steps(static_cast<int>(memory))); });
    });
  }

  /// Proposes the smallest nested plan found, if it is smaller than other plans. No plan is proven to be the smallest.
  [[gnu::cold]] void propose_smallest_nested() {
    proposals_.forget_least_bytes();
    Pacer& time = proposals_.shared_time();
    if (time.passed()) return;
    const NestedPlans nested(graph_, profile_, tables_, request_.most_runs);
    Proposals found(graph_, profile_, request_);
    const SignedBytes most = nested.least_memory();
    static_cast<void>(found.offer(nested.plan(most), by_nested));
    with_table(nested, most, time, [&](const NestedTable& table, int least) {
      for (int i = 0; i < tuning_.nested_layouts && least + i <= tuning_.nested_units; ++i)
        if (!time.look())
          static_cast<void>(found.offer(nested.plan(table.steps(least + i)), by_nested));
    });
    for (bool smaller = true; smaller && !time.passed();) {
      PlanRequest below = request_;
      below.budget_bytes = found.smallest().arena_bytes - 1;
      Proposals squeezed(graph_, profile_, below, time.deadline());
      ChainPlanner(tables_, graph_, profile_, below, tuning_, squeezed, findings_).propose_nested();
      smaller = squeezed.found();
      if (smaller) static_cast<void>(found.offer(squeezed.best().plan, by_nested));
    }
    SmallestPlan smallest = found.smallest();
    if (smallest.arena_bytes >= proposals_.smallest().arena_bytes) return;
    smallest.least_bytes = 0;
    proposals_.offer_smallest(smallest, by_nested);
  }

  /// Calls visit(table, least) for a chain of few segments: its table for at most `most` bytes, and the least memory
  /// with a plan there.
  template <class Visit>
  void with_table(const NestedPlans& nested, SignedBytes most, Pacer& time,
                  const Visit& visit) const {
    if (chain_.size() > tuning_.nested_table_segments || !nested.has_stages() || time.look())
      return;
    const int units = tuning_.nested_units;
    const Array<NestedTable::Stage> stages = nested.stages(most / units + 1);
    const NestedTable table(stages, units, time);
    int least = 0;
    while (least <= units && !(table.seconds(least) < infinite)) ++least;
    if (least <= units) visit(table, least);
  }

  /// Notes, if time was up before patterns and costs were listed, that no solver was asked.
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
    // In a long chain, plans that spend the tolerance at the end have none left at the beginning.
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
    // Layouts have gaps, so a plan with larger needs may have the smallest arena. The search for the fastest
    // plan visits other plans: it is repeated just below the smallest arena until it finds none.
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

  /// Whether find_smallest() searches for plans just below the smallest known one.
  bool squeezes() const { return chain_.size() <= tuning_.squeezed_segments; }

  /// Runs after look(): closes the gap, raises the bound, lowers the error.
  [[gnu::cold]] void finish() {
    const bool found = proposals_.found();
    if (found && request_.prices.linear != nullptr && request_.prices.by != Solver::search)
      close_gap();
    lower(bound_, larger(bound_of_unlisted(), 0.0));
    proposals_.raise_bound(chain_.base_seconds + bound_, bound_by_);
    if (found && request_.least_error) lessen_error();
  }

  /// A bound for all plans, listed or not. Retaining a restricted activation takes more bytes than another
  /// policy, and less time: under the tuned prices, a plan with another policy gains the difference at most.
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
  /// Bytes by which the smallest unlisted plan may be below those listed.
  [[gnu::cold]] std::size_t most_unlisted_bytes() const {
    std::size_t bytes = 0;
    for (const Restricted& one : tables_.restricted)
      bytes += stored_bytes(graph_, one.id, retain());
    return bytes;
  }

  /// Proposes the fastest plan found, if any.
  [[gnu::cold]] void look() {
    tune();
    // If no plan fits, the bound has no limit.
    if (bound_ > 10 * chain_.base_seconds || bound_ >= of_interest_) return;
    const ChainReducer reducer(chain_, tuned_.prices, tuning_);
    widen(reducer);
    tighten(reducer);
  }

  /// The budget for sums of whole buffers, which end with padding; an arena ends with its last byte.
  SignedBytes budget() const { return static_cast<SignedBytes>(align_up(request_.budget_bytes)); }

  /// The most padding behind any one buffer.
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
      const Patterns& structure_patterns = patterns_[static_cast<std::size_t>(segment.structure)];
      const Pattern& pattern = structure_patterns.all[static_cast<std::size_t>(patterns[j])];
      for (std::size_t k = 0; k < structure_patterns.nodes(); ++k)
        if (!structure_patterns.is_outgoing(k))
          plan.policies[static_cast<std::size_t>(segment.original(static_cast<int>(k)))] =
              structure_patterns.options[k][structure_patterns.choice(pattern, k).option];
    }
    return plan;
  }

  /// Proposes small plans within `limits`. Returns a lower bound on the arenas of all such plans, in whole
  /// buffers: at most the smallest arena known.
  [[gnu::cold]] std::size_t propose_smaller(const Chain& chain, const PlacementLimits& limits,
                                            Proposals& proposals) const {
    Placement placement(chain, nullptr, limits);
    const Array<PlacedPlan> plans = placement.run();
    findings_.extensions += placement.extensions();
    if (placement.timed_out()) return 0;
    const std::size_t& smallest = proposals.smallest().arena_bytes;
    // Layouts have gaps: another plan than the first may have the smallest arena.
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

  /// Takes prices from the linear solver. False if the solver has none, or, unless it is to plan alone, none
  /// that prove a higher bound.
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

  /// If the search leaves a gap, asks a linear solver for a higher bound, and, with few segments, for the
  /// still higher bound of the program in integers.
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
    double proven = whole.objective - 1e-8 * chain_.base_seconds;  // for the solver's tolerances
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

  /// Whether a plan may be faster than `of_interest_` by more than the gap asked for.
  bool promising() const {
    return of_interest_ - bound_ > request_.gap * (chain_.base_seconds + bound_);
  }

  /// Searches wider and wider, until the gap is closed or time is up.
  [[gnu::cold]] void widen(const ChainReducer& reducer) {
    constexpr ChainTuning::Reach early = ChainTuning::early, late = ChainTuning::late;
    for (std::size_t i = 0; i < tuning_.effort_count;) {
      if (i == tuning_.wide && !promising()) return;
      // Before searches take long, a plan must be known, though not a good one.
      for (double reach = early.first;
           i == tuning_.wide && !proposals_.found() && reach < early.end; reach *= early.factor)
        if (!place(reducer, i - 1, reach)) return;
      if (i == tuning_.wide && !proposals_.found()) propose_once();
      // Searches just below the smallest plan, as wide as this one, have found none.
      if (i == tuning_.wide && !proposals_.found() && smallest_proposed_ && squeezes()) return;
      if (i == tuning_.wide && far_off()) tighten(reducer);
      const double before = bound_;
      if (!place(reducer, i, 1) || good_enough()) return;
      // If no plan is that fast, the search is repeated from a higher bound.
      if (placed_ == 0 &&
          bound_ - before > ChainTuning::raised * request_.gap * (chain_.base_seconds + bound_))
        continue;
      ++i;
    }
    // Plans faster than the best one known may all have layouts with gaps: slower ones may fit.
    double before = 0;
    for (double reach = late.first; reach < late.end; reach *= late.factor) {
      const double limit = cutoff(reach);
      if (limit == before) return;  // the search cannot get wider
      before = limit;
      const bool last = limit >= best_seconds();
      if (!place(reducer, tuning_.wide, reach) || good_enough()) return;
      if (!place(reducer, tuning_.effort_count - 1, reach) || good_enough() || last) return;
    }
  }

  /// Whether the best plan known may be slower than the bound by a multiple of the gap asked for.
  bool far_off() const {
    return best_seconds() - bound_ >
           ChainTuning::far_off * request_.gap * (chain_.base_seconds + bound_);
  }

  /// Searches quickly for plans with fewer live bytes: if the fastest plans have layouts with gaps, or too many
  /// equally good plans keep a search from ending.
  [[gnu::cold]] void tighten(const ChainReducer& reducer) {
    if (tightened_ || squeezing_ || !proposals_.found() || good_enough()) return;
    tightened_ = true;
    for (const double share : ChainTuning::tighter)
      for (std::size_t effort = 0; effort < tuning_.wide; ++effort)
        if (time_.look() || !place(reducer, effort, ChainTuning::late.end, share) || good_enough())
          return;
  }

  /// Seconds of the slowest plan worth a look: either a faster plan is good enough, or there is none, and
  /// the bound rises to these seconds.
  double cutoff(double reach) const {
    if (most_seconds_ < infinite) return most_seconds_;
    const double gap = larger(request_.gap, 1e-5) * reach;
    double good = bound_ + (gap < 0.5 ? gap / (1 - gap) : 1) * (chain_.base_seconds + bound_);
    lower(good, best_seconds());
    lower(good, of_interest_);
    return good;
  }

  /// Proposes plans below the cutoff, and raises the bound as far as proven. False if time is up or the search
  /// takes too long. With a share below 1, plans within this share of the budget: nothing is proven.
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

  /// Offers plans, the fastest first; in the second half of the tries only those whose smaller needs leave the
  /// layout more room. A layout's gaps come from a whole plan, not from one instruction.
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

  /// Lowers the tolerance as long as plans within `most_seconds_` are found.
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
  const char* by_ = name;        ///< the source of prices
  const char* bound_by_ = name;  ///< the source of bound_
  TunedPrices tuned_;
  double bound_ = 0;                ///< within tolerance_
  double most_seconds_ = infinite;  ///< once the least error is sought
  double of_interest_ = infinite;   ///< only faster plans are of interest
  std::size_t placed_ = 0;          ///< plans found by the last placement
};

/// Proposes the fastest plan found; if there is none, the smallest.
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
