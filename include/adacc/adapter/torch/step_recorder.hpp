// SPDX-License-Identifier: MIT
/// Writes a StepRecord down while a step runs.
///
/// Its owner guards it by a mutex, and calls it behind the store's own if it says `held`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "../../core/steady_clock.hpp"
#include "memory_count.hpp"
#include "saved_store.hpp"
#include "step_record.hpp"
#include "surroundings.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// What codecs are asked to take of a storage, and in which forms it may wait.
struct StepElements {
  c10::ScalarType type = c10::ScalarType::Float;
  std::size_t count = 0, columns = 1;
  std::vector<Keep> forms;  ///< as StepStorage::forms
};

struct RecordedStep {
  StepRecord record;
  std::vector<StepElements> elements;  ///< by storage
};

/// Storages that are inputs of blocks and not saved yet.
class BlockInputs {
 public:
  void clear() { inputs_.clear(); }
  void add(int number, const at::Tensor& tensor) {
    inputs_.push_back(
        {number, tensor.storage().unsafeGetStorageImpl(), tensor.storage().getWeakStorageImpl()});
  }
  int number_of(const at::Tensor& tensor) const {
    for (const Input& input : inputs_)
      if (input.impl == tensor.storage().unsafeGetStorageImpl()) return input.number;
    return -1;
  }
  /// visit(number) for those whose storage is gone; they are forgotten.
  template <class Visit>
  void gone(const Visit& visit) {
    std::erase_if(inputs_, [&](const Input& input) {
      const bool expired = input.alive.expired();
      if (expired) visit(input.number);
      return expired;
    });
  }

 private:
  struct Input {
    int number;
    const c10::StorageImpl* impl;
    WeakStorageImpl alive;  // no other storage gets its address
  };
  std::vector<Input> inputs_;
};

class StepRecorder {
 public:
  void begin(std::size_t live) {
    step_ = {};
    reading_.clear();
    inputs_.clear();
    block_ = -1;
    reads_ = false;
    live_ = static_cast<std::ptrdiff_t>(live);
    start_ = steady_seconds();
    event();
  }
  bool reads() const { return reads_; }

  /// The step is over; of `seconds`.
  RecordedStep end(double seconds) {
    const int last = event();
    for (const Reading& reading : reading_) close(reading, last);
    reading_.clear();
    for (StepStorage& storage : step_.record.storages) {
      if (storage.freed < 0) storage.freed = last;
      if (!storage.saved) storage.block = -1;
    }
    step_.record.seconds = seconds;
    step_.record.surroundings_bytes = Surroundings::bytes();
    step_.record.least_sent_bytes = MemoryCount::least_paged;
    return std::exchange(step_, {});
  }

  /// Something happens.
  int event(int reads = -1) {
    const MemoryCount::Lap lap = MemoryCount::lap();
    const int now = static_cast<int>(step_.record.events.size());
    step_.record.events.push_back({static_cast<std::ptrdiff_t>(lap.most) - live_,
                                   static_cast<std::ptrdiff_t>(lap.live) - live_, reads,
                                   steady_seconds() - start_});
    inputs_.gone([&](int number) {
      if (!storage(number).saved) storage(number).released = now;
    });
    return now;
  }
  /// The same behind the store's mutex: looks what backward still reads.
  int held_event(int reads = -1) {
    const int now = event(reads);
    std::erase_if(reading_, [&](const Reading& reading) {
      if (reading.of->kept && reading.of->kept->use_count() > 1) return false;
      close(reading, now);
      return true;
    });
    return now;
  }

  void saved(const at::Tensor& tensor, SavedStorage& entry) {
    entry.number = inputs_.number_of(tensor);
    if (entry.number < 0) entry.number = add(tensor);
    StepStorage& mine = storage(entry.number);
    mine.saved = true;
    mine.name = entry.what.savers.front();
    mine.module = entry.what.module;
    mine.block = block_;
    mine.released = -1;
  }
  void saved_again(int number) {
    if (storage(number).block != block_) storage(number).block = -1;
  }
  void released(const SavedStorage& entry, std::vector<Keep> forms, std::size_t packed_bytes) {
    StepElements& elements = step_.elements[static_cast<std::size_t>(entry.number)];
    StepStorage& mine = storage(entry.number);
    elements.type = entry.what.type;
    elements.count = entry.end - entry.first;
    elements.columns = entry.columns;
    mine.shape =
        Shape(std::max<std::size_t>(1, elements.count / elements.columns), elements.columns);
    mine.packed.bytes = packed_bytes;
    for (const Keep& form : forms) {
      const std::size_t bytes = EncodedElements::bytes_under(*form.codec(), elements.type,
                                                             elements.count, elements.columns);
      if (bytes == 0 || bytes >= entry.bytes()) continue;
      elements.forms.push_back(form);
      mine.forms.push_back({form.codec()->info, bytes, 0, 0});
    }
    mine.released = static_cast<int>(step_.record.events.size()) - 1;
  }
  void reads(const SavedStorage& entry) {
    reads_ = true;
    const int now = held_event(entry.number);
    for (const Reading& reading : reading_)
      if (reading.of == &entry) return;
    std::vector<StepReading>& all = storage(entry.number).readings;
    reading_.push_back({&entry, all.size()});
    all.push_back({now, now});
  }
  void reads_other() {
    reads_ = true;
    held_event();
  }
  void freed(SavedStorage& entry) {
    const auto reading = std::find_if(reading_.begin(), reading_.end(),
                                      [&](const Reading& one) { return one.of == &entry; });
    entry.kept.reset();
    const int now = event();
    storage(entry.number).freed = now;
    if (reading == reading_.end()) return;
    close(*reading, now);
    reading_.erase(reading);
  }

  /// A block begins; `numbers` has those of its inputs' storages that were saved before, or -1.
  void enter_block(const std::vector<at::Tensor>& inputs, const std::vector<int>& numbers) {
    StepBlock block;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      int number = numbers[i] >= 0 ? numbers[i] : inputs_.number_of(inputs[i]);
      if (number < 0) {
        number = add(inputs[i]);
        StepStorage& mine = storage(number);
        mine.name = "a block's input";
        mine.saved = false;
        mine.shape =
            Shape(std::max<std::size_t>(1, static_cast<std::size_t>(inputs[i].numel())), 1);
        inputs_.add(number, inputs[i]);
      }
      if (std::find(block.inputs.begin(), block.inputs.end(), number) == block.inputs.end())
        block.inputs.push_back(number);
    }
    block.first = static_cast<int>(step_.record.storages.size());
    block.begin_event = event();
    begun_ = steady_seconds();
    block_ = static_cast<int>(step_.record.blocks.size());
    step_.record.blocks.push_back(block);
  }
  void leave_block() {
    StepBlock& block = step_.record.blocks[static_cast<std::size_t>(block_)];
    block.seconds = steady_seconds() - begun_;
    block.end = static_cast<int>(step_.record.storages.size());
    block.end_event = event();
    block_ = -1;
  }

 private:
  struct Reading {
    const SavedStorage* of;
    std::size_t index;  // into its storage's readings
  };

  StepStorage& storage(int number) {
    return step_.record.storages[static_cast<std::size_t>(number)];
  }
  int add(const at::Tensor& tensor) {
    StepStorage storage;
    storage.bytes = tensor.storage().nbytes();
    storage.may_travel = MemoryCount::may_travel(tensor.storage());
    step_.record.storages.push_back(std::move(storage));
    step_.elements.emplace_back();
    return static_cast<int>(step_.record.storages.size()) - 1;
  }
  void close(const Reading& reading, int now) {
    storage(reading.of->number).readings[reading.index].last = now;
  }

  RecordedStep step_;
  std::vector<Reading> reading_;
  BlockInputs inputs_;
  std::ptrdiff_t live_ = 0;
  int block_ = -1;
  double start_ = 0, begun_ = 0;
  bool reads_ = false;
};

}}}}  // namespace adacc::v0_1::torch::detail
