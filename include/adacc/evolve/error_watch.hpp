// SPDX-License-Identifier: MIT
/// The gradient's error under a plan: expected, and observed.
///
/// Errors are those in the profile, probed last, scaled by the codecs' statistics (codec_watch.hpp). Graph, profile
/// and plan belong to Evolution and are passed to every call.
#pragma once

#include <cstddef>

#include "../cost/evaluate.hpp"
#include "codec_watch.hpp"
#include "options.hpp"

namespace adacc { inline namespace v0_1 {

class ErrorWatch {
 public:
  static constexpr double largest = 1e9;

  enum class Verdict : unsigned char {
    as_planned,
    failing,  ///< above the planned error in enough consecutive checks
    fell,     ///< below the planned error
  };

  /// Starts without observations, for the codecs of `profile`.
  void start(const CostProfile& profile) {
    codecs_ = profile.codecs.size();
    watches_.clear();
    watches_.resize(profile.codec_costs.size());
  }

  CodecWatch& of(int activation, int column) {
    return watches_[static_cast<std::size_t>(activation) * codecs_ +
                    static_cast<std::size_t>(column)];
  }
  const CodecWatch& of(int activation, int column) const {
    return const_cast<ErrorWatch*>(this)->of(activation, column);
  }

  /// `profile` with the present errors of the activations of `plan`.
  CostProfile observed(const Graph& graph, const CostProfile& profile, const Plan& plan) const {
    CostProfile seen = profile;
    Array<double> behind(seen.codec_costs.size());  // the largest scale behind an activation
    for (int k = 0; k < graph.node_count(); ++k) {
      const std::size_t row = static_cast<std::size_t>(k) * codecs_;
      const Policy& policy = plan[k];
      if (const int column = profile.column(policy.codec());
          policy.codec() != nullptr && column >= 0) {
        const double scale = of(k, column).scale();
        CodecCost& cost = seen.codec_cost(k, column);
        cost.error = limited(cost.error * scale);
        behind[row + static_cast<std::size_t>(column)] = scale;
      } else if (policy.recomputes()) {
        graph.forward_reads(k, [&](int source) {
          const std::size_t from = static_cast<std::size_t>(source) * codecs_;
          for (std::size_t c = 0; c < codecs_; ++c)
            if (behind[from + c] > behind[row + c]) behind[row + c] = behind[from + c];
        });
        for (std::size_t c = 0; c < codecs_; ++c) {
          CodecCost& cost = seen.codec_cost(k, static_cast<int>(c));
          if (behind[row + c] > 0)
            cost.carried_error = limited(cost.carried_error * behind[row + c]);
        }
      }
    }
    return seen;
  }

  /// From now on, the present errors are the expected ones.
  void expect(const Graph& graph, const CostProfile& profile, const Plan& plan) {
    planned_ = errors_now(graph, profile, plan);
    fell_below_ = planned_.sum;
    high_ = low_ = 0;
  }

  double planned() const { return planned_.sum; }
  double planned(int activation) const { return planned_.of[static_cast<std::size_t>(activation)]; }

  /// One check. If `plan` is failing, failing() has the activations to blame.
  Verdict examine(const Graph& graph, const CostProfile& profile, const Plan& plan,
                  const EvolutionOptions& options) {
    const Errors now = errors_now(graph, profile, plan);
    failing_.clear();
    failing_.resize(graph.nodes.size());
    for (std::size_t i = 0; i < failing_.size(); ++i)
      failing_[i] = now.of[i] > options.above * planned_.of[i];
    bool misfit = false;
    for (int k = 0; k < graph.node_count(); ++k) {
      const int column = profile.column(plan[k].codec());
      if (column < 0) continue;
      const CodecWatch& watch = of(k, column);
      bool& is_failing = failing_[static_cast<std::size_t>(k)];
      if (watch.misfit()) is_failing = misfit = true;
      if (watch.scale() > options.above && !plan[k].codec()->lossless) is_failing = true;
    }
    high_ = now.sum > options.above * planned_.sum || misfit ? high_ + 1 : 0;
    low_ = now.sum < options.below * fell_below_ ? low_ + 1 : 0;
    if (high_ >= options.checks) {
      keep_worst(profile, plan, now, options);
      return Verdict::failing;
    }
    if (low_ < options.checks) return Verdict::as_planned;
    low_ = 0;
    fell_below_ = now.sum;
    return Verdict::fell;
  }
  const Array<bool>& failing() const { return failing_; }

  /// A failure was handled: resets the count of consecutive failing checks.
  void restart() { high_ = 0; }

  /// Calls visit(name, field) for each remembered field.
  template <class Self, class Visit>
  static void each_field(Self& self, const Visit& visit) {
    for (auto& watch : self.watches_) CodecWatch::each_field(watch, visit);
    for (auto& planned : self.planned_.of) visit("planned", planned);
    visit("planned_sum", self.planned_.sum);
    visit("fell_below", self.fell_below_);
    visit("high", self.high_);
    visit("low", self.low_);
  }

  /// Follows to another profile, with the same codecs in another order.
  void reorder(const CostProfile& before, const CostProfile& after) {
    Array<CodecWatch> watches(after.codec_costs.size());
    for (std::size_t i = 0; i < watches.size(); ++i)
      watches[i] = of(static_cast<int>(i / codecs_), before.column(after.codecs[i % codecs_]));
    watches_ = static_cast<Array<CodecWatch>&&>(watches);
  }

 private:
  static double limited(double error) { return error < largest ? error : largest; }

  struct Errors {
    Array<double> of;  ///< by activation
    double sum = 0;
  };
  Errors errors_now(const Graph& graph, const CostProfile& profile, const Plan& plan) const {
    Errors errors{Array<double>(graph.nodes.size())};
    each_error(graph, observed(graph, profile, plan), plan, [&](int k, int, double error) {
      errors.of[static_cast<std::size_t>(k)] += error;
      errors.sum += error;
    });
    return errors;
  }

  /// Keeps only the worst failing activations, until the others are no reason to plan again.
  void keep_worst(const CostProfile& profile, const Plan& plan, const Errors& now,
                  const EvolutionOptions& options) {
    const auto more = [&](std::size_t i) { return now.of[i] - planned_.of[i]; };
    Array<std::size_t> order;
    for (std::size_t i = 0; i < failing_.size(); ++i) {
      const int k = static_cast<int>(i), column = profile.column(plan[k].codec());
      const bool misfit = column >= 0 && of(k, column).misfit();
      // A mere source of recomputation has no error term; the damage shows in the recomputed activations.
      if (failing_[i] && now.of[i] > 0 && !misfit) order.push_back(i);
    }
    sort(order, [&](std::size_t a, std::size_t b) {
      const double x = more(a), y = more(b);
      return x != y ? x > y : a < b;
    });
    double sum = now.sum;
    for (const std::size_t i : order) {
      failing_[i] = sum > options.above * planned_.sum;
      if (failing_[i]) sum -= more(i);
    }
  }

  std::size_t codecs_ = 0;
  Array<CodecWatch> watches_;  ///< a row per activation, a column per codec, as in the profile
  Errors planned_;             ///< errors when the plan was made
  Array<bool> failing_;        ///< by activation, in the last check
  double fell_below_ = 0;      ///< the reference for "half of the planned error"
  int high_ = 0, low_ = 0;     ///< consecutive checks
};

}}  // namespace adacc::v0_1
