// SPDX-License-Identifier: MIT
/// What a budget came to, in numbers and words.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../../core/bytes.hpp"
#include "../../core/number_text.hpp"
#include "module_name.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

struct BudgetReport {
  /// Of the bytes that autograd alone held in the recorded step.
  struct Share {
    /// "retain", "opaque" (the same: workspaces that no codec takes), "lossless", "recompute", "offload", a codec's name, or "offload_" and that
    std::string policy;
    std::size_t storages = 0;
    std::size_t bytes = 0;  ///< as they were
  };

  // Bytes are above those in use when a step begins, and are its peak.
  std::size_t plain_bytes = 0;       ///< of the recorded step, if everything were retained
  std::size_t budget_bytes = 0;      ///< 0: no step was planned yet
  std::size_t recorded_bytes = 0;    ///< of the last step that was recorded, in the smallest forms
  std::size_t planned_bytes = 0;     ///< as the plan predicts it
  std::size_t measured_bytes = 0;    ///< of the last planned step
  std::size_t most_bytes = 0;        ///< of all that went by the plan since it was made
  std::size_t least_bytes = 0;       ///< of all plans that were looked at
  double plain_seconds = 0;          ///< forward and backward of the recorded step without codecs
  double planned_ratio = 0;          ///< of the planned step's seconds to those, as predicted
  double measured_seconds = 0;       ///< of the last planned step
  double planning_seconds = 0;       ///< that the last plan took, codecs' times among them
  double planned_stall_seconds = 0;  ///< that the planned step waits for the store, as predicted
  // Of the last planned step:
  std::size_t written_bytes = 0, read_bytes = 0;  ///< to the store and from it
  double stall_seconds = 0;                       ///< that it waited for the store
  std::size_t steps = 0;                          ///< that are over; of those:
  std::size_t recorded = 0, planned = 0, diverged = 0;
  std::size_t refused =
      0;  ///< steps that were not begun, or ran in the least there is (BudgetOptions)
  std::size_t corrections =
      0;  ///< plans that were made again, because a step took more than the budget
  std::vector<Share> shares;
  std::vector<ModuleBytes> modules;  ///< the same storages, by the module that saved them first
  std::string note;                  ///< what went otherwise than planned last; empty: nothing

  std::string text() const {
    if (budget_bytes == 0)
      return "no step was planned yet: " + std::to_string(recorded) + " recorded" +
             (note.empty() ? "" : "; " + note);
    std::string words = "budget " + in_words(budget_bytes) + " of a plain step's " +
                        in_words(plain_bytes) + ": planned " + in_words(planned_bytes) + " at " +
                        ratio(planned_ratio) + " of its time";
    if (planned > 0) words += ", measured " + in_words(measured_bytes);
    if (written_bytes > 0)
      words += ", " + in_words(written_bytes) + " written to the store and " +
               in_words(read_bytes) + " read, waited for " + ratio(1e3 * stall_seconds) + " ms";
    words += ";";
    for (const Share& share : shares)
      words += " " + std::to_string(share.storages) + " " + words_of(share.policy) + " (" +
               in_words(share.bytes) + "),";
    if (!shares.empty()) words.pop_back();
    return note.empty() ? words : words + "; " + note;
  }

  static std::string in_words(std::size_t bytes) {
    const bool small = bytes < MiB / 10;
    const double units = static_cast<double>(bytes) / static_cast<double>(small ? KiB : MiB);
    return std::string(NumberText::fixed(units, 1)) + (small ? " KiB" : " MiB");
  }

 private:
  static std::string words_of(const std::string& policy) {
    if (policy == "retain") return "as they are";
    if (policy == "lossless") return "packed without loss";
    if (policy == "recompute") return "computed again";
    if (policy == "offload") return "in the store";
    return "as " + policy;
  }
  static std::string ratio(double value) { return NumberText::fixed(value, 2).c_str(); }
};

}}}  // namespace adacc::v0_1::torch
