// SPDX-License-Identifier: MIT
/// The cost of every instruction of a step on a machine: seconds, and error of the gradient.
///
/// Times are measured, not guessed: rerunning a bandwidth-bound layer is not free, contrary to counts of
/// floating-point operations. Bytes are not here; they follow from the graph. A profile is plain data:
/// cost/measure.hpp fills it on the running machine, io/profile_text.hpp keeps it in a file, and users may write
/// numbers by hand.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../model/graph.hpp"

namespace adacc { inline namespace v0_1 {

/// One node, in seconds per call.
struct NodeCost {
  double forward = 0;  ///< 0 if another node's forward makes this activation, too
  double backward = 0;
  double add = 0;           ///< one residual sum ending at this node, in forward
  double add_gradient = 0;  ///< one residual gradient handed to this node's activation
};

/// One activation under one codec.
struct CodecCost {
  double encode = 0;  ///< seconds
  double decode = 0;  ///< seconds
  /// Relative squared error of the gradient, E|g' - g|^2 / |g|^2, if backward reads this
  /// activation decoded and all others exact.
  double error = 0;
  /// The error if backward reads this activation recomputed from one or several that went through this codec.
  double carried_error = 0;
};

/// The costs of a graph's instructions. `codecs` lists the codecs for plans; `codec_costs` has one row per node and
/// one column per entry of `codecs`.
struct CostProfile {
  Array<NodeCost> nodes;
  Array<const CodecInfo*> codecs;
  Array<CodecCost> codec_costs;
  double loss = 0;  ///< seconds of loss and its gradient
  double rest = 0;  ///< seconds of a step outside of instructions: the update of the parameters
  Fingerprint made_for;  ///< the graph's; unknown if the caller wrote the numbers down

  constexpr const NodeCost& node(int id) const { return nodes[static_cast<std::size_t>(id)]; }

  /// The column of `codec`; -1 if the profile has none.
  constexpr int column(const CodecInfo* codec) const {
    for (std::size_t i = 0; i < codecs.size(); ++i)
      if (codecs[i] == codec) return static_cast<int>(i);
    return -1;
  }
  constexpr const CodecCost& codec_cost(int node, int column) const {
    return codec_costs[static_cast<std::size_t>(node) * codecs.size() +
                       static_cast<std::size_t>(column)];
  }
  constexpr CodecCost& codec_cost(int node, int column) {
    return codec_costs[static_cast<std::size_t>(node) * codecs.size() +
                       static_cast<std::size_t>(column)];
  }
};

/// Copies the errors of all codecs from a profile of the same layers, on inputs of any size.
constexpr void copy_errors(const CostProfile& from, CostProfile& to) {
  for (std::size_t k = 0; k < to.nodes.size(); ++k)
    for (std::size_t c = 0; c < to.codecs.size(); ++c) {
      const int column = from.column(to.codecs[c]);
      if (column < 0) continue;
      const CodecCost& known = from.codec_cost(static_cast<int>(k), column);
      CodecCost& cost = to.codec_cost(static_cast<int>(k), static_cast<int>(c));
      cost.error = known.error;
      cost.carried_error = known.carried_error;
    }
}

/// All codecs that plans of `graph` may use: candidates, and codecs fixed by types.
constexpr Array<const CodecInfo*> codecs_of(const Graph& graph) {
  Array<const CodecInfo*> codecs;
  const auto add = [&](const CodecInfo* codec) {
    if (codec == nullptr) return;
    for (const CodecInfo* known : codecs)
      if (known == codec) return;
    codecs.push_back(codec);
  };
  for (const CodecInfo* codec : graph.candidates) add(codec);
  for (const Node& node : graph.nodes) add(node.policy.codec());
  return codecs;
}

namespace detail {

/// By layer of the model, the last node among its copies.
constexpr Array<int> last_copies(const Graph& graph) {
  Array<int> last;
  for (int k = 0; k < graph.node_count(); ++k) {
    const auto layer = static_cast<std::size_t>(graph.node(k).layer);
    if (last.size() <= layer) last.resize(layer + 1);
    last[layer] = k;
  }
  return last;
}

}  // namespace detail

/// A profile of the right size for `graph`, all zeros.
constexpr CostProfile empty_profile(const Graph& graph) {
  CostProfile profile;
  profile.made_for = graph.fingerprint;
  profile.nodes.resize(graph.nodes.size());
  profile.codecs = codecs_of(graph);
  profile.codec_costs.resize(graph.nodes.size() * profile.codecs.size());
  return profile;
}

/// Multiplies all times by `factor`, except for CostProfile::rest, which belongs to no instruction.
constexpr void scale(CostProfile& profile, double factor) {
  for (NodeCost& cost : profile.nodes)
    for (double* seconds : {&cost.forward, &cost.backward, &cost.add, &cost.add_gradient})
      *seconds *= factor;
  for (CodecCost& cost : profile.codec_costs)
    for (double* seconds : {&cost.encode, &cost.decode}) *seconds *= factor;
  profile.loss *= factor;
}

/// An error if `profile` does not describe `graph`, or holds a number that is no cost: negative, infinite or NaN, or
/// a forward or backward pass without time.
constexpr Error examine(const Graph& graph, const CostProfile& profile) {
  constexpr double largest = 1e9;
  const auto bad = [](double value) { return !(value >= 0 && value <= largest); };
  if (profile.codecs.size() > Graph::most_codecs)
    return Error::say("the profile has costs of ", profile.codecs.size(),
                      " codecs; a plan can choose among ", Graph::most_codecs);
  if (profile.nodes.size() != graph.nodes.size() ||
      profile.codec_costs.size() != graph.nodes.size() * profile.codecs.size())
    return Error::say("the profile describes ", profile.nodes.size(), " nodes, and the graph has ",
                      graph.nodes.size());
  if (const Error why = detail::check_made_for("profile", profile.made_for, graph.fingerprint))
    return why;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeCost& cost = profile.nodes[i];
    const char* name = graph.nodes[i].name;
    if (bad(cost.forward) || bad(cost.backward) || bad(cost.add) || bad(cost.add_gradient))
      return Error::say("the profile's times of node ", i, " (", name,
                        ") must be finite and not negative");
    const Node& node = graph.nodes[i];
    const bool runs = !node.gradient_outside || (node.recomputable && node.made_by < 0);
    if (node.made_by >= 0 && cost.forward != 0)
      return Error::say("the profile has a time for making activation ", i, " (", name,
                        "), which node ", node.made_by, " makes in its own");
    const bool back = node.runs_backward && !node.gradient_outside;
    if ((runs && cost.forward <= 0) || (back && cost.backward <= 0))
      return Error::say("the profile says that node ", i, " (", name,
                        ") takes no time: it was not measured");
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      const CodecCost& codec = profile.codec_costs[i * profile.codecs.size() + c];
      if (bad(codec.encode) || bad(codec.decode) || bad(codec.error) || bad(codec.carried_error))
        return Error::say("the profile's costs of ", profile.codecs[c]->name, " at node ", i, " (",
                          name, ") must be finite and not negative");
    }
  }
  if (bad(profile.loss) || bad(profile.rest))
    return Error::say(
        "the profile's times of the loss and of the rest of the step must be finite "
        "and not negative");
  for (const CodecInfo* codec : codecs_of(graph))
    if (profile.column(codec) < 0)
      return Error::say("the profile knows no costs of the codec ", codec->name,
                        ", which the graph may use");
  return {};
}

}}  // namespace adacc::v0_1
