// SPDX-License-Identifier: MIT
/// Predictions for a step from known steps of the same savers and of other sizes: sequences of another length, a
/// smaller last batch.
///
/// A plan for one size serves another, storage by storage, if the peak there is within the budget, so several lengths
/// need one search. A new size is predicted from known sizes (step_fit.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../io/budget.hpp"
#include "device_side.hpp"
#include "known_step.hpp"
#include "step_fit.hpp"
#include "step_plan.hpp"
#include "step_recorder.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

using KnownSteps = std::vector<std::unique_ptr<KnownStep>>;

/// `choice`, made for a step of the same savers, translated for another step: each storage takes the form of the same
/// codec, or the next milder form available.
inline StepChoice same_choice(const StepChoice& choice, const StepRecord& from,
                              const StepRecord& to) {
  StepChoice result(to);
  result.again = choice.again;
  for (std::size_t id = 0; id < to.storages.size(); ++id) {
    const std::vector<StepForm>& forms = to.storages[id].forms;
    for (int form = choice.form[id]; form >= 0 && result.form[id] < 0; --form)
      for (std::size_t f = 0; f < forms.size(); ++f)
        if (forms[f].codec == from.storages[id].forms[static_cast<std::size_t>(form)].codec)
          result.form[id] = static_cast<int>(f);
  }
  return result;
}

/// The fastest plan of the other `known` steps that also fits `mine`; null: none is within `budget`.
inline std::unique_ptr<StepPlans> plans_of_others(const KnownSteps& known, const KnownStep& wanted,
                                                  std::size_t budget) {
  std::unique_ptr<StepPlans> plans;
  for (const auto& other : known) {
    if (other.get() == &wanted || !other->usable() ||
        !same_savers(other->step.record, wanted.step.record))
      continue;
    StepPlan plan{same_choice(other->plans->best.choice, other->step.record, wanted.step.record),
                  {}};
    plan.peak = wanted.memory->peak(plan.choice);
    plan.seconds = wanted.memory->seconds(plan.choice);
    if (plan.peak.bytes > budget) continue;
    if (plans == nullptr || plan.seconds < plans->best.seconds)
      plans = std::make_unique<StepPlans>(StepPlans{plan, plan, true});
  }
  return plans;
}

/// A plan for a step of known savers and unknown sizes.
struct GuessedStep {
  StepRecord record;  ///< the expected one
  StepPlan plan{StepChoice(StepRecord{}), {}};
};

/// The steps of `known` that this step may equal, except for sizes. The step saved the same as `like` before storage
/// `number`, which `saver` saves now; `missing` is StepRecord::before_missing_gradient of this step.
inline std::vector<const KnownStep*> of_same_savers(const KnownSteps& known, const StepRecord& like,
                                                    int number, const std::string& saver,
                                                    int missing) {
  std::vector<const KnownStep*> all;
  for (std::size_t i = known.size(); i-- > 0;) {
    const StepRecord& record = known[i]->step.record;
    if (number < count_of(*known[i]) &&
        record.storages[static_cast<std::size_t>(number)].name == saver &&
        misses_gradient(record.before_missing_gradient, number) ==
            misses_gradient(missing, number) &&
        same_beginning(record, like, number) &&
        (all.empty() || same_savers(record, all.front()->step.record)))
      all.push_back(known[i].get());
  }
  return all;
}

/// fitted(), with the bytes of forms as given by codecs: these grow by blocks of rows, and are no polynomials.
inline std::optional<StepRecord> fitted_by(const std::vector<const KnownStep*>& known, int number,
                                           std::size_t bytes, const DeviceSide& side) {
  std::vector<const StepRecord*> records;
  for (const KnownStep* one : known) records.push_back(&one->step.record);
  std::optional<StepRecord> record = fitted(records, number, bytes);
  if (!record) return record;
  const auto distance = [&](const KnownStep* one) {
    const std::size_t theirs = one->step.record.storages[static_cast<std::size_t>(number)].bytes;
    return theirs > bytes ? theirs - bytes : bytes - theirs;
  };
  const RecordedStep& nearest =
      (*std::min_element(known.begin(), known.end(), [&](const KnownStep* a, const KnownStep* b) {
        return distance(a) < distance(b);
      }))->step;
  for (std::size_t id = 0; id < record->storages.size(); ++id) {
    StepStorage& storage = record->storages[id];
    const StepElements& elements = nearest.elements[id];
    const double times =
        static_cast<double>(storage.bytes) / static_cast<double>(nearest.record.storages[id].bytes);
    const auto count =
        static_cast<std::size_t>(std::llround(times * static_cast<double>(elements.count)));
    for (std::size_t f = 0; f < storage.forms.size(); ++f)
      if (!storage.forms[f].runs_again())
        storage.forms[f].bytes = side.counted(EncodedElements::bytes_under(
            *elements.forms[f].codec(), elements.type, count, elements.columns, side.device()));
  }
  return record;
}

/// The relative error of the other `known` steps in predicting the peaks of `record`; < 0: they are too few, or take
/// another course.
inline double how_far_off(const KnownSteps& known, const StepRecord& record,
                          const DeviceSide& side) {
  std::vector<const KnownStep*> all;
  int number = -1;
  for (const auto& one : known) {
    const StepRecord& other = one->step.record;
    if (!same_savers(other, record) || alike(other, record)) continue;
    for (int id = 0; id < count_of(*one) && number < 0; ++id)
      if (other.storages[static_cast<std::size_t>(id)].bytes !=
          record.storages[static_cast<std::size_t>(id)].bytes)
        number = id;
    all.push_back(one.get());
  }
  if (number < 0) return -1;
  const std::optional<StepRecord> expected =
      fitted_by(all, number, record.storages[static_cast<std::size_t>(number)].bytes, side);
  if (!expected || !same_course(*expected, record)) return -1;
  StepChoice smallest(record);
  const StepMemory memory(record), expected_memory(*expected);
  memory.make_smallest(smallest);
  const auto off = [&](const StepChoice& choice) {
    const auto right = static_cast<double>(std::max<std::size_t>(1, memory.peak(choice).bytes));
    return std::abs(static_cast<double>(expected_memory.peak(choice).bytes) / right - 1);
  };
  return std::max(off(StepChoice(record)), off(smallest));
}

/// Puts as few storages as necessary, from `first` on, into the smallest forms, so that the peak is at most `budget`:
/// storages saved first, as they wait longest. False: even all of them are too few.
inline bool strengthen(const StepMemory& memory, StepChoice& choice, int first,
                       std::size_t budget) {
  const auto with = [&](int end) {
    StepChoice stronger = choice;
    memory.make_smallest(stronger, first, end);
    return stronger;
  };
  const auto fits = [&](const StepChoice& one) { return memory.peak(one).bytes <= budget; };
  if (fits(choice)) return true;
  int too_few = first, enough = static_cast<int>(memory.record().storages.size());
  if (!fits(with(enough))) return false;
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    (fits(with(middle)) ? enough : too_few) = middle;
  }
  choice = with(enough);
  return true;
}

/// A plan for a step after its first `number` storages, seen by `recorder`, whose next storage has `bytes`: the
/// fastest of the plans of `all`, each strengthened as far as needed. Null: none is within the budget for certain.
inline std::unique_ptr<GuessedStep> guessed_step(const std::vector<const KnownStep*>& all,
                                                 const Budget& wanted, int number,
                                                 std::size_t bytes, const StepRecorder& recorder) {
  double off = -1;
  for (const KnownStep* one : all) off = std::max(off, one->off);
  if (off < 0 || off > 0.02) return nullptr;  // not tried yet, or no polynomial
  std::optional<StepRecord> expected = fitted_by(all, number, bytes, recorder.side());
  if (!expected) return nullptr;
  auto guess = std::make_unique<GuessedStep>();
  guess->record = std::move(*expected);
  const StepMemory memory(guess->record);
  // A margin for twice the earlier error.
  const double margin = 2 * off + 0.002;
  const auto times = [](std::size_t n, double factor) {
    return static_cast<std::size_t>(static_cast<double>(n) * factor);
  };
  const std::size_t budget = times(wanted.of(times(guess->record.peak(), 1 - margin)), 1 - margin);
  bool any = false;
  int left = 8;  // plans to try: the step waits for this
  for (const KnownStep* one : all) {
    if (!one->usable() || left == 0) continue;
    --left;
    StepPlan plan{same_choice(one->plans->best.choice, one->step.record, guess->record), {}};
    for (int i = 0; i < number; ++i)
      if (recorder.record().storages[static_cast<std::size_t>(i)].released >= 0)
        plan.choice.form[static_cast<std::size_t>(i)] = recorder.taken(i);
    if (!strengthen(memory, plan.choice, number, budget)) continue;
    plan.peak = memory.peak(plan.choice);
    plan.seconds = memory.seconds(plan.choice);
    if (any && plan.seconds >= guess->plan.seconds) continue;
    plan.choice = memory.resolved(plan.choice);
    any = true;
    guess->plan = plan;
  }
  return any ? std::move(guess) : nullptr;
}

}}}}  // namespace adacc::v0_1::torch::detail
