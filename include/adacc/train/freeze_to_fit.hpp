// SPDX-License-Identifier: MIT
/// Freezes layers if training cannot fit a budget otherwise.
///
/// The question is SlimFit's (Ardakani et al., "SlimFit: memory-efficient fine-tuning of
/// transformer-based models using training dynamics", 2023). SlimFit measures how much a layer's weights
/// change; here the measure is the squared norm of the layer's gradient, the gain of plain descent from
/// training the layer: to first order the loss falls by rate * |gradient|^2, a sum over layers.
///
/// So among sets of trained layers within the budget, the best has the largest sum of squared norms of gradients.
/// The bytes of a layer depend on other layers: freezing frees its gradient and moments, perhaps the
/// activation read by its weight's gradient, and backward ends before the first trained layer, so a
/// frozen prefix frees more than as many layers elsewhere. The search therefore goes over prefixes
/// and, behind each prefix, over single layers, least contribution first, by contribution and by contribution
/// per byte; then trains layers again if there is room. For up to 12 layers or tensors the set is
/// optimal. Bytes are never guessed: every set considered is lowered and planned. The search relies on one
/// rule: more frozen layers never need more bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../core/block.hpp"
#include "../core/error.hpp"
#include "../cost/estimate.hpp"
#include "../model/trained_by_name.hpp"
#include "../optimizer/gradient_norm.hpp"
#include "../plan/make_plan.hpp"
#include "../step/step.hpp"
#include "total.hpp"

namespace adacc { inline namespace v0_1 {

/// Parameters frozen, or trained, as a whole: of a block of a Repeat, or of a layer outside of one. A shared
/// parameter belongs to its first layer.
struct LayerGroup {
  std::string name;                     ///< "block.3", "embedding": a pattern of trained_by_name()
  std::vector<std::size_t> parameters;  ///< entries of Graph::parameters
};

/// The groups of a graph's trained parameters, in the order of layers.
inline std::vector<LayerGroup> layer_groups(const Graph& graph) {
  std::vector<LayerGroup> groups;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    if (graph.parameters[i].frozen) continue;
    std::size_t owner = 0;
    while (graph.parameters[owner].offset != graph.parameters[i].offset) ++owner;
    const int node = graph.parameters[owner].node;
    std::string name = parameter_name(graph, owner);
    std::size_t end = name.find('.');
    if (node >= 0 && graph.node(node).repeated) end = name.find('.', end + 1);
    name.resize(end);
    std::size_t group = 0;
    while (group < groups.size() && groups[group].name != name) ++group;
    if (group == groups.size()) groups.push_back({name, {}});
    groups[group].parameters.push_back(i);
  }
  return groups;
}

/// The memory for training: either total_bytes or budget_bytes is given.
struct FreezeBudget {
  std::size_t total_bytes = 0;   ///< for parameters, gradients, moments and arena
  std::size_t budget_bytes = 0;  ///< for the arena alone
  std::size_t arena_bytes = 0;   ///< at least as many, for other steps in the arena
};

/// The result of freeze_to_fit().
struct FreezeOutcome {
  std::vector<bool> frozen;      ///< by group
  TrainedSet trained;            ///< the opposite, by parameter
  double lost = 0;               ///< the frozen fraction of the groups' squared norms
  std::size_t least_before = 0;  ///< least bytes, in the budget's sense, with nothing frozen
  std::size_t least_after = 0;
  int plans = 0;  ///< made by the search
};

/// A group for each trained parameter of a graph: sparse updates choose among tensors (Lin et al.,
/// "On-device training under 256KB memory", 2022).
inline std::vector<LayerGroup> tensor_groups(const Graph& graph) {
  std::vector<LayerGroup> groups;
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    if (graph.parameters[i].frozen || !graph.parameters[i].owner) continue;
    groups.push_back({parameter_name(graph, i), {}});
    for (std::size_t k = i; k < graph.parameters.size(); ++k)
      if (graph.parameters[k].offset == graph.parameters[i].offset)
        groups.back().parameters.push_back(k);
  }
  return groups;
}

namespace detail {

/// Every set is considered if there are at most so many groups.
inline constexpr std::size_t most_groups_tried = 12;

/// The bytes of the smallest plans of sets of groups, each asked for once.
template <class MakeGraph, class Optimizer>
class FreezeSearch {
 public:
  using Set = std::vector<bool>;  ///< true: frozen

  FreezeSearch(const MakeGraph& make, const Graph& whole, const std::vector<LayerGroup>& groups,
               const Optimizer& optimizer, const FreezeBudget& budget, const PlanRequest& request)
      : make_(make), whole_(whole), groups_(groups), optimizer_(optimizer), budget_(budget),
        request_(request), time_(Deadline(request.clock, request.deadline_seconds)) {}

  TrainedSet trained(const Set& frozen) const {
    TrainedSet set(whole_.parameters.size());
    for (std::size_t i = 0; i < set.size(); ++i) set[i] = !whole_.parameters[i].frozen;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const std::size_t i : groups_[g].parameters) set[i] = !frozen[g];
    return set;
  }

  /// The least bytes of training: in all, or of the arena, like the budget.
  Result<std::size_t> least(const Set& frozen) {
    const TrainedSet set = trained(frozen);
    const Result<Graph> graph = make_(set);
    if (!graph) return graph.error;
    std::size_t fixed = 0;
    if (budget_.total_bytes != 0) {
      const auto held = memory_beside_arena(*graph, optimizer_);
      if (!held) return held.error;
      fixed = held->total();
    }
    PlanRequest request = request_;
    request.budget_bytes = 1;
    if (request.clock) request.deadline_seconds = time_.deadline().left();
    Result<std::size_t> smallest = smallest_peak(*graph, estimated_profile(*graph), request);
    if (!smallest) return smallest.error;
    ++plans_;
    raise(*smallest, budget_.arena_bytes);
    return fixed + *smallest;
  }

  std::size_t limit() const {
    return budget_.total_bytes != 0 ? budget_.total_bytes : budget_.budget_bytes;
  }

  /// least(); if time is up, the least known bytes of sets with no more frozen groups.
  Result<std::size_t> least_known(const Set& frozen) {
    std::size_t known = 0;
    for (const Fitting& other : fitting_)
      if (contains(frozen, other.frozen) && (known == 0 || other.bytes < known))
        known = other.bytes;
    return known != 0 && time_.look() ? Result<std::size_t>(known) : least(frozen);
  }

  /// A set within the budget.
  void knows(const Set& frozen, std::size_t bytes) { fitting_.push_back({frozen, bytes}); }

  /// Whether time is up: no more sets are planned.
  bool stop() { return time_.look(); }

  /// Whether a plan of the set fits; `problem` is set if planning fails. If time is up, only sets known to fit
  /// do.
  bool fits(const Set& frozen, Error& problem) {
    for (const Fitting& known : fitting_)
      if (contains(frozen, known.frozen)) return true;
    if (stop()) return false;
    for (const Set& known : failing_)
      if (contains(known, frozen)) return false;
    const Result<std::size_t> bytes = least(frozen);
    if (!bytes) {
      if (!problem) problem = bytes.error;
      return false;
    }
    const bool yes = *bytes <= limit();
    if (yes) knows(frozen, *bytes);
    else failing_.push_back(frozen);
    return yes;
  }

  int plans() const { return plans_; }

 private:
  struct Fitting {
    Set frozen;
    std::size_t bytes = 0;
  };

  static bool contains(const Set& all, const Set& part) {
    for (std::size_t g = 0; g < all.size(); ++g)
      if (part[g] && !all[g]) return false;
    return true;
  }

  const MakeGraph& make_;
  const Graph& whole_;
  const std::vector<LayerGroup>& groups_;
  const Optimizer& optimizer_;
  const FreezeBudget& budget_;
  const PlanRequest& request_;
  Pacer time_;
  std::vector<Fitting> fitting_;
  std::vector<Set> failing_;
  int plans_ = 0;
};

}  // namespace detail

/// The groups to freeze for training `graph` within `budget`; none if training fits anyway. An error if no
/// group can be trained within the budget; the error names the least bytes of one group.
/// `groups`: layer_groups(graph), tensor_groups(graph), or some of either; other parameters do not change.
/// `make_graph(trained)`: returns the graph of the same network with this TrainedSet.
/// `norms`: the worth of training each group: squared norms of gradients, or another measure that adds up;
///   0 for a group of no worth.
/// `request`: tolerance and limits of plans. Its budget is ignored. Its deadline is for all plans together:
///   the best set known to fit by then is taken.
template <class MakeGraph, class Optimizer>
Result<FreezeOutcome> freeze_to_fit(const Graph& graph, const std::vector<LayerGroup>& groups,
                                    const MakeGraph& make_graph, const std::vector<double>& norms,
                                    const FreezeBudget& budget, const Optimizer& optimizer,
                                    const PlanRequest& request) {
  if (const Error why = graph_mistake(graph)) return why;
  if (groups.empty() || norms.size() != groups.size())
    return Error::misuse("there are ", groups.size(), " groups of layers, and norms of ",
                         norms.size());
  if ((budget.total_bytes == 0) == (budget.budget_bytes == 0))
    return Error::misuse("freeze_to_fit() takes a budget of everything, or of the arena");
  double all = 0;
  for (const double norm : norms) {
    if (!(norm >= 0) || norm - norm != 0)
      return Error::misuse("squared norms of gradients are finite, and 0 or more");
    all += norm;
  }
  using Search = detail::FreezeSearch<MakeGraph, Optimizer>;
  using Set = typename Search::Set;
  const std::size_t count = groups.size();
  Search search(make_graph, graph, groups, optimizer, budget, request);
  Error problem;
  FreezeOutcome outcome;
  outcome.frozen.assign(count, false);
  const auto finish = [&](Set frozen, double lost) -> Result<FreezeOutcome> {
    const Result<std::size_t> after = search.least_known(frozen);
    if (!after) return after.error;
    outcome.trained = search.trained(frozen);
    outcome.frozen = std::move(frozen);
    outcome.lost = all > 0 ? lost / all : 0;
    outcome.least_after = *after;
    outcome.plans = search.plans();
    return outcome;
  };
  const Result<std::size_t> before = search.least(outcome.frozen);
  if (!before) return before.error;
  outcome.least_before = *before;
  if (*before <= search.limit()) return finish(outcome.frozen, 0);

  // Elements of each group's own: its gradient, in proportion to its moments.
  std::vector<double> bytes(count, 1);
  for (std::size_t g = 0; g < count; ++g)
    for (const std::size_t i : groups[g].parameters)
      if (graph.parameters[i].owner)
        bytes[g] += static_cast<double>(graph.parameters[i].shape.elems());
  const auto lost_by = [&](const Set& frozen) {
    double lost = 0;
    for (std::size_t g = 0; g < count; ++g) lost += frozen[g] ? norms[g] : 0;
    return lost;
  };

  Set best;
  double least_lost = 0;
  const auto consider = [&](Set frozen) {
    // Trains groups again, the largest contribution first.
    for (;;) {
      std::size_t most = count;
      Set without;
      for (std::size_t tried = 0; tried < count; ++tried) {
        // The largest contribution still frozen, if there is room.
        if (!frozen[tried] || (most < count && norms[tried] <= norms[most])) continue;
        Set next = frozen;
        next[tried] = false;
        if (!search.fits(next, problem)) continue;
        most = tried;
        without = std::move(next);
      }
      if (most == count) break;
      frozen = std::move(without);
    }
    const double lost = lost_by(frozen);
    if (!best.empty() && lost >= least_lost) return;
    best = std::move(frozen);
    least_lost = lost;
  };
  for (std::size_t prefix = 0; prefix < count; ++prefix) {
    Set frozen(count, false);
    for (std::size_t g = 0; g < prefix; ++g) frozen[g] = true;
    if (!best.empty() && lost_by(frozen) >= least_lost) break;
    for (const bool per_byte : {false, true}) {
      std::vector<std::size_t> order;
      for (std::size_t g = prefix; g < count; ++g) order.push_back(g);
      const auto price = [&](std::size_t g) { return per_byte ? norms[g] / bytes[g] : norms[g]; };
      for (std::size_t i = 1; i < order.size(); ++i)
        for (std::size_t j = i; j > 0 && price(order[j]) < price(order[j - 1]); --j)
          std::swap(order[j], order[j - 1]);
      // At least one group is trained. The fewest frozen groups, in this order, within the budget:
      const auto with = [&](std::size_t more) {
        Set set = frozen;
        for (std::size_t i = 0; i < more; ++i) set[order[i]] = true;
        return set;
      };
      std::size_t low = 0, high = order.size();
      while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (middle < order.size() && search.fits(with(middle), problem)) high = middle;
        else low = middle + 1;
      }
      if (low < order.size()) consider(with(low));
    }
  }
  // Few groups: every set is considered. A set beyond the budget rules out all its subsets, so
  // sets with most frozen come first.
  if (!best.empty() && count <= detail::most_groups_tried) {
    std::vector<std::size_t> sets;
    for (std::size_t set = 0; set + 1 < std::size_t{1} << count; ++set) sets.push_back(set);
    std::stable_sort(sets.begin(), sets.end(), [](std::size_t a, std::size_t b) {
      return std::popcount(a) > std::popcount(b);
    });
    for (const std::size_t set : sets) {
      Set frozen(count, false);
      for (std::size_t g = 0; g < count; ++g) frozen[g] = (set >> g & 1U) != 0;
      const double lost = lost_by(frozen);
      if (!(lost < least_lost) || !search.fits(frozen, problem)) continue;
      best = std::move(frozen);
      least_lost = lost;
    }
  }
  if (!best.empty()) return finish(std::move(best), least_lost);

  // No order led to a set within the budget: tries each group alone.
  std::size_t least = 0, cheapest = 0;
  for (std::size_t g = 0; g < count && (g == 0 || !search.stop()); ++g) {
    Set alone(count, true);
    alone[g] = false;
    const Result<std::size_t> needed = search.least(alone);
    if (!needed) {
      if (!problem) problem = needed.error;
      continue;
    }
    if (*needed <= search.limit()) {
      search.knows(alone, *needed);
      consider(alone);
      continue;
    }
    if (least == 0 || *needed < least) least = *needed, cheapest = g;
  }
  if (!best.empty()) return finish(std::move(best), least_lost);
  if (least == 0) return problem;
  if (search.stop())
    return Error::say("time was up before layers were found that can be trained in ",
                      shown(search.limit()), ": with all frozen but ",
                      groups[cheapest].name.c_str(), ", training takes at most ", shown(least));
  return Error::say(budget.total_bytes != 0 ? "a total of " : "a budget of ", shown(search.limit()),
                    " is too small for any layer: with all frozen but ",
                    groups[cheapest].name.c_str(), ", training takes at least ", shown(least));
}

/// Freezes layers: `norms` belong to layer_groups(graph).
template <class MakeGraph, class Optimizer>
Result<FreezeOutcome> freeze_to_fit(const Graph& graph, const MakeGraph& make_graph,
                                    const std::vector<double>& norms, const FreezeBudget& budget,
                                    const Optimizer& optimizer, const PlanRequest& request) {
  return freeze_to_fit(graph, layer_groups(graph), make_graph, norms, budget, optimizer, request);
}

/// The squared norm of the gradient of each of layer_groups(graph), the mean of `batches` batches; 0 for a
/// group that cannot be trained within the budget even if all others are frozen. The budget, without
/// moments, holds while measuring: if the groups do not fit together, halves of them are probed.
///
/// `fill(graph, View<T> params)` writes the parameters in the layout of its graph; `batch(i, x, y)` sets
/// the AnyViews x and y to batch i; both return an Error. The context's key is left at update 0.
template <class T = float, class Context, class MakeGraph, class Fill, class Batch>
Result<std::vector<double>> probe_gradient_norms(Context& context,
                                                 const Dispatch<T, Context>& dispatch,
                                                 const Graph& graph, const MakeGraph& make_graph,
                                                 const PlanRequest& request,
                                                 const FreezeBudget& budget, std::size_t batches,
                                                 const Fill& fill, const Batch& batch) {
  const std::vector<LayerGroup> groups = layer_groups(graph);
  std::vector<double> norms(groups.size(), 0.0);
  // Ranges of groups trained at once; the last range is next.
  std::vector<std::pair<std::size_t, std::size_t>> ranges{{0, groups.size()}};
  while (!ranges.empty()) {
    const auto [first, last] = ranges.back();
    ranges.pop_back();
    TrainedSet trained(graph.parameters.size());
    for (std::size_t g = first; g < last; ++g)
      for (const std::size_t i : groups[g].parameters) trained[i] = true;
    Result<Graph> part = make_graph(trained);
    if (!part) return part.error;
    const std::size_t held = (part->parameter_elems + part->gradient_elems) * sizeof(T);
    PlanRequest part_request = request;
    part_request.budget_bytes = budget.total_bytes == 0     ? budget.budget_bytes
                                : budget.total_bytes > held ? budget.total_bytes - held
                                                            : 1;
    Result<PlanOutcome> outcome = make_plan(*part, estimated_profile(*part), part_request);
    if (!outcome) {
      const std::size_t middle = (first + last) / 2;
      if (middle > first) {
        ranges.push_back({middle, last});
        ranges.push_back({first, middle});
      }
      continue;
    }
    Result<Program> program = make_program(std::move(*part), std::move(outcome->plan));
    if (!program) return program.error;
    Result<Step<T, Context>> step = Step<T, Context>::make(dispatch, std::move(*program));
    if (!step) return step.error;
    const Graph& of = step->graph();
    auto arena = Block<std::byte>::make(step->arena_bytes(), "activations, to measure gradients");
    if (!arena) return arena.error;
    auto params = Block<T>::make(of.parameter_elems, "parameters, to measure gradients");
    if (!params) return params.error;
    auto gradients = Block<T>::make(of.gradient_elems, "gradients, to measure them");
    if (!gradients) return gradients.error;
    if (const Error why = fill(of, params->view())) return why;
    if (const Error why = step->bind(arena->view(), params->view(), gradients->view())) return why;
    for (std::size_t b = 0; b < batches; ++b) {
      AnyView x, y;
      if (const Error why = batch(b, x, y)) return why;
      context.key.step = 0;
      context.key.micro_step = static_cast<std::uint16_t>(b);
      context.fill(gradients->view(), T{});
      if (const Result<double> loss = step->run(context, x, y); !loss) return loss.error;
      for (std::size_t g = first; g < last; ++g)
        for (const std::size_t i : groups[g].parameters) {
          const Parameter& parameter = of.parameters[i];
          if (!parameter.owner || parameter.frozen) continue;
          const double norm = gradient_norm(
              context, View<T>(gradients->data() + parameter.offset, parameter.shape));
          norms[g] += norm * norm / static_cast<double>(batches);
        }
    }
    context.key.micro_step = 0;
  }
  return norms;
}

}}  // namespace adacc::v0_1
