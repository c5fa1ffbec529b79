// SPDX-License-Identifier: MIT
/// Knowledge about steps of one kind: the record, the plan, and both in words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "../../codec/bf16.hpp"
#include "../../codec/int4_outlier.hpp"
#include "../../codec/int8_outlier.hpp"
#include "budget_report.hpp"
#include "step_plan.hpp"
#include "step_recorder.hpp"
#include "step_seconds.hpp"
#include "step_travels.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// Values of a storage in a planned step decline a form.
struct Declined {
  int number;
  Keep form;
};

/// Knowledge about steps of one kind.
struct KnownStep {
  RecordedStep step;
  std::unique_ptr<StepMemory> memory;
  std::unique_ptr<StepPlans> plans;
  TravelPlan travels;
  std::size_t budget = 0;
  std::size_t surplus = 0;  ///< bytes of measured steps above their plan
  bool corrected = false;   ///< a planned step was above the budget
  bool is_timed = false;    ///< settle_times() was called
  std::size_t most = 0;     ///< bytes of steps under this plan
  double off = -1;          ///< relative error of peaks predicted by earlier records; < 0: none
  bool wanted = true;       ///< a plan is to be made
  std::string refusal;      ///< why no plan is within the budget; empty: one is, or none was made

  /// Of earlier records of this kind: seconds of the step and of each block, the least.
  StepSeconds least_seconds;

  bool usable() const { return plans != nullptr && refusal.empty(); }
  /// What earlier records tell of this kind beside `step`.
  void take_over(const KnownStep& before) {
    for (std::size_t id = 0; id < step.elements.size(); ++id)
      for (const Keep& form : before.step.elements[id].declined)
        step.decline(static_cast<int>(id), form);
    least_seconds = before.least_seconds;
  }
  /// Waits for the device.
  void settle_times() {
    if (is_timed) return;
    is_timed = true;
    step.settle_times();
    least_seconds.add(step.record);
    least_seconds.put_into(step.record);
  }
  /// A planned step took `bytes`, more than the budget: because of forms `declined`, or for an unknown reason.
  void plan_for_less(std::size_t bytes, const std::vector<Declined>& declined) {
    if (declined.empty()) surplus = std::max(surplus, bytes - plans->best.peak.bytes);
    corrected = true;
    plan_without(declined);
  }
  /// Values of an earlier step decline forms. If there is no plan within the budget without them, the least one is taken.
  void decline(const std::vector<Declined>& declined) {
    for (const Declined& one : declined) step.decline(one.number, one.form);
    if (plans == nullptr) return;
    corrected = true;
    plan_without({});
  }
  /// The next plan takes none of the forms `declined`.
  void plan_without(const std::vector<Declined>& declined) {
    for (const Declined& one : declined) step.decline(one.number, one.form);
    plans.reset();
    wanted = true;
    most = 0;
  }
};
inline int count_of(const KnownStep& known) {
  return static_cast<int>(known.step.record.storages.size());
}

/// Whether a parameter without a gradient was used before storage `number`, by StepRecord::before_missing_gradient.
inline bool misses_gradient(int before, int number) { return before >= 0 && before <= number; }

inline bool same_beginning(const StepRecord& a, const StepRecord& b, int count) {
  for (int i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(i);
    if (a.storages[place].bytes != b.storages[place].bytes ||
        a.storages[place].name != b.storages[place].name)
      return false;
  }
  return true;
}
/// Whether the same operators save as many storages in the same blocks, of any sizes.
inline bool same_savers(const StepRecord& a, const StepRecord& b) {
  if (a.before_missing_gradient != b.before_missing_gradient) return false;
  if (a.storages.size() != b.storages.size() || a.blocks.size() != b.blocks.size()) return false;
  for (std::size_t i = 0; i < a.blocks.size(); ++i)
    if (a.blocks[i].first != b.blocks[i].first || a.blocks[i].end != b.blocks[i].end) return false;
  for (std::size_t i = 0; i < a.storages.size(); ++i)
    if (a.storages[i].name != b.storages[i].name) return false;
  return true;
}
/// Whether the records are of one kind.
inline bool alike(const StepRecord& a, const StepRecord& b) {
  return same_savers(a, b) && same_beginning(a, b, static_cast<int>(a.storages.size()));
}

/// Writes a plan into the report.
inline void describe(const KnownStep& known, BudgetReport& report) {
  const StepRecord& record = known.step.record;
  const StepPlan& plan = known.plans->best;
  report.plain_bytes = record.peak();
  report.plain_seconds = record.seconds;
  report.budget_bytes = known.budget;
  report.planned_bytes = plan.peak.bytes;
  report.least_bytes = known.plans->least.peak.bytes;
  report.planned_ratio = 1 + plan.seconds / record.seconds;
  report.planned_stall_seconds = plan.stall_seconds;
  report.shares.clear();
  report.modules.clear();
  for (int id = 0; id < static_cast<int>(record.storages.size()); ++id) {
    const StepStorage& storage = record.storages[static_cast<std::size_t>(id)];
    if (storage.released < 0) continue;
    const StepForm* const form = known.memory->form_of(id, plan.choice);
    if (!storage.saved && !known.memory->feeds_again(id, plan.choice)) continue;
    const bool sent = plan.choice.travel[static_cast<std::size_t>(id)].sent;
    const char* const policy = known.memory->gone(id, plan.choice) ? "recompute"
                               : form == nullptr                   ? (sent             ? "offload"
                                                                      : storage.opaque ? "opaque"
                                                                                       : "retain")
                               : form->codec == nullptr            ? "lossless"
                               : sent                              ? form->codec->offloaded_name
                                                                   : form->codec->name;
    const auto same = std::find_if(report.shares.begin(), report.shares.end(),
                                   [&](const auto& share) { return share.policy == policy; });
    BudgetReport::Share& share = same != report.shares.end() ? *same : report.shares.emplace_back();
    share.policy = policy;
    ++share.storages;
    share.bytes += storage.bytes;
    const bool away = sent || known.memory->gone(id, plan.choice);
    add_to_module(report.modules, storage.module, storage.bytes,
                  away              ? 0
                  : form != nullptr ? form->bytes
                                    : storage.bytes);
  }
}

/// Bytes in use at a moment of a step, beside saved tensors.
struct BesideSaved {
  std::size_t all = 0;
  std::size_t parameter_gradients = 0;
  std::size_t activation_gradients = 0;  ///< before the moment, or left behind
  std::size_t workspaces = 0;            ///< the rest: of a running operator
};
inline BesideSaved beside_saved(const StepMemory& memory, int event) {
  const StepRecord& record = memory.record();
  const auto without_saved = [&](std::ptrdiff_t bytes, int at) {
    for (int id = 0; id < static_cast<int>(record.storages.size()); ++id)
      bytes -= memory.recorded_bytes(id, at);
    return std::max<std::ptrdiff_t>(0, bytes);
  };
  const auto live = [&](int at) {
    return at < 0 ? 0 : without_saved(record.events[static_cast<std::size_t>(at)].live, at);
  };
  const StepEvent& now = record.events[static_cast<std::size_t>(event)];
  const std::ptrdiff_t all = without_saved(now.peak, event);
  const std::ptrdiff_t made = std::min(all, now.parameter_gradients);
  const std::ptrdiff_t waiting =
      std::clamp<std::ptrdiff_t>(std::max(live(event - 1), live(event)) - made, 0, all - made);
  const auto bytes = [](std::ptrdiff_t n) { return static_cast<std::size_t>(n); };
  return {bytes(all), bytes(made), bytes(waiting), bytes(all - made - waiting)};
}

/// The operator whose backward runs before event `event`, and the operator's module.
inline std::string running_at(const StepRecord& record, int event) {
  for (int e = event - 1; e >= 0; --e) {
    const int id = record.events[static_cast<std::size_t>(e)].reads;
    if (id < 0) continue;
    const StepStorage& storage = record.storages[static_cast<std::size_t>(id)];
    return "backward of " + (storage.name.empty() ? "an unknown operator" : storage.name) +
           (storage.module.empty() ? "" : " in " + storage.module);
  }
  return "forward";
}

/// The largest parts of `beside`, in words.
inline std::string in_words(const BesideSaved& beside, bool forward) {
  std::string words;
  const auto add = [&](std::size_t bytes, const char* what) {
    if (bytes < beside.all / 100 || bytes == 0) return;
    words +=
        std::string(words.empty() ? ": " : ", ") + BudgetReport::in_words(bytes) + " of " + what;
  };
  add(beside.parameter_gradients, "gradients of parameters");
  add(beside.activation_gradients, forward ? "activations" : "gradients of activations");
  add(beside.workspaces, "workspaces");
  return ", where " + BudgetReport::in_words(beside.all) + " are in use beside what is saved" +
         words;
}

/// The workspaces waiting at `event`, in words.
inline std::string opaque_at(const StepMemory& memory, int event) {
  std::ptrdiff_t bytes = 0;
  const std::string* of = nullptr;
  for (int id = 0; id < static_cast<int>(memory.record().storages.size()); ++id) {
    const StepStorage& storage = memory.record().storages[static_cast<std::size_t>(id)];
    if (!storage.opaque || memory.recorded_bytes(id, event) == 0) continue;
    bytes += memory.recorded_bytes(id, event);
    if (of == nullptr) of = &storage.name;
  }
  if (of == nullptr) return "";
  return "; " + BudgetReport::in_words(static_cast<std::size_t>(bytes)) +
         " of what is saved are workspaces of " + *of + ", which no codec takes";
}

inline std::string refusal(const KnownStep& known, const StepPlans& plans) {
  const StepRecord& record = known.step.record;
  const StepPeak& peak = plans.least.peak;
  std::string where = running_at(record, peak.event);
  if (peak.again >= 0)
    where = "what is inside of checkpoint " + std::to_string(peak.again) + ", which takes " +
            BudgetReport::in_words(known.memory->growth(peak.again)) + " when it runs again for " +
            running_at(record, peak.event + 1);
  else where += in_words(beside_saved(*known.memory, peak.event), where == "forward");
  return "adacc: a budget of " + BudgetReport::in_words(known.budget) +
         " is below the least that a plan was found for, " + BudgetReport::in_words(peak.bytes) +
         " of the plain step's " + BudgetReport::in_words(record.peak()) + "; it is limited by " +
         where + opaque_at(*known.memory, peak.event);
}

inline std::string sizes_of(const at::Tensor& tensor) {
  std::string text = "[";
  for (const std::int64_t size : tensor.sizes())
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}
inline std::string described(const at::Tensor& tensor, const std::string& saver) {
  return std::string("a ") + c10::toString(tensor.scalar_type()) + " tensor of sizes " +
         sizes_of(tensor) + " by " + (saver.empty() ? "an unknown operator" : saver);
}
inline std::string expected(const StepRecord& record, int number) {
  const std::vector<StepStorage>& all = record.storages;
  if (number >= static_cast<int>(all.size()))
    return "only " + std::to_string(all.size()) + " were recorded";
  const StepStorage& storage = all[static_cast<std::size_t>(number)];
  return std::to_string(storage.bytes) + " bytes by " + storage.name + " were recorded there";
}

}}}}  // namespace adacc::v0_1::torch::detail
