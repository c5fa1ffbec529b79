// SPDX-License-Identifier: MIT
/// The cuts of a network into stages of a pipeline, and the plan of each stage: chosen together.
///
/// A stage at the front has more micro-batches in flight than one at the end, so less memory for each,
/// and recomputes more. So the front stages should have fewer layers. Three steps:
///   - a binary search finds the least time of the slowest stage: each stage gets as much as the time allows;
///   - a dynamic program over the cuts within this time finds those with the least time of all stages;
///   - single cuts are moved as long as the exact time of a step (timing.hpp) falls.
/// make_plan() is called inside, for each kind of stage (stage_plans.hpp).
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/error.hpp"
#include "../../core/extremes.hpp"
#include "../../core/no_memory.hpp"
#include "request.hpp"
#include "stage_plans.hpp"

namespace adacc { inline namespace v0_1 {

/// An error if `request` makes no sense for any network.
constexpr Error examine(const PipelineRequest& request) {
  if (request.stages.empty())
    return Error::say("a pipeline has at least one stage, and none was asked for");
  if (request.micro_batches < 1)
    return Error::say("a step has at least one micro-batch, and ", request.micro_batches,
                      " were asked for");
  for (std::size_t s = 0; s < request.stages.size(); ++s) {
    const StageMachine& machine = request.stages[s];
    if (machine.memory_bytes == 0) return Error::say("the machine of stage ", s, " has no memory");
    if (!(machine.speed > 0) || !(machine.link_rate >= 0) || !(machine.link_latency >= 0))
      return Error::say("the machine of stage ", s,
                        " must have a speed above 0 and a link whose rate and latency are not "
                        "negative");
  }
  for (const double number : {request.bytes_per_trained, request.bytes_per_frozen,
                              request.seconds_per_trained, request.tolerance, request.gap})
    if (!(number >= 0))
      return Error::say(
          "bytes and seconds per parameter, tolerance and gap must be 0 or more, and not NaN");
  return {};
}

namespace detail {

class PipelinePlanner {
 public:
  PipelinePlanner(const Graph& graph, const CostProfile& profile, const PipelineRequest& request)
      : request_(request), plans_(graph, profile, request), count_(request.stages.size()),
        first_parameter_(graph.first_parameter) {}

  Result<PipelineOutcome> run() {
    if (plans_.units() < count_)
      return Error::say("the network can be cut into ", plans_.units(), " stages at most, and ",
                        count_, " were asked for");
    Array<std::size_t> cuts = shortest_bottleneck();
    if (error_) return error_;
    shift(cuts);
    if (error_) return error_;
    return describe(cuts);
  }

 private:
  /// The time of a stage of some units on its machine; seconds < 0: the stage does not fit.
  struct Cost {
    double seconds = -1;
    std::size_t kind = 0;
    int plan = -1;

    bool fits() const { return plan >= 0; }
  };

  int flying(std::size_t s) const {
    return in_flight(static_cast<int>(count_), static_cast<int>(s), request_.micro_batches);
  }
  std::size_t boundary_of(std::size_t s, const Graph& stage) const {
    const std::size_t scalar = bytes_of(stage.scalar);
    return boundary_bytes(s == 0 ? 0 : stage.input.elems() * scalar,
                          s + 1 == count_ ? 0 : stage.output().elems() * scalar, flying(s),
                          request_.micro_batches);
  }
  std::size_t state_of(const Graph& stage) const {
    const auto trained = static_cast<double>(stage.gradient_elems);
    const auto frozen = static_cast<double>(stage.parameter_elems - stage.gradient_elems);
    auto bytes = static_cast<std::size_t>(trained * request_.bytes_per_trained +
                                          frozen * request_.bytes_per_frozen);
    if (request_.moment_bytes.empty()) return bytes;
    const std::size_t first = stage.first_parameter - first_parameter_;
    for (std::size_t p = 0; p < stage.parameters.size(); ++p)
      bytes += request_.moment_bytes[first + p];
    return bytes;
  }

  Cost cost(std::size_t s, std::size_t first, std::size_t end) {
    Cost out;
    if (error_) return out;
    const Result<std::size_t> kind = plans_.kind_of(first, end - first);
    if (!kind) return error_ = kind.error, out;
    StageKind& found = plans_.kind(*kind);
    const std::size_t held = state_of(found.graph) + boundary_of(s, found.graph);
    const std::size_t memory = request_.stages[s].memory_bytes;
    out.kind = *kind;
    if (held >= memory) return out;
    const Result<int> plan = plans_.plan(found, flying(s), memory - held);
    if (!plan) return error_ = plan.error, out;
    out.plan = *plan;
    if (out.fits())
      out.seconds =
          found.plans[static_cast<std::size_t>(*plan)].seconds() / request_.stages[s].speed;
    return out;
  }

  bool within(std::size_t s, std::size_t first, std::size_t end, double limit) {
    const double least =
        (plans_.retain_before(end) - plans_.retain_before(first)) / request_.stages[s].speed;
    if (least > limit * (1 + 1e-9)) return false;
    const Cost out = cost(s, first, end);
    return out.fits() && out.seconds <= limit * (1 + 1e-9);
  }

  /// Whether to stop looking for better cuts.
  bool stop() { return error_ || plans_.time().look(); }

  /// The latest end of stage `s` within `limit` if the stage begins with unit `first` and leaves at least one
  /// unit to each stage behind; `first` if not even one unit fits. If time is up, an earlier end.
  std::size_t furthest(std::size_t s, std::size_t first, double limit) {
    std::size_t low = first, high = plans_.units() - (count_ - 1 - s) + 1;  // fits; does not
    while (high - low > 1 && !stop()) {
      const std::size_t middle = low + (high - low) / 2;
      (within(s, first, middle, limit) ? low : high) = middle;
    }
    return low;
  }
  /// The earliest beginning of stage `s` within `limit` if the stage ends in front of unit `end`; `end` if not
  /// even one unit fits. If time is up, a later beginning.
  std::size_t nearest(std::size_t s, std::size_t end, double limit) {
    std::size_t low = s, high = end;  // does not fit, or the first that may; fits
    if (low < end && within(s, low, end, limit)) return low;
    while (high - low > 1 && !stop()) {
      const std::size_t middle = low + (high - low) / 2;
      (within(s, middle, end, limit) ? high : low) = middle;
    }
    return high;
  }

  /// The ends of stages, each as late as possible; empty if the last is not the network's end.
  Array<std::size_t> latest(double limit) {
    Array<std::size_t> ends;
    std::size_t first = 0;
    for (std::size_t s = 0; s < count_; ++s) {
      const std::size_t end = furthest(s, first, limit);
      stuck_ = s, stuck_at_ = first;
      if (error_ || end == first) return {};
      ends.push_back(end);
      first = end;
    }
    if (first != plans_.units()) ends.clear();
    return ends;
  }

  /// The ends of the stages with the fastest slowest stage, then with the least sum of times.
  Array<std::size_t> shortest_bottleneck() {
    using Tuning = PipelineTuning;
    double speeds = 0;
    for (const StageMachine& machine : request_.stages) speeds += machine.speed;
    double low = plans_.retain_before(plans_.units()) / speeds, high = infinite;
    Array<std::size_t> best;
    // From below: plans for longer limits are often not needed.
    for (double limit = low; limit < Tuning::most_limit * low && best.empty() && !stop();
         limit *= Tuning::limit_step) {
      best = latest(limit);
      if (best.empty()) low = limit;
    }
    if (best.empty() && !plans_.time().look()) best = latest(infinite);
    if (best.empty() && plans_.time().passed()) best = even();
    if (error_) return {};
    if (best.empty()) return error_ = does_not_fit(), best;
    high = slowest(best);
    while (high > low * Tuning::precision && !stop()) {
      const double middle = 0.5 * (low + high);
      Array<std::size_t> found = latest(middle);
      if (found.empty()) {
        low = middle;
        continue;
      }
      best = static_cast<Array<std::size_t>&&>(found);
      high = slowest(best);
    }
    if (stop()) return best;
    return least_in_all(best, high);
  }

  /// The ends of stages of about equal times with everything retained, for when time is up before any cuts are
  /// known; empty if the stages do not fit.
  Array<std::size_t> even() {
    double speeds = 0, share = 0;
    for (const StageMachine& machine : request_.stages) speeds += machine.speed;
    Array<std::size_t> ends;
    std::size_t first = 0;
    for (std::size_t s = 0; s < count_; ++s) {
      const std::size_t most = plans_.units() - (count_ - 1 - s);
      share += request_.stages[s].speed / speeds;
      std::size_t end = first + 1;
      while (end < most && plans_.retain_before(end) < share * plans_.retain_before(plans_.units()))
        ++end;
      if (s + 1 == count_) end = plans_.units();
      stuck_ = s, stuck_at_ = first;
      if (!cost(s, first, end).fits()) return {};
      ends.push_back(end);
      first = end;
    }
    return ends;
  }

  double slowest(const Array<std::size_t>& ends) {
    double slowest = 0;
    for (std::size_t s = 0; s < count_; ++s)
      raise(slowest, cost(s, s == 0 ? 0 : ends[s - 1], ends[s]).seconds);
    return slowest;
  }

  /// A dynamic program over the end of each stage, between the earliest and the latest end at which no stage
  /// takes longer than `limit`.
  Array<std::size_t> least_in_all(const Array<std::size_t>& latest, double limit) {
    Array<std::size_t> earliest(count_);
    std::size_t end = plans_.units();
    for (std::size_t s = count_; s-- > 0;) {
      earliest[s] = end;
      if (s > 0) end = nearest(s, end, limit);
      if (error_ || end > latest[s == 0 ? 0 : s - 1]) return latest;
    }
    struct Way {
      double seconds = infinite;
      std::size_t before = 0;  ///< the end of the stage before
    };
    Array<Array<Way>> ways(count_);  // by stage and place
    for (std::size_t s = 0; s < count_; ++s) {
      ways[s].resize(latest[s] - earliest[s] + 1);
      const std::size_t from = s == 0 ? 0 : earliest[s - 1], to = s == 0 ? 0 : latest[s - 1];
      for (std::size_t e = earliest[s]; e <= latest[s]; ++e)
        for (std::size_t f = from; f <= to && f < e; ++f) {
          const double before = s == 0 ? 0 : ways[s - 1][f - from].seconds;
          if (before >= infinite || plans_.time().look() || !within(s, f, e, limit)) continue;
          const double seconds = before + cost(s, f, e).seconds;
          Way& way = ways[s][e - earliest[s]];
          if (seconds < way.seconds) way = {seconds, f};
        }
    }
    if (error_ || ways[count_ - 1][0].seconds >= infinite) return latest;
    Array<std::size_t> ends(count_);
    end = plans_.units();
    for (std::size_t s = count_; s-- > 0;) {
      ends[s] = end;
      end = ways[s][end - earliest[s]].before;
    }
    return ends;
  }

  StageTime time_of(std::size_t s, const Cost& cost) {
    const StageMachine& machine = request_.stages[s];
    const StageKind& kind = plans_.kind(cost.kind);
    const StagePlan& plan = kind.plans[static_cast<std::size_t>(cost.plan)];
    StageTime time;
    time.forward = plan.forward / machine.speed;
    time.backward = plan.backward / machine.speed;
    time.update = request_.seconds_per_trained * static_cast<double>(kind.graph.gradient_elems) /
                  machine.speed;
    const auto send = [&](const StageMachine& over, Shape shape) {
      const auto bytes = static_cast<double>(shape.elems() * bytes_of(kind.graph.scalar));
      return over.link_rate > 0 ? over.link_latency + bytes / over.link_rate : 0;
    };
    if (s + 1 < count_) time.activation = send(machine, kind.graph.output());
    if (s > 0) time.gradient = send(request_.stages[s - 1], kind.graph.input);
    return time;
  }

  /// Seconds of a step; infinite if a stage does not fit.
  double step_seconds(const Array<std::size_t>& ends) {
    Array<StageTime> times;
    for (std::size_t s = 0; s < count_; ++s) {
      const Cost found = cost(s, s == 0 ? 0 : ends[s - 1], ends[s]);
      if (!found.fits()) return infinite;
      times.push_back(time_of(s, found));
    }
    return simulate_pipeline(times, request_.micro_batches).seconds;
  }

  /// Moves single cuts as long as a step gets shorter.
  void shift(Array<std::size_t>& ends) {
    double best = step_seconds(ends);
    for (bool better = true; better && !error_;) {
      better = false;
      for (std::size_t s = 0; s + 1 < count_; ++s)
        for (const int by : {-1, 1, -2, 2}) {
          if (plans_.time().look()) return;
          const std::size_t from = s == 0 ? 0 : ends[s - 1], before = ends[s];
          const long to = static_cast<long>(before) + by;
          if (to <= static_cast<long>(from) || to >= static_cast<long>(ends[s + 1])) continue;
          ends[s] = static_cast<std::size_t>(to);
          const double seconds = step_seconds(ends);
          if (error_) return;
          if (seconds < best * (1 - 1e-9)) best = seconds, better = true;
          else ends[s] = before;
        }
    }
  }

  /// Names the stage that does not fit: all stages before have taken as much as they can.
  Error does_not_fit() {
    const std::size_t s = stuck_, first = stuck_at_;
    const bool last = s + 1 == count_;
    const std::size_t end = last ? plans_.units() : first + 1;
    const Result<std::size_t> number = plans_.kind_of(first, end - first);
    if (!number) return number.error;
    const StageKind& kind = plans_.kind(*number);
    const std::size_t state = state_of(kind.graph), boundary = boundary_of(s, kind.graph);
    // Asking for a plan in one byte adds the small plans.
    static_cast<void>(plans_.plan(plans_.kind(*number), flying(s), 1));
    const std::size_t arena = kind.least_bytes(flying(s));
    const std::size_t memory = request_.stages[s].memory_bytes;
    const char* limit = memory < state              ? "parameters, gradients and moments"
                        : memory < state + boundary ? "what is received and sent"
                                                    : "the steps in flight";
    return Error::say("stage ", s, " of ", count_, " does not fit",
                      plans_.time().passed() ? ", as far as is known when time is up: " : ": ",
                      last ? "what those before it leave to it" : "the least that it can have",
                      ", nodes ", plans_.first_node(first), " to ", plans_.last_node(end), " with ",
                      flying(s), " in flight, needs ", shown(state + boundary + arena), ", ", state,
                      " for parameters, gradients and moments, ", boundary,
                      " to receive and send, ", arena, " for steps, and has ", shown(memory),
                      ", limited by ", limit);
  }

  Result<PipelineOutcome> describe(const Array<std::size_t>& ends) {
    PipelineOutcome out;
    for (std::size_t s = 0; s < count_; ++s) {
      const std::size_t first = s == 0 ? 0 : ends[s - 1];
      const Cost found = cost(s, first, ends[s]);
      if (error_) return error_;
      const StageKind& kind = plans_.kind(found.kind);
      const StagePlan& plan = kind.plans[static_cast<std::size_t>(found.plan)];
      StageOutcome stage;
      stage.first = plans_.first_node(first);
      stage.last = plans_.last_node(ends[s]);
      stage.plan = plan.plan;
      stage.in_flight = flying(s);
      stage.step_bytes = plan.bytes;
      stage.state_bytes = state_of(kind.graph);
      stage.boundary_bytes = boundary_of(s, kind.graph);
      stage.peak_bytes = stage.state_bytes + stage.boundary_bytes + stage.arena_bytes();
      stage.error = plan.error;
      stage.retain_seconds =
          (plans_.retain_before(ends[s]) - plans_.retain_before(first)) / request_.stages[s].speed;
      stage.time = time_of(s, found);
      out.stages.push_back(static_cast<StageOutcome&&>(stage));
    }
    out.time = simulate_pipeline(out.times(), request_.micro_batches);
    out.plans = plans_.plans_made();
    out.timed_out = plans_.time().passed();
    out.solve_seconds = plans_.time().deadline().elapsed();
    return out;
  }

  const PipelineRequest& request_;
  StagePlans plans_;
  std::size_t count_;
  std::size_t first_parameter_;           ///< the network's
  std::size_t stuck_ = 0, stuck_at_ = 0;  ///< the last stage tried by latest(), and its beginning
  Error error_;
};

}  // namespace detail

/// Cuts `graph`, the graph of a micro-batch, into stages for the machines of `request`, and plans each stage.
/// The result is the shortest step found with every stage within its machine's memory, and the gradient's
/// error within the tolerance. Fails if the request or the profile make no sense, if the network can be cut
/// into fewer stages than asked for, and if a stage cannot fit: the error names the stage and the bytes needed.
inline Result<PipelineOutcome> plan_pipeline(const Graph& graph, const CostProfile& profile,
                                             const PipelineRequest& request) {
  return detail::or_no_memory("to plan a pipeline", [&]() -> Result<PipelineOutcome> {
    if (const Error why = examine(request)) return why;
    if (const Error why = graph_mistake(graph)) return why;
    if (const Error why = examine(graph, profile)) return why;
    if (!request.moment_bytes.empty() && request.moment_bytes.size() != graph.parameters.size())
      return Error::say("the bytes of moments are given for ", request.moment_bytes.size(),
                        " parameters, and the network has ", graph.parameters.size());
    return detail::PipelinePlanner(graph, profile, request).run();
  });
}

}}  // namespace adacc::v0_1
