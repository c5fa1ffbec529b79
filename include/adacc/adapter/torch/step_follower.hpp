// SPDX-License-Identifier: MIT
/// A step under way, compared with a known kind of steps: the number of each storage, and the form and the blocks as
/// planned for this kind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "keep.hpp"
#include "known_step.hpp"
#include "step_kinds.hpp"
#include "step_recorder.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class StepFollower {
 public:
  /// Both must outlive this object. The recorder is asked only for steps seen whole by the recorder (`is_recorded`).
  StepFollower(StepKinds& kinds, const StepRecorder& recorder)
      : kinds_(kinds), recorder_(recorder) {}

  /// A step begins, probably of kind `known`; null: of no known kind.
  void begin(KnownStep* known) {
    inputs_.clear();
    unseen_.clear();
    outputs_.clear();
    next_ = next_block_ = 0;
    missing_ = -1;
    block_ = nullptr;
    current_ = known;
    if (known != nullptr) choice_ = known->plans->best.choice;
  }
  /// The step is of no known kind.
  void lose() {
    current_ = nullptr;
    block_ = nullptr;
  }

  KnownStep* current() const { return current_; }
  const StepRecord& record() const { return current_->step.record; }
  /// Whether all storages of this kind were saved.
  bool is_whole() const { return next_ == count_of(*current_); }
  bool has_same_gradients() const { return missing_ == record().before_missing_gradient; }
  /// "saved 3 storages where 5 were recorded"
  std::string count_in_words() const {
    return "saved " + std::to_string(next_) + " storages where " +
           std::to_string(count_of(*current_)) + " were recorded";
  }

  /// StepRecord::before_missing_gradient of this step.
  int missing() const { return missing_; }
  void misses(int number) { missing_ = number; }
  /// The number of the storage saved next.
  int next() const { return next_; }

  /// The number of `tensor`, given to a block before and saved now; -1: there is none.
  int number_of_input(const at::Tensor& tensor) const { return inputs_.number_of(tensor); }
  int take_number() { return next_++; }
  /// The number of the storage of `bytes` saved now by `saver`, if first saved in a block that runs again; otherwise -1.
  int number_of_output(const std::string& saver, std::size_t bytes) {
    for (const StepOutput& output : record().outputs) {
      if (output.next != next_ || output.saver != saver) continue;
      const auto found = std::find(unseen_.begin(), unseen_.end(), output.storage);
      if (found == unseen_.end() || record().storages[index(output.storage)].bytes != bytes)
        continue;
      unseen_.erase(found);
      outputs_.push_back(output.storage);
      return output.storage;
    }
    return -1;
  }
  /// Autograd keeps nothing of storage `number` any more. Another operator may save the storage later.
  void freed(int number) {
    if (std::erase(outputs_, number) > 0) unseen_.push_back(number);
  }

  /// Whether the next saved tensor may be storage `number` of a known kind of steps, which becomes the current one.
  /// `saver` may be null.
  bool follow(int number, const char* saver, std::size_t bytes, bool is_recorded) {
    const auto fits = [&](const KnownStep& known) {
      if (number >= count_of(known)) return false;
      const StepStorage& storage = known.step.record.storages[index(number)];
      return misses_gradient(missing_, number) ==
                 misses_gradient(known.step.record.before_missing_gradient, number) &&
             storage.bytes == bytes && (saver == nullptr || storage.name == saver);
    };
    if (fits(*current_)) return true;
    if (block_ != nullptr || next_block_ > 0) return false;
    KnownStep* const better = kinds_.in_place_of(*current_, number, fits);
    if (better == nullptr) return false;
    go_on_as(*better, number, is_recorded);
    return true;
  }

  struct Block {
    bool again = false;      ///< runs again, as planned
    std::string difference;  ///< from the known kind; empty: none
  };
  /// A block begins. `numbers` has, for each input, the storage's number if saved before, or -1.
  Block enter_block(const std::vector<at::Tensor>& inputs, const std::vector<int>& numbers,
                    bool is_recorded) {
    const Block elsewhere{true, "called checkpoint() elsewhere than was recorded"};
    const std::vector<StepBlock>& blocks = record().blocks;
    const std::size_t place = index(next_block_);
    if (place >= blocks.size()) return elsewhere;
    const std::vector<int>& recorded = blocks[place].inputs;
    std::vector<int> mine;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      int number = numbers[i] >= 0 ? numbers[i] : inputs_.number_of(inputs[i]);
      if (number < 0) {
        // An earlier block, which runs again and saves nothing, may have saved the input.
        const bool before = mine.size() < recorded.size() && recorded[mine.size()] < next_;
        number = before ? recorded[mine.size()] : next_++;
        inputs_.add(number, inputs[i]);
        const KnownStep* const mistaken_for = current_;
        if (!follow(number, nullptr, recorder_.side().counted(inputs[i]), is_recorded))
          return {true, "gave a block an input of sizes " + sizes_of(inputs[i]) + ", and " +
                            expected(record(), number)};
        if (current_ != mistaken_for) return enter_block(inputs, numbers, is_recorded);
      }
      if (std::find(mine.begin(), mine.end(), number) == mine.end()) mine.push_back(number);
    }
    if (blocks[place].first != next_ || recorded != mine) return elsewhere;
    ++next_block_;
    block_ = &blocks[place];
    again_ = choice_.again[place] != 0;
    return {again_, {}};
  }
  /// Returns the difference from the known kind; empty: none.
  std::string leave_block() {
    if (block_ == nullptr) return {};
    const int first = block_->first, end = block_->end;
    block_ = nullptr;
    if (again_) {
      next_ = end;
      for (int number = first; number < end; ++number) unseen_.push_back(number);
      // Parameters in the block were not seen: they have gradients, or none, as recorded.
      const int before = record().before_missing_gradient;
      if (missing_ < 0 && before >= first && before <= end) missing_ = before;
    }
    return next_ == end ? "" : "saved less in a block than was recorded";
  }

  /// The planned form.
  Keep form_of(int number) const {
    const std::size_t place = index(number);
    if (record().storages[place].packed.bytes > 0) return {};
    const int form = current_->memory->form_number(number, choice_);
    return form < 0 ? Keep::as_is() : current_->step.elements[place].forms[index(form)];
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  /// Goes on as a step of kind `known`, after `number` storages.
  void go_on_as(KnownStep& known, int number, bool is_recorded) {
    current_ = &known;
    choice_ = known.plans->best.choice;
    if (!is_recorded) return;
    bool differs = false;
    for (int i = 0; i < number; ++i) {
      const StepStorage& mine = recorder_.record().storages[index(i)];
      int& form = choice_.form[index(i)];
      if (mine.released < 0 || form == recorder_.taken(i)) continue;
      differs = true;
      form = recorder_.taken(i);
    }
    if (differs && known.memory->peak(choice_).bytes > known.budget)
      known.memory->make_smallest(choice_, number);
  }

  StepKinds& kinds_;
  const StepRecorder& recorder_;
  KnownStep* current_ = nullptr;  // null: a step of no known kind
  StepChoice choice_{StepRecord{}};
  int next_ = 0, next_block_ = 0;
  int missing_ = -1;
  const StepBlock* block_ = nullptr;  // the block under way
  bool again_ = false;
  BlockInputs inputs_;
  std::vector<int> unseen_;   // storages first saved in blocks that run again
  std::vector<int> outputs_;  // such storages, saved by an operator behind the block
};

}}}}  // namespace adacc::v0_1::torch::detail
