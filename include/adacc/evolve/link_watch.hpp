// SPDX-License-Identifier: MIT
/// Whether the link to a store is as fast as when the plan was made.
///
/// A wait that takes time tells exactly when its transfer ended; a wait without tells a bound. Transfers follow one
/// another over the link (cost/link.hpp), so all ends follow from the begins and one number per direction: the
/// slowdown, actual over planned seconds per byte. If waits take time, the slowdown is chosen such that the ends of
/// their transfers match in sum. If no wait takes time, the link can only be found faster: at least so fast that all
/// transfers ended in time. Without transfers nothing is learned.
///
/// Medians over some steps are compared with the planned link.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../cost/link.hpp"
#include "../program/instruction.hpp"
#include "../store/transfers_under_way.hpp"
#include "drift.hpp"
#include "options.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The transfers of one direction in one step, in the order of the link.
class LinkLane {
 public:
  /// The link was idle from `free` on.
  explicit LinkLane(double free) : free_(free) {}

  void add(const TransferTime& time, double latency, double seconds) {
    transfers_.push_back({time, latency, seconds});
    stalls_ = stalls_ || time.stalled;
  }
  bool empty() const { return transfers_.empty(); }

  /// The slowdown per byte; `most` or less if no wait took time.
  double slowdown(double most) const {
    double low = lowest, high = stalls_ ? 1 / lowest : most;
    if (high < low || (!stalls_ && !late(high))) return high;
    for (int i = 0; i < 48; ++i) {
      const double middle = (low + high) / 2;
      (late(middle) ? high : low) = middle;
    }
    return (low + high) / 2;
  }

  /// When the last transfer ends under this slowdown.
  double end(double slowdown) const {
    double end = free_;
    for (const Entry& entry : transfers_) end = entry.end(end, slowdown);
    return end;
  }

 private:
  static constexpr double lowest = 1e-3;

  struct Entry {
    TransferTime time;
    double latency = 0, seconds = 0;  ///< planned: of the transfer, and of its bytes
    double end(double free, double slowdown) const {
      return (free > time.begun ? free : time.begun) + latency + slowdown * seconds;
    }
  };

  /// Whether transfers with this slowdown end too late: in sum behind the observed ends of stalls or, without stalls,
  /// behind some wait that took no time.
  bool late(double slowdown) const {
    double end = free_, over = 0;
    bool any = false;
    for (const Entry& entry : transfers_) {
      end = entry.end(end, slowdown);
      if (entry.time.stalled) over += end - entry.time.ended;
      else any = any || end > entry.time.asked;
    }
    return stalls_ ? over > 0 : any;
  }

  Array<Entry> transfers_;
  double free_;
  bool stalls_ = false;
};

}  // namespace detail

class LinkWatch {
 public:
  /// The transfers of a step of `schedule`; `planned` is the link of the plan.
  void observe(const Schedule& schedule, const TransferTimes& times, const LinkCost& planned,
               const EvolutionOptions& options) {
    if (times.writes.size() != schedule.transfers.size() || times.writes.empty()) return;
    detail::LinkLane writes(-1e300);
    fill(writes, schedule, times.writes, Op::write_begin, planned.latency, planned.write_rate);
    if (writes.empty()) return;
    const double written = writes.slowdown(1);
    detail::LinkLane reads(writes.end(written));
    fill(reads, schedule, times.reads, Op::read_begin, planned.latency, planned.read_rate);
    write_.add(written);
    read_.add(reads.empty() ? 1 : reads.slowdown(1));
    if (write_.count() < static_cast<std::size_t>(options.timed_steps)) return;
    const bool write_off = write_.judge(options), read_off = read_.judge(options);
    off_ = write_off || read_off ? off_ + 1 : 0;
    drifted_ = drifted_ || off_ >= options.checks;
  }

  /// Another speed than planned in enough consecutive checks; to restart, assign LinkWatch{}.
  bool drifted() const { return drifted_; }

  /// `planned` with the speeds of the last check.
  LinkCost found(LinkCost planned) const {
    planned.write_rate /= write_.median;
    planned.read_rate /= read_.median;
    return planned;
  }

  /// Calls visit(name, field) for each remembered field.
  template <class Self, class Visit>
  static void each_field(Self& self, const Visit& visit) {
    for (auto* direction : {&self.write_, &self.read_}) {
      visit("slowdowns", direction->seen);
      visit("slowdown", direction->median);
    }
    visit("off", self.off_);
    visit("drifted", self.drifted_);
  }

 private:
  struct Direction {
    Array<double> seen;  ///< since the last check
    double median = 1;   ///< in the last check

    std::size_t count() const { return seen.size(); }
    void add(double slowdown) { seen.push_back(slowdown); }
    /// Ends a check; returns whether the direction is off.
    bool judge(const EvolutionOptions& options) {
      median = detail::take_median(seen);
      return detail::is_off(median, options);
    }
  };

  static void fill(detail::LinkLane& lane, const Schedule& schedule,
                   const Array<TransferTime>& times, Op begins, double latency, double rate) {
    for (const Instruction& inst : schedule.instructions) {
      if (inst.op != begins) continue;
      const auto t = static_cast<std::size_t>(inst.transfer);
      if (!times[t].known) continue;
      lane.add(times[t], latency, static_cast<double>(schedule.transfers[t].bytes) / rate);
    }
  }

  Direction write_, read_;
  int off_ = 0;  ///< consecutive checks
  bool drifted_ = false;
};

}}  // namespace adacc::v0_1
