// SPDX-License-Identifier: MIT
/// From a budget to a plan: what is asked of a planner, and what it answers.
///
/// A pure function of graph, profile and request. Activations that types leave open (`Planned`) are
/// kept in one of the forms that the graph lists for them, or recomputed; policies fixed in types
/// stay. The objective is the time of a step; the constraints are its peak, to the byte, and the
/// error of its gradient.
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

/// Where prices of bytes and error come from, by which large graphs are planned.
enum class Solver : unsigned char {
  automatic,  ///< the planner's own search; if that leaves a gap, also a linear solver's bound
  search,     ///< the planner's own search alone
  lp_solve,   ///< a linear solver alone, which must be there
};

/// The same, with the linear solver that the program links and lends (plan/lp/): plan_with() sets it.
struct PriceSource {
  Solver by = Solver::automatic;
  const LinearSolver* linear = nullptr;  ///< &lp_solve() of lp/lp_solve.hpp. Null: there is none
};

struct PlanRequest {
  std::size_t budget_bytes = 0;  ///< the arena of the step may not be larger
  /// So many steps wait at their hand-over, in one arena (program/in_flight.hpp): the budget is that of all
  /// of them, and what a plan holds counts so many times.
  int in_flight = 1;
  double tolerance = 1e-2;  ///< the largest accumulated gradient error (CostProfile), >= 0
  double gap = 2e-3;        ///< good enough: this share of the best possible step time, >= 0
  /// Of the plans at most `gap` slower than the fastest one found, return one of least gradient
  /// error. Without it the tolerance is spent wherever that buys a microsecond.
  bool least_error = false;
  PriceSource prices = {};  ///< of a Planner that has any: its own
  /// Of the store that activations may be offloaded to (measure_link()). Without rates there is none,
  /// and what is offloaded is only what types fix so.
  LinkCost link = {};
  std::size_t most_written_bytes = 0;  ///< that a step may send to it; 0: any number
  ClockRef clock = {};  ///< for `deadline_seconds` and PlanOutcome::solve_seconds; none: no limit
  /// From the call on; the best plan found by then is returned. Where nothing else was found, that is one
  /// that takes no search, or the error names the smallest budget that is then known. Planning ends within a
  /// fifth more, and 20 milliseconds (of graphs of thousands of activations, whose layouts take longer, and
  /// of linear solvers between two looks, later).
  double deadline_seconds = 10;
};

/// Why an activation got its policy.
struct PlanReason {
  enum class Kind : unsigned char {
    fixed,       ///< by its type
    unread,      ///< nothing in backward reads it: it is dropped whatever its policy says
    affordable,  ///< the fastest policy it could have
    price,       ///< a faster one would take bytes that are worth more elsewhere
    error,       ///< a policy that is better in time and bytes would pass the tolerance
  };
  Kind kind = Kind::affordable;
  double saved_bytes = 0;   ///< against retaining it: bytes stored less
  double paid_seconds = 0;  ///< against the fastest policy it could have
};

struct PlanOutcome {
  Plan plan;
  std::size_t peak_bytes = 0;  ///< the arena of all steps in flight, exactly: layout included
  std::size_t live_bytes = 0;
  std::size_t retain_peak_bytes = 0;  ///< with everything open retained
  double seconds = 0;                 ///< predicted time of a step
  double retain_seconds = 0;
  double error = 0;               ///< predicted relative squared error of the gradient
  double stall_seconds = 0;       ///< of `seconds`: waiting for transfers to and from the store
  std::size_t written_bytes = 0;  ///< to the store, by each step; as many are read back
  double bound_seconds = 0;       ///< proven: no plan under the same model is faster
  double gap = 0;                 ///< (seconds - bound_seconds) / seconds
  double seconds_per_byte = 0;    ///< the marginal price of a byte of budget at this plan
  double solve_seconds = 0;       ///< 0 without a clock
  bool timed_out = false;         ///< the deadline ended the search
  /// What found the plan: "retain" (all that is open fits), "exhaustive", "chain", "lp_solve"
  /// or "offload" (on top of one of these).
  const char* solver = "";
  const char* bound_by = "";  ///< what proved the bound, likewise
  Error note;                 ///< what fell back or was of no use, and why; empty if nothing
  Array<PlanReason> reasons;  ///< one per activation
};

/// All planners take graph, profile and request, and return the fastest plan that they found within
/// budget and tolerance; they differ only in how they search. They fail if the request or the
/// profile make no sense, and if no plan fits: the error then names the smallest budget that one
/// fits (at that tolerance), which the same planner meets if it has as much time, and the instruction that
/// limits it.
using PlanFunction = Result<PlanOutcome> (*)(const Graph&, const CostProfile&, const PlanRequest&);

/// One of them, and where it takes prices from: plan_with(lp_solve()) is make_plan with a linear solver.
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
