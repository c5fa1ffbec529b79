// SPDX-License-Identifier: MIT
/// The results of a budget, in numbers and words.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../../core/bytes.hpp"
#include "../../core/number_text.hpp"
#include "module_name.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

struct BudgetReport {
  /// A policy's share of the bytes held by autograd alone in the recorded step.
  struct Share {
    /// "retain", "opaque" (retained workspaces), "lossless", "recompute", "offload", a codec's NAME or "offload_NAME"
    std::string policy;
    std::size_t storages = 0;
    std::size_t bytes = 0;  ///< before encoding
  };

  // Each peak is in bytes above those in use at the beginning of a step.
  std::size_t plain_bytes = 0;     ///< the recorded step's, if everything were retained
  std::size_t budget_bytes = 0;    ///< 0: no step was planned yet
  std::size_t recorded_bytes = 0;  ///< the last recorded step's
  std::size_t planned_bytes = 0;   ///< the plan's prediction
  std::size_t measured_bytes = 0;  ///< the last planned step's
  std::size_t most_bytes = 0;      ///< the largest since the plan was made
  std::size_t least_bytes = 0;     ///< the smallest of all plans tried
  double plain_seconds = 0;        ///< forward and backward of the recorded step without codecs
  double planned_ratio = 0;        ///< predicted seconds of the planned step / plain_seconds
  /// The last planned step's: a device's own, from when the device has done the step; until then the host's.
  double measured_seconds = 0;
  double planning_seconds = 0;       ///< time for the last plan, measuring codecs included
  double planned_stall_seconds = 0;  ///< predicted time waiting for the store
  // For the last planned step:
  std::size_t written_bytes = 0, read_bytes = 0;  ///< to the store and from the store
  double stall_seconds = 0;                       ///< time waiting for the store
  std::size_t steps = 0;                          ///< finished steps; among them:
  std::size_t recorded = 0, planned = 0, diverged = 0;
  std::size_t recorded_over = 0;  ///< recorded steps that could not fit into the budget
  std::size_t refused = 0;        ///< steps not begun, or run in the least there is (BudgetOptions)
  std::size_t corrections = 0;    ///< plans made again after a step above the budget
  // On a device, in the steps whose reports have come as the last one began:
  std::size_t exact_rows = 0;   ///< rows kept exactly because the codec failed
  std::size_t uncertified = 0;  ///< storages with more such rows, or too large an error of all
  std::string failed_form;  ///< of the last such storage, in words; plans take a milder form since
  std::vector<Share> shares;
  std::vector<ModuleBytes> modules;  ///< these storages by the module that saved each first
  std::string note;                  ///< the last deviation from the plan; empty: none
  std::string device = "cpu";        ///< whose memory the bytes are of
  std::string
      elsewhere;  ///< why tensors of other devices are kept as they are; empty: none were seen

  std::string text() const {
    const std::string words = text_of_device();
    return elsewhere.empty() ? words : words + "; " + elsewhere;
  }

  static std::string in_words(std::size_t bytes) {
    const bool small = bytes < MiB / 10;
    const double units = static_cast<double>(bytes) / static_cast<double>(small ? KiB : MiB);
    return std::string(NumberText::fixed(units, 1)) + (small ? " KiB" : " MiB");
  }

 private:
  std::string text_of_device() const {
    if (budget_bytes == 0)
      return "no step was planned yet: " + std::to_string(recorded) + " recorded" +
             (note.empty() ? "" : "; " + note);
    std::string words = "budget " + in_words(budget_bytes) +
                        (device == "cpu" ? "" : " on " + device) + " of a plain step's " +
                        in_words(plain_bytes) + ": planned " + in_words(planned_bytes) + " at " +
                        ratio(planned_ratio) + " of its time";
    if (planned > 0) words += ", measured " + in_words(measured_bytes);
    if (planned > 0 && measured_seconds > 0 && plain_seconds > 0)
      words += " at " + ratio(measured_seconds / plain_seconds);
    if (written_bytes > 0)
      words += ", " + in_words(written_bytes) + " written to the store and " +
               in_words(read_bytes) + " read, waited for " + ratio(1e3 * stall_seconds) + " ms";
    words += ";";
    for (const Share& share : shares)
      words += " " + std::to_string(share.storages) + " " + words_of(share.policy) + " (" +
               in_words(share.bytes) + "),";
    if (!shares.empty()) words.pop_back();
    if (exact_rows > 0)
      words += "; " + std::to_string(exact_rows) + " rows beside their forms, exactly";
    if (!failed_form.empty()) words += "; " + failed_form;
    return note.empty() ? words : words + "; " + note;
  }

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
