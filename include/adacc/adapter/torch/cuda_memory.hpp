// SPDX-License-Identifier: MIT
/// Bytes given out by libtorch's caching allocator on CUDA devices, by the allocator's trace.
///
/// Requests count as multiples of 512 bytes, the allocator's smallest block. The allocator's own figure
/// (torch.cuda.memory_allocated) may be larger: a block of more than 1 MiB is not split for less than 1 MiB, unless
/// its segments are expandable.
///
/// The allocator's class is virtual, and found in the process when it runs, so nothing is linked: a module built with
/// these headers runs beside a libtorch without CUDA.
#pragma once

#if __has_include(<cuda_runtime_api.h>) && __has_include(<c10/cuda/impl/cuda_cmake_macros.h>)

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "../../core/bytes.hpp"
#include "device_side.hpp"

namespace c10::cuda::CUDACachingAllocator {
extern std::atomic<CUDAAllocator*> allocator __attribute__((weak));
}  // namespace c10::cuda::CUDACachingAllocator

namespace adacc { inline namespace v0_1 { namespace torch {

class CudaMemory final : public DeviceMemory {
 public:
  static void install() {
    static auto* const counts = new CudaMemory;  // outlives static objects, as the allocator does
    device_memory(c10::DeviceType::CUDA) = counts;
  }

  std::string begin() override {
    const std::lock_guard lock(mutex_);
    if (begun_) return {};
    namespace allocators = c10::cuda::CUDACachingAllocator;
    std::atomic<allocators::CUDAAllocator*>* const address = &allocators::allocator;
    if (address == nullptr) return "this libtorch has no CUDA";
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    allocators::CUDAAllocator& allocator = *address->load();
    if (allocator.name() != "native")
      return "bytes are counted of libtorch's own caching allocator, and that in place is \"" +
             allocator.name() + "\"; say nothing of a backend in PYTORCH_ALLOC_CONF";
    if (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr)
      return "PYTORCH_NO_CUDA_MEMORY_CACHING is set, so each tensor is an allocation of the "
             "device, "
             "which nobody counts";
    const auto devices = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
    allocator.attachAllocatorTraceTracker([this](const auto& entry) { trace(entry); });
    for (c10::DeviceIndex i = 0; i < devices; ++i) {
      const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
      add(i, static_cast<std::size_t>(allocator.getDeviceStats(i).allocated_bytes[all].current));
    }
    begun_ = true;
    return {};
  }
  ByteCount& count(c10::DeviceIndex device) override {
    return counts_[static_cast<std::size_t>(device)];
  }
  std::size_t unit_bytes() const override { return unit; }

 private:
  static constexpr std::size_t unit = 512;
  static constexpr std::size_t most_devices = 128;  // what an index can say

  /// Called by the allocator, behind its lock.
  template <class Entry>
  void trace(const Entry& entry) {
    const std::size_t bytes = div_up(entry.size_, unit) * unit;
    if (entry.action_ == Entry::ALLOC) count(entry.device_).add(bytes);
    if (entry.action_ == Entry::FREE_REQUESTED) count(entry.device_).take(bytes);
  }
  void add(c10::DeviceIndex device, std::size_t bytes) {
    count(device).add(bytes);
    count(device).reset_peak();
  }

  std::mutex mutex_;
  bool begun_ = false;
  std::array<ByteCount, most_devices> counts_;
};

}}}  // namespace adacc::v0_1::torch

#else

#include "../../core/config.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Without the headers of CUDA's runtime nothing is counted, and budgets on CUDA devices are refused in words.
struct CudaMemory {
  static void install() {}
};

}}}  // namespace adacc::v0_1::torch

#endif
