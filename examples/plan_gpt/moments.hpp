// SPDX-License-Identifier: MIT
/// How the moments should be kept, if nothing but the predicted time of a step within a total matters: every
/// form, in memory and behind the link, through windows of several sizes.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/error.hpp>
#include <adacc/optimizer/moment_turns.hpp>
#include <adacc/plan/proposals.hpp>
#include <adacc/train/memory_use.hpp>
#include <support/optimizer.hpp>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

namespace plan_gpt {

/// A way to keep moments.
struct MomentChoice {
  std::string form;
  bool store = false;
  adacc::MomentWindow window;
};

/// A training with these.
struct PlannedTraining {
  adacc::TrainingMemoryUse memory;
  adacc::PlanOutcome found;
  std::size_t budget_bytes = 0;  ///< of the arena
};

/// A choice, and its plan.
struct ChosenMoments {
  MomentChoice choice;
  PlannedTraining planned;
};

/// The choice whose plan is fastest; `plan(choice)` is its PlannedTraining, or an error if it does not fit. One that
/// rounds less, or needs no store, is preferred if the time is the same. Without `has_link` there is no
/// store. Prints a line for each that was tried, unless `quiet`.
template <class Plan>
adacc::Result<ChosenMoments> fastest_moments(const std::string& optimizer, bool has_link,
                                             bool quiet, const Plan& plan) {
  using namespace adacc;
  std::optional<ChosenMoments> best;
  double seconds = 0;
  Error least;
  const auto attempt = [&](const MomentChoice& choice) {
    auto planned = plan(choice);
    const char* where = choice.store ? "in the store" : "in memory";
    if (!planned) {
      least = planned.error;
      if (!quiet) std::printf("moments %s, %-13s do not fit\n", choice.form.c_str(), where);
      return;
    }
    if (!quiet)
      std::printf("moments %s, %-13s %8.1f MiB of them held, %10.2f ms, %5.3f of retain's\n",
                  choice.form.c_str(), where, static_cast<double>(planned->memory.moments) / MiB,
                  1e3 * planned->found.seconds,
                  planned->found.seconds / planned->found.retain_seconds);
    if (best && planned->found.seconds >= seconds * (1 - 1e-9)) return;
    seconds = planned->found.seconds;
    best = ChosenMoments{choice, std::move(*planned)};
  };
  for (const char* form : support::moment_names) {
    if (!support::make_optimizer(optimizer, form, 0)) continue;
    attempt({form, false, {}});
    if (!has_link) continue;
    for (const int mebibytes : {8, 16, 32, 64, 128})
      attempt({form, true, {static_cast<std::size_t>(mebibytes) * MiB}});
  }
  if (!best) return least;
  return std::move(*best);
}

}  // namespace plan_gpt
