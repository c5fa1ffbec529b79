// SPDX-License-Identifier: MIT
/// Every number that the chain planner is tuned by, in one place.
///
/// docs/planning.md says what each mechanism is worth: `plan_bench --ablate` switches them off one
/// by one through this struct. Plans and bounds are right whatever these numbers are; time and gap
/// change.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

struct ChainTuning {
  // What is listed.
  std::size_t most_patterns = 6000;   ///< of a structure; then options are left out
  std::size_t classes_compared = 16;  ///< the latest ones, with which a segment may be equal

  // Prices.
  int most_paths = 48;            ///< shortest paths until the best prices are known
  double price_tolerance = 2e-5;  ///< of a step's time: bounds this close to the best will do
  std::size_t rows_tried = 8;     ///< segments from the end whose need is priced

  // Prices by a linear solver.
  std::size_t most_kinds = 64;     ///< of segments; if there are more, as many neighbours are
  std::size_t merged_kinds = 16;   ///< taken for equal as leave so many kinds of each structure
  int most_programs = 40;          ///< each with more columns than the one before
  double column_slack = 1e-4;      ///< columns this share of a step longer than the shortest path
  std::size_t most_polls = 20000;  ///< of the solver, for one program
  std::size_t whole_arcs = 300;    ///< per segment, of the program in integers
  std::size_t most_whole = 3000;   ///< columns of it
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
  int layouts = 16;                       ///< tried of the plans that one search finds

  // The smallest plan.
  double error_prices[4] = {0.1, 0.5, 2,
                            10};       ///< of the tolerance, in smallest arenas found so far
  std::size_t smallest_layouts = 64;   ///< tried, in a graph of less than
  std::size_t smallest_many = 1000;    ///< activations; 4 in a larger one
  std::size_t smallest_segments = 64;  ///< up to which a second, wider search looks for it
  std::size_t squeezed_segments = 16;  ///< up to which the search for the fastest one does, too

  // The plan of least error.
  int error_rounds = 6;  ///< searches at other tolerances
};

}}  // namespace adacc::v0_1
