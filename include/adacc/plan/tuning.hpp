// SPDX-License-Identifier: MIT
/// Every number that planners are tuned by, in one place.
///
/// Plans and bounds are right whatever these numbers are; time and gap change. docs/planning.md says
/// what each mechanism of the chain planner is worth: `plan_bench --ablate` switches them off one by one
/// through ChainTuning.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

/// Plans that take no search (simple_plans.hpp), for when time is up: how much longer than until the deadline
/// they may take.
struct SimpleTuning {
  static constexpr double overtime_share = 0.1;     ///< of the time until then,
  static constexpr double overtime_seconds = 0.01;  ///< and beyond
};

/// The exhaustive search (exhaustive/). A node is a partial plan that it looks at.
struct ExhaustiveTuning {
  // As a part of make_plan().
  static constexpr std::size_t open_activations = 8;  ///< up to which it is asked, as it is quick
  static constexpr double share = 0.5;  ///< of the time; the chain planner has the rest
  static constexpr std::size_t nodes_asked = 500000;  ///< if there is no clock

  static constexpr std::size_t most_nodes = 1000000;  ///< by itself, if there is no clock
  /// Of a node, and of a layout, for each node of the graph, in units of a Pacer.
  static constexpr std::size_t work_a_node = 50, work_a_layout = 1000;
  static constexpr double give_up = 0.75;  ///< of the time, without a plan: the smallest is next
  static constexpr int thresholds[] = {16, 4};  ///< of first layouts, which often do (layout.hpp)
  static constexpr std::size_t most_points = 512;  ///< of a frontier: it grows with each activation

  // The smallest plan, with or without a clock: a second or less, since nodes take longer in larger graphs.
  static constexpr std::size_t smallest_nodes(std::size_t nodes) { return 1000000 / (nodes + 10); }
  /// Of these, for less than the padding of a buffer.
  static constexpr std::size_t most_ties(std::size_t most) { return most < 1000 ? 0 : most / 50; }

  // In constant expressions, of which compilers take a million steps.
  static constexpr std::size_t constant_nodes = 100000, constant_smallest_nodes = 80;
};

/// Plans with a store (offload.hpp): other budgets are planned for, and what is beyond is sent away.
struct OffloadTuning {
  /// How much more memory than the budget is planned for: what retaining takes beyond it, over these.
  static constexpr std::size_t parts[] = {1, 2, 4, 8, 16, 32};
  static constexpr int rounds = 3;      ///< of halving around the best of these
  static constexpr double share = 8;    ///< one plan gets the time left over this
  static constexpr int send_tries = 6;  ///< layouts tried until a plan fits with what it sends
};

/// Stages of a pipeline (pipeline/).
struct PipelineTuning {
  static constexpr std::size_t classes_compared = 16;  ///< as ChainTuning's, for units
  static constexpr double plan_seconds = 0.25;         ///< for one plan of one stage
  /// The slowest stage is looked for from below, in steps of this factor up to so many times the
  /// fastest conceivable, and then halved down to this precision.
  static constexpr double limit_step = 1.08, most_limit = 8, precision = 1.001;
};

/// The chain planner (chain/).
struct ChainTuning {
  // What is listed.
  std::size_t most_patterns = 6000;   ///< of a structure; then options are left out
  std::size_t classes_compared = 16;  ///< the latest ones, with which a segment may be equal
  /// Activations of a caller's segment that is cut no further: with more, cuts are added that several pass.
  int most_open = 24;

  // Prices.
  int most_paths = 48;                  ///< shortest paths until the best prices are known
  double price_tolerance = 2e-5;        ///< of a step's time: bounds this close to the best will do
  static constexpr int most_cuts = 60;  ///< of planes for one price: more than its bits
  static constexpr std::size_t most_rows = 8;  ///< segments from the end whose need may be priced,
  std::size_t rows_tried = most_rows;          ///< and of these are tried
  /// If a byte has no price, it gets one to search by: so much of a step's time over the budget.
  static constexpr double least_byte = 0.05;

  // Prices by a linear solver.
  std::size_t most_kinds = 64;     ///< of segments; if there are more, as many neighbours are
  std::size_t merged_kinds = 16;   ///< taken for equal as leave so many kinds of each structure
  int most_programs = 40;          ///< each with more columns than the one before
  double column_slack = 1e-4;      ///< columns this share of a step longer than the shortest path
  std::size_t most_polls = 20000;  ///< of the solver, for one program
  static constexpr double solver_share = 0.5;  ///< of the time, for all of them
  std::size_t whole_arcs = 300;                ///< per segment, of the program in integers
  std::size_t most_whole = 3000;               ///< columns of it
  std::size_t most_whole_polls = 1500;

  /// Around the tuned prices partial plans are bounded by others, too: one serves those that use
  /// more than their share, one those that use less.
  static constexpr std::size_t most_factors = 9;
  struct Factors {
    double byte, error;
  };
  Factors factors[most_factors] = {{1, 1}, {0, 1}, {0.5, 1}, {0.85, 1}, {1.2, 1},
                                   {2, 1}, {1, 0}, {1, 0.5}, {1, 2}};
  std::size_t factor_count = most_factors;

  // The search: wider and wider, until the gap is closed or time is up.
  struct Effort {
    std::size_t arcs;    ///< per segment, of the shortest paths under the tuned prices
    std::size_t needs;   ///< ranges of needs that partial plans are told apart by
    std::size_t labels;  ///< partial plans in each
  };
  static constexpr std::size_t most_efforts = 4;
  Effort efforts[most_efforts] = {{24, 16, 1}, {64, 64, 1}, {256, 128, 8}, {100000, 256, 64}};
  std::size_t effort_count = most_efforts;
  std::size_t wide = 2;                   ///< from this effort on a search may take long:
  std::size_t most_extensions = 1500000;  ///< it gives up after so many partial plans
  std::size_t groups_sampled = 8;         ///< of equal segments, to see which arcs are close
  /// Partial plans, the latest ones, each of which may dominate another.
  static constexpr std::size_t labels_compared = 64;
  /// Share of the gap asked for by which a search without a plan must raise the bound to be repeated.
  static constexpr double raised = 0.1;
  /// Times the gap asked for that plans may be beyond the bound: as long as none is known before
  /// searches take long, and at last, as long as the best known has no proof.
  struct Reach {
    double first, factor, end;
  };
  static constexpr Reach early = {2, 2, 100}, late = {4, 4, 1e8};
  int layouts = 16;  ///< tried of the plans that one search finds
  /// Of the budget, for live bytes: if a gap is left at last, or so many times that asked for before searches
  /// take long.
  static constexpr double tighter[] = {0.99, 0.98, 0.96, 0.94, 0.91, 0.88};
  static constexpr double far_off = 4;

  // The smallest plan.
  static constexpr std::size_t replay_needs = 16;  ///< ranges of needs, if there is a replay
  /// Of the tolerance, in smallest arenas found so far.
  double error_prices[4] = {0.1, 0.5, 2, 10};
  std::size_t smallest_layouts = 64;   ///< tried, in a graph of less than
  std::size_t smallest_many = 1000;    ///< activations; 4 in a larger one
  std::size_t smallest_segments = 64;  ///< up to which a second, wider search looks for it
  std::size_t squeezed_segments = 16;  ///< up to which the search for the fastest one does, too

  // The plan of least error.
  int error_rounds = 6;  ///< searches at other tolerances
};

}}  // namespace adacc::v0_1
