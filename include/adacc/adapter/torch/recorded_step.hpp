// SPDX-License-Identifier: MIT
/// RecordedStep: the record of a step, and the forms that its storages may take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "keep.hpp"
#include "step_record.hpp"
#include "step_times.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

struct MadeAgain;  // made_again.hpp

/// A storage's elements for codecs, and the possible forms.
struct StepElements {
  c10::ScalarType type = c10::ScalarType::Float;
  std::size_t count = 0, columns = 1;
  std::vector<Keep> forms;                ///< for StepStorage::forms
  std::vector<Keep> declined;             ///< forms that values of this or an earlier step declined
  std::shared_ptr<const MadeAgain> made;  ///< for Keep::again(): the operators; of no saved tensors
};

/// A record with what codecs need to know of its storages.
struct RecordedStep {
  StepRecord record;
  std::vector<StepElements> elements;  ///< by storage
  std::unique_ptr<StepTimes>
      times;  ///< a device's, to be put into the record; null: they are there

  /// Storage `number` takes `form` no more.
  void decline(int number, Keep form) {
    const auto place = static_cast<std::size_t>(number);
    StepElements& mine = elements[place];
    const auto has = [form](const Keep& one) { return one.codec() == form.codec(); };
    if (std::none_of(mine.declined.begin(), mine.declined.end(), has))
      mine.declined.push_back(form);
    const auto found = std::find_if(mine.forms.begin(), mine.forms.end(), has);
    if (found == mine.forms.end()) return;
    std::vector<StepForm>& forms = record.storages[place].forms;
    forms.erase(forms.begin() + (found - mine.forms.begin()));
    mine.forms.erase(found);
  }
  /// Waits for the device.
  void settle_times() {
    if (const auto mine = std::move(times)) mine->settle(record);
  }
};

/// call(form) for the forms from `asked` up to the milder `taken`.
template <class Call>
void each_declined(Keep asked, Keep taken, const Call& call) {
  for (; asked.codec() != taken.codec(); asked = asked.milder()) call(asked);
}

}}}}  // namespace adacc::v0_1::torch::detail
