// SPDX-License-Identifier: MIT
/// The tuning of all planners, in one place.
///
/// With any of these numbers plans and bounds are right; only time and gap change. docs/planning.md gives the
/// worth of each mechanism of the chain planner: `plan_bench --ablate` switches them off one by one
/// through ChainTuning.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

/// Time beyond the deadline for plans without a search (simple_plans.hpp): the sum of both.
struct SimpleTuning {
  static constexpr double overtime_share = 0.1;     ///< share of the time until the deadline
  static constexpr double overtime_seconds = 0.01;  ///< in any case
};

/// The exhaustive search (exhaustive/). A node is a partial plan looked at.
struct ExhaustiveTuning {
  // In make_plan():
  static constexpr std::size_t open_activations = 8;  ///< the most for this search, which is quick
  static constexpr double share = 0.5;  ///< share of the time; the chain planner has the rest
  static constexpr std::size_t nodes_asked = 500000;  ///< if there is no clock

  static constexpr std::size_t most_nodes = 1000000;  ///< by itself, if there is no clock
  /// Work for a node and for a layout, by the nodes of the graph, in units of a Pacer.
  static constexpr std::size_t work_a_node = 50, work_a_layout = 1000;
  static constexpr double give_up = 0.75;          ///< share of the time for a first plan
  static constexpr int thresholds[] = {16, 4};     ///< for first layouts, often enough (layout.hpp)
  static constexpr std::size_t most_points = 512;  ///< in a frontier, which grows by activations

  // The smallest plan, with or without a clock: a second or less, since nodes take longer in larger graphs.
  static constexpr std::size_t smallest_nodes(std::size_t nodes) { return 1000000 / (nodes + 10); }
  /// The nodes among `most` spent on less than the padding of a buffer.
  static constexpr std::size_t most_ties(std::size_t most) { return most < 1000 ? 0 : most / 50; }

  // In constant expressions, where compilers take a million steps.
  static constexpr std::size_t constant_nodes = 100000, constant_smallest_nodes = 80;
};

/// Plans with a store (offload.hpp): made for larger budgets, with activations beyond the real budget sent away.
struct OffloadTuning {
  /// Memory planned for beyond the budget: the bytes by which retaining is over budget, over each of these.
  static constexpr std::size_t parts[] = {1, 2, 4, 8, 16, 32};
  static constexpr int rounds = 3;      ///< halvings around the best of `parts`
  static constexpr double share = 8;    ///< the time for one plan: the time left, over this
  static constexpr int send_tries = 6;  ///< layouts tried until a plan fits with its transfers
};

/// Stages of a pipeline (pipeline/).
struct PipelineTuning {
  static constexpr std::size_t classes_compared = 16;  ///< the latest ones, for units
  static constexpr double plan_seconds = 0.25;         ///< for one plan of one stage
  /// The time of the slowest stage is searched from the fastest conceivable upwards, by factors `limit_step` to
  /// at most `most_limit`, and then by halving to `precision`.
  static constexpr double limit_step = 1.08, most_limit = 8, precision = 1.001;
};

/// The chain planner (chain/).
struct ChainTuning {
  // Segments and patterns:
  std::size_t most_patterns = 6000;   ///< for a structure; beyond, options are left out
  std::size_t classes_compared = 16;  ///< the latest ones, compared with a segment
  /// Open activations of a caller's segment; with more, the segment is cut where several activations cross.
  int most_open = 24;

  // Prices:
  int most_paths = 48;                  ///< shortest paths until the best prices are known
  double price_tolerance = 2e-5;        ///< bounds this close to the best do, as a share of a step
  static constexpr int most_cuts = 60;  ///< cuts of planes for one price: more than a price's bits
  static constexpr std::size_t most_rows = 8;  ///< segments from the end whose need may be priced
  std::size_t rows_tried = most_rows;          ///< segments from the end tried for a price
  /// The price for searches if a byte has none: this share of a step's time over the budget.
  static constexpr double least_byte = 0.05;

  // Prices by a linear solver:
  std::size_t most_kinds = 64;     ///< kinds of segments; if there are more, neighbours count as
  std::size_t merged_kinds = 16;   ///< equal until so many kinds of each structure are left
  int most_programs = 40;          ///< each with more columns than the one before
  double column_slack = 1e-4;      ///< columns this share of a step longer than the shortest path
  std::size_t most_polls = 20000;  ///< by the solver, for one program
  static constexpr double solver_share = 0.5;  ///< share of the time for all programs
  std::size_t whole_arcs = 300;                ///< per segment, in the program in integers
  std::size_t most_whole = 3000;               ///< columns of the program in integers
  std::size_t most_whole_polls = 1500;

  /// Partial plans are bounded under the tuned prices times each of these factors: some give higher bounds for
  /// plans with more bytes or error than average, others for plans with less.
  static constexpr std::size_t most_factors = 9;
  struct Factors {
    double byte, error;
  };
  Factors factors[most_factors] = {{1, 1}, {0, 1}, {0.5, 1}, {0.85, 1}, {1.2, 1},
                                   {2, 1}, {1, 0}, {1, 0.5}, {1, 2}};
  std::size_t factor_count = most_factors;

  // The search: wider and wider, until the gap is closed or time is up.
  struct Effort {
    std::size_t arcs;    ///< per segment, with the shortest paths under the tuned prices
    std::size_t needs;   ///< ranges of needs by which partial plans are told apart
    std::size_t labels;  ///< partial plans in each range
  };
  static constexpr std::size_t most_efforts = 4;
  Effort efforts[most_efforts] = {{24, 16, 1}, {64, 64, 1}, {256, 128, 8}, {100000, 256, 64}};
  std::size_t effort_count = most_efforts;
  std::size_t wide = 2;                   ///< from this effort on a search may take long,
  std::size_t most_extensions = 1500000;  ///< and ends after so many partial plans
  std::size_t groups_sampled = 8;         ///< groups of segments sampled for close arcs
  /// The latest partial plans, compared with each new one for domination.
  static constexpr std::size_t labels_compared = 64;
  /// The share of the gap asked for by which a search without a plan must raise the bound to be repeated.
  static constexpr double raised = 0.1;
  /// Plans searched for may be beyond the bound by growing multiples of the gap asked for. `early`: until a plan
  /// is known, before searches take long. `late`: at the end, until the best plan known is proven.
  struct Reach {
    double first, factor, end;
  };
  static constexpr Reach early = {2, 2, 100}, late = {4, 4, 1e8};
  int layouts = 16;  ///< tried for the plans of one search
  /// Shares of the budget for live bytes, tried if a gap is left at last, or if a gap of `far_off` times the one
  /// asked for is left before searches take long.
  static constexpr double tighter[] = {0.99, 0.98, 0.96, 0.94, 0.91, 0.88};
  static constexpr double far_off = 4;

  // The smallest plan:
  static constexpr std::size_t replay_needs = 16;  ///< ranges of needs, if there is a replay
  /// Prices of the whole tolerance, in smallest arenas found so far.
  double error_prices[4] = {0.1, 0.5, 2, 10};
  std::size_t smallest_layouts = 64;   ///< tried, in a graph of less than
  std::size_t smallest_many = 1000;    ///< activations; 4 in a larger one
  std::size_t smallest_segments = 64;  ///< the most for a second, wider search
  std::size_t squeezed_segments = 16;  ///< the most for searches just below the smallest plan

  // Plans that recompute activations more than once:
  std::size_t nested_segments = 12;        ///< the fewest: with less, such plans save little
  std::size_t nested_table_segments = 64;  ///< the most for a dynamic program
  int nested_units = 128;                  ///< of memory in the dynamic program
  int nested_layouts = 12;                 ///< tried for one budget

  // The plan of least error:
  int error_rounds = 6;  ///< searches at other tolerances
};

}}  // namespace adacc::v0_1
