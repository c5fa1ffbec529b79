/// A profile without a measurement: for plans that the compiler makes.
///
/// Times come from bytes moved and from products with parameter matrices, at the rates of one core;
/// attention's products are not seen. Errors of codecs come from their bits per element. Good
/// enough to order policies sensibly, no more: where the machine can be asked, measure.
#pragma once

#include <cstddef>

#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

/// What estimated_profile() assumes of a machine.
struct EstimateRates {
  double bytes_per_second = 1e10;
  double operations_per_second = 5e10;
};

namespace detail {

/// 4^-bits, by halves of a bit and linear in between.
constexpr double quarter_to(double bits) {
  double power = 1;
  for (; bits >= 0.5; bits -= 0.5) power /= 2;
  return power * (1 - bits);
}

/// Multiplications and additions of node `id`'s products with its parameter matrices.
constexpr double product_operations(const Graph& graph, int id) {
  const Node& node = graph.node(id);
  if (node.takes_tokens) return 0;  // rows of a table, looked up
  double operations = 0;
  for (std::size_t p = 0; p < node.parameter_count; ++p) {
    const Shape shape = graph.parameters[node.first_parameter + p].shape;
    if (shape.rank() >= 2)
      operations +=
          2.0 * static_cast<double>(shape.elems()) * static_cast<double>(node.output.rows());
  }
  return operations;
}

}  // namespace detail

/// The gradient error of `codec` at an activation of `shape`, where nothing is known of it: with b
/// bits per element that of a uniform quantizer over four standard deviations, 5.4 * 4^-b.
constexpr double estimated_error(const CodecInfo& codec, Shape shape, Dtype scalar) {
  const auto blob = static_cast<double>(codec.encoded_bytes(shape.rows(), shape.cols(), scalar));
  if (codec.lossless || blob == 0) return 0;
  return 5.4 * detail::quarter_to(8 * blob / static_cast<double>(shape.elems()));
}

/// An estimate for `graph`. What is recomputed from what a codec decodes carries ten times its
/// error. Of the callables of a stash nothing is known here: estimated_profile(model) of
/// stash/estimate.hpp asks them, and no plan is made with times of this one.
constexpr CostProfile estimated_profile(const Graph& graph, const EstimateRates& rates = {}) {
  CostProfile profile = empty_profile(graph);
  if (graph.nodes.empty()) return profile;
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    const auto value = static_cast<double>(node.output_bytes);
    const double moved = value + static_cast<double>(node.input.elems()) *
                                     static_cast<double>(bytes_of(graph.scalar));
    const double products = detail::product_operations(graph, k) / rates.operations_per_second;
    NodeCost& cost = profile.nodes[static_cast<std::size_t>(k)];
    cost.forward = moved / rates.bytes_per_second + products;
    if (node.value_outside && (node.recomputable || node.made_by >= 0)) cost.forward = 0;
    cost.backward = 2 * cost.forward;
    cost.add = cost.add_gradient = 3 * value / rates.bytes_per_second;
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      const CodecInfo& codec = *profile.codecs[c];
      const auto blob = static_cast<double>(
          codec.encoded_bytes(node.output.rows(), node.output.cols(), graph.scalar));
      CodecCost& coded = profile.codec_cost(k, static_cast<int>(c));
      coded.encode = coded.decode = (value + blob) / rates.bytes_per_second;
      coded.error = estimated_error(codec, node.output, graph.scalar);
      coded.carried_error = 10 * coded.error;
    }
  }
  profile.loss = 4 * static_cast<double>(graph.node(graph.node_count() - 1).output_bytes) /
                 rates.bytes_per_second;
  return profile;
}

}}  // namespace adacc::v0_1
