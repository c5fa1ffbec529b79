// SPDX-License-Identifier: MIT
/// Names of modules, in policies and in a budget's report and refusal.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "support.hpp"

namespace torch_module_name_test {

using namespace torch_tests;

at::Tensor loss(const std::vector<at::Tensor>& parameters, at::Tensor x) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const guest::WithinModule block("block." + std::to_string(i));
    x = x.mm(parameters[i]);
    const guest::WithinModule inside("block." + std::to_string(i) + ".act");
    x = at::gelu(x);
  }
  return at::softplus(x.narrow(1, 0, 8).contiguous()).sum();
}

std::vector<at::Tensor> parameters() {
  at::manual_seed(3);
  return {parameter(at::randn({256, 256})), parameter(at::randn({256, 256}))};
}

TEST_CASE("policies are told in which module a tensor was saved first") {
  const std::vector<at::Tensor> all = parameters();
  std::vector<std::string> seen;
  at::Tensor made;
  {
    const guest::SavedTensors guard([&](const guest::SavedTensor& tensor) {
      seen.push_back(tensor.savers.front() + " " + tensor.module);
      return guest::Keep();
    });
    made = loss(all, at::randn({4096, 256}) * 1);
  }
  made.backward();
  for (const char* name : {"aten::mm block.0", "aten::gelu block.0.act", "aten::gelu block.1.act",
                           "aten::softplus "}) {
    CAPTURE(name);
    CHECK(std::find(seen.begin(), seen.end(), name) != seen.end());
  }
}

TEST_CASE("a budget reports bytes by module, and a refusal names one") {
  const std::vector<at::Tensor> all = parameters();
  for (const at::Tensor& one : all) one.mutable_grad() = at::zeros_like(one);
  const auto train = [&](const guest::MemoryBudget& budget) {
    for (int step = 0; step < 3; ++step) {
      at::Tensor made;
      {
        const guest::WithinBudget guard(budget);
        made = loss(all, at::randn({512, 256}) * 1);
      }
      made.backward();
    }
  };
  const guest::MemoryBudget budget("90%");
  train(budget);
  const guest::BudgetReport report = budget.report();
  CAPTURE(report.text());
  std::size_t shares = 0, modules = 0, waiting = 0;
  for (const auto& share : report.shares) shares += share.bytes;
  for (const guest::ModuleBytes& module : report.modules) {
    modules += module.raw_bytes;
    waiting += module.waiting_bytes;
  }
  CHECK(report.modules.size() >= 4);
  CHECK(modules == shares);
  CHECK(waiting < modules);
  const std::string refused = words_of([&] { train(guest::MemoryBudget("1%")); });
  CAPTURE(refused);
  CHECK(mentions(refused, " in block."));
}

}  // namespace torch_module_name_test
