// SPDX-License-Identifier: MIT
/// The time of steps whose optimizer's state is in a store, moved like by StoredMoments.
#pragma once

#include <cstddef>

#include "../cost/evaluate.hpp"
#include "moment_turns.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The turns of consecutive updates, in two lanes: like StoredMoments, over a link that takes time.
class TurnsInLanes {
 public:
  TurnsInLanes(const MomentTurns& turns, const LinkCost& link, double update_seconds)
      : turns_(turns), link_(link),
        seconds_per_byte_(update_seconds / static_cast<double>(turns.store_bytes())),
        end_(turns.slot_count()) {}

  /// Updates the turns [first, last); adds the seconds of waits to `waited`.
  void update(std::size_t first, std::size_t last, Lanes& lanes, double& waited) {
    for (std::size_t t = first; t < last; ++t) {
      if (begun_ == next_) begin_read(lanes, waited);
      const std::size_t k = next_ % turns_.slot_count();
      wait(k, lanes, waited);
      const std::size_t bytes = turns_.turns()[t].bytes;
      lanes.now += seconds_per_byte_ * static_cast<double>(bytes);
      end_[k] = lanes.transfer(link_.write_seconds(bytes));
      ++next_;
      while (begun_ < next_ + turns_.slot_count() &&
             end_[begun_ % turns_.slot_count()] <= lanes.now)
        begin_read(lanes, waited);
    }
  }

 private:
  void begin_read(Lanes& lanes, double& waited) {
    const std::size_t k = begun_ % turns_.slot_count(), t = begun_ % turns_.turns().size();
    ++begun_;
    wait(k, lanes, waited);
    end_[k] = lanes.transfer(link_.read_seconds(turns_.turns()[t].bytes));
  }
  void wait(std::size_t k, Lanes& lanes, double& waited) const {
    if (end_[k] <= lanes.now) return;
    waited += end_[k] - lanes.now;
    lanes.now = end_[k];
  }

  const MomentTurns& turns_;
  LinkCost link_;
  double seconds_per_byte_;
  Array<double> end_;  ///< end of the transfer under way, by slot
  std::size_t next_ = 0, begun_ = 0;
};

}  // namespace detail

/// The cost of `plan` as by evaluate(), with the optimizer's state in a store, in `turns`, behind the same `link` as
/// the plan's own transfers; for a step after others. Waits for state count in `stall_seconds`; `written_bytes`
/// counts activations only.
inline PlanCost evaluate(const Graph& graph, const CostProfile& profile, const Plan& plan,
                         const Schedule& schedule, const LinkCost& link, const MomentTurns& turns) {
  PlanCost cost = evaluate(graph, profile, plan, schedule, link);
  detail::TurnsInLanes moments(turns, link, profile.rest);
  Lanes lanes;
  for (int step = 0; step < 2; ++step) {
    const double start = lanes.now;
    double waited = 0;
    const auto seconds = [&](const Instruction& inst) {
      if (inst.op != Op::update) return seconds_of(profile, plan, inst);
      const auto first = static_cast<std::size_t>(inst.gradient);
      moments.update(turns.first_turn(first), turns.last_turn(first), lanes, waited);
      return 0.0;
    };
    const StepTime time = simulate(
        schedule, link, seconds, [](const LaneTime&) {}, lanes);
    if (!graph.fuses_updates()) moments.update(0, turns.turns().size(), lanes, waited);
    cost.seconds = lanes.now - start;
    cost.stall_seconds = time.write_stall_seconds + time.read_stall_seconds + waited;
  }
  return cost;
}

}}  // namespace adacc::v0_1
