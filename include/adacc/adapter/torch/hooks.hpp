// SPDX-License-Identifier: MIT
/// Saved-tensor hooks for libtorch without Python.
///
/// Every tensor saved by an operator for backward passes the hooks handed out by autograd's default engine.
/// libtorch's own engine hands out none, and the list in at::SavedTensorDefaultHooks takes Python objects alone. So
/// the first scope replaces the default engine with one of ours, which asks the scopes of the calling thread and is
/// otherwise the same. If Python runs, Python's engine is in place already, and stays: there
/// torch.autograd.graph.saved_tensors_hooks leads to the same code (python/).
///
/// Within namespace adacc::torch, `torch::` names this namespace; libtorch is `::torch::` here.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

using Hooks = ::torch::autograd::SavedVariableHooks;
/// Makes the hooks of one saved tensor; null: the tensor is saved without hooks.
using HooksMaker = std::function<std::unique_ptr<Hooks>()>;

/// During its lifetime, tensors saved by operators on this thread pass the hooks made by `maker`; of nested scopes,
/// the innermost counts. A scope must end on the thread where it began. Throws c10::Error if another engine than
/// libtorch's own is in place (Python's).
class HooksScope {
 public:
  explicit HooksScope(HooksMaker maker) : maker_(std::move(maker)) {
    install();
    scopes().push_back(this);
  }
  ~HooksScope() {
    std::vector<HooksScope*>& all = scopes();
    const auto mine = std::find(all.rbegin(), all.rend(), this);
    if (mine != all.rend()) all.erase(std::next(mine).base());
  }
  HooksScope(const HooksScope&) = delete;
  HooksScope& operator=(const HooksScope&) = delete;

 private:
  class Engine final : public ::torch::autograd::Engine {
   public:
    static ::torch::autograd::Engine& get() {
      static auto* const engine =
          new Engine;  // never destroyed: its threads outlive static objects
      return *engine;
    }
    std::unique_ptr<Hooks> get_default_saved_variable_hooks() override {
      return scopes().empty() ? nullptr : scopes().back()->maker_();
    }
  };

  static std::vector<HooksScope*>& scopes() {
    thread_local std::vector<HooksScope*> all;
    return all;
  }

  static void install() {
    static const bool done = [] {
      TORCH_CHECK(
          &::torch::autograd::Engine::get_default_engine() ==
              &::torch::autograd::Engine::get_base_engine(),
          "adacc: another engine than libtorch's is in place (Python's?), and only that one can "
          "hand out hooks: use torch.autograd.graph.saved_tensors_hooks there");
      ::torch::autograd::set_default_engine_stub(&Engine::get);
      return true;
    }();
    static_cast<void>(done);
  }

  HooksMaker maker_;
};

}}}  // namespace adacc::v0_1::torch
