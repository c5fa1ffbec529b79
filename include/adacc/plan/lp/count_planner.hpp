/// The planner by patterns with prices and bounds from lp_solve: link adacc::lp_solve.
///
/// lp_solve says how many segments of each class use which pattern (count_program.hpp), under
/// budget and tolerance at once. That gives a bound for all plans and the prices of a byte and of
/// error; the search by patterns then places patterns exactly, guided by both. Where the gap stays
/// open, as with few blocks, the same program in integers may raise the bound.
#pragma once

#include <cstddef>

#include "../chain/planner.hpp"
#include "../exhaustive/planner.hpp"
#include "count_program.hpp"
#include "lp_solve.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

/// Prices for PatternPlanner::run. Tuned ones start the search for columns, and stay where lp_solve
/// gives none.
class CountPricer {
 public:
  explicit CountPricer(const PlanRequest& request) {
    options_.now = request.now;
    if (request.now != nullptr) {
      options_.deadline = request.now() + request.deadline_seconds / 4;
      end_ = options_.deadline + 0.75 * request.deadline_seconds;
    }
    options_.most_polls = 200000;  // seconds: what is far from usual ends without a clock, too
  }

  template <class Relaxed>
  TunedPrices operator()(const Chain& chain, double budget, double tolerance,
                         const Relaxed& relaxed) {
    base_seconds_ = chain.base_seconds;
    TunedPrices best = PriceTuner(chain, budget, tolerance).run(relaxed);
    const double tuned_bound = best.bound;
    for (const SegmentMoves& moves : chain.moves) complete_ = complete_ && moves.complete;
    counts_ = CountProgram(chain, budget, tolerance);
    if (counts_.too_large()) {
      note_ = Error::say("lp_solve was not asked, for there are more than ",
                         CountProgram::most_columns, " patterns");
      return best;
    }
    solve(best);
    if (!solved_) return best;
    const Prices prices = counts_.prices(duals_);
    double one_row = -unreachable;
    PricedMoves priced(chain);
    for (std::size_t i = 0; i < rows_priced_ && i < chain.size(); ++i) {
      const std::size_t row = chain.size() - 1 - i;
      priced.set(prices, row, relaxed(prices));
      raise(one_row, priced.path().length - prices.byte * budget - prices.error * tolerance);
    }
    // The search prices one row at a time: where duals spread over several, it is led better by
    // prices tuned to one.
    if (one_row >= tuned_bound - 1e-5 * chain.base_seconds) best.prices = prices;
    raise(best.bound, one_row);
    return best;
  }

  bool solved() const { return solved_; }
  const Error& note() const { return note_; }

  /// A bound, in seconds, from the program in integers: of `seconds` at most, that of a plan.
  double whole_bound(double seconds) const {
    constexpr std::size_t most_columns = 3000;
    if (!solved_ || !complete_) return 0;
    const CountProgram::Judged judged = counts_.judge(duals_);
    const double slack = seconds - base_seconds_ - judged.bound;
    const Array<bool> used = counts_.within(judged, slack + 1e-9 * seconds);
    std::size_t count = 0;
    for (const bool use : used) count += use ? 1U : 0U;
    if (count > most_columns) return 0;
    LinearOptions options = options_;
    options.deadline = end_;
    options.most_polls = 1500;  // it ends early with few blocks, or not at all
    options.offset = base_seconds_;
    const LinearSolution whole = solve_with_lp_solve(counts_.part(used, false, true), options);
    const double bound = base_seconds_ + whole.bound - 1e-8 * seconds;  // for its tolerances
    return !whole ? 0 : bound < seconds ? bound : seconds;
  }

 private:
  static constexpr std::size_t rows_priced_ = 8;

  static void raise(double& bound, double other) {
    if (other > bound) bound = other;
  }

  /// Solves with more and more columns, until those left out cannot matter.
  void solve(TunedPrices& best) {
    constexpr int most_rounds = 40;
    const double step = base_seconds_ + (best.bound > 0 ? best.bound : 0);
    Array<bool> used =
        counts_.closest(best.prices, 2e-3 * step / static_cast<double>(counts_.group_count()));
    for (int round = 0; round < most_rounds; ++round) {
      LinearSolution solution = solve_with_lp_solve(counts_.part(used, true, false), options_);
      if (solution.status != LinearSolution::Outcome::optimal) {
        note_ = Error::say(solution.status == LinearSolution::Outcome::timed_out
                               ? "lp_solve ran out of time: prices were tuned without it"
                               : "lp_solve failed: prices were tuned without it");
        return;
      }
      const CountProgram::Judged judged = counts_.judge(solution.duals);
      if (!(judged.bound > -unreachable) || !(judged.bound < unreachable)) {
        note_ = Error::say("lp_solve gave no prices: they were tuned without it");
        return;
      }
      if (duals_.empty() || judged.bound > judged_bound_) {
        judged_bound_ = judged.bound;
        duals_ = static_cast<Array<double>&&>(solution.duals);
      }
      if (complete_) raise(best.bound, judged.bound);
      // With many groups rounds take long, and the tuned bound is as good.
      const bool many = complete_ && counts_.group_count() > 32;
      solved_ = solution.objective - (many ? best.bound : judged_bound_) <= 1e-5 * step;
      if (solved_ || counts_.extend(used, judged, 1e-9 * step) == 0) break;
    }
    if (!solved_) note_ = Error::say("lp_solve did not converge: prices were tuned without it");
  }

  LinearOptions options_;
  double end_ = 0;
  CountProgram counts_;
  double base_seconds_ = 0;
  bool complete_ = true;
  bool solved_ = false;
  double judged_bound_ = 0;
  Array<double> duals_;
  Error note_;
};

}  // namespace detail

/// A Planner for graphs of any size. Where lp_solve fails, runs out of time or has too much to do,
/// this is plan_by_patterns(), and the outcome's note says why. Graphs by hand, which are no
/// chains, go to plan_exactly().
inline Result<PlanOutcome> plan_with_lp_counts(const Graph& graph, const CostProfile& profile,
                                               const PlanRequest& request) {
  if (const Error why = check(graph, profile, request)) return why;
  if (graph.has_outside()) return plan_exactly(graph, profile, request);
  const double start = request.now == nullptr ? 0 : request.now();
  detail::PatternPlanner planner(graph, profile, request);
  detail::CountPricer pricer(request);
  Result<PlanOutcome> outcome = planner.run(pricer);
  if (!outcome) return outcome;
  outcome->note = pricer.note();
  if (!pricer.solved()) return outcome;
  outcome->solver = "patterns, lp_solve";
  if (outcome->gap > request.gap && !outcome->timed_out) {
    const double bound = pricer.whole_bound(outcome->seconds);
    if (bound > outcome->bound_seconds) {
      outcome->bound_seconds = bound;
      outcome->gap = (outcome->seconds - bound) / outcome->seconds;
    }
  }
  if (request.now != nullptr) outcome->solve_seconds = request.now() - start;
  return outcome;
}

}}  // namespace adacc::v0_1
