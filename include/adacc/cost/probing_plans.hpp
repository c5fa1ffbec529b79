/// Pairs of plans whose gradients differ by one thing: what one codec does at one layer.
///
/// All copies of a layer are probed at once, because their errors add up. A pair is built around a
/// plan that loses nothing: `retain`, or, where that does not fit, one that keeps checkpoints and
/// recomputes the rest, in which what follows a compressed activation is retained up to the next
/// checkpoint, so that nothing else is made from it. If even that does not fit for all copies at
/// once, every second is probed, or fewer; and at last checkpoints are compressed themselves, in
/// both plans alike: their error then is part of both gradients, and not of the difference.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "../program/plan.hpp"
#include "checkpointed.hpp"
#include "measuring_plans.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

/// One entry of a profile's errors, that of all copies of a layer.
struct ErrorClass {
  int layer = 0;                     ///< Node::layer
  const CodecInfo* codec = nullptr;  ///< lossy
  bool carried = false;              ///< CodecCost::carried_error instead of error
};

struct ProbingPlans {
  Plan reference;
  bool exact = false;  ///< the reference loses nothing
  Plan lossy;          ///< |g(lossy) - g(reference)|^2 is the error of `copies` activations
  int copies = 0;      ///< 0 where the class cannot occur: its error is nothing
  std::size_t arena_bytes = 0;
};

namespace detail {

/// Builds one pair of plans.
class ProbeBuilder {
 public:
  /// Of the nodes of this layer, every `stride`th from `turn` on, around the plan `base`.
  constexpr ProbeBuilder(const Graph& graph, const Plan& base, const ErrorClass& what, int stride,
                         int turn)
      : graph_(graph), base_(base), what_(what), roles_(graph.nodes.size()) {
    int copy = 0;
    for (int k = 0; k < graph_.node_count(); ++k) {
      if (graph_.node(k).layer != what_.layer || !graph_.node(k).read_in_backward) continue;
      if (copy++ % stride == turn % stride) what_.carried ? try_carried(k) : try_direct(k);
    }
  }

  constexpr int copies() const {
    int count = 0;
    for (const Role role : roles_) count += role == Role::probed ? 1 : 0;
    return count;
  }

  constexpr ProbingPlans build() const {
    ProbingPlans pair;
    pair.exact = !what_.carried && loses_nothing();
    pair.reference = pair.exact ? base_ : plan(retain());
    pair.lossy = plan(what_.carried ? recompute() : compress(what_.codec));
    pair.copies = copies();
    const std::size_t reference = peak_bytes(graph_, pair.reference);
    const std::size_t lossy = peak_bytes(graph_, pair.lossy);
    pair.arena_bytes = reference > lossy ? reference : lossy;
    return pair;
  }

 private:
  enum class Role : unsigned char {
    none,
    probed,
    source,  ///< lossy in both plans, to make a probed one from
    path     ///< recomputed in both plans, between a source and a probed one
  };
  constexpr Role& role(int id) { return roles_[static_cast<std::size_t>(id)]; }
  constexpr Role role(int id) const { return roles_[static_cast<std::size_t>(id)]; }

  constexpr void try_direct(int k) {
    if (!may_use(graph_, k, what_.codec)) return;
    if (!what_.codec->keeps_values) {  // then a reader may have to be asked
      Plan alone = retain_all(graph_);
      if (!compress_with(graph_, alone, k, what_.codec)) return;
    }
    role(k) = Role::probed;
  }

  constexpr bool may_carry(int id) const {
    return id >= 0 && what_.codec->keeps_values && may_use(graph_, id, what_.codec);
  }

  /// Activation k is made again from the nearest in the chain that may go through the codec, and
  /// from those of its residual sums' sources that may. No activation serves two of these.
  constexpr void try_carried(int k) {
    int nearest = graph_.input_of(k);
    while (nearest != step_input && !may_carry(nearest)) nearest = graph_.input_of(nearest);
    bool possible = role(k) == Role::none, sources = nearest != step_input;
    for (int j = nearest == step_input ? k : nearest; j < k; ++j)
      possible &= role(j) != Role::probed;
    for (const int source : graph_.adds(k)) {
      if (!may_carry(source)) continue;
      sources = true;
      possible &= role(source) != Role::probed;
    }
    if (!possible || !sources) return;
    role(k) = Role::probed;
    for (const int source : graph_.adds(k))
      if (may_carry(source)) role(source) = Role::source;
    if (nearest == step_input) return;
    role(nearest) = Role::source;
    for (int j = nearest + 1; j < k; ++j)
      if (role(j) == Role::none) role(j) = Role::path;
  }

  constexpr bool loses_nothing() const {
    for (const Policy& policy : base_.policies)
      if (policy.codec() != nullptr && !policy.codec()->lossless) return false;
    return true;
  }

  /// `probed` becomes of the probed ones.
  constexpr Plan plan(Policy probed) const {
    Plan plan = base_;
    for (int k = 0; k < graph_.node_count(); ++k) {
      if (role(k) != Role::source && (what_.carried || role(k) != Role::probed)) continue;
      // Nothing else is to be made from it: what would be is retained, up to the next checkpoint.
      for (int j = k + 1; j < graph_.node_count() && base_[j].recomputes(); ++j)
        plan.policies[static_cast<std::size_t>(j)] = retain();
    }
    for (int k = 0; k < graph_.node_count(); ++k) {
      Policy& policy = plan.policies[static_cast<std::size_t>(k)];
      if (role(k) == Role::source) policy = compress(what_.codec);
      else if (role(k) == Role::path) policy = recompute();
      else if (role(k) == Role::probed) policy = probed;
    }
    return plan;
  }

  const Graph& graph_;
  const Plan& base_;
  const ErrorClass& what_;
  Array<Role> roles_;
};

}  // namespace detail

/// The pair that probes `what` in an arena of at most `arena_bytes`, with as many copies as fit.
/// `turn` chooses which, where not all do: another number, other copies.
constexpr Result<ProbingPlans> probing_plans(const Graph& graph, const ErrorClass& what,
                                             std::size_t arena_bytes, int turn = 0) {
  const Plan retain = retain_all(graph);
  ProbingPlans pair = detail::ProbeBuilder(graph, retain, what, 1, 0).build();
  if (pair.arena_bytes <= arena_bytes || pair.copies == 0) return pair;
  const int copies = pair.copies;
  std::size_t least = pair.arena_bytes;
  for (const Kept kept : {Kept::whole, Kept::precise, Kept::coarse}) {
    const Plan base = smallest_checkpointed(graph, kept);
    const auto fits = [&](int stride, int first) {
      pair = detail::ProbeBuilder(graph, base, what, stride, first).build();
      if (pair.copies > 0 && pair.arena_bytes < least) least = pair.arena_bytes;
      return pair.copies > 0 && pair.arena_bytes <= arena_bytes;
    };
    for (int stride = 1; stride < 2 * copies; stride *= 2)
      if (fits(stride, turn)) return pair;
    // The last copy takes the least: where backward begins, its block is in memory anyway.
    if (fits(copies, copies - 1)) return pair;
  }
  return Error::say("probing the gradient error of ", what.codec->name, " at layer ", what.layer,
                    " needs an arena of at least ", shown(least), ", and got ", shown(arena_bytes));
}

/// The smallest arena in which `what` can be probed, for at least one copy.
constexpr std::size_t least_probing_bytes(const Graph& graph, const ErrorClass& what) {
  const Plan retain = retain_all(graph);
  const detail::ProbeBuilder all(graph, retain, what, 1, 0);
  const int copies = all.copies();
  if (copies == 0) return 0;
  std::size_t least = all.build().arena_bytes;
  for (const Kept kept : {Kept::whole, Kept::precise, Kept::coarse}) {
    const Plan base = smallest_checkpointed(graph, kept);
    const std::size_t bytes =
        detail::ProbeBuilder(graph, base, what, copies, copies - 1).build().arena_bytes;
    if (bytes < least) least = bytes;
  }
  return least;
}

/// Everything of a profile of `graph` that can be probed: of each layer that backward reads, every
/// lossy codec that may be used there, and every one whose error a recomputation may carry there.
constexpr Array<ErrorClass> error_classes(const Graph& graph) {
  Array<ErrorClass> classes;
  const Plan retain = retain_all(graph);
  const Array<const CodecInfo*> codecs = codecs_of(graph);
  const Array<int> last = detail::last_copies(graph);
  for (std::size_t layer = 0; layer < last.size(); ++layer)
    for (const CodecInfo* codec : codecs)
      for (const bool carried : {false, true}) {
        const ErrorClass what{static_cast<int>(layer), codec, carried};
        if (codec->lossless) continue;
        if (detail::ProbeBuilder(graph, retain, what, 1, 0).copies() > 0) classes.push_back(what);
      }
  return classes;
}

}}  // namespace adacc::v0_1
