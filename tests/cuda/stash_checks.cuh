// SPDX-License-Identifier: MIT
/// What is expected of a stash in device memory: failures that are counted, arenas with guards.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/error.hpp>
#include <adacc/core/view.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "device_memory.hpp"

namespace stash_run {

using namespace adacc;

inline int failures = 0;

inline void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}
inline bool fine(const Error& error) {
  expect(!error, error.text());
  return !error;
}
inline bool fine(cudaError_t status) {
  expect(status == cudaSuccess, cudaGetErrorString(status));
  return status == cudaSuccess;
}

/// An error that says these words.
inline void expect_words(const Error& error, const std::string& words) {
  expect(std::strstr(error.text(), words.c_str()) != nullptr,
         std::string("\"") + error.text() + "\" does not say: " + words);
}

static __global__ void nothing() {}

/// A callable whose launch has more threads than a block can have.
struct Fails {
  cudaStream_t stream;
  void operator()(const View<const float>*, View<float>) const {
    nothing<<<1, 4096, 0, stream>>>();
  }
};

/// Bytes of an arena, with guards before and behind.
class GuardedArena {
 public:
  static constexpr std::size_t guard = transfer_alignment;

  GuardedArena(cudaStream_t stream, std::size_t bytes, int pattern)
      : stream_(stream), memory_(bytes + 3 * guard), pattern_(pattern) {
    begin_ = memory_.data + 2 * guard - reinterpret_cast<std::uintptr_t>(memory_.data) % guard;
    size_ = bytes;
    cudaMemsetAsync(memory_.data, pattern, memory_.size, stream);
  }
  Bytes bytes() const { return {begin_, Shape(size_)}; }
  /// Whether every byte that is not as it was is one of a NaN.
  bool is_dead() const {
    cudaStreamSynchronize(stream_);
    for (const std::byte now : memory_.list())
      if (now != static_cast<std::byte>(pattern_) && now != std::byte{0xFF}) return false;
    return true;
  }
  /// One past the last byte that is not as it was, counted from the first of the arena; -1 if one before it is not.
  std::ptrdiff_t used() const {
    cudaStreamSynchronize(stream_);
    const std::vector<std::byte> now = memory_.list();
    const auto first = begin_ - memory_.data;
    std::ptrdiff_t used = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] == static_cast<std::byte>(pattern_)) continue;
      const auto at = static_cast<std::ptrdiff_t>(i) - first;
      if (at < 0) return -1;
      used = at + 1;
    }
    return used;
  }

 private:
  cudaStream_t stream_;
  Device<std::byte> memory_;
  int pattern_;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace stash_run
