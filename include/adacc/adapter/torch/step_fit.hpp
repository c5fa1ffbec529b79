// SPDX-License-Identifier: MIT
/// A prediction of a training step of other sizes, from records of steps of the same savers.
///
/// Bytes are polynomials of a step's size. In the length of a sequence, bytes of activations are linear, of scores
/// quadratic, and of gradients of parameters constant. So three records give all bytes of a fourth, as long as only
/// the size differs. The error is found by predicting a step that is recorded anyway.
///
/// No libtorch in this file.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "step_record.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Takes `events`, which are in order, out of `record`: an interval then reaches to the next event.
inline void take_out(StepRecord& record, const std::vector<int>& events) {
  std::vector<int> place;
  std::vector<StepEvent> left;
  auto most = std::numeric_limits<std::ptrdiff_t>::min();
  std::size_t next = 0;
  for (std::size_t e = 0; e < record.events.size(); ++e) {
    place.push_back(static_cast<int>(left.size()));
    most = std::max(most, record.events[e].peak);
    if (next < events.size() && events[next] == static_cast<int>(e)) {
      ++next;
      continue;
    }
    left.push_back(record.events[e]);
    left.back().peak = std::exchange(most, std::numeric_limits<std::ptrdiff_t>::min());
  }
  const auto moved = [&](int& event) {
    if (event >= 0) event = place[static_cast<std::size_t>(event)];
  };
  for (StepStorage& storage : record.storages) {
    moved(storage.released);
    moved(storage.freed);
    moved(storage.unpacked);
    for (StepReading& reading : storage.readings) moved(reading.first), moved(reading.last);
  }
  for (StepBlock& block : record.blocks)
    moved(block.begin_event), moved(block.end_event), moved(block.forgotten);
  record.events = std::move(left);
}

/// Whether the events of both records are the same in the same order, and storages have the same forms.
inline bool same_course(const StepRecord& a, const StepRecord& b) {
  const auto same = [](const auto& x, const auto& y, const auto& equal) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), equal);
  };
  return same(a.events, b.events,
              [](const StepEvent& x, const StepEvent& y) { return x.reads == y.reads; }) &&
         same(a.blocks, b.blocks,
              [](const StepBlock& x, const StepBlock& y) {
                return x.first == y.first && x.end == y.end && x.inputs == y.inputs &&
                       x.saved_inputs == y.saved_inputs && x.begin_event == y.begin_event &&
                       x.end_event == y.end_event && x.forgotten == y.forgotten;
              }) &&
         same(a.storages, b.storages, [&](const StepStorage& x, const StepStorage& y) {
           return x.name == y.name && x.block == y.block && x.saved == y.saved &&
                  x.released == y.released && x.freed == y.freed && x.unpacked == y.unpacked &&
                  (x.packed.bytes > 0) == (y.packed.bytes > 0) &&
                  same(x.readings, y.readings,
                       [](const StepReading& p, const StepReading& q) {
                         return p.first == q.first && p.last == q.last;
                       }) &&
                  same(x.sources, y.sources,
                       [](const StepSource& p, const StepSource& q) {
                         return p.storage == q.storage && p.least == q.least;
                       }) &&
                  same(x.forms, y.forms,
                       [](const StepForm& p, const StepForm& q) { return p.codec == q.codec; });
         });
}

/// The record of a step whose storage `number` has `bytes`, from the three nearest of `known`; none: fewer than three
/// take the same course.
inline std::optional<StepRecord> fitted(std::vector<const StepRecord*> known, int number,
                                        std::size_t bytes) {
  const auto size_of = [&](const StepRecord& record) {
    return static_cast<double>(record.storages[static_cast<std::size_t>(number)].bytes);
  };
  const auto size = static_cast<double>(bytes);
  std::stable_sort(known.begin(), known.end(), [&](const StepRecord* a, const StepRecord* b) {
    return std::abs(size_of(*a) - size) < std::abs(size_of(*b) - size);
  });
  std::array<const StepRecord*, 3> base{};
  std::size_t count = 0;
  for (const StepRecord* one : known) {
    bool fits = count == 0 || same_course(*one, *base[0]);
    for (std::size_t i = 0; i < count; ++i) fits = fits && size_of(*base[i]) != size_of(*one);
    if (fits) base[count++] = one;
    if (count == base.size()) break;
  }
  if (count < base.size()) return std::nullopt;
  std::array<double, 3> weight{};
  for (std::size_t i = 0; i < count; ++i) {
    weight[i] = 1;
    for (std::size_t k = 0; k < count; ++k)
      if (k != i) weight[i] *= (size - size_of(*base[k])) / (size_of(*base[i]) - size_of(*base[k]));
  }
  // of(record), predicted for the new size.
  const auto at = [&](const auto& of) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += weight[i] * static_cast<double>(of(*base[i]));
    return static_cast<std::ptrdiff_t>(std::llround(sum));
  };
  const auto positive = [&](const auto& of) {
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, at(of)));
  };
  StepRecord record = *base[0];
  for (std::size_t e = 0; e < record.events.size(); ++e) {
    record.events[e].peak = at([e](const StepRecord& one) { return one.events[e].peak; });
    record.events[e].live = at([e](const StepRecord& one) { return one.events[e].live; });
  }
  for (std::size_t id = 0; id < record.storages.size(); ++id) {
    StepStorage& storage = record.storages[id];
    storage.bytes = positive([id](const StepRecord& one) { return one.storages[id].bytes; });
    if (storage.saved_bytes > 0)
      storage.saved_bytes =
          positive([id](const StepRecord& one) { return one.storages[id].saved_bytes; });
    if (storage.packed.bytes > 0)
      storage.packed.bytes =
          positive([id](const StepRecord& one) { return one.storages[id].packed.bytes; });
    for (std::size_t f = 0; f < storage.forms.size(); ++f) {
      StepForm& form = storage.forms[f];
      if (form.runs_again())
        form.work_bytes = static_cast<std::size_t>(std::max<std::ptrdiff_t>(
            0,
            at([id, f](const StepRecord& one) { return one.storages[id].forms[f].work_bytes; })));
      else
        form.bytes =
            positive([id, f](const StepRecord& one) { return one.storages[id].forms[f].bytes; });
    }
  }
  return record;
}

}}}  // namespace adacc::v0_1::torch
