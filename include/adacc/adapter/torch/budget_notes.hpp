// SPDX-License-Identifier: MIT
/// Writes a budget's report (budget_report.hpp): each finished step, and the last deviation in words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "budget_report.hpp"
#include "known_step.hpp"
#include "sent_storages.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class BudgetNotes {
 public:
  BudgetReport& report() { return report_; }
  const BudgetReport& report() const { return report_; }

  void refused(const std::string& why) {
    ++report_.refused;
    about_refusal("a step was refused: " + why);
  }
  void without_backward() {
    report_.note =
        "a step ended without backward, or with nothing saved for it, so it was not recorded";
  }
  void diverged(const std::string& why) {
    ++report_.diverged;
    note(step() + why + ": the next one is recorded");
  }

  /// A recorded step took `bytes`, by a plan for another step, or in the smallest forms. `why` tells why the step was
  /// recorded, or is empty.
  void recorded(std::size_t bytes, std::size_t budget, bool by_plan, const std::string& why) {
    ++report_.recorded;
    report_.recorded_bytes = bytes;
    std::string text;
    if (!why.empty()) text = why + ": it was recorded as one of another kind";
    if (bytes > budget) {
      ++report_.recorded_over;
      text += std::string(text.empty() ? "was recorded" : ",") +
              (by_plan ? " by a plan for the step before, and took "
                       : " in the smallest forms and could not fit: it took ") +
              of_budget(bytes, budget);
    }
    if (!text.empty()) note(step() + text);
    else forget_refusal();
  }
  /// A step of unknown sizes ran by a plan for `planned` bytes.
  void guessed(std::size_t planned, std::size_t bytes, std::size_t budget) {
    ++report_.planned;
    report_.budget_bytes = budget;
    report_.planned_bytes = planned;
    report_.measured_bytes = bytes;
    if (bytes <= budget) return forget_refusal();
    ++report_.corrections;
    note("step " + std::to_string(report_.steps) + ", of sizes that were not known, took " +
         of_budget(bytes, budget));
  }

  /// A planned step of kind `known`. Returns whether a smaller plan is needed.
  bool planned(const KnownStep& known, std::size_t bytes, double seconds) {
    ++report_.planned;
    forget_refusal();
    describe(known, report_);
    report_.measured_bytes = bytes;
    report_.most_bytes = known.most;
    report_.measured_seconds = seconds;
    if (bytes <= known.budget) return false;
    if (known.plans->fits) {
      ++report_.corrections;
      report_.note = step() + "took " + BudgetReport::in_words(bytes) + ", so less is planned with";
      return true;
    }
    if (!known.corrected) {  // the least, as asked by BudgetOptions
      ++report_.refused;
      about_refusal(step() + "ran in the least there is, " + of_budget(bytes, known.budget));
    } else {
      report_.note =
          step() + "took " + BudgetReport::in_words(bytes) + ", and there is no smaller plan";
    }
    return false;
  }
  /// The transfers of a planned step.
  void transferred(const SentStatistics& sent, double seconds, const std::string& store) {
    report_.written_bytes = sent.written_bytes;
    report_.read_bytes = sent.read_bytes;
    report_.stall_seconds = sent.stall_seconds;
    if (sent.stall_seconds < 0.2 * seconds) return;
    report_.note = step() + "waited for " +
                   std::to_string(static_cast<int>(1e3 * sent.stall_seconds)) + " of its " +
                   std::to_string(static_cast<int>(1e3 * seconds)) + " ms: " + store +
                   " is slow for this budget";
  }

 private:
  std::string step() const { return "step " + std::to_string(report_.steps) + " "; }
  static std::string of_budget(std::size_t bytes, std::size_t budget) {
    return BudgetReport::in_words(bytes) + " of a budget of " + BudgetReport::in_words(budget);
  }
  void note(std::string text) {
    report_.note = std::move(text);
    about_refusal_ = false;
  }
  void about_refusal(std::string text) {
    report_.note = std::move(text);
    about_refusal_ = true;
  }
  /// A step went on: a note about an earlier refusal is out of date.
  void forget_refusal() {
    if (about_refusal_) note("");
  }

  BudgetReport report_;
  bool about_refusal_ = false;  // the note
};

}}}}  // namespace adacc::v0_1::torch::detail
