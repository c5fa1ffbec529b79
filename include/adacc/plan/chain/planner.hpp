/// The planner for large graphs: patterns of segments, priced bounds, exact placement.
///
/// A chain is cut into segments (segments.hpp), each segment's patterns are listed once per form
/// (patterns.hpp) and priced once per class (moves.hpp). Prices of bytes and
/// error give a bound for all plans (tune_prices.hpp); a search from the end, exact in bytes,
/// places patterns under both constraints, guided by the bounds (placement.hpp), and its own bound
/// is the better one where few segments leave no room for averages. Time grows linearly with the
/// number of segments.
#pragma once

#include <cstddef>

#include "../exhaustive/smallest.hpp"
#include "../outcome.hpp"
#include "../request.hpp"
#include "placement.hpp"
#include "reduce.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

class PatternPlanner {
 public:
  PatternPlanner(const Graph& graph, const CostProfile& profile, const PlanRequest& request)
      : graph_(graph), profile_(profile), request_(request), bits_(profile),
        start_(request.now == nullptr ? 0 : request.now()),
        deadline_(start_ + request.deadline_seconds) {}

  /// The arena of the smallest plan. Before or after run(): what both need is done once.
  std::size_t smallest_arena() {
    build_chain();
    return named(smallest()).arena_bytes;
  }

  Result<PlanOutcome> run() {
    return run([](const Chain& chain, double budget, double tolerance, const auto& relaxed) {
      return PriceTuner(chain, budget, tolerance).run(relaxed);
    });
  }

  /// With prices and a bound from elsewhere: `price(chain, budget, tolerance, relaxed)` returns
  /// TunedPrices, `relaxed` as in PriceTuner::run.
  template <class Price>
  Result<PlanOutcome> run(Price&& price) {
    // Nothing is faster than to retain all that is open.
    if (Plan plan = plan_from_types(graph_);
        error_of(graph_, profile_, plan) <= request_.tolerance &&
        peak_bytes(graph_, plan) <= request_.budget_bytes) {
      const double seconds = evaluate(graph_, profile_, plan).seconds;
      return finish(static_cast<Plan&&>(plan), seconds);
    }
    build_chain();
    tune(price);
    // Where none fits, the bound knows no limit.
    if (bound_ > 10 * chain_.base_seconds && !fits(smallest()))
      return over_budget(graph_, request_, named(smallest_));
    search();
    if (!best_.found) {
      if (!fits(smallest())) {
        smallest_.proven = smallest_.proven && smallest_.need > budget();
        return over_budget(graph_, request_, named(smallest_));
      }
      best_ = smallest_;
    }
    return finish(static_cast<Plan&&>(best_.plan), chain_.base_seconds + bound_);
  }

 private:
  /// A plan of the whole graph.
  struct Candidate {
    bool found = false;
    bool proven = false;
    Plan plan;
    SignedBytes need = 0;
    std::size_t live = 0, arena = 0;
    double seconds = unreachable;  ///< beyond the chain's base
  };

  bool fits(const Candidate& plan) const {
    return plan.found && plan.arena <= request_.budget_bytes;
  }

  PlanOutcome finish(Plan plan, double bound_seconds) const {
    PlanOutcome outcome = finish_outcome(graph_, profile_, request_, static_cast<Plan&&>(plan),
                                         bound_seconds, "patterns");
    outcome.timed_out = timed_out_;
    if (tuned_.prices.byte > 0) outcome.seconds_per_byte = tuned_.prices.byte;
    if (request_.now != nullptr) outcome.solve_seconds = request_.now() - start_;
    return outcome;
  }

  /// For the error that names it; the plan of the types where none was found.
  SmallestPlan named(const Candidate& smallest) const {
    if (smallest.found)
      return {smallest.proven && smallest.arena == smallest.live, smallest.plan, smallest.arena};
    Plan plan = plan_from_types(graph_);
    const std::size_t arena = peak_bytes(graph_, plan);
    return {false, static_cast<Plan&&>(plan), arena};
  }

  void build_chain() {
    if (chain_.size() > 0) return;
    chain_.segments = segments_of(graph_, profile_);
    chain_.base_seconds = evaluate(graph_, profile_, retain_all(graph_)).seconds;
    masks_ = bits_.count() > 0 && worst_error() > request_.tolerance;
    MoveMaker maker(graph_, profile_, bits_, masks_);
    chain_.states = maker.states();
    for (const Segment& segment : chain_.segments) {
      if (static_cast<std::size_t>(segment.form) == chain_.forms.size())
        chain_.forms.push_back(PatternLister(graph_, profile_, segment, bits_).list());
      if (static_cast<std::size_t>(segment.cost) != chain_.moves.size()) continue;
      const FormPatterns& form = chain_.forms[static_cast<std::size_t>(segment.form)];
      chain_.moves.push_back(maker.make(form, segment));
      complete_ = complete_ && form.complete;
    }
    chain_.settle_needs();
  }

  /// More than any plan's error.
  double worst_error() const {
    double sum = 0;
    for (int k = 0; k < graph_.node_count(); ++k) {
      double worst = 0, carried = 0;
      for (std::size_t c = 0; c < profile_.codecs.size(); ++c) {
        const CodecCost& cost = profile_.codec_cost(k, static_cast<int>(c));
        carried += cost.carried_error;
        if (cost.error > worst) worst = cost.error;
      }
      if (graph_.node(k).read_in_backward) sum += carried > worst ? carried : worst;
    }
    return sum;
  }

  /// For sums of whole buffers: an arena ends with its last byte, they with the padding behind it.
  SignedBytes budget() const { return static_cast<SignedBytes>(align_up(request_.budget_bytes)); }

  PlacementLimits limits() const {
    PlacementLimits limits;
    limits.budget = budget();
    limits.tolerance = request_.tolerance;
    limits.now = request_.now;
    limits.deadline = deadline_;
    return limits;
  }

  Plan plan_of(const Array<int>& patterns) const {
    Plan plan = plan_from_types(graph_);
    for (std::size_t j = 0; j < chain_.size(); ++j) {
      const Segment& segment = chain_.segments[j];
      const FormPatterns& form = chain_.form_of(j);
      const SegmentPattern& pattern = form.patterns[static_cast<std::size_t>(patterns[j])];
      const int offset = segment.first - (form.segment.has_input ? 1 : 0);
      const std::size_t nodes = form.nodes() - (form.segment.has_output ? 2 : 0);
      for (std::size_t k = 0; k < nodes; ++k)
        plan.policies[static_cast<std::size_t>(offset) + k] =
            form.options[k][form.choice(pattern, k).option];
    }
    return plan;
  }

  Candidate candidate(const Placement& placement, const PlacedPlan& placed) const {
    Candidate out;
    out.found = true;
    out.need = placed.need;
    out.seconds = placed.seconds;
    out.plan = plan_of(placement.patterns(placed));
    const Layout layout = make_layout(make_schedule(graph_, out.plan));
    out.live = layout.live_bytes;
    out.arena = layout.arena_bytes;
    return out;
  }

  const Candidate& smallest() {
    if (smallest_known_) return smallest_;
    smallest_known_ = true;
    const Chain chain = without_time(chain_);
    const PrefixMinima minima(chain);
    PlacementLimits how = limits();
    how.needs = 0;
    how.errors = masks_ ? 4 : 1;
    how.now = nullptr;  // a plan that fits must be known, whatever the deadline
    find_smaller(chain, minima, how);
    if (smallest_.found && !smallest_.proven && chain_.size() <= 64) {
      how.cutoff = static_cast<double>(smallest_.arena);
      how.errors *= 4;
      how.labels = 4;
      find_smaller(chain, minima, how);
    }
    return smallest_;
  }

  void find_smaller(const Chain& chain, const PrefixMinima& minima, const PlacementLimits& how) {
    Placement placement(chain, minima, nullptr, how);
    const Array<PlacedPlan> plans = placement.run();
    // Layouts have gaps: the smallest arena may be that of another plan.
    const std::size_t most_tried = graph_.node_count() < 1000 ? 64 : 4;
    for (std::size_t i = 0; i < plans.size() && i < most_tried; ++i) {
      if (smallest_.found && plans[i].need >= static_cast<SignedBytes>(smallest_.arena)) break;
      Candidate found = candidate(placement, plans[i]);
      if (!smallest_.found || found.arena < smallest_.arena)
        smallest_ = static_cast<Candidate&&>(found);
    }
    smallest_.proven =
        smallest_.found && complete_ && placement.dropped() >= static_cast<double>(smallest_.need);
  }

  Array<double> relaxed(Prices prices, const Array<int>& classes) const {
    const Array<double> all = relaxed(prices);
    Array<double> values;
    for (const int c : classes) values.push_back(all[static_cast<std::size_t>(c)]);
    return values;
  }

  /// Per cost class, what no pattern costs less than, listed or not; nothing where all are listed.
  Array<double> relaxed(Prices prices) const {
    Array<double> values;
    if (complete_) return values;
    values.resize(chain_.moves.size());
    for (double& value : values) value = -unreachable;
    MoveMaker maker(graph_, profile_, bits_, masks_);
    for (const Segment& segment : chain_.segments) {
      double& value = values[static_cast<std::size_t>(segment.cost)];
      const FormPatterns& form = chain_.forms[static_cast<std::size_t>(segment.form)];
      if (value > -unreachable || form.complete) continue;
      value = maker.relaxed(form, segment, prices.byte, prices.error);
    }
    return values;
  }

  template <class Price>
  void tune(Price& price) {
    tuned_ = price(chain_, static_cast<double>(budget()), request_.tolerance,
                   [this](Prices prices) { return relaxed(prices); });
    bound_ = tuned_.bound > 0 ? tuned_.bound : 0;
  }

  bool good_enough() const {
    return best_.found &&
           best_.seconds - bound_ <= request_.gap * (chain_.base_seconds + best_.seconds);
  }

  /// How much a search looks at.
  struct Effort {
    std::size_t moves;          ///< per segment
    std::size_t needs, errors;  ///< ranges that partial plans are told apart by
    std::size_t labels;         ///< partial plans in each
    double slack;               ///< of partial plans, in shares of an average segment's
    int layouts;                ///< of plans that may fit
    std::size_t extensions = static_cast<std::size_t>(-1);
  };

  /// Wider and wider, until the gap is closed or time is up.
  void search() {
    constexpr Effort efforts[] = {{24, 16, 4, 1, 25, 4},
                                  {24, 16, 4, 1, 100, 4},
                                  {32, 24, 6, 1, 200, 8},
                                  {64, 64, 8, 1, 400, 16},
                                  {256, 128, 8, 8, 2000, 64, 1500000},
                                  {100000, 256, 8, 64, 1e9, 200, 1500000}};
    constexpr std::size_t widest = sizeof efforts / sizeof *efforts - 1;
    constexpr std::size_t wide = 4;  // from here on it takes long, and may give up
    const ChainReducer reducer(chain_, tuned_, static_cast<double>(budget()), request_.tolerance,
                               relaxed(tuned_.prices));
    for (std::size_t effort = 0; effort <= widest;) {
      // Before it takes long, a plan must be known, if not a good one.
      for (reach_ = 2; effort == wide && !best_.found && reach_ < 100; reach_ *= 2)
        if (!place(reducer, efforts[wide - 1]) || !make_room(reducer, efforts[wide - 1])) return;
      reach_ = 1;
      const double before = bound_;
      if (!place(reducer, efforts[effort]) || good_enough()) return;
      const double raised = (bound_ - before) / (chain_.base_seconds + bound_);
      if (raised > 0.1 * request_.gap && placed_ == 0) continue;
      if (!make_room(reducer, efforts[effort]) || good_enough()) return;
      ++effort;
    }
    // What is faster than the best plan known may only have layouts with gaps: the next may fit.
    for (reach_ = 4; reach_ < 1e8; reach_ *= 4) {
      const bool last = best_.found && cutoff() >= best_.seconds;
      if (!place(reducer, efforts[widest]) || good_enough() || last) return;
    }
  }

  /// A layout's gaps come from all of a plan, not from one instruction. So the search for a plan
  /// leaves them a margin, and goes further from the bound; bounds are those of the whole budget.
  bool make_room(const ChainReducer& reducer, const Effort& effort) {
    const double reach = reach_;
    bool in_time = true;
    for (int i = 0; i < 6 && overflow_ > 0 && in_time; ++i) {
      margin_ = 2 * margin_ + overflow_;
      in_time = place(reducer, effort);
      while (in_time && placed_ == 0 && !best_.found && reach_ < 8) {
        reach_ *= 2;
        in_time = place(reducer, effort);
      }
    }
    margin_ = 0;
    reach_ = reach;
    return in_time;
  }

  /// Plans slower than this need not be looked at: either a faster one is good enough, or there is
  /// none, which raises the bound up to here.
  double cutoff() const {
    const double gap = (request_.gap > 1e-5 ? request_.gap : 1e-5) * reach_;
    const double good = bound_ + (gap < 0.5 ? gap / (1 - gap) : 1) * (chain_.base_seconds + bound_);
    return best_.found && best_.seconds < good ? best_.seconds : good;
  }

  bool place(const ChainReducer& reducer, const Effort& effort) {
    const ReducedChain reduced = reducer.reduce(cutoff(), effort.moves);
    // Around the tuned prices: one for partial plans that use more than their share, one for those
    // that use less.
    constexpr double byte_factors[] = {1, 0, 0.4, 0.7, 0.85, 1.2, 1.5, 2.2, 5};
    constexpr double error_factors[] = {0, 0.5, 0.8, 1.25, 2, 5};
    constexpr double both_factors[] = {2, 8, 40};  // for those that leave too little of either
    const double typical = chain_.base_seconds / static_cast<double>(request_.budget_bytes);
    const double byte = tuned_.prices.byte > 0 ? tuned_.prices.byte : 0.05 * typical;
    const double error = tuned_.prices.error;
    Array<Prices> prices;
    for (const double factor : byte_factors) prices.push_back({factor * byte, error});
    if (error > 0)
      for (const double factor : error_factors) prices.push_back({byte, factor * error});
    for (const double factor : both_factors) prices.push_back({factor * byte, factor * error});
    Array<Array<double>> below;
    if (!complete_)
      for (const Prices& pair : prices) below.push_back(relaxed(pair, reduced.original));
    const PrefixBounds bounds(reduced.chain, prices, below);
    const PrefixMinima minima(reduced.chain);
    PlacementLimits how = limits();
    how.needs = effort.needs;
    how.errors = masks_ ? effort.errors : 1;
    how.labels = effort.labels;
    how.most_extensions = effort.extensions;
    how.budget -= margin_;
    how.root = bound_;
    const double share = effort.slack / static_cast<double>(chain_.size());
    how.cutoff = share < 1 ? bound_ + share * (cutoff() - bound_) : cutoff();
    Placement placement(reduced.chain, minima, &bounds, how);
    const Array<PlacedPlan> plans = placement.run();
    if (placement.timed_out()) {
      timed_out_ = true;
      return false;
    }
    if (placement.gave_up()) return false;
    double proven = placement.dropped();
    if (reduced.left_out < proven) proven = reduced.left_out;
    if (!plans.empty() && plans[0].seconds < proven) proven = plans[0].seconds;
    if (best_.found && best_.seconds < proven) proven = best_.seconds;
    if (margin_ == 0 && proven > bound_ && proven < unreachable) bound_ = proven;
    placed_ = plans.size();
    try_layouts(placement, plans, effort.layouts);
    return true;
  }

  /// A layout's gaps come from all of a plan, not from one instruction: the fastest plan first,
  /// then those that leave it more room.
  void try_layouts(const Placement& placement, const Array<PlacedPlan>& plans, int most_tried) {
    SignedBytes need = 0;
    int tried = 0;
    overflow_ = 0;
    for (std::size_t i = 0; i < plans.size() && tried < most_tried; ++i) {
      if (best_.found && plans[i].seconds >= best_.seconds) return;
      if (2 * tried >= most_tried && plans[i].need > need) continue;
      ++tried;
      Candidate found = candidate(placement, plans[i]);
      if (found.arena <= request_.budget_bytes) {
        best_ = static_cast<Candidate&&>(found);
        overflow_ = 0;
        return;
      }
      const SignedBytes over = static_cast<SignedBytes>(found.arena) - budget();
      if (overflow_ == 0) overflow_ = over;
      need = plans[i].need - over / 2;
    }
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const PlanRequest& request_;
  LossyBits bits_;
  double start_;
  double deadline_;
  Chain chain_;
  bool masks_ = false;
  bool complete_ = true;
  bool smallest_known_ = false;
  Candidate smallest_;
  TunedPrices tuned_;
  double bound_ = 0;
  SignedBytes margin_ = 0;    ///< of the budget, left to gaps in layouts
  SignedBytes overflow_ = 0;  ///< of the last placement's best plan, as laid out, where none fits
  double reach_ = 1;          ///< of the search beyond the bound, in gaps
  std::size_t placed_ = 0;    ///< plans that the last placement found
  Candidate best_;
  bool timed_out_ = false;
};

}  // namespace detail

/// A Planner for graphs of any size.
inline Result<PlanOutcome> plan_by_patterns(const Graph& graph, const CostProfile& profile,
                                            const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  if (graph.has_outside())
    return Error::say(
        "patterns are for chains of layers: make_plan() plans what a Stash registers");
  return detail::PatternPlanner(graph, profile, request).run();
}

}}  // namespace adacc::v0_1
