// SPDX-License-Identifier: MIT
/// Whether the link to a store is as fast as it was when the plan was made.
///
/// A wait that takes time says exactly when its transfer ended; one that takes none says by when.
/// As one transfer follows the other over the link (cost/link.hpp), both follow from when each began
/// and from one number a direction: how many times the planned seconds a byte takes. If waits take
/// time it is the number for which the transfers behind them end when they did, by the sum of their
/// ends. If none does, the link may only be found to be faster: it is at least so fast that all
/// ended in time. What a plan does not send says nothing.
///
/// Medians over some steps are compared with the link that was planned with.
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

/// The transfers of one direction in one step, in the order in which the link takes them.
class LinkLane {
 public:
  /// From `free` on the link had nothing else to do.
  explicit LinkLane(double free) : free_(free) {}

  void add(const TransferTime& time, double latency, double seconds) {
    transfers_.push_back({time, latency, seconds});
    stalls_ = stalls_ || time.stalled;
  }
  bool empty() const { return transfers_.empty(); }

  /// How many times the planned seconds a byte took; `most`, or less, if nothing was waited for.
  double slowdown(double most) const {
    double low = lowest, high = stalls_ ? 1 / lowest : most;
    if (high < low || (!stalls_ && !late(high))) return high;
    for (int i = 0; i < 48; ++i) {
      const double middle = (low + high) / 2;
      (late(middle) ? high : low) = middle;
    }
    return (low + high) / 2;
  }

  /// When the last one ends, if bytes take so many times the planned seconds.
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

  /// Whether transfers so slow end later than those that were waited for did or, if there are none,
  /// than some wait that took no time.
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
  /// What the transfers of a step of `schedule` took; `planned` is the link that was planned with.
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

  /// Another speed than planned in so many checks running; until LinkWatch{} starts anew.
  bool drifted() const { return drifted_; }

  /// `planned` as it was found to be by the last check.
  LinkCost found(LinkCost planned) const {
    planned.write_rate /= write_.median;
    planned.read_rate /= read_.median;
    return planned;
  }

  /// visit(name, field) for all that it remembers.
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
    double median = 1;   ///< of the last check

    std::size_t count() const { return seen.size(); }
    void add(double slowdown) { seen.push_back(slowdown); }
    /// Ends a check: whether it is off.
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
  int off_ = 0;  ///< checks running
  bool drifted_ = false;
};

}}  // namespace adacc::v0_1
