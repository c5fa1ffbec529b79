// SPDX-License-Identifier: MIT
/// Costs measured by several machines, each for some nodes of a network, combined into one profile and a speed for
/// each machine.
///
/// Copies of a layer cost the same on one machine, and layers measured by two machines tell how much faster one of
/// them is. So layers measured by only one machine are known for all, and a network too large for any machine is
/// measured by all together.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../model/graph.hpp"
#include "cost_samples.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

/// A machine's measurement: the costs of nodes first..last; last < first: no nodes.
struct MeasuredNodes {
  int first = 0, last = -1;
  /// A profile of the whole network, in which other nodes are ignored. `loss` counts if the last node was measured.
  CostProfile costs;
};

struct CombinedCosts {
  CostProfile profile;   ///< seconds on a machine of speed 1
  Array<double> speeds;  ///< speeds of the machines; the largest is 1
};

namespace detail {

class CostCombiner {
 public:
  CostCombiner(const Graph& graph, const Array<MeasuredNodes>& measured,
               const CostProfile& estimate)
      : graph_(graph), measured_(measured), estimate_(estimate), classes_(graph.nodes.size()) {
    for (int k = 0; k < graph.node_count(); ++k) {
      std::size_t c = 0;
      while (c < firsts_.size() && !cost_alike(graph.node(firsts_[c]), graph.node(k))) ++c;
      if (c == firsts_.size()) firsts_.push_back(k);
      classes_[static_cast<std::size_t>(k)] = c;
    }
  }

  CombinedCosts run() {
    CombinedCosts combined;
    combined.speeds = speeds();
    combined.profile = estimate_;
    double known = 0, guessed = 0;
    Array<NodeCost> nodes(firsts_.size());
    for (std::size_t c = 0; c < firsts_.size(); ++c) {
      if (!mean(combined.speeds, c, nodes[c])) continue;
      known += seconds(nodes[c]);
      guessed += seconds(estimate_.node(firsts_[c]));
    }
    // Unmeasured nodes get their estimate, scaled like the estimates of measured nodes.
    scale(combined.profile, guessed > 0 ? known / guessed : 1);
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      const std::size_t c = classes_[k];
      if (seconds(nodes[c]) > 0) combined.profile.nodes[k] = nodes[c];
      for (std::size_t column = 0; column < estimate_.codecs.size(); ++column)
        mean_of_codec(combined.speeds, c, column,
                      combined.profile.codec_cost(static_cast<int>(k), static_cast<int>(column)));
    }
    double loss = 0;
    int count = 0;
    for (std::size_t m = 0; m < measured_.size(); ++m)
      if (measured_[m].first <= measured_[m].last && measured_[m].last + 1 == graph_.node_count()) {
        loss += measured_[m].costs.loss * combined.speeds[m];
        ++count;
      }
    if (count > 0) combined.profile.loss = loss / count;
    return combined;
  }

 private:
  static double seconds(const NodeCost& cost) { return cost.forward + cost.backward; }

  /// Calls visit(node) for each node of class c that machine m measured.
  template <class Visit>
  void each(std::size_t m, std::size_t c, const Visit& visit) const {
    const MeasuredNodes& mine = measured_[m];
    for (int k = mine.first; k <= mine.last; ++k)
      if (classes_[static_cast<std::size_t>(k)] == c) visit(k);
  }

  /// Mean seconds of a class, measured by a machine; 0: not measured.
  double seconds(std::size_t m, std::size_t c) const {
    double sum = 0;
    int count = 0;
    each(m, c, [&](int k) { sum += seconds(measured_[m].costs.node(k)), ++count; });
    return count == 0 ? 0 : sum / count;
  }

  /// Alternates between the costs of classes (from the machines' speeds) and the speeds of machines (from classes
  /// measured by others, too), until both converge.
  Array<double> speeds() const {
    const std::size_t machines = measured_.size();
    Array<double> speeds(machines);
    for (double& speed : speeds) speed = 1;
    Array<Array<double>> takes(firsts_.size());  // by class and machine
    for (std::size_t c = 0; c < firsts_.size(); ++c)
      for (std::size_t m = 0; m < machines; ++m) takes[c].push_back(seconds(m, c));
    for (int round = 0; round < 100; ++round) {
      Array<double> times(machines), common(machines);
      for (const Array<double>& of_class : takes) {
        double sum = 0;
        int count = 0;
        for (std::size_t m = 0; m < machines; ++m)
          if (of_class[m] > 0) sum += of_class[m] * speeds[m], ++count;
        if (count < 2) continue;
        for (std::size_t m = 0; m < machines; ++m)
          if (of_class[m] > 0) times[m] += of_class[m], common[m] += sum / count;
      }
      for (std::size_t m = 0; m < machines; ++m)
        if (times[m] > 0) speeds[m] = common[m] / times[m];
    }
    double fastest = 0;
    for (const double speed : speeds) fastest = speed > fastest ? speed : fastest;
    for (double& speed : speeds) speed /= fastest;
    return speeds;
  }

  /// The costs of class c on a machine of speed 1; false: not measured.
  bool mean(const Array<double>& speeds, std::size_t c, NodeCost& cost) const {
    int count = 0;
    for (std::size_t m = 0; m < measured_.size(); ++m)
      each(m, c, [&](int k) {
        const NodeCost& measured = measured_[m].costs.node(k);
        cost.forward += measured.forward * speeds[m];
        cost.backward += measured.backward * speeds[m];
        cost.add += measured.add * speeds[m];
        cost.add_gradient += measured.add_gradient * speeds[m];
        ++count;
      });
    for (double* sum : {&cost.forward, &cost.backward, &cost.add, &cost.add_gradient})
      if (count > 0) *sum /= count;
    return count > 0;
  }

  /// The times of a codec in class c, if measured.
  void mean_of_codec(const Array<double>& speeds, std::size_t c, std::size_t column,
                     CodecCost& cost) const {
    double encode = 0, decode = 0;
    int count = 0;
    for (std::size_t m = 0; m < measured_.size(); ++m)
      each(m, c, [&](int k) {
        const int there = measured_[m].costs.column(estimate_.codecs[column]);
        if (there < 0) return;
        const CodecCost& measured = measured_[m].costs.codec_cost(k, there);
        if (measured.encode <= 0 || measured.decode <= 0) return;
        encode += measured.encode * speeds[m];
        decode += measured.decode * speeds[m];
        ++count;
      });
    if (count > 0) cost.encode = encode / count, cost.decode = decode / count;
  }

  const Graph& graph_;
  const Array<MeasuredNodes>& measured_;
  const CostProfile& estimate_;
  Array<std::size_t> classes_;  ///< by node
  Array<int> firsts_;           ///< the first node of each class
};

}  // namespace detail

/// Combines the measured costs of `graph`. Unmeasured nodes get the costs of `estimate`, scaled like the
/// estimates of measured nodes; gradient errors are those of `estimate`.
inline CombinedCosts combine_costs(const Graph& graph, const Array<MeasuredNodes>& measured,
                                   const CostProfile& estimate) {
  return detail::CostCombiner(graph, measured, estimate).run();
}

/// A profile of the whole `graph` with the costs of `stage`, whose nodes begin at node `first`; zeros elsewhere.
inline CostProfile widened(const Graph& graph, const CostProfile& stage, int first) {
  CostProfile whole = empty_profile(graph);
  for (std::size_t k = 0; k < stage.nodes.size(); ++k) {
    const std::size_t to = static_cast<std::size_t>(first) + k;
    whole.nodes[to] = stage.nodes[k];
    for (std::size_t c = 0; c < stage.codecs.size(); ++c) {
      const int column = whole.column(stage.codecs[c]);
      whole.codec_cost(static_cast<int>(to), column) =
          stage.codec_cost(static_cast<int>(k), static_cast<int>(c));
    }
  }
  whole.loss = stage.loss;
  return whole;
}

}}  // namespace adacc::v0_1
