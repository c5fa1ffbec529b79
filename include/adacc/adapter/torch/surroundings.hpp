// SPDX-License-Identifier: MIT
/// The state of a forward besides the arguments: random numbers, and autocast.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// The state on this thread at construction: of the CPU, and of other named devices. For each device, the default
/// generator's.
class Surroundings {
 public:
  /// Throws c10::Error if the state of a device cannot be kept.
  explicit Surroundings(const std::vector<at::Device>& devices = {}) {
    keep(at::kCPU);
    for (const at::Device& device : devices) keep(device);
  }

  /// The devices of `tensors` where computation runs, other than the CPU.
  static std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Device> devices;
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined() || tensor.is_cpu() || tensor.is_meta()) continue;
      if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
        devices.push_back(tensor.device());
    }
    return devices;
  }

  /// Bytes of tensors in the state of the CPU alone.
  static std::size_t bytes() { return random_state(at::kCPU).nbytes(); }

 private:
  friend class InSurroundings;

  struct OfDevice {
    at::Device device;
    at::Tensor random;
    bool autocast;
    at::ScalarType autocast_type;
  };

  static at::Tensor random_state(at::Device device) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    return generator.get_state();
  }

  void keep(at::Device device) {
    OfDevice of{device, {}, false, at::kFloat};
    try {
      of.random = random_state(device);
    } catch (const c10::Error& why) {
      TORCH_CHECK(
          false, "adacc: checkpoint: the state of random numbers on ", device,
          ", where an input is, cannot be kept, so a function that draws some could not be run "
          "again as it ran: ",
          why.what_without_backtrace());
    }
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
    if (at::autocast::is_autocast_available(device.type())) {
      of.autocast = at::autocast::is_autocast_enabled(device.type());
      of.autocast_type = at::autocast::get_autocast_dtype(device.type());
    }
#else
    if (device.is_cpu()) {
      of.autocast = at::autocast::is_cpu_enabled();
      of.autocast_type = at::autocast::get_autocast_cpu_dtype();
    } else {
      TORCH_CHECK(device.is_cuda(),
                  "adacc: checkpoint: of libtorch before 2.4 autocast can be kept on the "
                  "CPU and on CUDA devices, and an input is on ",
                  device);
      of.autocast = at::autocast::is_enabled();
      of.autocast_type = at::autocast::get_autocast_gpu_dtype();
    }
#endif
    devices_.push_back(of);
  }

  void apply() const {
    for (const OfDevice& of : devices_) {
      at::Generator generator = at::globalContext().defaultGenerator(of.device);
      {
        const std::lock_guard<std::mutex> lock(generator.mutex());
        generator.set_state(of.random);
      }
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 204
      if (!at::autocast::is_autocast_available(of.device.type())) continue;
      at::autocast::set_autocast_enabled(of.device.type(), of.autocast);
      at::autocast::set_autocast_dtype(of.device.type(), of.autocast_type);
#else
      if (of.device.is_cpu()) {
        at::autocast::set_cpu_enabled(of.autocast);
        at::autocast::set_autocast_cpu_dtype(of.autocast_type);
      } else {
        at::autocast::set_enabled(of.autocast);
        at::autocast::set_autocast_gpu_dtype(of.autocast_type);
      }
#endif
    }
  }

  std::vector<at::Device> devices() const {
    std::vector<at::Device> others;
    for (const OfDevice& of : devices_)
      if (!of.device.is_cpu()) others.push_back(of.device);
    return others;
  }

  std::vector<OfDevice> devices_;  // the CPU first
};

/// During its lifetime, the state is that of `there`; afterwards, the one before.
class InSurroundings {
 public:
  explicit InSurroundings(const Surroundings& there) : before_(there.devices()) {
    at::autocast::increment_nesting();
    there.apply();
  }
  ~InSurroundings() {
    before_.apply();
    // Cast copies of weights must not outlive the weights' next update.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  InSurroundings(const InSurroundings&) = delete;
  InSurroundings& operator=(const InSurroundings&) = delete;

 private:
  Surroundings before_;
};

}}}  // namespace adacc::v0_1::torch
