/// The planner for large graphs: patterns of segments, priced bounds, exact placement.
///
/// A chain is cut into segments (segments.hpp), each segment's patterns are listed once per form
/// (patterns.hpp) and priced once per class (moves.hpp). Prices of bytes and error give a bound for
/// all plans (tune_prices.hpp); a search from the end, exact in bytes, places patterns under both
/// constraints, guided by the bounds (placement.hpp), and its own bound is the better one where few
/// segments leave no room for averages. Time grows linearly with the number of segments.
#pragma once

#include <cstddef>

#include "outcome.hpp"
#include "placement.hpp"
#include "planner.hpp"
#include "smallest.hpp"
#include "tune_prices.hpp"

namespace adacc::inline v0_1 {
namespace detail {

class PatternPlanner {
 public:
  PatternPlanner(const Graph& graph, const CostProfile& profile, const PlanRequest& request)
      : graph_(graph), profile_(profile), request_(request), bits_(profile),
        start_(request.now == nullptr ? 0 : request.now()),
        deadline_(start_ + request.deadline_seconds) {}

  /// The arena of the smallest plan.
  std::size_t smallest_arena() {
    build_chain();
    const PrefixMinima minima(chain_);
    minima_ = &minima;
    return named(find_smallest()).arena_bytes;
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
    const PrefixMinima minima(chain_);
    minima_ = &minima;
    Candidate smallest = find_smallest();
    if (!smallest.found || smallest.arena > request_.budget_bytes) {
      if (!smallest.found || smallest.need > budget())
        return over_budget(graph_, request_, named(smallest));
    } else {
      best_ = static_cast<Candidate&&>(smallest);
    }
    tune(price);
    search();
    if (!best_.found) {
      smallest.proven = false;
      return over_budget(graph_, request_, named(smallest));
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

  PlanOutcome finish(Plan plan, double bound_seconds) const {
    PlanOutcome outcome = finish_outcome(graph_, profile_, request_, static_cast<Plan&&>(plan),
                                         bound_seconds, "patterns");
    outcome.timed_out = timed_out_;
    if (prices_.byte > 0) outcome.seconds_per_byte = prices_.byte;
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
      if (graph_.read_in_backward(k)) sum += carried > worst ? carried : worst;
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

  Candidate find_smallest() {
    PlacementLimits how = limits();
    how.needs = 0;
    how.errors = masks_ ? 16 : 1;
    how.now = nullptr;  // a plan that fits must be known, whatever the deadline
    Placement placement(chain_, *minima_, nullptr, how);
    const Array<PlacedPlan> plans = placement.run();
    if (plans.empty()) return {};
    Candidate out = candidate(placement, plans[0]);
    out.proven = complete_ && placement.dropped() >= static_cast<double>(out.need);
    return out;
  }

  Array<double> relaxed(Prices prices) {
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

  /// The bound under `prices` in the row of the last segment.
  double last_row_bound(Prices prices) {
    PricedMoves priced(chain_);
    priced.set(prices, chain_.size() - 1, relaxed(prices));
    return priced.path().length - prices.byte * static_cast<double>(budget()) -
           prices.error * request_.tolerance;
  }

  template <class Price>
  void tune(Price& price) {
    const TunedPrices tuned = price(chain_, static_cast<double>(budget()), request_.tolerance,
                                    [this](Prices prices) { return relaxed(prices); });
    prices_ = tuned.prices;
    bound_ = tuned.bound > 0 ? tuned.bound : 0;
  }

  bool good_enough() const {
    return best_.found &&
           best_.seconds - bound_ <= request_.gap * (chain_.base_seconds + best_.seconds);
  }

  /// Wider and wider, until the gap is closed or time is up.
  void search() {
    std::size_t needs = 12;
    const double step = chain_.base_seconds + bound_;
    for (int round = 0; round < 5 && !good_enough() && !timed_out_; ++round, needs *= 4) {
      const double average = bound_ / static_cast<double>(chain_.size());
      const double share = request_.gap * step;
      const double slack = (average < share ? average : share) * (round == 0 ? 0.5 : 1 << round);
      const std::size_t errors = masks_ ? (round < 2 ? 8 : 16) : 1;
      // At the tuned price of error, plans within the tolerance may tie with others beyond it.
      tilt_ = 1;
      if (!place(needs, errors, slack)) return;
      while (placed_ == 0 && prices_.error > 0 && tilt_ < 3) {
        tilt_ *= 1.3;
        if (!place(needs, errors, slack)) return;
      }
      // A layout's gaps come from all of a plan, not from one instruction. So the search for a
      // plan leaves them a margin; the bound is that of the whole budget.
      for (int again = 0; again < 6 && overflow_ > 0 && !good_enough(); ++again) {
        margin_ = 2 * margin_ + overflow_;
        if (!place(needs, errors, slack)) return;
      }
      margin_ = 0;
    }
  }

  bool place(std::size_t needs, std::size_t errors, double slack) {
    // Around the tuned prices: one for partial plans that use more than their share, one for those
    // that use less.
    constexpr double byte_factors[] = {1, 0, 0.4, 0.7, 0.85, 1.2, 1.5, 2.2, 5};
    constexpr double error_factors[] = {0, 0.5, 0.8, 1.25, 2, 5};
    const double typical = chain_.base_seconds / static_cast<double>(request_.budget_bytes);
    const double byte = prices_.byte > 0 ? prices_.byte : 0.05 * typical;
    const double error = prices_.error * tilt_;
    Array<Prices> prices;
    for (const double factor : byte_factors) prices.push_back({factor * byte, error});
    if (error > 0)
      for (const double factor : error_factors) prices.push_back({byte, factor * error});
    Array<Array<double>> below;
    if (!complete_)
      for (const Prices& pair : prices) below.push_back(relaxed(pair));
    const PrefixBounds bounds(chain_, prices, below);
    PlacementLimits how = limits();
    how.needs = needs;
    how.errors = errors;
    how.prices = prices[0];
    how.price_index = 0;
    how.budget -= margin_;
    how.root = bound_;
    how.root_last = last_row_bound(how.prices);
    how.slack = slack;
    if (best_.found) how.cutoff = best_.seconds;
    Placement placement(chain_, *minima_, &bounds, how);
    const Array<PlacedPlan> plans = placement.run();
    if (placement.timed_out()) {
      timed_out_ = true;
      return false;
    }
    if (margin_ == 0) {
      double proven = placement.dropped();
      if (!plans.empty() && plans[0].seconds < proven) proven = plans[0].seconds;
      if (best_.found && best_.seconds < proven) proven = best_.seconds;
      if (proven > bound_) bound_ = proven;
    }
    overflow_ = 0;
    placed_ = plans.size();
    constexpr std::size_t plans_tried = 4;
    for (std::size_t i = 0; i < plans.size() && i < plans_tried; ++i) {
      if (best_.found && plans[i].seconds >= best_.seconds) break;
      Candidate found = candidate(placement, plans[i]);
      if (found.arena <= request_.budget_bytes) {
        best_ = static_cast<Candidate&&>(found);
        break;
      }
      if (overflow_ == 0) overflow_ = static_cast<SignedBytes>(found.arena) - budget();
    }
    return true;
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
  const PrefixMinima* minima_ = nullptr;
  SignedBytes margin_ = 0;  ///< of the budget, left to gaps in layouts
  Prices prices_;
  double bound_ = 0;
  Candidate best_;
  SignedBytes overflow_ = 0;  ///< of the best plan of the last placement, as laid out
  std::size_t placed_ = 0;    ///< plans that the last placement found
  double tilt_ = 1;           ///< times the tuned price of error
  bool timed_out_ = false;
};

}  // namespace detail

/// A Planner for graphs of any size.
inline Result<PlanOutcome> plan_by_patterns(const Graph& graph, const CostProfile& profile,
                                            const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  if (graph.by_hand)
    return Error::say(
        "patterns are for chains of layers: make_plan() plans what a Stash registers");
  return detail::PatternPlanner(graph, profile, request).run();
}

}  // namespace adacc::inline v0_1
