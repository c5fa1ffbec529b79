// SPDX-License-Identifier: MIT
/// Gradient errors of codecs, class by class, from sketches of gradients under pairs of plans.
#pragma once

#include <cstddef>

#include "gradient_sketch.hpp"
#include "probing_plans.hpp"
#include "profile.hpp"

namespace adacc { inline namespace v0_1 {

/// Squared distances of gradients, class by class, summed over batches.
class GradientErrors {
 public:
  struct Entry {
    ErrorClass what;
    double squared_distance = 0;  ///< for one copy
    double squared_norm = 0;
    int batches = 0;

    /// Relative squared error added to the gradient by one activation of the class.
    constexpr double error() const {
      return squared_norm > 0 ? squared_distance / squared_norm : 0;
    }
  };

  constexpr void add(const ErrorClass& what, double squared_distance, double squared_norm) {
    Entry& entry = find(what);
    entry.squared_distance += squared_distance;
    entry.squared_norm += squared_norm;
    ++entry.batches;
  }

  constexpr const Array<Entry>& entries() const { return entries_; }

  /// The entry of `what`; without batches if never probed.
  constexpr Entry entry(const ErrorClass& what) const {
    for (const Entry& entry : entries_)
      if (same(entry.what, what)) return entry;
    return {what, 0, 0, 0};
  }

  /// Writes the probed errors into a profile of the same graph, for all copies of each layer.
  constexpr void write(const Graph& graph, CostProfile& profile) const {
    for (const Entry& entry : entries_) {
      const int column = profile.column(entry.what.codec);
      for (int k = 0; column >= 0 && k < graph.node_count(); ++k) {
        if (graph.node(k).layer != entry.what.layer) continue;
        CodecCost& cost = profile.codec_cost(k, column);
        (entry.what.carried ? cost.carried_error : cost.error) = entry.error();
      }
    }
  }

 private:
  static constexpr bool same(const ErrorClass& a, const ErrorClass& b) {
    return a.layer == b.layer && a.codec == b.codec && a.carried == b.carried;
  }
  constexpr Entry& find(const ErrorClass& what) {
    for (Entry& entry : entries_)
      if (same(entry.what, what)) return entry;
    entries_.push_back({what, 0, 0, 0});
    return entries_.back();
  }

  Array<Entry> entries_;
};

/// Sketches of one batch's gradients under different plans, each made once: a lossy plan of one class may be the
/// reference of another.
class KnownSketches {
 public:
  /// Adds the error of `what`, probed by `pair`, to `errors`. A missing sketch is made by sketch(plan), a
  /// Result<GradientSketch>.
  template <class Sketch>
  Error probe(const ErrorClass& what, const ProbingPlans& pair, GradientErrors& errors,
              const Sketch& sketch) {
    if (pair.copies == 0) return {};
    const Result<GradientSketch> reference = of(pair.reference, pair.exact, sketch);
    if (!reference) return reference.error;
    const Result<GradientSketch> lossy = of(pair.lossy, false, sketch);
    if (!lossy) return lossy.error;
    errors.add(what, squared_distance(*lossy, *reference) / pair.copies, reference->squared_norm);
    return {};
  }

  /// The sketch under `plan`. All `exact` plans (without loss) have the same gradient, to the bit.
  template <class Sketch>
  Result<GradientSketch> of(const Plan& plan, bool exact, const Sketch& sketch) {
    for (const Known& known : known_)
      if (exact ? known.exact : same(known.plan, plan)) return known.sketch;
    const Result<GradientSketch> made = sketch(plan);
    if (made) known_.push_back({plan, exact, *made});
    return made;
  }

 private:
  struct Known {
    Plan plan;
    bool exact = false;
    GradientSketch sketch;
  };

  static bool same(const Plan& a, const Plan& b) {
    for (std::size_t i = 0; i < a.policies.size(); ++i)
      if (!(a.policies[i] == b.policies[i])) return false;
    return a.policies.size() == b.policies.size();
  }

  Array<Known> known_;
};

}}  // namespace adacc::v0_1
