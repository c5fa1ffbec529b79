// SPDX-License-Identifier: MIT
/// A budget for steps in C++: peaks that the allocator counts, gradients against libtorch without it.
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "support.hpp"

namespace torch_budget_test {

using namespace torch_tests;
using guest::BudgetOptions;
using guest::MemoryBudget;
using guest::MemoryCount;

/// Blocks x + (gelu(norm(x) a) b), with dropout; each may be a checkpoint.
struct Net {
  std::vector<at::Tensor> parameters;
  bool checkpoints = false;
  int blocks = 5;

  Net() {
    at::manual_seed(3);
    for (int i = 0; i < blocks; ++i) {
      parameters.push_back(parameter(0.1 * at::randn({128, 512})));
      parameters.push_back(parameter(0.1 * at::randn({512, 128})));
    }
    for (const at::Tensor& one : parameters) one.mutable_grad() = at::zeros_like(one);
  }

  at::Tensor loss(at::Tensor x) const {
    for (int i = 0; i < blocks; ++i) {
      const auto block =
          [a = parameters[static_cast<std::size_t>(2 * i)],
           b = parameters[static_cast<std::size_t>(2 * i + 1)]](const at::Tensor& h) {
            const at::Tensor wide = at::gelu(at::layer_norm(h, {128}).mm(a));
            return h + at::dropout(wide, 0.1, true).mm(b);
          };
      x = checkpoints ? guest::checkpoint(block, x) : block(x);
    }
    return x.square().mean();
  }

  /// A step on `rows` random rows; its peak above what was in use before.
  std::size_t step(const MemoryBudget* budget, int number, std::int64_t rows = 512) {
    at::manual_seed(static_cast<std::uint64_t>(number));
    for (const at::Tensor& one : parameters) one.grad().zero_();
    const std::size_t before = MemoryCount::live_bytes();
    MemoryCount::reset_peak();
    at::Tensor made;
    if (budget == nullptr) {
      made = loss(at::randn({rows, 128}));
    } else {
      const guest::WithinBudget guard(*budget);
      made = loss(at::randn({rows, 128}));
    }
    made.backward();
    return MemoryCount::peak_bytes() - before;
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& one : parameters) all.push_back(one.grad().clone());
    return all;
  }
};

std::size_t budget_of(std::size_t plain, const std::string& share) {
  return plain * static_cast<std::size_t>(std::stoi(share)) / 100;
}

/// The largest peak of `steps` steps behind the two that are recorded.
std::size_t most_planned(Net& net, const MemoryBudget& budget, int steps) {
  std::size_t most = 0;
  for (int i = 0; i < steps; ++i) {
    const std::size_t peak = net.step(&budget, i);
    if (i >= 2) most = std::max(most, peak);
  }
  return most;
}

std::vector<at::Tensor> plain_gradients(int number) {
  Net net;
  net.step(nullptr, number);
  return net.gradients();
}

TEST_CASE("a step's peak is within its budget, with checkpoints and without") {
  MemoryCount::install();
  const std::vector<at::Tensor> exact = plain_gradients(4);
  for (const bool checkpoints : {false, true})
    for (const char* const share : {"100%", "70%", "45%"}) {
      CAPTURE(checkpoints);
      CAPTURE(share);
      Net net;
      net.step(nullptr, 0);
      const std::size_t plain = net.step(nullptr, 0);
      net.checkpoints = checkpoints;
      const MemoryBudget budget{std::string(share)};
      std::size_t most = 0, recorded = 0;
      for (int i = 0; i < 5; ++i) {
        const std::size_t peak = net.step(&budget, i);
        (i < 2 ? recorded : most) = peak;
        CHECK(peak <= budget_of(plain, share));
      }
      const guest::BudgetReport report = budget.report();
      CHECK(report.recorded == 2);
      CHECK(report.planned == 3);
      CHECK(report.corrections == 0);
      CHECK(report.plain_bytes == plain);
      CHECK(report.recorded_bytes == recorded);
      CHECK(report.budget_bytes == budget_of(plain, share));
      CHECK(report.most_bytes == most);
      CHECK(report.planned_bytes >= most);
      CHECK(report.planned_bytes <= most + most / 20);
      CHECK(relative_error(net.gradients(), exact) < 3e-2);
    }
}

TEST_CASE("lossless budgets keep every bit") {
  MemoryCount::install();
  const std::vector<at::Tensor> exact = plain_gradients(3);
  for (const char* const share : {"80%", "50%"}) {
    Net net;
    net.checkpoints = true;
    BudgetOptions options;
    options.policy = guest::lossless;
    const MemoryBudget budget(std::string(share), options);
    const std::size_t most = most_planned(net, budget, 4);
    CHECK(same_bits(net.gradients(), exact));
    CHECK(most <= budget.report().budget_bytes);
    bool again = false;
    for (const auto& part : budget.report().shares) again |= part.policy == "recompute";
    CHECK(again == (share[0] == '5'));
  }
}

TEST_CASE("plans know whether a block that runs again saves its input") {
  MemoryCount::install();
  const at::Tensor first = parameter(0.1 * at::randn({128, 128}));
  const at::Tensor second = parameter(0.1 * at::randn({128, 128}));
  // The operators of these blocks save no input of the block.
  const auto cast = [&](const at::Tensor& h) {
    return (h.to(at::kBFloat16) * 0.7).to(at::kFloat).mm(second);
  };
  const auto select = [](const at::Tensor& h) { return at::where(h > 0.2, h, h * 0.1); };
  for (int blocks = 0; blocks < 2; ++blocks) {
    BudgetOptions options;
    options.on_refusal = guest::OnRefusal::least;
    const MemoryBudget budget("40%", options);
    for (int i = 0; i < 4; ++i) {
      at::Tensor loss;
      {
        const guest::WithinBudget guard(budget);
        at::Tensor x = at::randn({512, 128}).mm(first);
        x = blocks == 0 ? guest::checkpoint(cast, x) : guest::checkpoint(select, x);
        loss = (x * x.detach().cos()).sum();
      }
      loss.backward();
      for (const at::Tensor& one : {first, second}) one.mutable_grad().reset();
    }
    const guest::BudgetReport report = budget.report();
    INFO(report.text());
    CHECK(report.planned == 2);
    CHECK(report.measured_bytes == report.planned_bytes);
  }
}

TEST_CASE("of checkpoints within one another the outermost is planned") {
  MemoryCount::install();
  const at::Tensor w = parameter(at::randn({256, 256}));
  const auto run = [&](const MemoryBudget* budget) {
    at::manual_seed(1);
    const auto inner = [](const at::Tensor& h) { return at::dropout(h.sin().cos(), 0.2, true); };
    const auto outer = [&](const at::Tensor& h) {
      return guest::checkpoint(inner, h.tanh()).exp();
    };
    at::Tensor loss;
    {
      std::optional<guest::WithinBudget> guard;
      if (budget != nullptr) guard.emplace(*budget);
      loss = guest::checkpoint(outer, guest::checkpoint(outer, w * 0.1)).sum();
    }
    return gradients(loss, {w});
  };
  const std::vector<at::Tensor> exact = run(nullptr);
  BudgetOptions options;
  options.policy = guest::lossless;
  const MemoryBudget budget("85%", options);
  for (int i = 0; i < 4; ++i) CHECK(same_bits(run(&budget), exact));
  CHECK(budget.report().planned == 2);
  CHECK(budget.report().diverged == 0);
  CHECK(budget.report().most_bytes <= budget.report().budget_bytes);
}

TEST_CASE("budgets that cannot be met, or are none, say so") {
  MemoryCount::install();
  CHECK_THROWS_AS(MemoryBudget("forty"), std::invalid_argument);
  CHECK(mentions(words_of([] { MemoryBudget budget("40"); }), "has no unit"));
  Net net;
  const MemoryBudget budget(std::size_t{1} << 20);
  const std::string words = words_of([&] {
    for (int i = 0; i < 3; ++i) net.step(&budget, i);
  });
  CHECK(mentions(words, "a budget of 1.0 MiB is below the least that a plan was found for, "));
  CHECK(mentions(words, "it is limited by "));
  const MemoryBudget least(budget.report().least_bytes);
  const std::size_t most = most_planned(net, least, 4);
  CHECK(most <= least.report().budget_bytes);
  CHECK(least.report().planned == 2);

  const MemoryBudget other("60%");
  CHECK(mentions(words_of([&] {
                   const guest::WithinBudget outside(least);
                   const guest::WithinBudget inside(other);
                 }),
                 "a budget within a budget"));
}

TEST_CASE("steps that differ are said, recorded and remembered") {
  MemoryCount::install();
  bool checkpoints = false;
  SUBCASE("without checkpoints") {}
  SUBCASE("with") { checkpoints = true; }
  Net net;
  net.checkpoints = checkpoints;
  const MemoryBudget budget("60%");
  const std::int64_t rows[8] = {512, 512, 512, 384, 384, 512, 384, 512};
  for (int i = 0; i < 8; ++i) {
    net.checkpoints = false;
    net.step(nullptr, i, rows[i]);
    const std::size_t plain = net.step(nullptr, i, rows[i]);
    net.checkpoints = checkpoints;
    CHECK(net.step(&budget, i, rows[i]) <= plain * 6 / 10);
  }
  const guest::BudgetReport report = budget.report();
  CHECK(report.recorded == 3);
  CHECK(report.diverged == 0);
  CHECK(report.planned == 5);
  CHECK(mentions(report.note, "of sizes [384, "));
  CHECK(mentions(report.note, "it was recorded as one of another kind"));
}

TEST_CASE("a step that takes more than its budget makes the next plan smaller") {
  MemoryCount::install();
  Net net;
  const MemoryBudget budget("70%");
  at::Tensor held;  // somebody keeps memory within the step that was not there when it was recorded
  std::size_t last = 0;
  for (int i = 0; i < 6; ++i) {
    for (const at::Tensor& one : net.parameters) one.grad().zero_();
    held = at::Tensor();
    const std::size_t before = MemoryCount::live_bytes();
    MemoryCount::reset_peak();
    at::Tensor loss;
    {
      const guest::WithinBudget guard(budget);
      if (i >= 2) held = at::zeros({256, 1024});
      loss = net.loss(at::randn({512, 128}));
    }
    loss.backward();
    last = MemoryCount::peak_bytes() - before;
  }
  const guest::BudgetReport report = budget.report();
  CHECK(report.corrections == 1);
  CHECK(mentions(report.note, "so less is planned with"));
  CHECK(last <= report.budget_bytes);
}

TEST_CASE("all memory of a budget comes back") {
  MemoryCount::install();
  Net net;
  net.checkpoints = true;
  net.step(nullptr, 0);
  const std::size_t before = MemoryCount::live_bytes();
  {
    const MemoryBudget budget("50%");
    for (int i = 0; i < 4; ++i) net.step(&budget, i);
    const guest::WithinBudget guard(budget);
    net.loss(at::randn({512, 128}));  // and without a backward
  }
  CHECK(MemoryCount::live_bytes() == before);
}

}  // namespace torch_budget_test
