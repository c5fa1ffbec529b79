// SPDX-License-Identifier: MIT
/// Writes a StepRecord during a step.
///
/// A recorded step need not be a plain one: the recorder is told the form of each storage. The recorder leaves out
/// the cost of encoding and decoding, sees when a decoded storage is freed, and at the end computes the exact bytes
/// of the plain step.
///
/// The owner guards the recorder by a mutex, and calls `held_` functions behind the store's mutex.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../core/steady_clock.hpp"
#include "device_side.hpp"
#include "made_again.hpp"
#include "module_name.hpp"
#include "recorded_step.hpp"
#include "saved_store.hpp"
#include "step_fit.hpp"
#include "step_memory.hpp"
#include "step_record.hpp"
#include "step_times.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

/// Inputs of blocks, not saved yet.
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
  /// visit(number) for each input whose storage is gone, which is then forgotten.
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
    WeakStorageImpl alive;  // keeps other storages off the address
  };
  std::vector<Input> inputs_;
};

class StepRecorder {
 public:
  /// Records the bytes of `side`, which must outlive this object.
  explicit StepRecorder(const DeviceSide& side) : side_(side) {}

  const DeviceSide& side() const { return side_; }
  void begin(std::size_t live) {
    step_ = {};
    taken_.clear();
    first_block_.clear();
    in_place_.clear();
    travel_.clear();
    again_.clear();
    passing_.clear();
    without_gradient_.clear();
    gradients_ = 0;
    reading_.clear();
    ends_.clear();
    inputs_.clear();
    block_ = -1;
    reads_ = false;
    live_ = static_cast<std::ptrdiff_t>(live);
    most_ = live;
    apart_ = 0;
    start_ = steady_seconds();
    if (!side_.is_cpu() && !side_.is_captured())
      step_.times = std::make_unique<StepTimes>(side_.device());
    event();
  }
  bool reads() const { return reads_; }
  const StepRecord& record() const { return step_.record; }
  /// The form of storage `number`, into StepStorage::forms; -1: retained, or none yet.
  int taken(int number) const { return taken_[index(number)]; }
  /// `parameter` is used, and has no gradient yet.
  void misses_gradient(const at::Tensor& parameter) {
    int& before = step_.record.before_missing_gradient;
    if (before < 0) before = static_cast<int>(step_.record.storages.size());
    const auto same = [&](const WeakTensor& one) {
      return one._unsafe_get_target() == parameter.unsafeGetTensorImpl();
    };
    if (std::none_of(without_gradient_.begin(), without_gradient_.end(), same))
      without_gradient_.emplace_back(parameter.getIntrusivePtr());
  }
  /// The most bytes in use since the beginning.
  std::size_t most() const { return most_; }

  /// The step is over, after `seconds`.
  RecordedStep end(double seconds) {
    const int last = event();
    for (const Reading& reading : reading_) close(reading, last);
    reading_.clear();
    for (StepStorage& storage : step_.record.storages) {
      if (storage.freed < 0) storage.freed = last;
      if (!storage.saved) storage.block = -1;
    }
    step_.record.seconds = std::max(1e-9, seconds - apart_);
    for (StepBlock& block : step_.record.blocks)
      if (block.second_run > 0) block.seconds = std::min(block.seconds, block.second_run);
    step_.record.surroundings_bytes = side_.surroundings_bytes();
    step_.record.least_sent_bytes = MemoryCount::least_paged;
    StepChoice choice(step_.record);
    choice.form = taken_;
    choice.in_place = in_place_;
    choice.travel = travel_;
    for (StepTravel& travel : choice.travel)
      if (travel.sent && travel.fetched < 0) travel.fetched = last;
    for (std::size_t b = 0; b < again_.size(); ++b) choice.again[b] = again_[b];
    retain_all(step_.record, choice);
    // No planned step has the decoded elements longer than they are read.
    for (const EndOfReading& end : ends_) storage(end.number).readings[end.index].last = end.over;
    // Which events there are depends on the encoded storages. Without them, all records of a kind take the same
    // course.
    take_out(step_.record, passing_);
    return std::exchange(step_, {});
  }

  /// Adds an event, and returns the number.
  int event(int reads = -1) {
    const ByteCount::Lap lap = side_.lap();
    most_ = std::max(most_, lap.most);
    mark_ = steady_seconds();
    const int now = static_cast<int>(step_.record.events.size());
    step_.record.events.push_back({static_cast<std::ptrdiff_t>(lap.most) - live_,
                                   static_cast<std::ptrdiff_t>(lap.live) - live_, reads,
                                   mark_ - start_ - apart_, gradients_, mark(false)});
    inputs_.gone([&](int number) {
      StepStorage& mine = storage(number);
      if (!mine.saved && mine.released < 0) mine.released = now;
    });
    return now;
  }
  /// Leaves the bytes and seconds since the last event out of the step: a storage was encoded, decoded or freed.
  void apart() { static_cast<void>(leave_out()); }
  /// Block `b` has run again since the last event, which is no part of the step.
  void ran_again(int b) {
    StepBlock& block = step_.record.blocks[index(b)];
    const double before = mark_;
    const int second_mark = leave_out();
    if (block.second_run > 0) return;
    block.second_run = mark_ - before;
    block.second_mark = second_mark;
  }
  /// event() behind the store's mutex: also looks for ended readings, and closes those of retained storages.
  int held_event(int reads = -1) {
    const int now = event(reads);
    for (Reading& reading : reading_)
      if (reading.of->in_place && reading.over < 0 && is_over(reading)) reading.over = now;
    std::erase_if(reading_, [&](const Reading& reading) {
      if (reading.of->in_place || !is_over(reading)) return false;
      close(reading, now);
      return true;
    });
    return now;
  }

  /// The storages so far were saved in the modules of the same storages in `known`.
  void name_modules(const StepRecord& known) {
    std::vector<StepStorage>& mine = step_.record.storages;
    for (std::size_t i = 0; i < mine.size() && i < known.storages.size(); ++i)
      if (mine[i].module.empty()) mine[i].module = known.storages[i].module;
  }
  void saved(const at::Tensor& tensor, SavedStorage& entry) {
    entry.number = inputs_.number_of(tensor);
    if (entry.number >= 0) feed_block(entry, tensor);
    if (entry.number < 0) entry.number = add(tensor);
    // An input of a block that will run again: no operator has saved the tensor yet.
    if (saving_as() != nullptr) return;
    saved_in_block(entry.number);
    first_saved(entry.number, entry.what.savers.front(), entry.what.module);
  }
  void saved_again(int number, const std::string& saver, bool names_module) {
    if (saving_as() != nullptr) return;
    saved_in_block(number);
    if (!storage(number).saved)
      first_saved(number, saver, names_module ? module_name() : std::string());
    else if (storage(number).block != block_) storage(number).block = -1;
    const int first = first_block_[index(number)];
    if (first >= 0 && first != block_)
      step_.record.outputs.push_back(
          {number, static_cast<int>(step_.record.storages.size()), saver});
  }
  /// Autograd alone holds storage `number`, which is encoded later.
  void released(int number) {
    StepStorage& mine = storage(number);
    if (mine.released < 0) mine.released = static_cast<int>(step_.record.events.size()) - 1;
  }
  /// Whether the block that saved storage `number` runs again, and makes this storage anew.
  bool makes_again(int number) const {
    const int block = step_.record.storages[index(number)].block;
    if (block < 0 || again_[index(block)] == 0) return false;
    for (const StepBlock& each : step_.record.blocks)
      if (std::find(each.inputs.begin(), each.inputs.end(), number) != each.inputs.end())
        return false;
    return true;
  }
  /// An operator may make the elements again if `again`.
  void released(const SavedStorage& entry, std::vector<Keep> forms, std::size_t packed_bytes,
                bool again) {
    StepElements& elements = step_.elements[static_cast<std::size_t>(entry.number)];
    StepStorage& mine = storage(entry.number);
    elements.type = entry.what.type;
    elements.count = entry.end - entry.first;
    elements.columns = entry.columns;
    mine.shape =
        Shape(std::max<std::size_t>(1, elements.count / elements.columns), elements.columns);
    mine.saved_bytes = side_.counted(entry.bytes());
    mine.packed.bytes = side_.counted(packed_bytes);
    mine.opaque = packed_bytes == 0 && is_opaque(entry.what);
    for (const Keep& form : forms) {
      const std::size_t bytes = EncodedElements::bytes_under(
          *form.codec(), elements.type, elements.count, elements.columns, side_.device());
      if (bytes == 0 || bytes >= entry.bytes()) continue;
      elements.forms.push_back(form);
      mine.forms.push_back({form.codec()->info, side_.counted(bytes), 0, 0, work_bytes(elements)});
    }
    if (again && entry.again != nullptr && packed_bytes == 0) {
      elements.made = without_saved(*entry.again);
      elements.forms.push_back(Keep::again());
      mine.forms.push_back({&operator_again});
      each_saved(*entry.again, [&](const MadeAgain::Source& source) {
        mine.sources.push_back({source.saved->number, source.least});
      });
    }
    released(entry.number);
  }
  /// For a step of a known kind.
  void released(const SavedStorage& entry, const RecordedStep& known) {
    const StepStorage& theirs = known.record.storages[index(entry.number)];
    StepStorage& mine = storage(entry.number);
    mine.shape = theirs.shape;
    mine.saved_bytes = side_.counted(entry.bytes());
    mine.forms = theirs.forms;
    mine.sources = theirs.sources;
    mine.packed = theirs.packed;
    mine.opaque = theirs.opaque;
    released(entry.number);
    step_.elements[index(entry.number)] = known.elements[index(entry.number)];
  }
  /// The form of `entry` is `taken`; forms with more loss, up to `asked`, were declined.
  void takes_form(const SavedStorage& entry, Keep asked, Keep taken) {
    StepStorage& mine = storage(entry.number);
    std::vector<Keep>& forms = step_.elements[index(entry.number)].forms;
    if (mine.packed.bytes > 0) {
      mine.packed.bytes = side_.counted(entry.encoded.bytes());
      return;
    }
    const auto place_of = [&](Keep form) {
      std::size_t f = 0;
      while (f < forms.size() && forms[f].codec() != form.codec()) ++f;
      return f;
    };
    each_declined(asked, taken, [&](Keep form) { step_.decline(entry.number, form); });
    int& form = taken_[index(entry.number)];
    form = -1;
    if (taken.runs_again()) form = static_cast<int>(place_of(taken));
    if (entry.encoded.empty()) return;
    std::size_t f = place_of(taken);
    if (f ==
        forms.size()) {  // a form for rows of unlike scale, unless the codec itself stood in a look
      f = 0;
      while (f < forms.size() && mine.forms[f].bytes > entry.encoded.bytes()) ++f;
      forms.insert(forms.begin() + static_cast<std::ptrdiff_t>(f), taken);
      mine.forms.insert(mine.forms.begin() + static_cast<std::ptrdiff_t>(f),
                        {taken.codec()->info, side_.counted(entry.encoded.bytes()), 0, 0,
                         work_bytes(step_.elements[index(entry.number)])});
    }
    form = static_cast<int>(f);
  }
  /// If `last`, decoded elements take the form's place.
  void reads(const SavedStorage& entry, bool last) {
    reads_ = true;
    look_at_gradients();
    const int now = held_event(entry.number);
    if (last) storage(entry.number).unpacked = now;
    std::erase_if(reading_, [&](const Reading& reading) {
      if (reading.of != &entry || !is_over(reading)) return false;
      close(reading, now);
      return true;
    });
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
    const int now = event();
    storage(entry.number).freed = now;
    if (reading != reading_.end()) {
      close(*reading, now);
      reading_.erase(reading);
    }
  }
  /// The memory of storage `number` went to a store, since the last event.
  void leaves(int number) {
    if (index(number) < travel_.size())
      travel_[index(number)] = {true, static_cast<int>(step_.record.events.size()) - 1, -1};
  }
  /// The memory of storage `number` is there again, since the last event.
  void comes_back(int number) {
    if (index(number) >= travel_.size()) return;
    StepTravel& travel = travel_[index(number)];
    if (travel.sent && travel.fetched < 0)
      travel.fetched = static_cast<int>(step_.record.events.size()) - 1;
  }
  /// Decoded elements of storage `number` take the form's place while read.
  void decodes_in_place(int number) { in_place_[index(number)] = 1; }
  /// Storage `number` is about to be encoded again.
  void encodes_again() { passing_.push_back(event()); }
  /// Storage `number` was encoded again, since the last event.
  void was_encoded_again(int number) {
    std::erase_if(reading_, [&](const Reading& reading) {
      if (reading.of->number != number) return false;
      close(reading, static_cast<int>(step_.record.events.size()) - 1);
      return true;
    });
  }
  /// The decoded elements of storage `number` are about to be freed.
  void lets_go(int number) {
    const int now = event();
    passing_.push_back(now);
    std::erase_if(reading_, [&](const Reading& reading) {
      if (reading.of->number != number) return false;
      close(reading, now);
      return true;
    });
  }

  /// A block begins, which will run `again` if so. `numbers` has, for each input, the storage's number if saved
  /// before, or -1. begins_block() follows.
  void enter_block(const std::vector<at::Tensor>& inputs, const std::vector<int>& numbers,
                   bool again) {
    StepBlock block;
    again_.push_back(again ? 1 : 0);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      int number = numbers[i] >= 0 ? numbers[i] : inputs_.number_of(inputs[i]);
      if (number < 0) {
        number = add(inputs[i]);
        StepStorage& mine = storage(number);
        mine.name = "a block's input";
        mine.saved = false;
        inputs_.add(number, inputs[i]);
      }
      if (std::find(block.inputs.begin(), block.inputs.end(), number) == block.inputs.end())
        block.inputs.push_back(number);
    }
    block.first = static_cast<int>(step_.record.storages.size());
    block.begin_event = event();
    block_ = static_cast<int>(step_.record.blocks.size());
    step_.record.blocks.push_back(block);
  }
  /// The storages released before the block's beginning are in their forms: their bytes are none of the block's.
  void begins_block() {
    step_.record.blocks[index(block_)].begin_event = event();
    begun_ = steady_seconds() - apart_;
  }
  /// The inputs kept for running block `b` again are about to be freed.
  void forgets_block(int b) { step_.record.blocks[index(b)].forgotten = event(); }
  void leave_block() {
    StepBlock& block = step_.record.blocks[static_cast<std::size_t>(block_)];
    block.seconds = std::max(1e-9, steady_seconds() - apart_ - begun_);
    block.end = static_cast<int>(step_.record.storages.size());
    block.end_event = event();
    block_ = -1;
  }

 private:
  struct Reading {
    const SavedStorage* of;
    std::size_t index;  // into the storage's readings
    int over = -1;      // the event at which decoded elements in the form's place had no reader
  };
  struct EndOfReading {
    int number;
    std::size_t index;
    int over;
  };

  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>;

  /// Counts the gradients made by backward since.
  void look_at_gradients() {
    std::erase_if(without_gradient_, [&](const WeakTensor& one) {
      auto alive = one.lock();
      if (!alive) return true;
      const at::Tensor parameter(std::move(alive));
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) return false;
      if (side_.holds(gradient) && is_plain(gradient))
        gradients_ += static_cast<std::ptrdiff_t>(side_.counted(gradient));
      return true;
    });
  }

  /// Whether nothing reads the elements any more.
  static bool is_over(const Reading& reading) {
    return reading.of->kept && reading.of->kept->use_count() == 1;
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  StepStorage& storage(int number) { return step_.record.storages[index(number)]; }
  /// An operator of the block under way, if any, saves storage `number`.
  void saved_in_block(int number) {
    if (block_ < 0) return;
    StepBlock& block = step_.record.blocks[index(block_)];
    const auto has = [number](const std::vector<int>& all) {
      return std::find(all.begin(), all.end(), number) != all.end();
    };
    if (has(block.inputs) && !has(block.saved_inputs)) block.saved_inputs.push_back(number);
  }
  void first_saved(int number, const std::string& saver, const std::string& module) {
    StepStorage& mine = storage(number);
    mine.saved = true;
    mine.name = saver;
    mine.module = module;
    mine.block = first_block_[index(number)] = block_;
    mine.released = -1;
  }
  int add(const at::Tensor& tensor) {
    StepStorage storage;
    storage.bytes = side_.counted(tensor);
    // Until a codec's shape is known: a storage may go before anybody asks for a form.
    storage.shape = Shape(std::max<std::size_t>(1, static_cast<std::size_t>(tensor.numel())), 1);
    storage.may_travel = side_.may_travel(tensor.storage());
    step_.record.storages.push_back(std::move(storage));
    step_.elements.emplace_back();
    taken_.push_back(-1);
    first_block_.push_back(-1);
    in_place_.push_back(0);
    travel_.emplace_back();
    return static_cast<int>(step_.record.storages.size()) - 1;
  }
  void close(const Reading& reading, int now) {
    storage(reading.of->number).readings[reading.index].last = now;
    if (reading.over >= 0) ends_.push_back({reading.of->number, reading.index, reading.over});
  }

  /// Returns the device's moment.
  int leave_out() {
    const ByteCount::Lap lap = side_.lap();
    most_ = std::max(most_, lap.most);
    const double now = steady_seconds();
    apart_ += now - std::exchange(mark_, now);
    return mark(true);
  }
  int mark(bool apart) { return step_.times != nullptr ? step_.times->mark(apart) : -1; }
  std::size_t work_bytes(const StepElements& elements) const {
    return side_.counted(EncodedElements::work_bytes(elements.type, elements.count,
                                                     elements.columns, side_.device()));
  }

  const DeviceSide& side_;
  RecordedStep step_;
  std::vector<int> taken_;          // by storage: a form, into StepStorage::forms
  std::vector<int> first_block_;    // by storage: the first saver's; -1: none
  std::vector<char> in_place_;      // by storage: StepChoice::in_place
  std::vector<StepTravel> travel_;  // by storage, as it came
  std::vector<char> again_;         // by block
  std::vector<Reading> reading_;
  std::vector<EndOfReading> ends_;  // before the decoded elements were encoded again
  BlockInputs inputs_;
  std::vector<int> passing_;                  // events at which decoded elements were freed
  std::vector<WeakTensor> without_gradient_;  // parameters
  std::ptrdiff_t gradients_ = 0;              // bytes of their gradients so far
  std::ptrdiff_t live_ = 0;
  int block_ = -1;
  std::size_t most_ = 0;
  double start_ = 0, begun_ = 0, mark_ = 0;
  double apart_ = 0;  // seconds of encoding and decoding
  bool reads_ = false;
};

}}}}  // namespace adacc::v0_1::torch::detail
