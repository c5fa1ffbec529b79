// SPDX-License-Identifier: MIT
/// The fastest plan of a chain of few segments that may recompute activations more than once, by a dynamic program.
///
/// The program is rotor's for persistent schedules of heterogeneous chains (Beaumont et al., Optimal checkpointing for
/// heterogeneous chains, 2019), with the patterns of our segments as ways to keep a segment. Backward of the segments
/// s .. e, whose input is there, begins in one of two ways:
///
///   - s is kept by one of its patterns, and s + 1 .. e get the memory that is left;
///   - only the input of s is kept while forward goes through to a segment k. Once k .. e are done, s .. k - 1 have
///     all of the memory again, and one more run.
///
/// Memory is counted in units, rounded up. An activation kept in the r-th run gets recompute(r), or retain() in forward
/// itself; an activation recomputed by a pattern is made right before the segment's backward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/extremes.hpp"
#include "tables.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class NestedTable {
 public:
  /// One way to keep a segment.
  struct Option {
    int stored = 0, need = 0;  ///< units, the input included
    double seconds = 0;
    int number = 0;
  };
  struct Stage {
    int input = 0,
        forward = 0;  ///< units: the input; and of forward beside the input, if nothing is kept
    double forward_seconds = 0;
    double again_seconds = 0;  ///< of the part of forward needed by the stage's own backward
    Array<Option> options;
  };
  struct Step {
    int stage = 0, run = 0;
    int option = -1;  ///< -1: only the stage's input is kept in this run
  };

  /// For up to `units` of memory. `stages` must outlive this. If time is up, there are no plans.
  [[gnu::cold]] NestedTable(const Array<Stage>& stages, int units, PacerRef time = {})
      : stages_(stages), count_(static_cast<int>(stages.size())), units_(units) {
    const auto size =
        static_cast<std::size_t>(count_ * count_) * static_cast<std::size_t>(units + 1);
    cells_.resize(size);
    for (int length = 1; length <= count_; ++length)
      for (int first = 0; first + length <= count_; ++first) {
        if (time.spend(static_cast<std::size_t>(units * length))) return;
        for (int memory = 0; memory <= units; ++memory) fill(first, first + length - 1, memory);
      }
    complete_ = true;
  }

  /// Seconds beyond one forward of all stages, within `memory`; infinite if there is no plan.
  double seconds(int memory) const {
    return complete_ && count_ > 0 && memory >= 0 ? cell(0, count_ - 1, memory).seconds : infinite;
  }

  /// The activations kept in each run, where seconds(memory) is finite.
  [[gnu::cold]] Array<Step> steps(int memory) const {
    struct Range {
      int first, last, memory, run;
    };
    Array<Range> open;
    Array<Step> out;
    open.push_back({0, count_ - 1, memory, 0});
    while (!open.empty()) {
      const Range range = open.back();
      open.pop_back();
      if (range.first > range.last) continue;
      const Stage& stage = at(range.first);
      const int choice = cell(range.first, range.last, range.memory).choice;
      if (choice < 0) {
        const Option& option = stage.options[static_cast<std::size_t>(-1 - choice)];
        out.push_back({range.first, range.run, option.number});
        open.push_back({range.first + 1, range.last, range.memory - option.stored, range.run});
      } else {
        out.push_back({range.first, range.run, -1});
        open.push_back({choice, range.last, range.memory - stage.input, range.run});
        open.push_back({range.first, choice - 1, range.memory, range.run + 1});
      }
    }
    return out;
  }

 private:
  struct Cell {
    double seconds = infinite;
    int choice = 0;  ///< -1 - an option of the first stage, or the stage at which forward ends
  };

  const Stage& at(int stage) const { return stages_[static_cast<std::size_t>(stage)]; }
  std::size_t place(int first, int last, int memory) const {
    return static_cast<std::size_t>(first * count_ + last) * static_cast<std::size_t>(units_ + 1) +
           static_cast<std::size_t>(memory);
  }
  const Cell& cell(int first, int last, int memory) const {
    return cells_[place(first, last, memory)];
  }

  /// Seconds of the stages first .. last; 0 if there are none.
  double rest(int first, int last, int memory) const {
    return memory < 0 ? infinite : first > last ? 0 : cell(first, last, memory).seconds;
  }

  void fill(int first, int last, int memory) {
    Cell best;
    const auto take = [&](double seconds, int choice) {
      if (seconds < best.seconds) best = {seconds, choice};
    };
    const Stage& stage = at(first);
    for (std::size_t i = 0; i < stage.options.size(); ++i) {
      const Option& option = stage.options[i];
      if (option.need <= memory)
        take(option.seconds + rest(first + 1, last, memory - option.stored),
             -1 - static_cast<int>(i));
    }
    double through = 0;  // seconds of forward of first .. k - 2
    const int left = memory - stage.input;
    for (int k = first + 1; k <= last && left >= 0; ++k) {
      if (at(k - 1).forward > (k - 1 == first ? memory : left)) break;
      take(rest(k, last, left) + through + at(k - 1).again_seconds + rest(first, k - 1, memory), k);
      through += at(k - 1).forward_seconds;
    }
    cells_[place(first, last, memory)] = best;
  }

  const Array<Stage>& stages_;
  int count_, units_;
  Array<Cell> cells_;
  bool complete_ = false;
};

}}}  // namespace adacc::v0_1::detail
