// SPDX-License-Identifier: MIT
/// From a budget to a plan: a planner's request and answer.
///
/// A planner is a pure function of graph, profile and request. An activation left open by its type
/// (`Planned`) is kept in one of the forms listed by the graph, or recomputed; policies fixed in types
/// stay. The objective is the time of a step; the constraints are the step's peak, to the byte, and the
/// error of the gradient.
#pragma once

#include <cstddef>
#include <type_traits>

#include "../core/array.hpp"
#include "../core/clock.hpp"
#include "../core/error.hpp"
#include "../cost/link.hpp"
#include "../cost/profile.hpp"
#include "../program/plan.hpp"

namespace adacc { inline namespace v0_1 {

struct LinearSolver;  // lp/linear_program.hpp

/// The source of the prices of bytes and error by which large graphs are planned.
enum class Solver : unsigned char {
  automatic,  ///< the planner's own search; if a gap is left, also a linear solver's bound
  search,     ///< the planner's own search alone
  lp_solve,   ///< a linear solver alone, which must be there
};

/// A source of prices, with the linear solver linked and lent by the program (plan/lp/): plan_with() sets both.
struct PriceSource {
  Solver by = Solver::automatic;
  const LinearSolver* linear = nullptr;  ///< &lp_solve() of lp/lp_solve.hpp. Null: there is none
};

struct PlanRequest {
  std::size_t budget_bytes = 0;  ///< the arena of the step may not be larger
  /// The number of steps waiting at their hand-over in one arena (program/in_flight.hpp). The budget is for
  /// all of them, and bytes held by a waiting step count so many times.
  int in_flight = 1;
  double tolerance = 1e-2;  ///< the largest accumulated gradient error (CostProfile), >= 0
  double gap = 2e-3;        ///< good enough: this share of the best possible step time, >= 0
  /// Returns, among plans at most `gap` slower than the fastest one found, one of least gradient error.
  /// If false, the tolerance is spent wherever an error buys a microsecond.
  bool least_error = false;
  PriceSource prices = {};  ///< a Planner with a source of its own takes its own
  /// The link to a store for offloaded activations (measure_link()). Without rates there is no store, and only
  /// activations fixed so by types are offloaded.
  LinkCost link = {};
  /// If no other plan fits, plans of deep networks may recompute an activation up to so many times, 1 to
  /// adacc::most_runs: less memory, more time (docs/planning.md). Not beside a link, with layers in parts, or with
  /// several steps in flight, where no activation is recomputed more than once.
  int most_runs = 1;
  std::size_t most_written_bytes = 0;  ///< by a step to the store; 0: any number
  ClockRef clock = {};  ///< for `deadline_seconds` and PlanOutcome::solve_seconds; none: no limit
  /// Seconds from the call on. The best plan found by then is returned; without one, a plan that takes no
  /// search, or an error with the smallest budget known by then. Planning ends within a fifth more, and 20
  /// milliseconds. (Later with graphs of thousands of activations, whose layouts take longer, and with linear
  /// solvers between two looks at the clock.)
  double deadline_seconds = 10;
};

/// The error of a number of runs that no plan can have (PlanRequest::most_runs).
constexpr Error check_most_runs(int runs) {
  if (runs >= 1 && runs <= most_runs) return {};
  return Error::say("an activation may be recomputed at most 1 to ", most_runs, " times, and ",
                    runs, " were asked for");
}

/// Why an activation got its policy.
struct PlanReason {
  enum class Kind : unsigned char {
    fixed,       ///< by its type
    unread,      ///< not read in backward: dropped whatever the policy says
    affordable,  ///< the fastest policy possible
    price,       ///< a faster policy would take bytes worth more elsewhere
    error,       ///< a policy better in time and bytes would pass the tolerance
  };
  Kind kind = Kind::affordable;
  double saved_bytes = 0;   ///< bytes stored less than by retaining
  double paid_seconds = 0;  ///< seconds more than by the fastest policy possible
};

struct PlanOutcome {
  Plan plan;
  std::size_t peak_bytes = 0;  ///< the arena of all steps in flight, exactly: layout included
  std::size_t live_bytes = 0;
  std::size_t retain_peak_bytes = 0;  ///< with every open activation retained
  double seconds = 0;                 ///< predicted time of a step
  double retain_seconds = 0;
  double error = 0;          ///< predicted relative squared error of the gradient
  double stall_seconds = 0;  ///< part of `seconds`: waiting for transfers to and from the store
  std::size_t written_bytes = 0;  ///< by each step to the store; as many are read back
  /// Proven: no plan under the same model is faster, of those that recompute each activation at most once. If only
  /// others fit, no plan at all.
  double bound_seconds = 0;
  double gap = 0;               ///< (seconds - bound_seconds) / seconds
  double seconds_per_byte = 0;  ///< the marginal price of a byte of budget at this plan
  double solve_seconds = 0;     ///< 0 without a clock
  bool timed_out = false;       ///< the deadline ended the search
  /// The source of the plan: "retain" (every open activation fits), "exhaustive", "chain", "nested", "lp_solve"
  /// or "offload" (on top of one of these).
  const char* solver = "";
  const char* bound_by = "";  ///< the source of the bound, by the same names
  Error note;                 ///< says if a part fell back or was of no use, and why; or is empty
  Array<PlanReason> reasons;  ///< one per activation
};

/// Every planner takes graph, profile and request, and returns the fastest plan found within budget and
/// tolerance; planners differ only in their search. Errors: the request or the profile make no sense, or no
/// plan fits. The error then names the smallest budget known to suffice (at this tolerance; the same
/// planner meets that budget, given as much time), and the limiting instruction.
using PlanFunction = Result<PlanOutcome> (*)(const Graph&, const CostProfile&, const PlanRequest&);

/// A planning function and its source of prices: plan_with(lp_solve()) is make_plan with a linear solver.
class Planner {
 public:
  constexpr Planner() = default;
  constexpr Planner(PlanFunction plan, PriceSource prices = {})  // implicit: `planner = make_plan`
      : plan_(plan), prices_(prices) {}
  template <class Lambda>
    requires std::is_class_v<Lambda> && std::is_convertible_v<Lambda, PlanFunction>
  constexpr Planner(Lambda plan) : plan_(plan) {}  // one without captures

  constexpr explicit operator bool() const { return plan_ != nullptr; }
  constexpr const PriceSource& prices() const { return prices_; }

  Result<PlanOutcome> operator()(const Graph& graph, const CostProfile& profile,
                                 const PlanRequest& request) const {
    PlanRequest mine = request;
    if (prices_.by != Solver::automatic || prices_.linear != nullptr) mine.prices = prices_;
    return plan_(graph, profile, mine);
  }

 private:
  PlanFunction plan_ = nullptr;
  PriceSource prices_;
};

}}  // namespace adacc::v0_1
