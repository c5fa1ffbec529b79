// SPDX-License-Identifier: MIT
/// A plan for a recorded step, made for another step: the record before, or one predicted for unknown sizes.
///
/// The plan serves as long as the step saves what the other step saved. Without a plan, storages take the smallest
/// forms, and blocks run again.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keep.hpp"
#include "known_step.hpp"
#include "other_sizes.hpp"
#include "saved_store.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class StepGuess {
 public:
  explicit operator bool() const { return step_ != nullptr; }
  void clear() { step_.reset(); }
  /// Null: no plan.
  void take(std::unique_ptr<GuessedStep> step) { step_ = std::move(step); }
  /// Null: there is no plan.
  const StepRecord* record() const { return step_ != nullptr ? &step_->record : nullptr; }
  std::size_t planned_bytes() const { return step_->plan.peak.bytes; }

  /// Storage `number` is saved. If the other step differs, there is no plan from now on. `missing` is
  /// StepRecord::before_missing_gradient of this step.
  void compare(int number, const std::string& saver, std::size_t bytes, int missing) {
    if (step_ == nullptr) return;
    const std::vector<StepStorage>& all = step_->record.storages;
    const auto place = static_cast<std::size_t>(number);
    if (place >= all.size() || all[place].bytes != bytes || all[place].name != saver ||
        misses_gradient(missing, number) !=
            misses_gradient(step_->record.before_missing_gradient, number))
      step_.reset();
  }

  /// The form of a storage with the possible `forms`, or one without loss if it `packs`.
  Keep form_of(const SavedStorage& entry, const std::vector<Keep>& forms, bool packs,
               Keep smallest) const {
    if (step_ == nullptr || entry.number < 0 || packs) return smallest;
    const auto place = static_cast<std::size_t>(entry.number);
    const int form = step_->plan.choice.form[place];
    if (form < 0) return Keep::as_is();
    if (step_->record.storages[place].forms[static_cast<std::size_t>(form)].runs_again())
      return entry.again != nullptr ? Keep::again() : smallest;
    const CodecInfo* const codec =
        step_->record.storages[place].forms[static_cast<std::size_t>(form)].codec;
    for (const Keep& one : forms)
      if (one.codec()->info == codec) return one;
    return smallest;
  }
  /// Whether block `block` runs again.
  bool runs_again(std::size_t block) const {
    return step_ == nullptr || block >= step_->plan.choice.again.size() ||
           step_->plan.choice.again[block] != 0;
  }

 private:
  std::unique_ptr<GuessedStep> step_;
};

}}}}  // namespace adacc::v0_1::torch::detail
