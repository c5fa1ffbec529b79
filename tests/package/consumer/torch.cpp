// SPDX-License-Identifier: MIT
/// Links libtorch by the target alone, whose namespace is not hidden by ours.
#include <ATen/ops/ones.h>
#include <adacc/adapter/torch/hooks.hpp>

int main() {
  const adacc::torch::HooksScope none([] { return nullptr; });
  torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
  return engine.get_default_saved_variable_hooks() == nullptr && at::ones({2}).numel() == 2 ? 0 : 1;
}
