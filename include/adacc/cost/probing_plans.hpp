// SPDX-License-Identifier: MIT
/// Pairs of plans whose gradients differ by one thing: the effect of one codec at one layer.
///
/// All copies of a layer are probed at once, because their errors add up. A pair is built around a plan without loss:
/// `retain` or, if too large, a plan that keeps checkpoints and recomputes the rest. There, activations after a
/// compressed one are retained up to the next checkpoint, so nothing else is made from it. If this does not fit for
/// all copies at once, every second is probed, or fewer. At last checkpoints are compressed themselves, in both plans
/// alike: then their error is part of both gradients, but not of the difference.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "../program/plan.hpp"
#include "measuring_plans.hpp"
#include "profile.hpp"
#include "sparse_plans.hpp"

namespace adacc { inline namespace v0_1 {

/// One entry of a profile's errors, for all copies of a layer.
struct ErrorClass {
  int layer = 0;                     ///< Node::layer
  const CodecInfo* codec = nullptr;  ///< lossy
  bool carried = false;              ///< CodecCost::carried_error instead of error
};

struct ProbingPlans {
  Plan reference;
  bool exact = false;  ///< the reference is without loss
  Plan lossy;          ///< |g(lossy) - g(reference)|^2 is the error of `copies` activations
  int copies = 0;      ///< 0 if the class cannot occur: its error is 0
  std::size_t arena_bytes = 0;
};

namespace detail {

/// Builds one pair of plans.
class ProbeBuilder {
 public:
  /// A pair around the plan `base`, for the nodes of one layer: every `stride`th from `turn` on.
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
    source,  ///< lossy in both plans: a probed activation is made from it
    path     ///< recomputed in both plans, between a source and a probed one
  };
  constexpr Role& role(int id) { return roles_[static_cast<std::size_t>(id)]; }
  constexpr Role role(int id) const { return roles_[static_cast<std::size_t>(id)]; }

  constexpr void try_direct(int k) {
    if (!may_use(graph_, k, what_.codec)) return;
    if (!what_.codec->keeps_values) {  // then ask the readers
      Plan alone = retain_all(graph_);
      if (!compress_with(graph_, alone, k, what_.codec)) return;
    }
    role(k) = Role::probed;
  }

  /// Makes activation k from the nearest ones before it that may go through the codec. No activation serves two such.
  constexpr void try_carried(int k) {
    const NearestSources from = nearest_sources(graph_, k, what_.codec);
    bool possible = role(k) == Role::none && !from.encoded.empty() && graph_.node(k).recomputable;
    for (const Array<int>* list : {&from.encoded, &from.between})
      for (const int id : *list) possible &= role(id) != Role::probed;
    if (!possible) return;
    role(k) = Role::probed;
    for (const int id : from.encoded) role(id) = Role::source;
    for (const int id : from.between)
      if (role(id) == Role::none) role(id) = Role::path;
  }

  constexpr bool loses_nothing() const {
    for (const Policy& policy : base_.policies)
      if (policy.codec() != nullptr && !policy.codec()->lossless) return false;
    return true;
  }

  /// The plan in which the probed activations have the policy `probed`.
  constexpr Plan plan(Policy probed) const {
    Plan plan = base_;
    // Nothing else may be made from lossy activations: such activations are retained.
    Array<bool> reached(roles_.size());
    for (int k = 0; k < graph_.node_count(); ++k) {
      const auto i = static_cast<std::size_t>(k);
      if (base_[k].recomputes())
        graph_.forward_reads(
            k, [&](int source) { reached[i] |= reached[static_cast<std::size_t>(source)]; });
      if (reached[i]) plan.policies[i] = retain();
      reached[i] |= role(k) == Role::source || (!what_.carried && role(k) == Role::probed);
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

/// Tries pairs around `base` with all `copies` of a class, with every second, or fewer, until one fits into
/// `arena_bytes`; lowers `least` to the smallest arena of a pair.
constexpr bool pair_fits(const Graph& graph, const Plan& base, const ErrorClass& what, int copies,
                         int turn, std::size_t arena_bytes, ProbingPlans& pair,
                         std::size_t& least) {
  const auto fits = [&](int stride, int first) {
    pair = ProbeBuilder(graph, base, what, stride, first).build();
    if (pair.copies > 0 && pair.arena_bytes < least) least = pair.arena_bytes;
    return pair.copies > 0 && pair.arena_bytes <= arena_bytes;
  };
  for (int stride = 1; stride < 2 * copies; stride *= 2)
    if (fits(stride, turn)) return true;
  // The last copy takes the least memory: backward begins there, and its block is in memory anyway.
  return fits(copies, copies - 1);
}

constexpr Error too_small_to_probe(const ErrorClass& what, std::size_t least,
                                   std::size_t arena_bytes) {
  return Error::say("probing the gradient error of ", what.codec->name, " at layer ", what.layer,
                    " needs an arena of at least ", shown(least), ", and got ", shown(arena_bytes));
}

}  // namespace detail

/// The pair that probes `what` in an arena of at most `arena_bytes`, with as many copies as fit. If not all fit,
/// `turn` chooses which: another number, other copies.
constexpr Result<ProbingPlans> probing_plans(const Graph& graph, const ErrorClass& what,
                                             std::size_t arena_bytes, int turn = 0) {
  const Plan retain = retain_all(graph);
  ProbingPlans pair = detail::ProbeBuilder(graph, retain, what, 1, 0).build();
  if (pair.arena_bytes <= arena_bytes || pair.copies == 0) return pair;
  const int copies = pair.copies;
  std::size_t least = pair.arena_bytes;
  for (const Kept kept : {Kept::whole, Kept::precise, Kept::coarse}) {
    const Plan base = smallest_sparse(graph, kept);
    if (detail::pair_fits(graph, base, what, copies, turn, arena_bytes, pair, least)) return pair;
  }
  return detail::too_small_to_probe(what, least, arena_bytes);
}

/// probing_plans() around `base`, a plan without loss, if the caller has one that fits.
constexpr Result<ProbingPlans> probing_plans_around(const Graph& graph, const Plan& base,
                                                    const ErrorClass& what, std::size_t arena_bytes,
                                                    int turn = 0) {
  ProbingPlans pair = detail::ProbeBuilder(graph, base, what, 1, 0).build();
  if (pair.arena_bytes <= arena_bytes || pair.copies == 0) return pair;
  const int copies = pair.copies;
  std::size_t least = pair.arena_bytes;
  if (detail::pair_fits(graph, base, what, copies, turn, arena_bytes, pair, least)) return pair;
  return detail::too_small_to_probe(what, least, arena_bytes);
}

/// The smallest arena in which `what` can be probed, for at least one copy.
constexpr std::size_t least_probing_bytes(const Graph& graph, const ErrorClass& what) {
  const Plan retain = retain_all(graph);
  const detail::ProbeBuilder all(graph, retain, what, 1, 0);
  const int copies = all.copies();
  if (copies == 0) return 0;
  std::size_t least = all.build().arena_bytes;
  for (const Kept kept : {Kept::whole, Kept::precise, Kept::coarse}) {
    const Plan base = smallest_sparse(graph, kept);
    const std::size_t bytes =
        detail::ProbeBuilder(graph, base, what, copies, copies - 1).build().arena_bytes;
    if (bytes < least) least = bytes;
  }
  return least;
}

/// All errors in a profile of `graph` for probing: for each layer read by backward, each lossy codec that may be used
/// there, and each whose error a recomputation may carry there.
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
