// SPDX-License-Identifier: MIT
/// 200 random small modules: the same gradients, to the bit, as without hooks, and nothing is left.
#include <optional>
#include <string>

#include <adacc/io/budget.hpp>
#include <adacc/store/memory_store.hpp>

#include "random_module.hpp"

namespace torch_modules_test {

using namespace torch_tests;
constexpr unsigned modules = 200;
// Without, forms lie beside decoded elements (SavedStore).
constexpr bool tells_last_reader = TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 201;

struct Outcome {
  std::vector<at::Tensor> gradients;
  bool refused = false;  ///< autograd said that a saved tensor was changed in place
};

template <class Loss>
Outcome gradients_of(const RandomModule& module, const Loss& loss) {
  try {
    return {gradients(loss(), module.leaves())};
  } catch (const c10::Error& why) {
    const std::string words = why.what();
    if (words.find("is below the least") != std::string::npos) throw;  // a budget's affair
    INFO(words);
    REQUIRE(words.find("modified by an inplace") != std::string::npos);
    return {{}, true};
  }
}

Outcome guarded(RandomModule& module, const guest::ChoosingFunction& policy) {
  return gradients_of(module, [&] {
    const guest::SavedTensors guard(policy, {.least_bytes = 1});
    return module.loss();
  });
}

TEST_CASE("lossless policies change no bit, and refuse what autograd refuses") {
  unsigned refused = 0;
  for (unsigned seed = 0; seed < modules; ++seed) {
    CAPTURE(seed);
    RandomModule module(seed);
    const Outcome plain = gradients_of(module, [&] { return module.loss(); });
    const Outcome same = guarded(module, guest::lossless);
    CHECK(plain.refused == same.refused);
    CHECK(same_bits(plain.gradients, same.gradients));
    if (plain.refused) ++refused;
    if (plain.refused) CHECK(module.may_break());
  }
  CHECK(refused > 3);
}

TEST_CASE("lossy policies err a little, and leave no bytes behind") {
  guest::MemoryCount::install();
  unsigned far = 0, lossy = 0;
  for (unsigned seed = 0; seed < modules; ++seed) {
    CAPTURE(seed);
    const std::size_t before = guest::MemoryCount::live_bytes();
    for (const guest::ChoosingFunction& policy :
         {guest::ChoosingFunction(guest::int8), guest::ChoosingFunction(guest::tolerated)}) {
      RandomModule module(seed);
      const Outcome plain = gradients_of(module, [&] { return module.loss(); });
      const Outcome near = guarded(module, policy);
      CHECK(plain.refused == near.refused);
      if (plain.refused) continue;
      const double error = relative_error(near.gradients, plain.gradients);
      if (error > 0) ++lossy;
      if (!(error < 0.05)) ++far;
    }
    CHECK(guest::MemoryCount::live_bytes() == before);
  }
  MESSAGE(lossy, " of ", 2 * modules, " lost something, ", far, " more than 5 %");
  // Some are ill-conditioned: batch norm of what hardly varies, say.
  CHECK(lossy > modules);
  CHECK(far * 20 < lossy);
}

/// Recorded steps above their budget: the very first ones, and others.
struct Over {
  unsigned first = 0, later = 0;

  /// `report` is that of the step that has just ended, under `wanted`.
  void count(const guest::BudgetReport& report, const adacc::Budget& wanted) {
    if (report.planned > 0 || report.recorded == 0) return;
    if (report.recorded_bytes <= wanted.of(report.plain_bytes)) return;
    ++(report.recorded == 1 ? first : later);
    INFO(report.text());
    CHECK(report.recorded_over == first + later);
    CHECK(mentions(report.note, "was recorded"));
    CHECK(mentions(report.note, "of a budget of"));
  }
};
Over recorded_over;  // under budgets that can be met

/// The third step of `module` under a budget, or under the least that can be met if that is more.
Outcome budgeted(RandomModule& module, const guest::ChoosingFunction& policy, unsigned& over,
                 guest::BudgetOptions options = {}, const char* share = "70%",
                 guest::BudgetReport* told = nullptr) {
  options.policy = policy;
  options.least_bytes = 1;
  std::optional<guest::MemoryBudget> budget(std::in_place, share, options);
  adacc::Budget wanted = *adacc::parse_budget(share);
  Over here;
  Outcome outcome;
  for (int step = 0; step < 3 && !outcome.refused; ++step) {
    const auto run = [&] {
      return gradients_of(module, [&] {
        const guest::WithinBudget guard(*budget);
        return module.loss();
      });
    };
    const auto run_and_count = [&] {
      outcome = run();
      if (!outcome.refused) here.count(budget->report(), wanted);
    };
    try {
      run_and_count();
    } catch (const c10::Error& why) {
      INFO(why.what());
      REQUIRE(step == 2);
      REQUIRE(std::string(why.what()).find("is below the least") != std::string::npos);
      // Some more: threads of libtorch's take a few bytes more or less each time, and which plans are
      // found depends on measured times.
      here = {};  // the refusal is in words
      wanted.bytes = static_cast<double>(budget->report().least_bytes * 11 / 10);
      budget.emplace(static_cast<std::size_t>(wanted.bytes), options);
      for (int again = 0; again < 3; ++again) run_and_count();
    }
  }
  const guest::BudgetReport report = budget->report();
  if (outcome.refused) return outcome;
  INFO(report.text());
  CHECK(report.planned == 1);
  CHECK(report.diverged == 0);
  if (report.measured_bytes > report.budget_bytes) ++over;
  // A plan with operators that run again may be below the bytes of a recorded step, where none does.
  if (!options.again) {
    recorded_over.first += here.first;
    recorded_over.later += here.later;
  }
  if (told != nullptr) *told = report;
  return outcome;
}

TEST_CASE("modules within a budget: lossless ones have the same bits, and nothing is left") {
  guest::MemoryCount::install();
  unsigned over = 0, far = 0;
  for (unsigned seed = 0; seed < modules; ++seed) {
    CAPTURE(seed);
    const std::size_t before = guest::MemoryCount::live_bytes();
    {
      RandomModule module(seed);
      const Outcome plain = gradients_of(module, [&] { return module.loss(); });
      const Outcome same = budgeted(module, guest::lossless, over);
      CHECK(plain.refused == same.refused);
      CHECK(same_bits(plain.gradients, same.gradients));
      guest::BudgetOptions without;
      without.again = false;
      const Outcome near = budgeted(module, guest::tolerated, over, without);
      if (!plain.refused && !(relative_error(near.gradients, plain.gradients) < 0.05)) ++far;
    }
    CHECK(guest::MemoryCount::live_bytes() == before);
  }
  MESSAGE(over, " of ", 2 * modules, " took more than was planned, ", recorded_over.later,
          " more than the budget when they were recorded for the second time, and ",
          recorded_over.first, " in the smallest forms at first, ", far, " are more than 5 % off");
  CHECK(over == 0);
  if (tells_last_reader) CHECK(recorded_over.first == 0);
  CHECK(recorded_over.later == 0);
  CHECK(far * 20 < modules);
}

TEST_CASE("modules whose tensors are sent to a store have the same bits, and nothing is left") {
  guest::MemoryCount::install();
  std::vector<std::byte> memory(32 * adacc::MiB);
  unsigned over = 0, sending = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const std::size_t before = guest::MemoryCount::live_bytes();
    {
      // Hostile: whoever uses memory too early, or lets go of it, gets other numbers.
      adacc::MemoryStore store(adacc::Bytes(memory.data(), adacc::Shape(memory.size())));
      store.hostile = true;
      RandomModule module(seed, 10);
      guest::BudgetOptions options;
      options.store = store;
      options.link = {1e9, 1e9, 1e-5};
      options.planning_seconds = 0.2;
      options.again = seed % 2 == 0;
      guest::BudgetReport report;
      const Outcome plain = gradients_of(module, [&] { return module.loss(); });
      const Outcome same = budgeted(module, guest::lossless, over, options, "60%", &report);
      CHECK(plain.refused == same.refused);
      CHECK(same_bits(plain.gradients, same.gradients));
      if (report.written_bytes > 0) ++sending;
      CHECK(report.read_bytes <= report.written_bytes);
    }
    CHECK(guest::MemoryCount::live_bytes() == before);
  }
  MESSAGE(sending, " of 40 sent something");
  CHECK(over == 0);
  if (tells_last_reader) CHECK(recorded_over.first == 0);
  CHECK(recorded_over.later == 0);
  CHECK(sending > 20);
}

TEST_CASE("checkpointed modules have the same bits") {
  for (unsigned seed = 0; seed < modules; ++seed) {
    CAPTURE(seed);
    RandomModule module(seed);
    if (module.may_break()) continue;
    const Outcome plain = gradients_of(module, [&] { return module.loss(); });
    const Outcome again =
        gradients_of(module, [&] { return guest::checkpoint([&] { return module.loss(); }); });
    CHECK(same_bits(plain.gradients, again.gradients));
  }
}

}  // namespace torch_modules_test
