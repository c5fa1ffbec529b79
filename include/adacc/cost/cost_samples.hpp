// SPDX-License-Identifier: MIT
/// Seconds of instructions, collected over steps, and the cost profile of their medians.
///
/// Copies of a repeated block share samples. A decoded activation may cost more than its decode instruction: a
/// reader, told of inexact input, may compute saved values again. So if the reader's backward takes longer than on a
/// retained activation, by more than chance explains, the difference is added to the cost of decoding.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../program/plan.hpp"
#include "../program/schedule.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The median of some numbers, and its standard deviation.
struct Typical {
  double median = 0;     ///< the mean of the two middle ones if even; 0 without numbers
  double deviation = 0;  ///< from the quartiles, as for a Gaussian
};

constexpr Typical typical_of(Array<double> values) {
  sort(values, [](double a, double b) { return a < b; });
  const std::size_t n = values.size();
  if (n == 0) return {};
  double root = 1;  // root of n, by Newton: without <cmath>, for includers without it
  for (int i = 0; i < 64; ++i) root = 0.5 * (root + static_cast<double>(n) / root);
  const double middle = 0.5 * (values[(n - 1) / 2] + values[n / 2]);
  // The quartiles of a few numbers are chance themselves, and two numbers tell nothing.
  const std::size_t first = n < 8 ? 0 : n / 4;
  const double spread = values[n - 1 - first] - values[first];
  return {middle, n < 3 ? middle : 1.2533 / 1.349 * spread / root};
}

constexpr double median(Array<double> values) {
  return typical_of(static_cast<Array<double>&&>(values)).median;
}

/// Whether two nodes of one graph cost the same: copies of a layer whose backward computes the same gradients.
constexpr bool cost_alike(const Node& a, const Node& b) {
  return a.layer == b.layer && a.runs_backward == b.runs_backward && a.wanted.dx == b.wanted.dx &&
         a.wanted.parameters == b.wanted.parameters;
}

}  // namespace detail

class CostSamples {
 public:
  /// Collects for `graph`, which must outlive the samples.
  constexpr explicit CostSamples(const Graph& graph) : graph_(graph), codecs_(codecs_of(graph)) {
    find_kinds_of_nodes();
    reader_.resize(graph.nodes.size());
    for (int& reader : reader_) reader = -1;
    for (int k = 0; k < graph.node_count(); ++k)
      if (const int input = input_read_by(k); input != step_input)
        reader_[static_cast<std::size_t>(input)] = k;
    samples_.resize(rows_.size() * kinds());
  }

  /// Adds the `seconds` of one instruction of a step under `plan`.
  constexpr void add(const Plan& plan, const Instruction& inst, double seconds) {
    if (inst.op == Op::update) return;  // the caller's own
    if (inst.op == Op::loss || inst.op == Op::loss_gradient || inst.op == Op::hand_over)
      return loss_.push_back(seconds);
    samples_[place(inst.node, kind_of(plan, inst))].push_back(seconds);
  }

  /// The costs so far, with gradient errors and CostProfile::rest zero. A codec not timed at a node costs there as
  /// much per element as elsewhere.
  constexpr CostProfile profile() const {
    Array<detail::Typical> typical(samples_.size());
    for (std::size_t i = 0; i < samples_.size(); ++i) typical[i] = detail::typical_of(samples_[i]);
    CostProfile profile = empty_profile(graph_);
    profile.loss = detail::median(loss_);
    for (int k = 0; k < graph_.node_count(); ++k) {
      NodeCost& cost = profile.nodes[static_cast<std::size_t>(k)];
      cost.forward = shown(typical[place(k, forward)].median);
      cost.backward = shown(backward_seconds(typical, k));
      cost.add = typical[place(k, add_sum)].median;
      cost.add_gradient = typical[place(k, add_gradient)].median;
      for (std::size_t c = 0; c < codecs_.size(); ++c) {
        CodecCost& codec = profile.codec_cost(k, static_cast<int>(c));
        codec.encode = typical[place(k, encode(c))].median;
        codec.decode = typical[place(k, decode(c))].median;
        if (codec.decode > 0) codec.decode += extra_seconds(typical, k, c + 1);
      }
    }
    fill_gaps(profile);
    return profile;
  }

 private:
  /// Kinds of instructions at one layer. Backward is split by the way in which its argument was made: way 0 is
  /// recomputed, way c + 1 decoded by codec c.
  enum Kind : std::size_t { forward, again, add_sum, add_gradient, retained, first_way };

  constexpr std::size_t ways() const { return codecs_.size() + 1; }
  constexpr std::size_t from_input(std::size_t way) const { return first_way + way; }
  constexpr std::size_t from_output(std::size_t way) const { return first_way + ways() + way; }
  constexpr std::size_t encode(std::size_t c) const { return first_way + 2 * ways() + c; }
  constexpr std::size_t decode(std::size_t c) const { return encode(codecs_.size()) + c; }
  constexpr std::size_t kinds() const { return decode(codecs_.size()); }

  constexpr std::size_t place(int node, std::size_t kind) const {
    return row_of_[static_cast<std::size_t>(node)] * kinds() + kind;
  }

  /// Copies of a layer share samples if their backward computes the same gradients. Node 0 has samples of its own:
  /// its backward may omit dx.
  constexpr void find_kinds_of_nodes() {
    for (int k = 0; k < graph_.node_count(); ++k) {
      std::size_t row = rows_.size();
      while (row > 1 && !detail::cost_alike(graph_.node(rows_[row - 1]), graph_.node(k))) --row;
      if (row <= 1) {
        rows_.push_back(k);
        row = rows_.size();
      }
      row_of_.push_back(row - 1);
    }
  }

  constexpr std::size_t column(const CodecInfo* codec) const {
    std::size_t c = 0;
    while (codecs_[c] != codec) ++c;
    return c;
  }
  /// Whether backward reads an activation that was made again, not one kept unencoded.
  static constexpr bool is_made(const Policy& policy) {
    return policy.recomputes() || policy.encodes();
  }
  constexpr std::size_t way_of(const Policy& policy) const {
    return policy.recomputes() ? 0 : column(policy.codec()) + 1;
  }

  /// The activation that backward of `node` reads as its input; step_input if there is none.
  constexpr int input_read_by(int node) const {
    return reads_input(graph_.node(node).reads) ? graph_.input_of(node) : step_input;
  }

  constexpr std::size_t kind_of(const Plan& plan, const Instruction& inst) const {
    switch (inst.op) {
      case Op::forward: return inst.again ? again : forward;
      case Op::add: return add_sum;
      case Op::add_gradient: return add_gradient;
      case Op::encode: return encode(column(plan[inst.node].codec()));
      case Op::decode: return decode(column(plan[inst.node].codec()));
      default: break;
    }
    const int k = inst.node;
    if (const int input = input_read_by(k); input != step_input && is_made(plan[input]))
      return from_input(way_of(plan[input]));
    if (reads_output(graph_.node(k).reads) && is_made(plan[k])) return from_output(way_of(plan[k]));
    return retained;
  }

  /// Backward of node k on retained activations; if no plan had the room, on activations made in any way.
  constexpr double backward_seconds(const Array<detail::Typical>& typical, int k) const {
    double seconds = typical[place(k, retained)].median;
    for (std::size_t way = 0; way < ways() && seconds <= 0; ++way) {
      seconds = typical[place(k, from_input(way))].median;
      if (seconds <= 0) seconds = typical[place(k, from_output(way))].median;
    }
    return seconds;
  }

  /// Extra seconds of the readers of activation k if it was made in this way, beyond doubt.
  constexpr double extra_seconds(const Array<detail::Typical>& typical, int k,
                                 std::size_t way) const {
    double extra = 0;
    const auto compare = [&](int reader, std::size_t kind) {
      const detail::Typical kept = typical[place(reader, retained)];
      const detail::Typical made = typical[place(reader, kind)];
      const double more = made.median - kept.median;
      if (kept.median <= 0 || made.median <= 0) return;
      if (more > 4 * (made.deviation + kept.deviation)) extra += more;
    };
    const int reader = reader_[static_cast<std::size_t>(k)];
    if (reader >= 0) compare(reader, from_input(way));
    if (reads_output(graph_.node(k).reads)) compare(k, from_output(way));
    return extra;
  }

  constexpr void fill_gaps(CostProfile& profile) const {
    for (std::size_t c = 0; c < codecs_.size(); ++c) {
      double encode_seconds = 0, decode_seconds = 0, elems = 0;
      for (int k = 0; k < graph_.node_count(); ++k) {
        const CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
        if (cost.encode <= 0 || cost.decode <= 0) continue;
        encode_seconds += cost.encode;
        decode_seconds += cost.decode;
        elems += static_cast<double>(graph_.node(k).output.elems());
      }
      for (int k = 0; k < graph_.node_count() && elems > 0; ++k) {
        CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
        if (cost.encode > 0 && cost.decode > 0) continue;
        const double share = static_cast<double>(graph_.node(k).output.elems()) / elems;
        cost.encode = encode_seconds * share;
        cost.decode = decode_seconds * share;
      }
    }
  }

  /// No instruction takes no time: times too short for the clock count as a nanosecond.
  static constexpr double shown(double seconds) { return seconds > 1e-9 ? seconds : 1e-9; }

  const Graph& graph_;
  Array<const CodecInfo*> codecs_;
  Array<int> reader_;  ///< by activation: the layer whose backward reads it as input; -1: none
  Array<int> rows_;    ///< rows of samples: the first node of each
  Array<std::size_t> row_of_;     ///< by node
  Array<Array<double>> samples_;  ///< by place
  Array<double> loss_;
};

}}  // namespace adacc::v0_1
