// SPDX-License-Identifier: MIT
/// Budgets with a store: bits, peaks, what was sent, and what goes wrong with stores.
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <adacc/store/memory_store.hpp>

#include "support.hpp"

namespace torch_sent_test {

using namespace torch_tests;
using guest::BudgetOptions;
using guest::MemoryBudget;
using guest::MemoryCount;

/// Blocks x + sin(x a) b.
struct Net {
  std::vector<at::Tensor> parameters;
  bool checkpoints = false;
  std::int64_t wide = 1;  // times as many rows

  Net() {
    at::manual_seed(3);
    for (int i = 0; i < 6; ++i) {
      parameters.push_back(parameter(0.1 * at::randn({64, 256})));
      parameters.push_back(parameter(0.1 * at::randn({256, 64})));
    }
    for (const at::Tensor& one : parameters) one.mutable_grad() = at::zeros_like(one);
  }
  at::Tensor loss(std::int64_t rows = 256) const {
    at::Tensor x = at::randn({wide * rows, 64});
    for (std::size_t i = 0; i < parameters.size(); i += 2) {
      const auto block = [a = parameters[i], b = parameters[i + 1]](const at::Tensor& h) {
        return h + h.mm(a).sin().mm(b);
      };
      x = checkpoints ? guest::checkpoint(block, x) : block(x);
    }
    return x.square().mean();
  }
  at::Tensor forward(const MemoryBudget* budget, int number, std::int64_t rows = 256) const {
    at::manual_seed(static_cast<std::uint64_t>(number));
    for (const at::Tensor& one : parameters) one.grad().zero_();
    if (budget == nullptr) return loss(rows);
    const guest::WithinBudget guard(*budget);
    return loss(rows);
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& one : parameters) all.push_back(one.grad().clone());
    return all;
  }
  /// The gradients of a step; `peak` becomes its peak above what was in use before.
  std::vector<at::Tensor> step(const MemoryBudget* budget, int number,
                               std::size_t* peak = nullptr) const {
    const std::size_t before = MemoryCount::live_bytes();
    MemoryCount::reset_peak();
    forward(budget, number).backward();
    if (peak != nullptr) *peak = MemoryCount::peak_bytes() - before;
    return gradients();
  }
};

/// A hostile store in memory of its own.
struct Memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(16 * adacc::MiB);
  adacc::MemoryStore store{adacc::Bytes(bytes.data(), adacc::Shape(bytes.size()))};
  Memory() { store.hostile = true; }
  BudgetOptions options(const guest::ChoosingFunction& policy = guest::lossless) {
    BudgetOptions made;
    made.policy = policy;
    made.store = store;
    made.link = {1e9, 1e9, 1e-5};
    made.planning_seconds = 0.2;
    return made;
  }
};

std::size_t shares_of(const guest::BudgetReport& report, const std::string& policy) {
  for (const auto& share : report.shares)
    if (share.policy == policy) return share.storages;
  return 0;
}

TEST_CASE("a budget that is met by sending keeps bits, and its peak is exact") {
  MemoryCount::install();
  for (const bool checkpoints : {false, true})
    for (const char* const amount : {"70%", "40%"}) {
      CAPTURE(checkpoints);
      CAPTURE(amount);
      Memory memory;
      Net net;
      std::size_t plain = 0;
      net.step(nullptr, 0);
      net.step(nullptr, 0, &plain);
      net.checkpoints = checkpoints;
      const MemoryBudget budget(std::string(amount), memory.options());
      for (int i = 0; i < 4; ++i) {
        std::size_t peak = 0;
        const std::vector<at::Tensor> mine = net.step(&budget, i, &peak);
        const guest::BudgetReport report = budget.report();
        INFO(report.text());
        CHECK(same_bits(mine, Net().step(nullptr, i)));
        if (i < 2) {  // recorded: sends all that may be sent
          CHECK(peak == report.recorded_bytes);
          CHECK(peak <= plain * (amount[0] == '7' ? 70 : 40) / 100);
          CHECK(report.plain_bytes == plain);
          CHECK(report.recorded_over == 0);
          continue;
        }
        CHECK(peak == report.measured_bytes);
        CHECK(peak <= report.planned_bytes);
        CHECK(report.planned_bytes <= report.budget_bytes);
        if (!checkpoints) CHECK(peak == report.planned_bytes);
        if (checkpoints) continue;  // those may be all that it takes
        CHECK(shares_of(report, "offload") > 0);
        CHECK(report.written_bytes >= 64 * adacc::KiB * shares_of(report, "offload"));
        CHECK(report.read_bytes == report.written_bytes);
        CHECK(report.corrections == 0);
      }
    }
}

TEST_CASE("encoded storages may be sent, too") {
  MemoryCount::install();
  Memory memory;
  Net net;
  const auto bf16 = [](const guest::SavedTensor&) { return guest::Keep::as<adacc::Bf16>(); };
  // What sending alone cannot meet.
  const MemoryBudget alone(std::size_t{1}, memory.options());
  CHECK(!words_of([&] {
           for (int i = 0; i < 3; ++i) net.step(&alone, i);
         }).empty());
  Memory other;
  const MemoryBudget budget(alone.report().least_bytes, other.options(bf16));
  for (int i = 0; i < 4; ++i) net.step(&budget, i);
  INFO(budget.report().text());
  CHECK(budget.report().planned == 2);
  CHECK(budget.report().measured_bytes <= budget.report().budget_bytes);
  CHECK(budget.report().written_bytes > 0);
  CHECK(relative_error(net.gradients(), Net().step(nullptr, 3)) < 1e-3);
}

TEST_CASE("graphs that outlive their step, or go without a backward, have all they sent") {
  MemoryCount::install();
  const std::size_t before = MemoryCount::live_bytes();
  {
    Memory memory;
    Net net;
    const MemoryBudget budget("40%", memory.options());
    for (int i = 0; i < 3; ++i) net.step(&budget, i);
    REQUIRE(budget.report().written_bytes > 0);
    {
      const at::Tensor kept = net.forward(&budget, 7);
      // Of the last block alone: what the others sent is still away.
      gradients(kept, {net.parameters.back()}, /*retain=*/true);
      // Steps of another one in between, which have the same places.
      for (int i = 0; i < 2; ++i) net.step(&budget, i);
      const std::vector<at::Tensor> mine = gradients(kept, net.parameters);
      const Net other;
      CHECK(same_bits(mine, gradients(other.forward(nullptr, 7), other.parameters)));
    }
    net.forward(&budget, 1);       // no backward
    net.forward(&budget, 1, 384);  // other sizes
    net.forward(&budget, 2).backward();
    CHECK(same_bits(net.gradients(), Net().step(nullptr, 2)));
  }
  CHECK(MemoryCount::live_bytes() == before);
}

TEST_CASE("stores that can't be used say why") {
  MemoryCount::install();
  const auto words_with = [](BudgetOptions options) {
    return words_of([&] { MemoryBudget budget("40%", std::move(options)); });
  };
  BudgetOptions options;
  options.store_folder = "/no/such/folder";
  CHECK(mentions(words_with(options), "no scratch file in /no/such/folder: No such file"));
  options.store_folder = "/proc";
  CHECK(mentions(words_with(options), "no scratch file in /proc: "));
  if (std::filesystem::exists("/dev/shm")) {
    options.store_folder = "/dev/shm";
    CHECK(mentions(words_with(options), "no scratch file in /dev/shm: "));
  }
  Memory memory;
  options.store = memory.store;
  CHECK(mentions(words_with(options), "a budget has one store"));

  // Room for some, and transfers that fail.
  std::vector<std::byte> some(256 * adacc::KiB);
  adacc::MemoryStore small(adacc::Bytes(some.data(), adacc::Shape(some.size())));
  BudgetOptions little = memory.options();
  little.store = small;
  Net net;
  const MemoryBudget budget("95%", little);
  for (int i = 0; i < 4; ++i) net.step(&budget, i);
  CHECK(budget.report().planned == 2);
  CHECK(budget.report().written_bytes > 0);
  CHECK(budget.report().written_bytes <= some.size());

  for (const bool reads : {false, true}) {
    Memory fails;
    const MemoryBudget failing("40%", fails.options());
    for (int i = 0; i < 2; ++i) net.step(&failing, i);
    const std::uint64_t recorded = fails.store.begun();
    net.step(&failing, 2);
    const std::uint64_t each = fails.store.begun() - recorded;
    REQUIRE(each > 15);
    fails.store.fail_from = fails.store.begun() + (reads ? each / 2 : 0);
    fails.store.failure = adacc::Error::say("it is on fire");
    const std::string words = words_of([&] { net.step(&failing, 3); });
    CHECK(mentions(words, reads ? "could not be fetched from the store: it is on fire"
                                : "could not be sent to the store: it is on fire"));
    fails.store.failure = {};
    CHECK(same_bits(net.step(&failing, 4), Net().step(nullptr, 4)));
  }
}

TEST_CASE("a store that is slower than it was said to be is said") {
  MemoryCount::install();
  Memory memory;
  memory.store.hostile = false;
  memory.store.speed.clock = adacc::ClockRef(&adacc::steady_seconds);
  memory.store.speed.pass = [](void*, double until) {
    while (adacc::steady_seconds() < until) std::this_thread::yield();
  };
  memory.store.speed.latency = 0.02;
  Net net;
  const MemoryBudget budget("40%", memory.options());
  std::size_t peak = 0;
  for (int i = 0; i < 3; ++i) net.step(&budget, i, &peak);
  const guest::BudgetReport report = budget.report();
  CHECK(peak <= report.budget_bytes);
  CHECK(report.stall_seconds > 0.02);
  // On a machine with other work the step may take much longer than the store.
  CHECK(mentions(report.note, " ms: the store is slow for this budget") ==
        (report.stall_seconds >= 0.2 * report.measured_seconds));
}

TEST_CASE("a scratch file on a disk") {
  MemoryCount::install();
  BudgetOptions options;
  options.policy = guest::lossless;
  options.planning_seconds = 0.2;
  options.store_folder = ".";
  const std::string words = words_of([&] { MemoryBudget probe("40%", options); });
  if (!words.empty()) {  // not every file system can
    CHECK(mentions(words, "no scratch file in .: "));
    return;
  }
  Net net;
  net.wide = 16;  // recordings send more than the file holds at first, which grows
  std::size_t plain = 0;
  net.step(nullptr, 0), net.step(nullptr, 0, &plain);
  REQUIRE(plain > 16 * adacc::MiB);
  const MemoryBudget budget("40%", options);
  for (int i = 0; i < 4; ++i) {
    Net other;
    other.wide = net.wide;
    std::size_t peak = 0;
    CHECK(same_bits(net.step(&budget, i, &peak), other.step(nullptr, i)));
    CHECK(peak <= plain * 40 / 100);
  }
  CHECK(budget.report().measured_bytes <= budget.report().budget_bytes);
  CHECK(budget.report().written_bytes > 0);
}

}  // namespace torch_sent_test
