// SPDX-License-Identifier: MIT
/// What a forward depends on besides its arguments: the state of the random numbers, and autocast.
#pragma once

#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// As they are on this thread at its construction. Of generators the CPU's default one.
class Surroundings {
 public:
  Surroundings() : random_(random_state()) {}

  /// Of tensors that one holds.
  static std::size_t bytes() { return random_state().nbytes(); }

 private:
  friend class InSurroundings;

  static at::Tensor random_state() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    return generator.get_state();
  }

  void apply() const {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(random_);
    }
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
    at::autocast::set_autocast_enabled(at::kCPU, autocast_);
    at::autocast::set_autocast_dtype(at::kCPU, autocast_type_);
#else
    at::autocast::set_cpu_enabled(autocast_);
    at::autocast::set_autocast_cpu_dtype(autocast_type_);
#endif
  }

  at::Tensor random_;
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
  bool autocast_ = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType autocast_type_ = at::autocast::get_autocast_dtype(at::kCPU);
#else
  bool autocast_ = at::autocast::is_cpu_enabled();
  at::ScalarType autocast_type_ = at::autocast::get_autocast_cpu_dtype();
#endif
};

/// While one lives, all is as it was `there`; then as it was before.
class InSurroundings {
 public:
  explicit InSurroundings(const Surroundings& there) {
    at::autocast::increment_nesting();
    there.apply();
  }
  ~InSurroundings() {
    before_.apply();
    // Copies of weights that were cast meanwhile must not outlive the weights' next update.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  InSurroundings(const InSurroundings&) = delete;
  InSurroundings& operator=(const InSurroundings&) = delete;

 private:
  Surroundings before_;
};

}}}  // namespace adacc::v0_1::torch
