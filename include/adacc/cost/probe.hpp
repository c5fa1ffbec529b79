/// What a codec does to the gradient, measured by repeating a step: v = E|g' - g|^2 / |g|^2.
///
/// Two steps on one batch, whose plans differ in one class of activations, give two gradients;
/// their sketches tell how far they are apart (cost/gradient_sketch.hpp), and no second gradient is
/// held. Errors of different activations add up, so one probe compresses all copies of a layer and
/// divides by their number. Codecs that round to nearest err the same way whenever they see the
/// same batch, so v is a mean over batches, and where rounding is stochastic over its keys as well.
#pragma once

#include <cstddef>
#include <type_traits>

#include "../step/step.hpp"
#include "gradient_sketch.hpp"
#include "probing_plans.hpp"

namespace adacc { inline namespace v0_1 {

/// Squared distances of gradients, class by class, summed over batches.
class GradientErrors {
 public:
  struct Entry {
    ErrorClass what;
    double squared_distance = 0;  ///< of one copy
    double squared_norm = 0;
    int batches = 0;

    /// Relative squared error that one activation of the class adds to the gradient.
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

  /// The entry of `what`; one without batches where it was never probed.
  constexpr Entry entry(const ErrorClass& what) const {
    for (const Entry& entry : entries_)
      if (same(entry.what, what)) return entry;
    return {what, 0, 0, 0};
  }

  /// Writes what was probed into a profile of the same graph, for every copy of each layer.
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

/// Gradients of one batch under different plans, compared by their sketches.
///
/// Arena, parameters and gradients are lent as to Step::bind, by training between two of its steps;
/// the probe itself holds a sketch for each plan that it ran. What `gradients` held is lost; they
/// hold zeros in the end, and the context is what it was.
template <class T, class Context>
class GradientProbe {
 public:
  /// All outlive the probe.
  GradientProbe(Context& context, const Dispatch<T, Context>& dispatch, const Graph& graph,
                Bytes arena, std::type_identity_t<View<const T>> params,
                std::type_identity_t<View<T>> gradients, AnyView input, AnyView targets)
      : context_(context), before_(context), dispatch_(dispatch), graph_(graph), arena_(arena),
        params_(params), gradients_(gradients), input_(input), targets_(targets) {}
  GradientProbe(const GradientProbe&) = delete;
  GradientProbe& operator=(const GradientProbe&) = delete;
  ~GradientProbe() {
    clear();
    context_ = before_;
  }

  /// Adds the error of one class on this batch to `errors`. `turn` chooses copies where the arena
  /// is too small to probe all at once.
  Error probe(const ErrorClass& what, GradientErrors& errors, int turn = 0) {
    const Result<ProbingPlans> pair = probing_plans(graph_, what, arena_.size(), turn);
    if (!pair) return pair.error;
    if (pair->copies == 0) return {};
    const Result<GradientSketch> reference = known_sketch(pair->reference, pair->exact);
    if (!reference) return reference.error;
    const Result<GradientSketch> lossy = known_sketch(pair->lossy, false);
    if (!lossy) return lossy.error;
    errors.add(what, squared_distance(*lossy, *reference) / pair->copies, reference->squared_norm);
    return {};
  }

  /// Steps that ran so far.
  int steps() const { return steps_; }

  /// The sketch of the batch's gradient under `plan`: one step.
  Result<GradientSketch> sketch(const Plan& plan) {
    Result<Program> program = make_program(graph_, plan);
    if (!program) return program.error;
    auto step = Step<T, Context>::make(dispatch_, static_cast<Program&&>(*program));
    if (!step) return step.error;
    if (const Error why = step->bind(arena_, params_, gradients_)) return why;
    clear();
    ++steps_;
    context_ = before_;
    const Result<double> loss = step->run(context_, input_, targets_);
    context_ = before_;
    if (!loss) return loss.error;
    const GradientSketch made = sketch_of(context_, gradients_, before_.key);
    if (!(made.squared_norm <= 1e300))
      return Error::say("the gradient of the probed batch is not finite");
    return made;
  }

 private:
  struct Known {
    Plan plan;
    bool exact = false;
    GradientSketch sketch;
  };

  /// Each plan runs once: what one class compresses, another's pair has as its reference. All plans
  /// that lose nothing have the same gradient, to the bit.
  Result<GradientSketch> known_sketch(const Plan& plan, bool exact) {
    for (const Known& known : known_)
      if (exact ? known.exact : same(known.plan, plan)) return known.sketch;
    const Result<GradientSketch> made = sketch(plan);
    if (made) known_.push_back({plan, exact, *made});
    return made;
  }

  static bool same(const Plan& a, const Plan& b) {
    for (std::size_t i = 0; i < a.policies.size(); ++i)
      if (!(a.policies[i] == b.policies[i])) return false;
    return a.policies.size() == b.policies.size();
  }

  void clear() {
    for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = T{};
  }

  Context& context_;
  const Context before_;
  const Dispatch<T, Context>& dispatch_;
  const Graph& graph_;
  Bytes arena_;
  View<const T> params_;
  View<T> gradients_;
  AnyView input_;
  AnyView targets_;
  Array<Known> known_;
  int steps_ = 0;
};

}}  // namespace adacc::v0_1
