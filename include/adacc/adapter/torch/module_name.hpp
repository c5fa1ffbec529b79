// SPDX-License-Identifier: MIT
/// The module of a network in which an operator runs, for reports. libtorch does not know modules, so the caller of a
/// module names it.
///
///     adacc::torch::WithinModule name("encoder.0");
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/config.hpp"
#include "blocks.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

namespace detail {

/// Asked on this thread for the module of a saved tensor; null: no module has a name.
class ModuleNames {
 public:
  virtual ~ModuleNames() = default;
  virtual std::string module_name() = 0;

  static ModuleNames*& of_thread() {
    thread_local ModuleNames* mine = nullptr;
    return mine;
  }
};

/// The module running on this thread; empty if unknown.
inline std::string module_name() {
  ModuleNames* const names = ModuleNames::of_thread();
  return names != nullptr ? names->module_name() : std::string();
}

}  // namespace detail

/// During its lifetime, operators of this thread run in the module `name`. The innermost one counts.
class WithinModule {
 public:
  explicit WithinModule(std::string name)
      : name_(std::move(name)), names_(detail::ModuleNames::of_thread(), &name_) {}

 private:
  struct Name final : detail::ModuleNames {
    explicit Name(std::string name) : mine(std::move(name)) {}
    std::string module_name() override { return mine; }
    std::string mine;
  };
  Name name_;
  detail::ThreadValue<detail::ModuleNames*> names_;
};

/// Storages saved first in one module.
struct ModuleBytes {
  std::string module;  ///< empty: no module, or one without a name
  std::size_t storages = 0;
  std::size_t raw_bytes = 0;      ///< before encoding
  std::size_t waiting_bytes = 0;  ///< in the forms kept for backward
};

namespace detail {

/// Adds a storage to the module's row.
inline void add_to_module(std::vector<ModuleBytes>& rows, std::string_view module, std::size_t raw,
                          std::size_t waiting) {
  ModuleBytes* row = nullptr;
  for (ModuleBytes& each : rows)
    if (each.module == module) row = &each;
  if (row == nullptr) {
    row = &rows.emplace_back();
    row->module = module;
  }
  ++row->storages;
  row->raw_bytes += raw;
  row->waiting_bytes += waiting;
}

}  // namespace detail

}}}  // namespace adacc::v0_1::torch
