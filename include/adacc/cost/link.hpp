// SPDX-License-Identifier: MIT
/// The cost of transfers to a store, and the time of a step that computes and transfers at once.
///
/// There are two lanes: computation, one instruction after the other, and the link, one transfer after the other in
/// the order of their begins. The lanes meet at waits. Without transfers the time of a step is the sum of its
/// instructions' times.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/array.hpp"
#include "../program/instruction.hpp"

namespace adacc { inline namespace v0_1 {

/// A link to a store, in seconds and bytes a second. Without rates there is no link.
struct LinkCost {
  double write_rate = 0;
  double read_rate = 0;
  double latency = 0;         ///< per transfer
  double begin = 0;           ///< seconds of computation to begin a transfer
  double begin_per_byte = 0;  ///< and per byte, if the store's work slows computation

  constexpr bool exists() const { return write_rate > 0 && read_rate > 0; }
  constexpr double write_seconds(std::size_t bytes) const {
    return latency + static_cast<double>(bytes) / write_rate;
  }
  constexpr double read_seconds(std::size_t bytes) const {
    return latency + static_cast<double>(bytes) / read_rate;
  }
  constexpr double begin_seconds(std::size_t bytes) const {
    return begin + begin_per_byte * static_cast<double>(bytes);
  }
};

/// The time of a step in both lanes.
struct StepTime {
  double seconds = 0;  ///< all instructions and their waits
  double write_stall_seconds = 0;
  double read_stall_seconds = 0;
  double link_seconds = 0;  ///< while the link is busy
  std::size_t written_bytes = 0;
  std::size_t read_bytes = 0;
};

/// A stretch of a step, in seconds from its start.
struct LaneTime {
  enum class Kind : std::uint8_t {
    compute,   ///< an instruction runs, or begins a transfer
    stall,     ///< computation waits at `instruction`, a write_wait or read_wait
    transfer,  ///< the link works for `instruction`, a write_begin or read_begin
  };
  Kind kind = Kind::compute;
  std::size_t instruction = 0;
  double from = 0, to = 0;

  constexpr double seconds() const { return to - from; }
};

/// The progress of both lanes, in seconds.
struct Lanes {
  double now = 0;   ///< computation
  double free = 0;  ///< when the link has ended all begun transfers

  /// Begins a transfer of `seconds`; returns when it ends.
  constexpr double transfer(double seconds) { return free = (now > free ? now : free) + seconds; }
};

/// Plays `schedule`. Allocates a number for each transfer.
/// - link: without a link transfers take no time
/// - cost: cost(inst) is the seconds of an instruction other than a transfer
/// - visit: visit(const LaneTime&) is called for each stretch of time, in each lane from left to right
/// - lanes: where both lanes begin and end; cost(inst) may move them further
template <class Cost, class Visit>
constexpr StepTime simulate(const Schedule& schedule, const LinkCost& link, const Cost& cost,
                            const Visit& visit, Lanes& lanes) {
  StepTime time;
  Array<double> end(schedule.transfers.size());  // by transfer: end of the one under way
  double& now = lanes.now;
  const double start = now;
  const auto pass = [&](LaneTime::Kind kind, std::size_t i, double until) {
    if (until > now) visit(LaneTime{kind, i, now, until});
    now = until;
  };
  for (std::size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& inst = schedule.instructions[i];
    if (!is_transfer(inst.op)) {
      const double seconds = cost(inst);
      pass(LaneTime::Kind::compute, i, now + seconds);
      continue;
    }
    const auto t = static_cast<std::size_t>(inst.transfer);
    const std::size_t bytes = schedule.transfers[t].bytes;
    if (inst.op == Op::write_begin || inst.op == Op::read_begin) {
      const bool write = inst.op == Op::write_begin;
      (write ? time.written_bytes : time.read_bytes) += bytes;
      if (!link.exists()) continue;
      pass(LaneTime::Kind::compute, i, now + link.begin_seconds(bytes));
      const double seconds = write ? link.write_seconds(bytes) : link.read_seconds(bytes);
      end[t] = lanes.transfer(seconds);
      time.link_seconds += seconds;
      visit(LaneTime{LaneTime::Kind::transfer, i, end[t] - seconds, end[t]});
    } else if (end[t] > now) {
      (inst.op == Op::write_wait ? time.write_stall_seconds : time.read_stall_seconds) +=
          end[t] - now;
      pass(LaneTime::Kind::stall, i, end[t]);
    }
  }
  time.seconds = now - start;
  return time;
}
template <class Cost, class Visit>
constexpr StepTime simulate(const Schedule& schedule, const LinkCost& link, const Cost& cost,
                            const Visit& visit) {
  Lanes lanes;
  return simulate(schedule, link, cost, visit, lanes);
}

template <class Cost>
constexpr StepTime simulate(const Schedule& schedule, const LinkCost& link, const Cost& cost) {
  return simulate(schedule, link, cost, [](const LaneTime&) {});
}

}}  // namespace adacc::v0_1
