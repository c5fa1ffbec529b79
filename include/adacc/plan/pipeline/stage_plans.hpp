// SPDX-License-Identifier: MIT
/// Plans of stages, made once for all stages of equal cost.
///
/// The costs of a stage depend on its nodes alone, not on their place in the network: stages with the same
/// number of equal blocks are one kind. Each kind has a growing list of plans, found for numbers of steps in
/// flight and amounts of memory (PlanRequest::in_flight). A plan found for one may serve another.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/clock.hpp"
#include "../../core/error.hpp"
#include "../../cost/evaluate.hpp"
#include "../../model/stage.hpp"
#include "../../program/in_flight.hpp"
#include "../chain/segments.hpp"
#include "../make_plan.hpp"
#include "../simple_plans.hpp"
#include "../tuning.hpp"
#include "request.hpp"

namespace adacc { inline namespace v0_1 {

/// The part of `profile` (costs of `graph`) for the nodes of `stage`, a stage of `graph`. CostProfile::rest,
/// the update, is divided by trained parameters.
constexpr CostProfile profile_of_stage(const Graph& graph, const CostProfile& profile,
                                       const Graph& stage) {
  CostProfile costs;
  costs.made_for = stage.fingerprint;
  costs.codecs = profile.codecs;
  const auto first = static_cast<std::size_t>(stage.first_node - graph.first_node);
  const std::size_t columns = profile.codecs.size();
  for (std::size_t k = first; k < first + stage.nodes.size(); ++k) {
    costs.nodes.push_back(profile.nodes[k]);
    for (std::size_t c = 0; c < columns; ++c)
      costs.codec_costs.push_back(profile.codec_costs[k * columns + c]);
  }
  if (stage.has_loss) costs.loss = profile.loss;
  if (graph.gradient_elems > 0)
    costs.rest = profile.rest * static_cast<double>(stage.gradient_elems) /
                 static_cast<double>(graph.gradient_elems);
  return costs;
}

/// The share of `stage`, a stage of `graph`, in the tolerance for all stages together.
constexpr double tolerance_of_stage(const Graph& graph, const Graph& stage, double tolerance) {
  return tolerance * static_cast<double>(stage.nodes.size()) /
         static_cast<double>(graph.nodes.size());
}

/// Seconds of forward and of backward in a step of `schedule`, the schedule of a stage's `plan`. The loss belongs
/// to backward.
constexpr StageTime stage_time(const CostProfile& profile, const Plan& plan,
                               const Schedule& schedule) {
  StageTime time;
  bool behind = false;
  for (const Instruction& inst : schedule.instructions) {
    behind = behind || inst.op == Op::hand_over || inst.op == Op::loss_gradient;
    (behind ? time.backward : time.forward) += seconds_of(profile, plan, inst);
  }
  return time;
}

namespace detail {

/// A plan of a stage, with its bytes and seconds.
struct StagePlan {
  Plan plan;
  InFlightBytes bytes;
  double forward = 0, backward = 0, error = 0;

  double seconds() const { return forward + backward; }
};

/// Whether a node computes attention from q, k and v, and is recomputed by Recomputation::selective.
inline bool is_attention(const Node& node) {
  for (const char* name = node.name; *name != '\0'; ++name) {
    const char* word = "attention";
    std::size_t i = 0;
    while (word[i] != '\0' && name[i] == word[i]) ++i;
    if (word[i] == '\0') return true;
  }
  return false;
}

/// Whether node `k` is the last in a copy of a repeated block, or in no block.
inline bool ends_block(const Graph& graph, int k) {
  const Node& node = graph.node(k);
  if (!node.repeated || k + 1 == graph.node_count()) return true;
  const Node& next = graph.node(k + 1);
  return !next.repeated || next.copy != node.copy;
}

/// The plan of a scheme that treats all blocks alike; policies fixed by types stay.
inline Plan uniform_plan(const Graph& graph, Recomputation scheme) {
  Plan plan = plan_from_types(graph);
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    if (!node.policy.planned() || !node.recomputable) continue;
    const bool again = scheme == Recomputation::full ? !ends_block(graph, k) : is_attention(node);
    if (again) plan.policies[static_cast<std::size_t>(k)] = recompute();
  }
  return plan;
}

/// All plans known for stages of equal cost.
struct StageKind {
  std::size_t first = 0, count = 0;  ///< units of the first such stage
  Graph graph;
  CostProfile profile;
  double tolerance = 0;
  Array<StagePlan> plans;
  bool has_small = false;  ///< the plans with least bytes are among them
  struct Answer {
    int in_flight = 0;
    std::size_t room = 0;
    int plan = -1;  ///< -1: none fits
  };
  Array<Answer> answers;

  double retain_seconds() const { return plans[0].seconds(); }
  /// The smallest arena known for `in_flight` steps.
  std::size_t least_bytes(int in_flight) const {
    std::size_t least = static_cast<std::size_t>(-1);
    for (const StagePlan& plan : plans) lower(least, plan.bytes.arena(in_flight));
    return least;
  }
  /// The fastest of the known plans whose arena fits; -1: none does.
  int fastest(int in_flight, std::size_t room) const {
    int best = -1;
    for (std::size_t i = 0; i < plans.size(); ++i)
      if (plans[i].bytes.arena(in_flight) <= room &&
          (best < 0 || plans[i].seconds() < plans[static_cast<std::size_t>(best)].seconds()))
        best = static_cast<int>(i);
    return best;
  }
};

/// The units of stages (the shortest possible stages), and all kinds of stages asked for.
class StagePlans {
 public:
  StagePlans(const Graph& graph, const CostProfile& profile, const PipelineRequest& request)
      : graph_(graph), profile_(profile), request_(request),
        time_(Deadline(request.clock, request.deadline_seconds)) {
    const bool uniform = request.recomputation != Recomputation::planned;
    ends_.push_back(-1);
    for (const int cut : cuts_of(graph))
      if (!uniform || ends_block(graph, cut)) ends_.push_back(cut);
    ends_.push_back(graph.node_count() - 1);
    classify();
  }

  /// The number of units. A stage has consecutive ones, first..first + count - 1.
  std::size_t units() const { return ends_.size() - 1; }
  int first_node(std::size_t unit) const { return ends_[unit] + 1; }
  /// The last node of a stage that ends in front of `unit`.
  int last_node(std::size_t unit) const { return ends_[unit]; }
  Pacer& time() { return time_; }
  /// Whether, after the deadline, there is not even time for a plan without a search.
  bool late() const {
    return time_.passed() &&
           time_.deadline().passed_by(SimpleTuning::overtime_share, SimpleTuning::overtime_seconds);
  }
  std::size_t plans_made() const { return made_; }
  /// Seconds of forward and backward for all units before `unit` if everything is retained.
  double retain_before(std::size_t unit) const { return retain_[unit]; }

  /// The number of the kind of the stage with these units; `count` >= 1.
  Result<std::size_t> kind_of(std::size_t first, std::size_t count) {
    for (const std::size_t i : by_count_[count])
      if (same(kinds_[i].first, first, count)) return i;
    Result<Graph> stage = stage_of(graph_, first_node(first), last_node(first + count));
    if (!stage) return stage.error;
    StageKind kind;
    kind.first = first;
    kind.count = count;
    kind.graph = static_cast<Graph&&>(*stage);
    kind.profile = profile_of_stage(graph_, profile_, kind.graph);
    kind.profile.rest = 0;  // updates are behind all micro-batches
    kind.tolerance = tolerance_of_stage(graph_, kind.graph, request_.tolerance);
    if (const Error why = begin(kind)) return why;
    by_count_[count].push_back(kinds_.size());
    kinds_.push_back(static_cast<StageKind&&>(kind));
    return kinds_.size() - 1;
  }
  StageKind& kind(std::size_t i) { return kinds_[i]; }

  /// The fastest plan found for `in_flight` steps in an arena of `room` bytes; -1: none fits.
  Result<int> plan(StageKind& kind, int in_flight, std::size_t room) {
    for (const StageKind::Answer& known : kind.answers)
      if (known.in_flight == in_flight && known.room == room) return known.plan;
    if (request_.recomputation == Recomputation::planned &&
        kind.plans[0].bytes.arena(in_flight) > room)
      if (const Error why = search(kind, in_flight, room)) return why;
    const int best = kind.fastest(in_flight, room);
    kind.answers.push_back({in_flight, room, best});
    return best;
  }

 private:
  /// Units of one class cost the same, wherever they lie.
  void classify() {
    const Segments segments(graph_, profile_, PipelineTuning::classes_compared);
    retain_.push_back(0);
    Array<std::size_t> firsts;  // unit of each class
    std::size_t s = 0;
    for (std::size_t u = 0; u < units(); ++u) {
      Array<int> costs;
      for (; s < segments.all.size() && segments.all[s].last <= ends_[u + 1]; ++s)
        costs.push_back(segments.all[s].cost);
      segments_of_.push_back(static_cast<Array<int>&&>(costs));
      int found = -1;
      for (std::size_t c = firsts.size(); c-- > 0 && found < 0;)
        if (same_unit(firsts[c], u)) found = static_cast<int>(c);
      if (found < 0) {
        found = static_cast<int>(firsts.size());
        firsts.push_back(u);
      }
      classes_.push_back(found);
      double seconds = u + 1 == units() && graph_.has_loss ? profile_.loss : 0;
      for (int k = first_node(u); k <= ends_[u + 1]; ++k) {
        const NodeCost& cost = profile_.node(k);
        const auto adds = static_cast<double>(graph_.node(k).adds.count);
        seconds += cost.forward + cost.backward + adds * (cost.add + cost.add_gradient);
      }
      retain_.push_back(retain_[u] + seconds);
    }
    by_count_.resize(units() + 1);
  }

  bool same_unit(std::size_t a, std::size_t b) const {
    if (segments_of_[a].size() != segments_of_[b].size() ||
        ends_[a + 1] - ends_[a] != ends_[b + 1] - ends_[b])
      return false;
    for (std::size_t i = 0; i < segments_of_[a].size(); ++i)
      if (segments_of_[a][i] != segments_of_[b][i]) return false;
    for (int i = 1; i <= ends_[a + 1] - ends_[a]; ++i) {
      const int k = ends_[a] + i, l = ends_[b] + i;
      const Node &x = graph_.node(k), &y = graph_.node(l);
      if (profile_.node(k).backward != profile_.node(l).backward ||
          profile_.node(k).add_gradient != profile_.node(l).add_gradient ||
          x.parameters.count != y.parameters.count)
        return false;
      for (std::size_t p = 0; p < x.parameters.count; ++p) {
        const Parameter& parameter = graph_.parameters[x.parameters.first + p];
        const Parameter& other = graph_.parameters[y.parameters.first + p];
        if (!(parameter.shape == other.shape) || parameter.frozen != other.frozen) return false;
      }
    }
    return true;
  }

  bool same(std::size_t a, std::size_t b, std::size_t count) const {
    const bool ends_a = a + count == units(), ends_b = b + count == units();
    if (ends_a != ends_b || (a == 0) != (b == 0)) return false;
    for (std::size_t i = 0; i < count; ++i)
      if (classes_[a + i] != classes_[b + i]) return false;
    return true;
  }

  /// Appends `plan`, and returns its number.
  Result<std::size_t> add(StageKind& kind, Plan plan) {
    if (const Error why = examine(kind.graph, plan)) return why;
    const Result<PlacedSchedule> placed = place_schedule(kind.graph, plan);
    if (!placed) return placed.error;
    const Result<InFlightLayout> layout = make_in_flight_layout(*placed);
    if (!layout) return layout.error;
    StagePlan found;
    found.bytes = layout->bytes;
    const StageTime time = stage_time(kind.profile, plan, placed->schedule);
    found.forward = time.forward, found.backward = time.backward;
    found.error = error_of(kind.graph, kind.profile, plan);
    found.plan = static_cast<Plan&&>(plan);
    kind.plans.push_back(static_cast<StagePlan&&>(found));
    ++made_;
    return kind.plans.size() - 1;
  }

  PlanRequest request_of(const StageKind& kind, int in_flight, std::size_t room) const {
    PlanRequest request;
    request.budget_bytes = room;
    request.in_flight = in_flight;
    request.tolerance = kind.tolerance;
    request.gap = request_.gap;
    request.prices.by = Solver::search;
    request.clock = request_.clock;
    request.deadline_seconds = PipelineTuning::plan_seconds;
    if (request.clock) lower(request.deadline_seconds, time_.deadline().left());
    return request;
  }

  /// Adds the plan that needs no search: by the request's scheme, or else retaining, the fastest possible.
  Error begin(StageKind& kind) {
    if (request_.recomputation != Recomputation::planned)
      return add(kind, uniform_plan(kind.graph, request_.recomputation)).error;
    const PlanRequest request = request_of(kind, 1, 1);
    if (const Error why = examine(kind.graph, kind.profile, request)) return why;
    return add(kind, plan_from_types(kind.graph)).error;
  }

  /// Adds the plans with least bytes: full recomputation of blocks, then simple plans. If time is up, only the
  /// first.
  Error add_small(StageKind& kind) {
    if (kind.has_small) return {};
    kind.has_small = true;
    if (const Result<std::size_t> added = add(kind, uniform_plan(kind.graph, Recomputation::full));
        !added)
      return added.error;
    const Array<int> sites = checkpoint_sites(kind.graph);
    for (const Kept kept : {Kept::whole, Kept::precise, Kept::coarse})
      for (std::size_t stride = 1; stride <= 2 * sites.size(); stride *= 2) {
        if (late()) return {};
        Plan plan = simple_plan(kind.graph, sites, stride, kept);
        if (examine(kind.graph, plan) || error_of(kind.graph, kind.profile, plan) > kind.tolerance)
          continue;
        if (const Result<std::size_t> added = add(kind, static_cast<Plan&&>(plan)); !added)
          return added.error;
      }
    return {};
  }

  /// Adds the plan found by make_plan() for this room; if none is found, the small plans.
  Error search(StageKind& kind, int in_flight, std::size_t room) {
    if (time_.look()) return kind.plans.size() > 1 ? Error() : add_small(kind);
    const Result<PlanOutcome> found =
        make_plan(kind.graph, kind.profile, request_of(kind, in_flight, room));
    if (!found) return add_small(kind);
    return add(kind, found->plan).error;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const PipelineRequest& request_;
  Pacer time_;
  Array<int> ends_;                ///< -1, and the last node of each unit
  Array<Array<int>> segments_of_;  ///< by unit: the classes of its segments
  Array<int> classes_;             ///< by unit
  Array<double> retain_;
  Array<Array<std::size_t>> by_count_;
  Array<StageKind> kinds_;
  std::size_t made_ = 0;
};

}  // namespace detail

}}  // namespace adacc::v0_1
