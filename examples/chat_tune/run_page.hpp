// SPDX-License-Identifier: MIT
/// The page about a run of tune (--report).
#pragma once

#include <adacc/io/text.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "../train_gpt/html_report.hpp"
#include "../train_gpt/report.hpp"
#include "tuner.hpp"

namespace chat_tune {

template <class T>
adacc::Error write_page(const TuneOptions& options, const Tuner<T>& tuner,
                        const draw::Points& losses, const draw::Points& validation,
                        const std::vector<RunReport::Event>& events, double ms) {
  RunReport report;
  report.title = "chat_tune: " + tuner.describe();
  const adacc::PlanOutcome& plan = tuner.training().evolution()->outcome();
  report.facts = {{"model", adacc::one_line(options.model.model, 200)},
                  {"data", adacc::one_line(options.read.data, 200)},
                  {"updates", std::to_string(tuner.done())},
                  {"tokens in an update", std::to_string(tuner.tokens())},
                  {"memory of the training", mebibytes(tuner.training().memory_use().total())}};
  report.program = &tuner.training().compiled_step().program();
  report.profile = &tuner.training().evolution()->profile();
  report.budget_bytes = static_cast<double>(tuner.training().evolution()->budget_bytes());
  report.retain_peak_bytes = static_cast<double>(tuner.retain_peak());
  report.losses = losses;
  report.validation = validation;
  report.events = events;
  char predicted[64], measured[64], apart[64];
  const double whole = 1e3 * plan.seconds * static_cast<double>(options.micro);
  std::snprintf(predicted, sizeof predicted, "%.0f ms", whole);
  std::snprintf(measured, sizeof measured, "%.0f ms", ms);
  std::snprintf(apart, sizeof apart, "%+.1f %%", 100 * (ms / whole - 1));
  report.comparisons = {{"time of an update", predicted, measured, apart},
                        {"activations at their peak",
                         mebibytes(tuner.training().compiled_step().program().peak_bytes()),
                         mebibytes(tuner.peak()), ""}};
  return write_report(options.report, report);
}

}  // namespace chat_tune
