// SPDX-License-Identifier: MIT
/// The operators that are running on this thread: whoever is asked to keep a tensor is not told who
/// saves it, and what a tensor tolerates depends on who reads it.
///
/// A thread-local callback of libtorch's profiler (at::RecordFunction) is called where operators
/// begin and end. It costs too little to be measured beside a training step.
#pragma once

#include <memory>
#include <vector>

#include <ATen/record_function.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// While one lives, this thread knows its operators. It must end on the thread that it began on.
class RunningOperators {
 public:
  RunningOperators() {
    if (watchers()++ > 0) return;
    handle() = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              names().push_back(function.name());
              return nullptr;
            },
            [](const at::RecordFunction&, at::ObserverContext*) {
              if (!names().empty()) names().pop_back();
            })
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~RunningOperators() {
    if (--watchers() > 0) return;
    at::removeCallback(handle());
    names().clear();
  }
  RunningOperators(const RunningOperators&) = delete;
  RunningOperators& operator=(const RunningOperators&) = delete;

  /// The innermost one, such as "aten::native_layer_norm"; empty if none is known. Valid until that
  /// operator ends.
  static const char* innermost() { return names().empty() ? "" : names().back(); }

 private:
  static std::vector<const char*>& names() {
    thread_local std::vector<const char*> all;
    return all;
  }
  static int& watchers() {
    thread_local int count = 0;
    return count;
  }
  static at::CallbackHandle& handle() {
    thread_local at::CallbackHandle mine = at::INVALID_CALLBACK_HANDLE;
    return mine;
  }
};

}}}  // namespace adacc::v0_1::torch
