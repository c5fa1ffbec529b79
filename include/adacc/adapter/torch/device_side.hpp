// SPDX-License-Identifier: MIT
/// The memory under a budget: the CPU's, or one other device's.
///
/// A kind of device brings its count as DeviceMemory (cuda_memory.hpp). Counts are functions of the order of calls
/// alone: memory is in use from the call that asks for it to the call that gives it back, whenever the device is done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "../../core/bytes.hpp"
#include "byte_count.hpp"
#include "device_codec.hpp"
#include "memory_count.hpp"
#include "surroundings.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Counts the memory given out by libtorch on devices of one kind.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Why nothing is counted there, in words; empty: all is counted from now on.
  virtual std::string begin() = 0;
  virtual ByteCount& count(c10::DeviceIndex device) = 0;
  /// An allocation counts as a multiple of this many bytes.
  virtual std::size_t unit_bytes() const = 0;
};

/// The counts for devices of a type, for the whole process; null: there are none.
inline std::atomic<DeviceMemory*>& device_memory(c10::DeviceType type) {
  static std::atomic<DeviceMemory*> all[c10::COMPILE_TIME_MAX_DEVICE_TYPES] = {};
  return all[static_cast<std::size_t>(type)];
}

class DeviceSide {
 public:
  /// The CPU.
  DeviceSide() : count_(&MemoryCount::count()) { MemoryCount::install(); }
  /// Throws c10::Error if a budget cannot be kept on `device`.
  explicit DeviceSide(c10::Device device) : DeviceSide() {
    if (device.is_cpu()) return;
    const std::string why = refusal(device);
    TORCH_CHECK(why.empty(), "adacc: a budget cannot be kept on ", device, ": ", why);
    DeviceMemory& memory = *device_memory(device.type()).load();
    device_ = device;
    count_ = &memory.count(device.index());
    unit_ = memory.unit_bytes();
  }
  /// The reason against budgets of `device`; empty: there is none.
  static std::string refusal(c10::Device device) {
    if (device.is_cpu()) return {};
    DeviceMemory* const memory = device_memory(device.type());
    if (device_kernels(device.type()) == nullptr)
      return "this build of adacc has no kernels for such devices";
    if (memory == nullptr)
      return "this build of adacc does not count their memory: it was built without the headers of "
             "their runtime";
    return memory->begin();
  }

  c10::Device device() const { return device_; }
  bool is_cpu() const { return device_.is_cpu(); }
  /// Whether a budget on this side plans `tensor`.
  bool holds(const at::Tensor& tensor) const { return tensor.device() == device_; }

  ByteCount& count() const { return *count_; }
  std::size_t live_bytes() const { return count_->live_bytes(); }
  ByteCount::Lap lap() const { return count_->lap(); }
  /// Bytes in use for an allocation of `bytes`.
  std::size_t counted(std::size_t bytes) const { return div_up(bytes, unit_) * unit_; }
  /// Bytes in use for the memory of `tensor`.
  std::size_t counted(const at::Tensor& tensor) const { return counted(tensor.storage().nbytes()); }

  /// Whether the memory of `storage` can be read and written by a store.
  bool may_travel(const c10::Storage& storage) const {
    return is_cpu() ? MemoryCount::may_travel(storage)
                    : storage.nbytes() >= MemoryCount::least_paged;
  }
  /// Whether work of this thread's current stream is captured as a graph, so the host can wait for none of it.
  bool is_captured() const {
    return !is_cpu() &&
           device_kernels(device_.type())
               .load()
               ->is_captured(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  /// A block's bytes here besides inputs. Generators of other devices have their state on the CPU.
  std::size_t surroundings_bytes() const { return is_cpu() ? Surroundings::bytes() : 0; }

 private:
  c10::Device device_{c10::DeviceType::CPU};
  ByteCount* count_;
  std::size_t unit_ = 1;
};

}}}  // namespace adacc::v0_1::torch
