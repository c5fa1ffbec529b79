// SPDX-License-Identifier: MIT
/// A profile without a measurement: for plans made by the compiler, for models larger than this machine, and until
/// there is a measurement.
///
/// An instruction takes the time of its matrix products at the machine's rate, or of its bytes at the memory's
/// bandwidth, whichever is longer. A codec takes a fixed multiple of a copy of floats, as many as there are numbers: codecs
/// compute in fp32, and take as long from bf16. Gradient errors are the
/// codec's own, times the sensitivity declared by the layers that read the activation (model/codec_traits.hpp),
/// divided among the copies of a layer. The estimate is good enough to order policies sensibly: if the machine is
/// available, measure; if the model runs, probe.
#pragma once

#include <cstddef>

#include "../codec/estimated_error.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

/// A machine as estimated_profile() needs it; by default one thread of the machine on which this was written.
struct EstimateRates {
  double bytes_per_second = 8e9;  ///< memory bandwidth, read plus written
  /// Multiplications and additions, in products of matrices of fp32 or fp64.
  double operations_per_second = 6e10;
  /// The same of bf16: by default twice as many, as with AVX512_BF16 at its full rate.
  double bf16_operations_per_second = 1.2e11;

  constexpr double operations_of(Dtype scalar) const {
    return scalar == Dtype::bf16 ? bf16_operations_per_second : operations_per_second;
  }
};

/// An H100: a copy in its memory and bf16 products of a GPT-2's layers as bench/results has them, and three quarters of
/// the 67e12 operations of fp32 in NVIDIA's data sheet.
inline constexpr EstimateRates device_rates{
    .bytes_per_second = 2.9e12, .operations_per_second = 5e13, .bf16_operations_per_second = 6e14};

/// Rates where nobody gives others.
constexpr EstimateRates default_rates(bool on_device) {
  return on_device ? device_rates : EstimateRates{};
}

namespace detail {

/// Bytes of the arguments read by forward of node `k`.
constexpr double bytes_read(const Graph& graph, int k) {
  const Node& node = graph.node(k);
  double bytes = 0;
  for (const int source : graph.sources(k)) {
    if (source != step_input) bytes += static_cast<double>(graph.node(source).output_bytes);
    else if (node.takes_tokens) bytes += static_cast<double>(node.output_bytes);  // rows of a table
    else bytes += static_cast<double>(node.input.elems() * bytes_of(graph.scalar));
  }
  return bytes;
}

/// Seconds to decode parameters held in bfloat16, or stored in a file: all are read, and written in the scalar type, once for each part,
/// since plans short of memory run the parts in loops.
template <class AnyNode>
constexpr double copy_seconds(const Graph& graph, const AnyNode& node, double byte) {
  const bool all = graph.parameter_form == ParameterForm::bf16;
  if (!all && graph.stored_bytes == 0) return 0;
  double elems = 0;
  for (std::size_t p = 0; p < node.parameters.count; ++p) {
    const Parameter& parameter = graph.parameters[node.parameters.first + p];
    if (all || parameter.stored != nullptr) elems += static_cast<double>(parameter.shape.elems());
  }
  return elems * static_cast<double>((2 + bytes_of(wide(graph.scalar))) * node.cut.parts()) * byte;
}

/// The cost of backward of `node`, in forwards: the products for dx, and for the gradients of trained matrices.
constexpr double forwards_of_backward(const Graph& graph, const Node& node) {
  if (!node.runs_backward) return 0;
  if (node.wanted.everything()) return 2;
  double all = 0, trained = 0;
  for (std::size_t p = 0; p < node.parameters.count; ++p) {
    const Parameter& parameter = graph.parameters[node.parameters.first + p];
    if (parameter.shape.rank() < 2) continue;
    all += static_cast<double>(parameter.shape.elems());
    if (!parameter.frozen) trained += static_cast<double>(parameter.shape.elems());
  }
  const double forwards = (node.wanted.dx ? 1 : 0) + (all > 0 ? trained / all : 1);
  return forwards > 0 ? forwards : 0.1;  // sums of dy
}

}  // namespace detail

/// Writes estimated gradient errors into `profile`, a profile of `graph`. An activation recomputed from lossy values
/// counts with twice the error of its own encoding.
constexpr void estimate_errors(const Graph& graph, CostProfile& profile) {
  Array<int> copies(graph.nodes.size());  // by layer, whose index is never larger than a node's
  for (const Node& node : graph.nodes)
    if (static_cast<std::size_t>(node.layer) < copies.size())
      ++copies[static_cast<std::size_t>(node.layer)];
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    const auto layer = static_cast<std::size_t>(node.layer);
    const double share = node.sensitivity / (layer < copies.size() ? copies[layer] : 1);
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
      cost.error = share * estimated_error(*profile.codecs[c], node.output, graph.scalar);
      cost.carried_error = 2 * cost.error;
    }
  }
}

/// An estimate for `graph`, on a machine of these rates: by default device_rates, if the graph's layers run on a device.
/// The callables of a stash are unknown here: estimated_profile(model) of stash/estimate.hpp asks them, and planners
/// refuse this estimate for them. A graph without layers is a mistake of the calling code, which debug builds report; the
/// graph's profile has no nodes, and planners refuse both.
constexpr CostProfile estimated_profile(const Graph& graph, const EstimateRates& rates) {
  CostProfile profile = empty_profile(graph);
  if (graph.nodes.empty()) {
    static_cast<void>(graph_mistake(graph));
    return profile;
  }
  const double byte = 1 / rates.bytes_per_second, operation = 1 / rates.operations_of(graph.scalar);
  const auto seconds = [&](double operations, double bytes) {
    return operations * operation > bytes * byte ? operations * operation : bytes * byte;
  };
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    const double copies = detail::copy_seconds(graph, node, byte);
    const auto value = static_cast<double>(node.output_bytes);
    const double moved = detail::bytes_read(graph, k) + value;
    NodeCost& cost = profile.nodes[static_cast<std::size_t>(k)];
    cost.forward = seconds(node.operations, moved);
    if (node.gradient_outside && (node.recomputable || node.made_by >= 0)) cost.forward = 0;
    cost.backward = detail::forwards_of_backward(graph, node) * cost.forward;
    if (node.decode_room.forward != 0) cost.forward += copies;
    if (node.decode_room.backward != 0) cost.backward += copies;
    cost.add = cost.add_gradient = 3 * value * byte;
    const double copy =
        2 * static_cast<double>(node.output.elems() * bytes_of(wide(graph.scalar))) * byte;
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      CodecCost& coded = profile.codec_cost(k, static_cast<int>(c));
      coded.encode = copy;
      coded.decode = 0.8 * copy;
    }
  }
  estimate_errors(graph, profile);
  // The loss takes three products with each of its matrices, gradients included.
  const Node& last = graph.node(graph.node_count() - 1);
  double products = 0;
  for (std::size_t p = 0; p < graph.loss.parameters.count; ++p) {
    const Parameter& parameter = graph.parameters[graph.loss.parameters.first + p];
    if (parameter.shape.rank() >= 2)
      products += (parameter.frozen ? 4.0 : 6.0) * static_cast<double>(last.output.rows()) *
                  static_cast<double>(parameter.shape.elems());
  }
  profile.loss = seconds(products, 4 * static_cast<double>(last.output_bytes)) +
                 detail::copy_seconds(graph, graph.loss, byte);
  // AdamW reads four numbers for each parameter and writes three.
  profile.rest =
      7.0 * static_cast<double>(graph.gradient_elems * bytes_of(wide(graph.scalar))) * byte;
  return profile;
}
constexpr CostProfile estimated_profile(const Graph& graph) {
  return estimated_profile(graph, default_rates(graph.on_device));
}

}}  // namespace adacc::v0_1
