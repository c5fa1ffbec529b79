// SPDX-License-Identifier: MIT
/// Bytes of libtorch's tensors on the CPU, now and at the peak. A budget limits this figure, while resident memory
/// also has the bytes kept by malloc.
///
/// A counting allocator takes the place of libtorch's, once for the process, and stays, because memory has to come
/// back to the same allocator. The count includes every thread, buffers of compiled graphs and the blobs of saved
/// tensors, but no scratch of MKL and oneDNN, which call malloc. Memory allocated before is not counted, nor is the
/// return.
///
/// Memory of 64 KiB and more begins at a page and may be read and written to the end of the last page: stores require
/// this of transfers (store/store.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <torch/version.h>

#include "../../core/bytes.hpp"
#include "../../program/instruction.hpp"
#include "byte_count.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

class MemoryCount {
 public:
  /// Starts to count, unless counting already.
  static void install() {
    static const bool done = [] {
      c10::SetCPUAllocator(&allocator(), /*priority=*/100);
      return true;
    }();
    static_cast<void>(done);
  }

  /// All bytes counted.
  static ByteCount& count() {
    static auto* const all = new ByteCount;  // memory comes back after static objects have died
    return *all;
  }
  static std::size_t live_bytes() { return count().live_bytes(); }
  static std::size_t peak_bytes() { return count().peak_bytes(); }
  static void reset_peak() { count().reset_peak(); }

  /// Whether the memory of `storage` is from this allocator, and may travel.
  static bool may_travel(const c10::Storage& storage) {
    return storage.data_ptr().get_deleter() == &Allocator::give_back &&
           storage.nbytes() >= least_paged;
  }
  /// Smaller memory shares pages, and stays.
  static constexpr std::size_t least_paged = 64 * KiB;

 private:
  /// Before every block, 64 bytes hold the size; before these, the rest of a page.
  class Allocator final : public c10::Allocator {
   public:
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 203
    c10::DataPtr allocate(std::size_t bytes) override { return get(bytes); }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      std::memcpy(to, from, bytes);
    }
#else
    c10::DataPtr allocate(std::size_t bytes) const override { return get(bytes); }
#endif
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    static void give_back(void* data) {
      if (data == nullptr) return;
      std::size_t bytes = 0;
      std::memcpy(&bytes, static_cast<std::byte*>(data) - alignment, sizeof bytes);
      const std::size_t live = count().take(bytes);
      c10::reportMemoryUsageToProfiler(data, -static_cast<std::int64_t>(bytes), total(live), 0,
                                       c10::Device(c10::DeviceType::CPU));
      std::free(static_cast<std::byte*>(data) - unit_of(bytes));
    }

   private:
#if TORCH_VERSION_MAJOR >= 2
    static std::size_t total(std::size_t bytes) { return bytes; }
#else
    static std::int64_t total(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }
#endif
    static std::size_t unit_of(std::size_t bytes) {
      return bytes >= least_paged ? transfer_alignment : alignment;
    }

    static c10::DataPtr get(std::size_t bytes) {
      const c10::Device cpu(c10::DeviceType::CPU);
      if (bytes == 0) return {nullptr, nullptr, &give_back, cpu};
      const std::size_t unit = unit_of(bytes), size = div_up(bytes, unit) * unit + unit;
      auto* const block = static_cast<std::byte*>(std::aligned_alloc(unit, size));
      TORCH_CHECK(block != nullptr, "adacc: there is no memory for ", bytes, " bytes");
      void* const data = block + unit;
      std::memcpy(block + unit - alignment, &bytes, sizeof bytes);
      const std::size_t live = count().add(bytes);
      c10::reportMemoryUsageToProfiler(data, static_cast<std::int64_t>(bytes), total(live), 0, cpu);
      return {data, data, &give_back, cpu};
    }
  };
  static Allocator& allocator() {
    static auto* const mine = new Allocator;
    return *mine;
  }
};

}}}  // namespace adacc::v0_1::torch
