// SPDX-License-Identifier: MIT
/// Zeroed memory of a CUDA device, and copies between it and the host's.
///
/// A program with a trainer has device memory already, and lends it: a step takes views. A DeviceBlock serves
/// other programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cuda.cuh"

namespace adacc { inline namespace v0_1 {

template <class T>
class DeviceBlock {
  static_assert(std::is_trivially_copyable_v<T>, "adacc: a DeviceBlock holds plain numbers");

 public:
  DeviceBlock() = default;
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  DeviceBlock(DeviceBlock&& other) noexcept { swap(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBlock() {
    if (memory_ != nullptr) static_cast<void>(cudaFree(memory_));
  }

  /// `elems` zeros on the current device; if there is no room, the error names `what` they are for. The block starts
  /// at a multiple of 256 bytes, or of `boundary` (a power of 2) if that is larger; it then takes `boundary` bytes
  /// more.
  static Result<DeviceBlock> make(std::size_t elems, const char* what,
                                  std::size_t boundary = alignment) {
    std::size_t bytes = 0;
    if (!multiply(elems, sizeof(T), bytes) || bytes > static_cast<std::size_t>(-1) / 2)
      return Error::say(what, ": ", elems, " elements are more than can be addressed");
    if (elems == 0) return DeviceBlock();
    bytes = align_up(bytes);
    if (boundary > granularity) bytes += boundary;
    DeviceBlock block;
    cudaError_t status = cudaMalloc(&block.memory_, bytes);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      std::size_t free = 0, total = 0;
      if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = total = 0;
      return Error::say(what, ": ", shown(bytes), " of device memory are wanted, and ", shown(free),
                        " of ", shown(total), " are free");
    }
    if (status == cudaSuccess) {
      const std::size_t past = reinterpret_cast<std::uintptr_t>(block.memory_) % boundary;
      block.data_ = reinterpret_cast<T*>(static_cast<std::byte*>(block.memory_) +
                                         (past == 0 ? 0 : boundary - past));
      block.size_ = elems;
      status = cudaMemset(block.memory_, 0, bytes);
    }
    // Streams may use the block at once, even without waiting for the default stream.
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return Error::say(what, ": CUDA gives no memory: ", cudaGetErrorString(status));
    }
    return static_cast<DeviceBlock&&>(block);
  }

  std::size_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  View<T> view() { return {data_, Shape(size_)}; }
  View<const T> view() const { return {data_, Shape(size_)}; }

 private:
  static constexpr std::size_t granularity = 256;  ///< in CUDA's allocations

  void swap(DeviceBlock& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  void* memory_ = nullptr;  ///< from cudaMalloc
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

template <class T>
Error queue_copy(Cuda& cuda, View<const T> from, View<T> to, bool to_device) {
  const std::size_t bytes = from.size() * sizeof(T);
  if (from.size() != to.size())
    return Error::misuse("a copy of ", from.size(), " elements to ", to.size());
  if (bytes == 0) return {};
  if (const Error why = place_fault("elements to copy", from.data(), bytes, !to_device)) return why;
  if (const Error why = place_fault("places to copy to", to.data(), bytes, to_device)) return why;
  const cudaError_t status =
      cudaMemcpyAsync(to.data(), from.data(), bytes,
                      to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, cuda.stream());
  if (status == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return Error::say("CUDA did not start a copy: ", cudaGetErrorString(status));
}

}  // namespace detail

/// Queues a copy from host to device memory. Pinned memory is read when the stream reaches the copy; other memory has
/// been read when the function returns.
template <class T>
Error copy_to_device(Cuda& cuda, std::type_identity_t<View<const T>> from, View<T> to) {
  return detail::queue_copy<T>(cuda, from, to, true);
}

/// Copies device memory to host memory, after all work queued before, and waits for the copy.
template <class T>
Error copy_to_host(Cuda& cuda, View<T> from, View<std::remove_const_t<T>> to) {
  if (const Error why = detail::queue_copy<std::remove_const_t<T>>(cuda, from, to, false))
    return why;
  const cudaError_t status = cudaStreamSynchronize(cuda.stream());
  if (status == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return Error::say("CUDA: ", cudaGetErrorString(status));
}

}}  // namespace adacc::v0_1
