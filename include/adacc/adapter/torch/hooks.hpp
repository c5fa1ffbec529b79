// SPDX-License-Identifier: MIT
/// Saved-tensor hooks for libtorch without Python.
///
/// Every tensor that an operator saves for backward passes the hooks that autograd's default engine
/// hands out. libtorch's own engine hands out none, and the list that at::SavedTensorDefaultHooks
/// keeps takes Python objects alone. So the first scope puts an engine of ours in the default's
/// place, which differs in nothing but that it asks the scopes of the calling thread. If Python
/// runs, its engine is in place already, and stays: there torch.autograd.graph.saved_tensors_hooks
/// leads to the same code (python).
///
/// In namespace adacc::torch, `torch::` names that namespace; libtorch is `::torch::` here.
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
/// Makes the hooks of one saved tensor; null: it is saved as if there were none.
using HooksMaker = std::function<std::unique_ptr<Hooks>()>;

/// From its construction to its end, what operators save on this thread goes through the hooks that
/// `maker` makes; of nested scopes the innermost one's. It must end on the thread that it began on.
/// Throws c10::Error if another engine than libtorch's own is in place (Python's).
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
