// SPDX-License-Identifier: MIT
/// Bytes in use in a recorded step under a plan, and the time added by the plan.
///
/// The record has the bytes in use between any two events, everything retained. A plan changes only the storages held
/// by autograd alone. Each takes the bytes of a form from the event of encoding on, and the bytes of elements beside
/// them while backward reads. A storage made again by a block is absent until backward reads the first one of the
/// block. A sent storage is present until the write is waited for, and from the beginning of the read on. All else
/// (gradients, workspaces, memory held by the caller) is unchanged. So the peak is the whole step's, not only that of
/// saved tensors, at any speed of the store.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "step_record.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Whether a storage goes to a store, and the recorded events at which transfers are waited for and begun. The write
/// begins when the storage is released.
struct StepTravel {
  bool sent = false;
  int written = -1;  ///< the event that waits for the write
  int fetched = -1;  ///< the event that begins the read
};

/// The fate of each storage and block.
struct StepChoice {
  std::vector<int> form;    ///< into StepStorage::forms; -1: retained
  std::vector<char> again;  ///< whether the block runs again in backward
  std::vector<StepTravel> travel;
  /// Whether decoded elements of a storage take the form's place while read. No plan says so: a recorded step may.
  std::vector<char> in_place;

  /// Everything retained.
  explicit StepChoice(const StepRecord& record)
      : form(record.storages.size(), -1), again(record.blocks.size(), 0),
        travel(record.storages.size()), in_place(record.storages.size(), 0) {}

  bool sends() const {
    for (const StepTravel& one : travel)
      if (one.sent) return true;
    return false;
  }
};

struct StepPeak {
  std::size_t bytes = 0;
  int event = 0;   ///< the event behind the moment of the peak
  int again = -1;  ///< the block running again then
};

/// Peaks and seconds of one record under any choice. The record must outlive this object.
class StepMemory {
 public:
  explicit StepMemory(const StepRecord& record) : record_(record) {
    const int count = static_cast<int>(record.blocks.size());
    inputs_of_.resize(record.storages.size());
    savers_of_.resize(record.storages.size());
    for (int b = 0; b < count; ++b) {
      const StepBlock& block = record.blocks[index(b)];
      Span span;
      for (const int id : block.inputs) inputs_of_[index(id)].push_back(b);
      for (const int id : block.saved_inputs) savers_of_[index(id)].push_back(b);
      std::ptrdiff_t most = 0;
      for (int e = block.begin_event + 1; e <= block.end_event; ++e)
        most = std::max(most, event(e).peak);
      span.growth = most - event(block.begin_event).live;
      for (int id = block.first; id < block.end; ++id) {
        const StepStorage& mine = storage(id);
        if (mine.block != b) continue;
        for (const StepReading& reading : mine.readings)
          if (span.begin < 0 || reading.first < span.begin) span.begin = reading.first;
        span.end = std::max(span.end, mine.freed);
      }
      spans_.push_back(span);
    }
  }

  const StepRecord& record() const { return record_; }

  /// Whether backward reads any storage saved by block `b` alone: otherwise the block never runs again.
  bool repeats(int b) const { return spans_[index(b)].begin >= 0; }
  /// The most bytes that forward of block `b` adds to those at the block's beginning.
  std::size_t growth(int b) const {
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, spans_[index(b)].growth));
  }
  /// Whether storage `id` is gone if the block runs again: the storage belongs to this block alone, and is no block's
  /// input.
  bool member(int id) const { return storage(id).block >= 0 && inputs_of_[index(id)].empty(); }

  /// Bytes of storage `id` in use during the interval ending at event `e`, as recorded.
  std::ptrdiff_t recorded_bytes(int id, int e) const {
    const StepStorage& mine = storage(id);
    const bool there = mine.saved && mine.released >= 0 && e > mine.released && e <= mine.freed;
    return there ? static_cast<std::ptrdiff_t>(mine.bytes) : 0;
  }

  StepPeak peak(const StepChoice& choice) const {
    StepPeak most;
    each_moment(choice, [&](std::ptrdiff_t bytes, int e, int again) {
      if (bytes > static_cast<std::ptrdiff_t>(most.bytes))
        most = {static_cast<std::size_t>(bytes), e, again};
    });
    return most;
  }
  /// The most bytes in use in each interval, which ends at the event of the same index.
  std::vector<std::ptrdiff_t> peaks(const StepChoice& choice) const {
    std::vector<std::ptrdiff_t> all(record_.events.size(), 0);
    each_moment(choice, [&](std::ptrdiff_t bytes, int e, int) {
      all[index(e)] = std::max(all[index(e)], bytes);
    });
    return all;
  }

  /// Puts storages from `first` to in front of `end` into their smallest forms, and lets blocks beginning there run
  /// again.
  void make_smallest(StepChoice& choice, int first, int end) const {
    for (int id = first; id < end; ++id)
      choice.form[index(id)] = static_cast<int>(storage(id).forms.size()) - 1;
    for (int b = 0; b < static_cast<int>(record_.blocks.size()); ++b) {
      const int begins = record_.blocks[index(b)].first;
      if (begins >= first && begins < end && repeats(b)) choice.again[index(b)] = 1;
    }
  }
  /// Puts all storages from `first` on into their smallest forms.
  void make_smallest(StepChoice& choice, int first = 0) const {
    make_smallest(choice, first, static_cast<int>(record_.storages.size()));
  }

  /// Bytes that `choice` adds to each interval, which ends at the event of the same index, and at this event. In `ended`:
  /// the part gone at the event, decoded elements without a reader.
  std::vector<std::ptrdiff_t> extra(const StepChoice& choice,
                                    std::vector<std::ptrdiff_t>* ended = nullptr) const {
    const int events = static_cast<int>(record_.events.size());
    const auto surroundings = static_cast<std::ptrdiff_t>(record_.surroundings_bytes);
    std::vector<std::ptrdiff_t> extra(index(events), 0);
    if (ended != nullptr) ended->assign(index(events), 0);
    for (int id = 0; id < static_cast<int>(record_.storages.size()); ++id)
      add_extra(id, choice, extra, ended);
    for (std::size_t b = 0; b < record_.blocks.size(); ++b) {
      // From the block's beginning until backward has read the last of the block, or later.
      if (choice.again[b] == 0) continue;
      const int last = record_.blocks[b].forgotten < 0 ? events - 1 : record_.blocks[b].forgotten;
      for (int e = record_.blocks[b].begin_event + 1; e <= last; ++e)
        extra[index(e)] += surroundings;
    }
    return extra;
  }

  /// Whether storage `id` is encoded and decoded under `choice`.
  bool costs(int id, const StepChoice& choice) const {
    return form_of(id, choice) != nullptr && storage(id).released >= 0 && !gone(id, choice) &&
           (storage(id).saved || feeds_again(id, choice));
  }
  /// Seconds that the plan adds to the step, without transfers.
  double seconds(const StepChoice& choice) const {
    double sum = 0;
    for (int id = 0; id < static_cast<int>(record_.storages.size()); ++id) {
      if (!costs(id, choice)) continue;
      sum += form_of(id, choice)->encode + decode_seconds(id, choice) * storage(id).decodings();
    }
    for (int b = 0; b < static_cast<int>(record_.blocks.size()); ++b)
      if (choice.again[index(b)] != 0) sum += record_.blocks[index(b)].seconds;
    return sum;
  }

  /// Seconds for the elements of storage `id`, which has a form, and of the sources of which it is made again.
  double decode_seconds(int id, const StepChoice& choice) const {
    const StepForm& form = *form_of(id, choice);
    double sum = form.decode;
    if (form.runs_again())
      for (const StepSource& source : storage(id).sources)
        if (!is_retained(source.storage, choice)) sum += decode_seconds(source.storage, choice);
    return sum;
  }

  /// The form of storage `id`; null: retained. Where no operator can make the storage again, a choice of that is one of
  /// the form before.
  const StepForm* form_of(int id, const StepChoice& choice) const {
    const int form = form_number(id, choice);
    return form >= 0                      ? &storage(id).forms[index(form)]
           : storage(id).packed.bytes > 0 ? &storage(id).packed
                                          : nullptr;
  }
  /// form_of() as a number into StepStorage::forms; -1: retained or packed.
  int form_number(int id, const StepChoice& choice) const {
    const StepStorage& mine = storage(id);
    const int form = choice.form[index(id)];
    if (form < 0 || mine.packed.bytes > 0) return -1;
    return mine.forms[index(form)].runs_again() && !can_run_again(id, choice) ? form - 1 : form;
  }
  /// Whether storage `id` is made again rather than kept.
  bool gone(int id, const StepChoice& choice) const {
    const StepStorage& mine = storage(id);
    return mine.block >= 0 && choice.again[index(mine.block)] != 0 && !feeds_again(id, choice);
  }
  /// `choice` with the numbers of forms as form_of() has them.
  StepChoice resolved(const StepChoice& choice) const {
    StepChoice mine = choice;
    for (int id = 0; id < static_cast<int>(record_.storages.size()); ++id)
      mine.form[index(id)] = form_number(id, choice);
    return mine;
  }
  /// Whether a block that runs again reads storage `id`.
  bool feeds_again(int id, const StepChoice& choice) const {
    for (const int b : inputs_of_[index(id)])
      if (choice.again[index(b)] != 0) return true;
    return false;
  }

  /// Whether storage `id` may wait in a store under `choice`.
  bool may_be_sent(int id, const StepChoice& choice) const {
    const StepStorage& mine = storage(id);
    return mine.may_travel && mine.packed.bytes == 0 &&
           waiting_bytes(id, choice) >= record_.least_sent_bytes && !gone(id, choice) &&
           (mine.saved || feeds_again(id, choice)) && released(id, choice) >= 0 &&
           first_use(id, choice) > released(id, choice);
  }
  /// Bytes of storage `id` in the chosen form.
  std::size_t waiting_bytes(int id, const StepChoice& choice) const {
    const StepForm* const form = form_of(id, choice);
    return form == nullptr ? storage(id).bytes : form->bytes;
  }

  /// The event at which the store notices that autograd alone holds storage `id`. A block run again later saves
  /// nothing, so the store does not look before the block's end.
  int released(int id, const StepChoice& choice) const {
    const int at = storage(id).released;
    for (std::size_t b = 0; b < record_.blocks.size(); ++b) {
      const StepBlock& block = record_.blocks[b];
      if (choice.again[b] != 0 && at > block.begin_event && at < block.end_event)
        return block.end_event;
    }
    return at;
  }
  /// The event at which hooks are first asked for storage `id`; -1: never. A block run again reads the block's own
  /// storages without hooks.
  int first_use(int id, const StepChoice& choice) const {
    const StepStorage& mine = storage(id);
    int first = -1;
    const auto offer = [&](int e) {
      if (e >= 0 && (first < 0 || e < first)) first = e;
    };
    if (mine.block < 0 || choice.again[index(mine.block)] == 0)
      for (const StepReading& reading : mine.readings) offer(reading.first);
    for (const int b : inputs_of_[index(id)])
      if (choice.again[index(b)] != 0) offer(spans_[index(b)].begin);
    return first;
  }
  /// The event at which block `b` would run again; -1: never.
  int runs_again(int b) const { return spans_[index(b)].begin; }

 private:
  /// A block in backward, and the bytes for a run.
  struct Span {
    int begin = -1;  ///< the first event reading a storage of the block
    int end = -1;    ///< the event freeing the last of these storages
    std::ptrdiff_t growth = 0;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  const StepEvent& event(int e) const { return record_.events[index(e)]; }
  const StepStorage& storage(int id) const { return record_.storages[index(id)]; }

  /// offer(bytes, event, block) at each moment at, or before, an event where bytes may be at their most; `block` runs
  /// again then, or is -1.
  template <class Offer>
  void each_moment(const StepChoice& choice, const Offer& offer) const {
    const int events = static_cast<int>(record_.events.size());
    const auto surroundings = static_cast<std::ptrdiff_t>(record_.surroundings_bytes);
    std::vector<std::ptrdiff_t> ended;
    const std::vector<std::ptrdiff_t> extra = this->extra(choice, &ended);
    for (int e = 0; e < events; ++e) offer(event(e).peak + extra[index(e)], e, -1);
    const auto live = [&](int e) { return event(e).live + extra[index(e)] - ended[index(e)]; };
    struct Encoding {
      int at;
      std::ptrdiff_t order, form, raw, work;
    };
    std::vector<Encoding> encodings;
    for (int id = 0; id < static_cast<int>(record_.storages.size()); ++id) {
      const StepForm* const form = form_of(id, choice);
      const StepStorage& mine = storage(id);
      const int at = released(id, choice);
      if (form == nullptr || at < 0 || gone(id, choice)) continue;
      const auto raw = static_cast<std::ptrdiff_t>(mine.bytes);
      const auto bytes = static_cast<std::ptrdiff_t>(form->bytes);
      const bool again = form->runs_again();
      const auto work = again ? 0 : static_cast<std::ptrdiff_t>(form->work_bytes);
      encodings.push_back({at, form == &mine.packed ? 0 : bytes, bytes, raw, work});
      if (again || work > 0)
        for (const StepReading& reading : mine.readings)
          offer(live(reading.first) + decoding_bytes(id, choice, reading.first), reading.first, -1);
      // The elements beside the form, during the last decoding, unless decoded already.
      if (mine.unpacked >= 0 && !is_read(id, choice, mine.unpacked, /*still=*/true))
        offer(live(mine.unpacked) + static_cast<std::ptrdiff_t>(mine.decoded_bytes()),
              mine.unpacked, -1);
    }
    // The form beside the elements, during encoding: at one event, smaller forms first (SavedStore).
    std::stable_sort(encodings.begin(), encodings.end(), [](const Encoding& a, const Encoding& b) {
      return a.at != b.at ? a.at < b.at : a.order < b.order;
    });
    std::ptrdiff_t freed = 0;
    for (std::size_t i = 0; i < encodings.size(); ++i) {
      const Encoding& mine = encodings[i];
      if (i == 0 || encodings[i - 1].at != mine.at) freed = 0;
      offer(live(mine.at) + mine.form + mine.work - freed, mine.at, -1);
      freed += mine.raw - mine.form;
    }
    for (int b = 0; b < static_cast<int>(record_.blocks.size()); ++b) {
      const Span& span = spans_[index(b)];
      if (choice.again[index(b)] == 0 || span.begin < 0) continue;
      std::ptrdiff_t bytes = live(span.begin) + span.growth +
                             surroundings;  // backward's own, which come back afterwards
      for (const int id : record_.blocks[index(b)].inputs) {
        if (storage(id).released < 0) continue;
        const StepTravel& travel = choice.travel[index(id)];
        if (form_of(id, choice) != nullptr)
          bytes += static_cast<std::ptrdiff_t>(storage(id).decoded_bytes());
        if (travel.sent && travel.fetched >= span.begin)  // fetched only now
          bytes += static_cast<std::ptrdiff_t>(waiting_bytes(id, choice));
      }
      offer(bytes, span.begin, b);
    }
  }

  bool is_retained(int id, const StepChoice& choice) const {
    return storage(id).released < 0 || form_of(id, choice) == nullptr;
  }
  /// Whether an operator can make storage `id` again: all sources are there, and exact as far as needed.
  bool can_run_again(int id, const StepChoice& choice) const {
    if (feeds_again(id, choice)) return false;
    for (const StepSource& source : storage(id).sources) {
      if (choice.travel[index(source.storage)].sent || gone(source.storage, choice) ||
          outlives(id, source.storage))
        return false;
      if (is_retained(source.storage, choice)) continue;
      if (source.least == StepSource::Form::retained ||
          (source.least == StepSource::Form::exact && loses(source.storage, choice)))
        return false;
    }
    return true;
  }
  /// Whether anything happens between the moment that frees storage `source` and that which frees `id`: then `source`
  /// would live longer for the sake of `id` than it was recorded (a second loss may read `id` alone).
  bool outlives(int id, int source) const {
    const int freed = storage(source).freed;
    for (int e = freed + 1; e <= storage(id).freed; ++e)
      if (event(e).reads >= 0 || event(e).peak > event(freed).live) return true;
    return false;
  }
  /// Whether storage `id` is not what it was once it has been read.
  bool loses(int id, const StepChoice& choice) const {
    if (is_retained(id, choice)) return false;
    const StepForm* const form = form_of(id, choice);
    if (form->codec == nullptr) return false;
    if (!form->runs_again()) return !form->codec->lossless;
    for (const StepSource& source : storage(id).sources)
      if (loses(source.storage, choice)) return true;
    return false;
  }
  /// The most bytes beside those in use at event `e` while the elements of storage `id`, which has a form, are made.
  std::ptrdiff_t decoding_bytes(int id, const StepChoice& choice, int e) const {
    const auto bytes = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
    const StepForm& form = *form_of(id, choice);
    const std::ptrdiff_t mine = bytes(storage(id).decoded_bytes()) + bytes(form.work_bytes);
    if (!form.runs_again()) return mine;
    std::ptrdiff_t sources = 0, most = 0;
    for (const StepSource& source : storage(id).sources) {
      const StepStorage& other = storage(source.storage);
      const bool is_there = is_retained(source.storage, choice) ||
                            (other.unpacked >= 0 && e >= other.unpacked) ||
                            is_read(source.storage, choice, e + 1);
      if (is_there) continue;
      most = std::max(most, sources + decoding_bytes(source.storage, choice, e));
      sources += bytes(other.decoded_bytes());
    }
    return std::max(most, sources + mine);
  }

  /// Adds to each interval the change of storage `id`'s bytes under the plan, and to `ended`, unless null, the part
  /// gone at the interval's end.
  void add_extra(int id, const StepChoice& choice, std::vector<std::ptrdiff_t>& extra,
                 std::vector<std::ptrdiff_t>* ended) const {
    const StepStorage& mine = storage(id);
    const int from = released(id, choice);
    if (from < 0) return;
    const bool feeds = feeds_again(id, choice);
    if (!mine.saved && !feeds) return;
    const auto raw = static_cast<std::ptrdiff_t>(mine.bytes);
    int until = mine.freed;
    if (feeds)
      for (const int b : inputs_of_[index(id)])
        if (choice.again[index(b)] != 0) until = std::max(until, spans_[index(b)].end);
    const StepForm* const form = form_of(id, choice);
    if (gone(id, choice)) {
      const int back = std::min(spans_[index(mine.block)].begin, mine.freed);
      for (int e = from + 1; e <= back; ++e) extra[index(e)] -= raw;
      return;
    }
    const StepTravel& travel = choice.travel[index(id)];
    for (int e = from + 1; e <= until; ++e) {
      const bool away = travel.sent && e > travel.written && e <= travel.fetched;
      std::ptrdiff_t bytes = raw;
      if (form != nullptr) {
        // The form, the decoded elements, or both.
        const bool is_unpacked = mine.unpacked >= 0 && e > mine.unpacked;
        const bool is_decoded = is_unpacked || is_read(id, choice, e);
        if (ended != nullptr && !away && is_decoded && !is_unpacked &&
            !is_read(id, choice, e, /*still=*/true))
          (*ended)[index(e)] += static_cast<std::ptrdiff_t>(mine.decoded_bytes());
        const bool has_form = !is_unpacked && !(is_decoded && choice.in_place[index(id)] != 0);
        bytes = (is_decoded ? static_cast<std::ptrdiff_t>(mine.decoded_bytes()) : 0) +
                (has_form ? static_cast<std::ptrdiff_t>(form->bytes) : 0);
      }
      if (away) bytes = 0;
      extra[index(e)] += bytes - recorded_bytes(id, e);
    }
  }

  /// Whether backward has storage `id` decoded in the interval ending at event `e`; if `still`, at the event, too.
  bool is_read(int id, const StepChoice& choice, int e, bool still = false) const {
    const StepStorage& mine = storage(id);
    for (const StepReading& reading : mine.readings)
      if (e > reading.first && (e < reading.last || (e == reading.last && !still))) return true;
    for (const int b : savers_of_[index(id)]) {
      const Span& span = spans_[index(b)];
      if (choice.again[index(b)] == 0 || span.begin < 0 || e <= span.begin) continue;
      // A block run again holds an input that the block saves until the block has read all storages saved from the
      // input: for an input with other savers, at least until the next reading. Other inputs are gone after the run.
      int last = span.begin + 1;
      bool next = true;
      for (const StepReading& reading : mine.readings) {
        if (reading.first < span.begin) continue;
        if (mine.block == b || next || reading.first <= span.end)
          last = std::max(last, reading.last);
        next = false;
      }
      if (e <= last) return true;
    }
    return false;
  }

  const StepRecord& record_;
  std::vector<Span> spans_;
  std::vector<std::vector<int>> inputs_of_;  ///< by storage: the blocks with this input
  std::vector<std::vector<int>> savers_of_;  ///< by storage: among them, those that save the input
};

/// Turns the bytes of `record`, a step run under `choice`, into those of the plain step.
inline void retain_all(StepRecord& record, const StepChoice& choice) {
  const std::vector<std::ptrdiff_t> extra = StepMemory(record).extra(choice);
  for (std::size_t e = 0; e < extra.size(); ++e) {
    record.events[e].peak -= extra[e];
    record.events[e].live -= extra[e];
  }
}

}}}  // namespace adacc::v0_1::torch
