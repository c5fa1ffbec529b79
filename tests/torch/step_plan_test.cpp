// SPDX-License-Identifier: MIT
/// Peaks of recorded steps under a plan, against a step that is carried out, and plans against all
/// that there are. Without libtorch.
#include <algorithm>
#include <random>

#include <adacc/adapter/torch/step_plan.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>

#include <doctest/doctest.h>

namespace torch_step_plan_test {

namespace guest = adacc::torch;

/// An operator: it makes a tensor, which is saved, and has memory of its own in forward and backward.
struct Operator {
  std::ptrdiff_t bytes = 0, forward = 0, backward = 0;
  /// Memory beside the output where it is made again of the tensor saved before, or of the two before; < 0: it is not.
  std::ptrdiff_t again = -1;
  guest::StepSource::Form least = guest::StepSource::Form::any;
};
/// Operators that may run again; the first also saves the block's input.
struct Block {
  std::ptrdiff_t input = 0;
  std::vector<Operator> operators;
};

constexpr std::ptrdiff_t least_sent = 128 * 1024;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A training step on imaginary memory: carried out plainly it writes its record, and under a choice
/// it shows how many bytes it takes.
class Step {
 public:
  explicit Step(const std::vector<Block>& blocks) : blocks_(blocks) {}

  guest::StepRecord record() {
    guest::StepRecord record;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      guest::StepBlock block;
      block.inputs = block.saved_inputs = {static_cast<int>(record.storages.size())};
      add(record, static_cast<int>(b), blocks_[b].input);
      block.first = static_cast<int>(record.storages.size());
      for (const Operator& one : blocks_[b].operators) {
        add(record, static_cast<int>(b), one.bytes);
        if (one.again < 0) continue;
        guest::StepStorage& storage = record.storages.back();
        storage.forms.push_back({&guest::operator_again, 0, 0,
                                 1e-10 * static_cast<double>(one.bytes),
                                 static_cast<std::size_t>(one.again)});
        const int id = static_cast<int>(record.storages.size()) - 1;
        storage.sources = {{id - 1, one.least}};
        if (id - 1 > block.inputs[0] && one.again > 0)
          storage.sources.push_back({id - 2, one.least});
      }
      block.end = static_cast<int>(record.storages.size());
      block.seconds = 5e-3 * static_cast<double>(blocks_[b].operators.size());
      record.blocks.push_back(block);
    }
    record.seconds = 0.1;
    record.least_sent_bytes = static_cast<std::size_t>(least_sent);
    record_ = &record;
    run(guest::StepChoice(record));
    record_ = nullptr;
    return record;
  }

  std::ptrdiff_t peak(const guest::StepRecord& record, const guest::StepChoice& choice) {
    const guest::StepMemory memory(record);
    plan_ = &record;
    memory_ = &memory;
    here_.assign(record.storages.size(), true);
    run(choice);
    memory_ = nullptr;
    return most_;
  }

 private:
  static void add(guest::StepRecord& record, int block, std::ptrdiff_t bytes) {
    guest::StepStorage storage;
    storage.name = "mm";
    storage.bytes = static_cast<std::size_t>(bytes);
    storage.block = block;
    storage.may_travel = true;
    storage.shape = adacc::Shape(storage.bytes / 512, 128);
    for (const adacc::CodecInfo* codec :
         {&adacc::codec_info<adacc::Int8Outlier>, &adacc::codec_info<adacc::Int4Outlier>})
      storage.forms.push_back(
          {codec, codec->encoded_bytes(storage.bytes / 512, 128, adacc::Dtype::f32),
           1e-9 * static_cast<double>(bytes), 1.5e-9 * static_cast<double>(bytes)});
    record.storages.push_back(storage);
  }

  void take(std::ptrdiff_t bytes) {
    live_ += bytes;
    most_ = std::max(most_, live_);
    lap_ = std::max(lap_, live_);
  }
  void spike(std::ptrdiff_t bytes) { take(bytes), take(-bytes); }
  /// In a step under a choice, what is to travel at this event does, on a link that is never in time.
  int event(const guest::StepChoice& choice, int reads = -1) {
    ++now_;
    if (record_ == nullptr) {
      for (int id = 0; id < static_cast<int>(choice.travel.size()); ++id) {
        const guest::StepTravel& travel = choice.travel[at(id)];
        if (!travel.sent) continue;
        if (travel.written == now_ && now_ > memory_->released(id, choice)) leave(id, choice);
        if (travel.fetched == now_ && now_ < memory_->first_use(id, choice)) come_back(id, choice);
      }
      return -1;
    }
    record_->events.push_back({lap_, live_, reads, 1e-3 * now_});
    lap_ = live_;
    return now_;
  }
  std::ptrdiff_t waiting(int id, const guest::StepChoice& choice) const {
    return form(id, choice) >= 0 ? form(id, choice) : raw(id);
  }
  void leave(int id, const guest::StepChoice& choice) {
    if (waiting(id, choice) < least_sent) return;  // as hooks find out
    take(-waiting(id, choice));
    here_[at(id)] = false;
  }
  void come_back(int id, const guest::StepChoice& choice) {
    if (record_ != nullptr || here_[at(id)]) return;
    take(waiting(id, choice));
    here_[at(id)] = true;
  }

  std::ptrdiff_t form(int id, const guest::StepChoice& choice) const {
    const int mine = memory_ == nullptr ? -1 : memory_->form_number(id, choice);
    return mine < 0 ? -1
                    : static_cast<std::ptrdiff_t>(plan_->storages[at(id)].forms[at(mine)].bytes);
  }
  std::ptrdiff_t raw(int id) const {
    const guest::StepRecord& record = record_ != nullptr ? *record_ : *plan_;
    return static_cast<std::ptrdiff_t>(record.storages[at(id)].bytes);
  }
  /// The elements of storage `id`, which has a form, are decoded or made again.
  void make(int id, const guest::StepChoice& choice) {
    const guest::StepStorage& storage = plan_->storages[at(id)];
    const guest::StepForm& mine = storage.forms[at(memory_->form_number(id, choice))];
    const auto each_source = [&](const auto& call) {
      if (!mine.runs_again()) return;
      for (const guest::StepSource& source : storage.sources)
        if (form(source.storage, choice) >= 0) call(source.storage);
    };
    each_source([&](int source) { make(source, choice); });
    take(raw(id));
    spike(static_cast<std::ptrdiff_t>(mine.work_bytes));
    each_source([&](int source) { take(-raw(source)); });
  }
  /// Autograd alone holds storage `id`.
  void release(int id, const guest::StepChoice& choice, bool gone, int now) {
    if (record_ != nullptr) record_->storages[at(id)].released = now;
    else if (gone) take(-raw(id));
    else {
      if (form(id, choice) >= 0) take(form(id, choice)), take(-raw(id));
      const guest::StepTravel& travel = choice.travel[at(id)];
      if (travel.sent && travel.written == memory_->released(id, choice)) leave(id, choice);
    }
  }

  void run(const guest::StepChoice& choice) {
    live_ = most_ = lap_ = 0;
    now_ = -1;
    event(choice);
    int id = 0;
    take(blocks_[0].input);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const bool again = choice.again[b] != 0;
      const int input = id++;
      const int begin = event(choice);
      for (std::size_t k = 0; k < blocks_[b].operators.size(); ++k, ++id) {
        const Operator& one = blocks_[b].operators[k];
        take(one.bytes);
        spike(one.forward);
        const int now = event(choice);
        if (k > 0) release(id - 1, choice, again, now);
      }
      if (b + 1 < blocks_.size()) take(blocks_[b + 1].input);
      const int end = event(choice);
      // Smaller forms first.
      const bool input_first =
          record_ == nullptr && form(input, choice) < (again ? -1 : form(id - 1, choice));
      if (input_first) release(input, choice, false, end);
      release(id - 1, choice, again, end);
      if (!input_first) release(input, choice, false, end);
      if (record_ == nullptr) continue;
      record_->blocks[b].begin_event = begin;
      record_->blocks[b].end_event = end;
    }
    for (std::size_t b = blocks_.size(); b-- > 0;) {
      const bool again = choice.again[b] != 0;
      const auto count = static_cast<int>(blocks_[b].operators.size());
      const int input = id - count - 1;
      if (again) {
        come_back(input, choice);
        if (form(input, choice) >= 0) take(raw(input));
        for (const Operator& one : blocks_[b].operators) take(one.bytes), spike(one.forward);
        if (b + 1 < blocks_.size()) spike(blocks_[b + 1].input);
      }
      while (--id >= input) {
        const int now = event(choice, id);
        if (!again || id == input) come_back(id, choice);
        const bool encoded = record_ == nullptr && form(id, choice) >= 0 && !(again && id > input);
        if (encoded && !again) make(id, choice);
        // The last reader's elements take the form's place, except for a block's input.
        if (encoded && id > input) take(-form(id, choice));
        spike(id > input ? blocks_[b].operators[at(id - input - 1)].backward : 0);
        if (encoded && id == input) take(-raw(id) - form(id, choice));
        else take(-raw(id));
        const int freed = event(choice);
        if (record_ == nullptr) continue;
        if (id > input) record_->storages[at(id)].unpacked = now;
        record_->storages[at(id)].readings.push_back({now, freed});
        record_->storages[at(id)].freed = freed;
      }
      ++id;
    }
    event(choice);
  }

  const std::vector<Block>& blocks_;
  guest::StepRecord* record_ = nullptr;
  const guest::StepRecord* plan_ = nullptr;
  const guest::StepMemory* memory_ = nullptr;
  std::vector<bool> here_;
  int now_ = -1;
  std::ptrdiff_t live_ = 0, most_ = 0, lap_ = 0;
};

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  int below(int end) { return static_cast<int>(engine_() % static_cast<unsigned>(end)); }
  std::ptrdiff_t bytes() { return 64 * 1024 * (1 + below(16)); }
  std::vector<Block> blocks(int most_blocks, int most_operators, bool again = false) {
    std::vector<Block> blocks(at(1 + below(most_blocks)));
    for (Block& block : blocks) {
      block.input = bytes();
      block.operators.resize(at(1 + below(most_operators)));
      for (Operator& one : block.operators) {
        one = {bytes(), bytes() * below(3), bytes() * below(3)};
        if (again && below(3) > 0)
          one.again = bytes() * below(2),
          one.least = static_cast<guest::StepSource::Form>(below(3));
      }
    }
    return blocks;
  }
  guest::StepChoice choice(const guest::StepRecord& record) {
    guest::StepChoice choice(record);
    for (std::size_t id = 0; id < choice.form.size(); ++id)
      choice.form[id] = below(static_cast<int>(record.storages[id].forms.size()) + 1) - 1;
    for (char& again : choice.again) again = static_cast<char>(below(2));
    return choice;
  }

 private:
  std::mt19937 engine_;
};

TEST_CASE("a recorded step's peak under a plan is that of the step under it") {
  int exact = 0, all = 0;
  bool operators = false;
  SUBCASE("without operators that run again") {}
  SUBCASE("with operators that run again") { operators = true; }
  for (unsigned seed = 0; seed < 200; ++seed) {
    Draw draw(seed);
    const std::vector<Block> blocks = draw.blocks(5, 5, operators);
    Step step(blocks);
    const guest::StepRecord record = step.record();
    const guest::StepMemory memory(record);
    REQUIRE(static_cast<std::ptrdiff_t>(record.peak()) ==
            step.peak(record, guest::StepChoice(record)));
    for (int i = 0; i < 20; ++i, ++all) {
      const guest::StepChoice choice = draw.choice(record);
      const std::ptrdiff_t mine = step.peak(record, choice);
      const auto told = static_cast<std::ptrdiff_t>(memory.peak(choice).bytes);
      CAPTURE(seed);
      CHECK(told >= mine);
      exact += told == mine ? 1 : 0;
    }
  }
  CHECK(exact >= all * 95 / 100);  // else some moment was taken for worse than it is
  MESSAGE("exact ", exact, " of ", all);
}

TEST_CASE("an operator runs again only of sources that are there, and as exact as it needs") {
  using Form = guest::StepSource::Form;
  guest::StepRecord record;
  record.events.resize(4);
  for (int id = 0; id < 3; ++id) {
    guest::StepStorage storage;
    storage.bytes = 1024;
    storage.released = 1;
    storage.freed = 3;
    storage.readings = {{2, 3}};
    storage.forms = {{&adacc::codec_info<adacc::Int8Outlier>, 300}};
    if (id > 0) {
      storage.forms.push_back({&guest::operator_again});
      storage.sources = {{id - 1, Form::exact}};
    }
    record.storages.push_back(storage);
  }
  const auto again = [&](int id, const guest::StepChoice& choice) {
    return guest::StepMemory(record).form_of(id, choice)->runs_again();
  };
  guest::StepChoice choice(record);
  choice.form = {-1, 1, 1};
  CHECK(again(1, choice));
  CHECK(again(2, choice));
  CHECK(guest::StepMemory(record).resolved(choice).form == choice.form);
  choice.form[0] = 0;  // a loss, which both would read
  CHECK_FALSE(again(1, choice));
  CHECK_FALSE(again(2, choice));
  CHECK(guest::StepMemory(record).resolved(choice).form == std::vector<int>{0, 0, 0});
  record.storages[1].sources[0].least = Form::any;
  CHECK(again(1, choice));
  CHECK_FALSE(again(2, choice));  // what is made again of a loss has it
  record.storages[2].sources[0].least = Form::any;
  CHECK(again(2, choice));
  record.storages[2].sources[0].least = Form::retained;
  CHECK_FALSE(again(2, choice));
  record.storages[2].sources[0].least = Form::any;
  choice.travel[0].sent = true;
  CHECK_FALSE(again(1, choice));
  choice.travel[0].sent = false;
  record.storages[0].freed = 2;  // right before the storage that is made again
  CHECK(again(1, choice));
  record.events[3].reads = 1;  // that one is read once more, and then the source has gone
  CHECK_FALSE(again(1, choice));
  CHECK(again(2, choice));
  record.events[3].reads = -1;
  record.events[3].peak = 1;  // backward goes on in between
  CHECK_FALSE(again(1, choice));
  record.events[3].peak = 0;
  record.storages[0].freed = 3;
  record.blocks.push_back({0, 1, {}, 0, 1});
  record.storages[0].block = 0;
  choice.again = {1};
  CHECK_FALSE(again(1, choice));
}

TEST_CASE("a form lies beside the elements for the moments of encoding and of the last decoding") {
  guest::StepRecord record;
  record.events = {{0, 0}, {2000, 2000}, {3000, 3000, 0}, {3000, 2000, 1}, {2000, 0}};
  const auto add = [&](std::size_t form, int unpacked) {
    guest::StepStorage storage;
    storage.bytes = 1000;
    storage.forms = {{&adacc::codec_info<adacc::Int8Outlier>, form}};
    storage.released = 1;
    storage.unpacked = unpacked;
    storage.freed = unpacked + 1;
    storage.readings = {{unpacked, unpacked + 1}};
    record.storages.push_back(storage);
  };
  add(600, 2), add(100, 3);
  const auto peak = [&](int first, int second) {
    guest::StepChoice choice(record);
    choice.form = {first, second};
    return guest::StepMemory(record).peak(choice).bytes;
  };
  CHECK(peak(-1, -1) == 3000);
  // The first one's form and elements, beside the second one's form and 1000 bytes of others.
  CHECK(peak(0, 0) == 2700);
  CHECK(peak(0, -1) == 3600);
  // In forward, the smaller form comes first, and 900 bytes go before the larger one comes.
  record.events[2].live = record.events[2].peak = 2000;
  CHECK(peak(0, 0) == 2100);
  // Elements of a part of the storage.
  record.events[2].live = record.events[2].peak = 3000;
  record.storages[0].saved_bytes = 800;
  CHECK(peak(0, 0) == 2500);
}

TEST_CASE("an operator that runs again does so when elements without a reader have gone") {
  guest::StepRecord record;
  record.events = {{0, 0}, {2000, 2000}, {2000, 2000, 0}, {2000, 2000, 1}, {2000, 0}};
  for (int id = 0; id < 2; ++id) {
    guest::StepStorage storage;
    storage.bytes = 1000;
    storage.released = 1;
    storage.freed = 4;
    storage.readings = {{2 + id, 3 + id}};
    storage.forms = {{&adacc::codec_info<adacc::Int8Outlier>, 100}, {&guest::operator_again}};
    record.storages.push_back(storage);
  }
  guest::StepChoice choice(record);
  choice.form = {0, 1};
  CHECK(guest::StepMemory(record).peak(choice).bytes == 2000);  // in forward
  record.storages[0].readings[0].last = 4;
  CHECK(guest::StepMemory(record).peak(choice).bytes == 2100);
}

TEST_CASE("whatever is sent, and however early it is fetched, the peak is that of the step") {
  int exact = 0, all = 0, spread = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Draw draw(seed + 1000);
    const std::vector<Block> blocks = draw.blocks(5, 5);
    Step step(blocks);
    const guest::StepRecord record = step.record();
    const guest::StepMemory memory(record);
    const guest::StepTransfers transfers(memory, {1e9, 1e9, 1e-4});
    for (int i = 0; i < 10; ++i, ++all) {
      guest::StepChoice choice = i % 2 == 0 ? guest::StepChoice(record) : draw.choice(record);
      for (guest::StepTravel& travel : choice.travel) travel.sent = draw.below(2) == 0;
      transfers.at_once(choice);
      const std::size_t least = memory.peak(choice).bytes;
      CAPTURE(seed);
      CHECK(static_cast<std::ptrdiff_t>(least) >= step.peak(record, choice));
      const guest::StepCourse waits = transfers.course(choice);
      const std::size_t budget = least + static_cast<std::size_t>(draw.bytes()) * 4;
      transfers.spread(choice, budget);
      const std::size_t told = memory.peak(choice).bytes;
      CHECK(told <= budget);
      const std::ptrdiff_t mine = step.peak(record, choice);
      CHECK(static_cast<std::ptrdiff_t>(told) >= mine);
      exact += static_cast<std::ptrdiff_t>(told) == mine ? 1 : 0;
      if (!choice.sends()) continue;
      const guest::StepCourse course = transfers.course(choice);
      spread += course.stall_seconds < waits.stall_seconds ? 1 : 0;
      CHECK(course.seconds == doctest::Approx(memory.seconds(choice) + course.stall_seconds));
    }
  }
  MESSAGE("exact ", exact, " of ", all, ", waited less ", spread);
  CHECK(exact >= all * 90 / 100);
  CHECK(spread >= all / 2);
}

TEST_CASE("with a store, plans that lose nothing are near the best of all") {
  double mine = 0, best = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Draw draw(seed + 2000);
    const std::vector<Block> blocks = draw.blocks(2, 3);
    Step step(blocks);
    guest::StepRecord record = step.record();
    for (guest::StepStorage& storage : record.storages) storage.forms.clear(), storage.block = -1;
    for (guest::StepBlock& block : record.blocks) block.inputs.clear();
    const guest::StepMemory memory(record);
    const guest::StepStore store{{4e8, 4e8, 1e-4}};
    const guest::StepTransfers transfers(memory, store.link);
    std::vector<guest::StepChoice> every;
    std::size_t least = record.peak();
    for (unsigned sent = 0; sent < 1U << record.storages.size(); ++sent) {
      guest::StepChoice& choice = every.emplace_back(record);
      for (std::size_t id = 0; id < record.storages.size(); ++id)
        choice.travel[id].sent = (sent >> id & 1) != 0;
      transfers.at_once(choice);
      least = std::min(least, memory.peak(choice).bytes);
    }
    for (const double share : {0.0, 0.3, 0.7}) {
      const std::size_t budget =
          least + static_cast<std::size_t>(share * static_cast<double>(record.peak() - least));
      double fastest = 1e9;
      for (guest::StepChoice choice : every) {
        transfers.at_once(choice);
        if (memory.peak(choice).bytes > budget) continue;
        transfers.spread(choice, budget);
        fastest = std::min(fastest, transfers.course(choice).seconds);
      }
      const guest::StepPlans plans = guest::plan_step(memory, budget, 2, store);
      CAPTURE(seed);
      CAPTURE(share);
      REQUIRE(plans.fits);
      CHECK(plans.best.peak.bytes <= budget);
      CHECK(step.peak(record, plans.best.choice) <= static_cast<std::ptrdiff_t>(budget));
      mine += record.seconds + plans.best.seconds, best += record.seconds + fastest;
      const guest::StepPlans full = guest::plan_step(memory, budget, 2, {store.link, 64 * 1024});
      if (full.fits) CHECK(full.best.sent_bytes <= 64 * 1024);
    }
  }
  MESSAGE("seconds ", mine, " of the best ", best);
  CHECK(mine <= 1.05 * best);
}

TEST_CASE("plans are within their budget, and near the best of all") {
  double mine = 0, best = 0, worst = 1;
  bool operators = false;
  SUBCASE("without operators that run again") {}
  SUBCASE("with operators that run again") { operators = true; }
  for (unsigned seed = 0; seed < 40; ++seed) {
    Draw draw(seed);
    const std::vector<Block> blocks = draw.blocks(2, 3, operators);
    Step step(blocks);
    const guest::StepRecord record = step.record();
    const guest::StepMemory memory(record);
    // All choices.
    guest::StepChoice choice(record);
    std::vector<std::pair<std::size_t, double>> every;
    const auto next = [&] {
      for (std::size_t id = 0; id < choice.form.size(); ++id) {
        if (++choice.form[id] < static_cast<int>(record.storages[id].forms.size())) return true;
        choice.form[id] = -1;
      }
      for (char& again : choice.again) {
        if ((again ^= 1) != 0) return true;
      }
      return false;
    };
    do every.emplace_back(memory.peak(choice).bytes, memory.seconds(choice));
    while (next());
    const std::size_t least = std::min_element(every.begin(), every.end())->first;
    const std::size_t plain = record.peak();
    for (const double share : {0.1, 0.4, 0.8}) {
      const std::size_t budget =
          least + static_cast<std::size_t>(share * static_cast<double>(plain - least));
      double fastest = 1e9;
      for (const auto& [bytes, seconds] : every)
        if (bytes <= budget) fastest = std::min(fastest, seconds);
      const guest::StepPlans plans = guest::plan_step(memory, budget);
      CAPTURE(seed);
      CAPTURE(share);
      CHECK(plans.fits);
      if (!plans.fits) continue;
      CHECK(plans.best.peak.bytes <= budget);
      CHECK(plans.best.peak.bytes == memory.peak(plans.best.choice).bytes);
      mine += plans.best.seconds, best += fastest;
      worst = std::max(worst, (record.seconds + plans.best.seconds) / (record.seconds + fastest));
    }
    const guest::StepPlans none = guest::plan_step(memory, 1);
    CHECK_FALSE(none.fits);
    CHECK(none.least.peak.bytes >= least);
    CHECK(none.least.peak.bytes <= least + least / 50);
  }
  MESSAGE("added seconds ", mine, " of the best ", best, ", worst step ", worst);
  // Searches change one storage at a time, or an operator with its sources.
  CHECK(mine <= 1.05 * best);
  CHECK(worst <= 1.05);
}

/// Calls use(choice) for each choice of forms for the storages of block `b`, with and without a second run.
template <class Use>
void each_layer(const guest::StepRecord& record, std::size_t b, const Use& use) {
  guest::StepChoice choice(record);
  const auto first = at(record.blocks[b].inputs[0]), end = at(record.blocks[b].end);
  const auto next = [&] {
    for (std::size_t id = first; id < end; ++id) {
      if (++choice.form[id] < static_cast<int>(record.storages[id].forms.size())) return true;
      choice.form[id] = -1;
    }
    return (choice.again[b] ^= 1) != 0;
  };
  do use(choice);
  while (next());
}

TEST_CASE("plans of many equal layers are near the best of two kinds of layers") {
  constexpr std::size_t layers = 12;
  double worst = 1;
  for (const unsigned seed : {0U, 1U, 3U}) {
    const std::vector<Block> blocks(layers, Draw(seed).blocks(1, 3, true)[0]);
    Step step(blocks);
    const guest::StepRecord record = step.record();
    const guest::StepMemory memory(record);
    const std::size_t size = record.storages.size() / layers;
    std::vector<guest::StepChoice> kinds;
    each_layer(record, 0, [&](const guest::StepChoice& choice) { kinds.push_back(choice); });
    const auto put = [&](guest::StepChoice& choice, const guest::StepChoice& kind, std::size_t b) {
      std::copy_n(kind.form.begin(), size,
                  choice.form.begin() + static_cast<std::ptrdiff_t>(b * size));
      choice.again[b] = kind.again[0];
    };
    for (const double share : {0.3, 0.6}) {
      const auto budget = static_cast<std::size_t>(share * static_cast<double>(record.peak()));
      double fastest = 1e9;
      for (const guest::StepChoice& small : kinds) {
        guest::StepChoice all(record);
        for (std::size_t b = 0; b < layers; ++b) put(all, small, b);
        if (memory.peak(all).bytes > budget) continue;
        for (const guest::StepChoice& large : kinds) {
          // As many layers at the end are `large` as fit.
          std::size_t low = 0, high = layers;
          while (low < high) {
            const std::size_t middle = (low + high) / 2;
            guest::StepChoice choice = all;
            for (std::size_t b = middle; b < layers; ++b) put(choice, large, b);
            if (memory.peak(choice).bytes <= budget) high = middle;
            else low = middle + 1;
          }
          guest::StepChoice choice = all;
          for (std::size_t b = high; b < layers; ++b) put(choice, large, b);
          fastest = std::min(fastest, memory.seconds(choice));
        }
      }
      if (fastest == 1e9) continue;
      const guest::StepPlans plans = guest::plan_step(memory, budget, 1);
      CAPTURE(seed);
      CAPTURE(share);
      REQUIRE(plans.fits);
      worst = std::max(worst, plans.best.seconds / fastest);
    }
  }
  MESSAGE("added seconds at most ", worst, " of the best");
  CHECK(worst <= 1.02);
}

}  // namespace torch_step_plan_test
