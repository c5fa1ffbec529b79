// SPDX-License-Identifier: MIT
/// What train_gpt remembers of a run, and the page that it makes of it.
#pragma once

#include <support/loop_use.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "html_report.hpp"
#include "options.hpp"
#include "report.hpp"

/// "int8_outlier 12, retain 38"
inline std::string policy_counts(const adacc::Plan& plan) {
  std::string text;
  for (const auto& [name, count] : draw::policy_counts(plan))
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
  return text;
}

struct RunHistory {
  draw::Points losses, validation;
  std::vector<RunReport::Event> events;
  std::vector<double> ms, stall_ms;  ///< since the plan changed last
  std::size_t peak_bytes = 0;
  adacc::DeclinedCounts declined;  ///< in all steps

  void add(const StepRecord& record, const std::vector<std::string>& changes) {
    const auto step = static_cast<double>(record.step);
    losses.push_back({step, record.loss});
    if (record.val_loss) validation.push_back({step, *record.val_loss});
    if (!changes.empty()) ms.clear(), stall_ms.clear();
    for (const std::string& change : changes) events.push_back({step, change});
    ms.push_back(record.ms);
    stall_ms.push_back(record.stall_ms);
    peak_bytes = std::max(peak_bytes, record.activation_peak_bytes);
    declined = declined + record.declined;
  }

  double median_ms() const { return median(ms); }
  double median_stall_ms() const { return median(stall_ms); }

 private:
  static double median(std::vector<double> sorted) {
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
};

namespace detail {

/// Why activation k got its policy, in a sentence.
inline std::string reason_text(const adacc::Graph& graph, const adacc::PlanOutcome& outcome,
                               int k) {
  using Kind = adacc::PlanReason::Kind;
  const adacc::PlanReason& reason = outcome.reasons[static_cast<std::size_t>(k)];
  const std::string start =
      std::to_string(k) + " " + graph.node(k).name + ", " + name_of(outcome.plan[k]) + ": ";
  const std::string paid = draw::print("saves %.2f MiB for %.3f ms",
                                       reason.saved_bytes / adacc::MiB, 1e3 * reason.paid_seconds);
  switch (reason.kind) {
    case Kind::fixed: return start + "fixed by its type";
    case Kind::unread: return start + "nothing in backward reads it";
    case Kind::affordable: return start + "the fastest it could have";
    case Kind::price: return start + paid + "; the bytes are worth more elsewhere";
    case Kind::error: return start + paid + "; others would pass the tolerance";
  }
  return start;
}

/// Empty if there is nothing to compare, as after no step.
inline std::string percent(double measured, double predicted) {
  return predicted > 0 && measured > 0 ? draw::print("%+.1f %%", 100 * (measured / predicted - 1))
                                       : "";
}

}  // namespace detail

/// Of a Trainer or a DeviceTrainer.
template <class AnyTrainer>
RunReport run_report(const Options& options, AnyTrainer& trainer, const RunHistory& history) {
  RunReport report;
  report.title = adacc::gpt::describe(options.network);
  report.program = &trainer.program();
  report.budget_bytes = static_cast<double>(trainer.budget_bytes());
  report.retain_peak_bytes = static_cast<double>(trainer.retain_peak());
  report.losses = history.losses;
  report.validation = history.validation;
  report.events = history.events;
  const std::size_t peak = trainer.predicted_peak();
  const auto share = [&](std::size_t bytes) {
    return mebibytes(bytes) + draw::print(" (%.0f %% of what retain needs)",
                                          100.0 * static_cast<double>(bytes) /
                                              static_cast<double>(trainer.retain_peak()));
  };
  report.facts = {{"step", std::to_string(options.batch) + " x " + std::to_string(options.seq) +
                               " tokens, " + trainer.place_text()},
                  {"policies", policy_counts(trainer.program().plan)},
                  {"peak of activations", share(peak)}};
  if (const auto use = support::LoopUse::of(trainer.program()); use.loops > 0)
    report.facts.push_back(
        {"loops over rows",
         std::to_string(use.loops) + " of " + support::parts_text(trainer.program().schedule) +
             " parts, " + std::to_string(use.instructions) + " of " +
             std::to_string(trainer.program().schedule.instructions.size()) + " instructions; " +
             std::to_string(use.tiles) + " buffers hold one part" +
             (use.straight_peak_bytes > 0
                  ? "; without loops the peak would be " + share(use.straight_peak_bytes)
                  : "")});
  if (history.declined.total() > 0)
    report.facts.push_back({"rows that codecs lost", lost_rows_text(history.declined)});
  report.comparisons = {
      {"peak of activations", std::to_string(peak) + " bytes",
       history.peak_bytes > 0 ? std::to_string(history.peak_bytes) + " bytes" : "not measured",
       history.peak_bytes > 0
           ? detail::percent(static_cast<double>(history.peak_bytes), static_cast<double>(peak))
           : ""}};
  const adacc::PlanOutcome* outcome = trainer.outcome();
  if (outcome == nullptr) return report;
  report.profile = trainer.profile();
  report.link = trainer.link();
  report.facts.push_back({"budget", share(trainer.budget_bytes())});
  report.facts.push_back(
      {"solver", std::string(outcome->solver) + ", bound by " + outcome->bound_by +
                     draw::print(", gap to the best possible %.2f %%", 100 * outcome->gap)});
  if (const std::string store = trainer.store_text(); !store.empty())
    report.facts.push_back(
        {"offload",
         store + draw::print("; %.1f MiB out and back a step, %.1f ms of waiting predicted",
                             static_cast<double>(trainer.offloaded_bytes()) / adacc::MiB,
                             1e3 * outcome->stall_seconds)});
  report.facts.push_back(
      {"price of memory", draw::print("%.3f ms per MiB, at the margin",
                                      1e3 * outcome->seconds_per_byte * adacc::MiB)});
  report.facts.push_back(
      {"gradient error", draw::print("%.1e of %.0e tolerated", outcome->error, options.tolerance)});
  if (!trainer.cost_source().empty()) {
    report.facts.push_back({"costs", trainer.cost_source()});
    report.comparisons.push_back({"time of a step (median)",
                                  draw::print("%.1f ms", 1e3 * outcome->seconds),
                                  draw::print("%.1f ms", history.median_ms()),
                                  detail::percent(history.median_ms(), 1e3 * outcome->seconds)});
  }
  if (trainer.offloaded_bytes() > 0)
    report.comparisons.push_back(
        {"waiting for the store (median)", draw::print("%.1f ms", 1e3 * outcome->stall_seconds),
         draw::print("%.1f ms", history.median_stall_ms()),
         detail::percent(history.median_stall_ms(), 1e3 * outcome->stall_seconds)});
  const adacc::Graph& graph = trainer.program().graph;
  for (int k = 0; k < graph.node_count(); ++k)
    report.reasons.push_back(detail::reason_text(graph, *outcome, k));
  return report;
}
