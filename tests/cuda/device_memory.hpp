// SPDX-License-Identifier: MIT
/// Tensors of tests in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

/// Memory of exactly so many elements, in which nothing is written; they begin `shift` elements behind where
/// an allocation does, and so are not aligned if that is odd.
template <class T>
struct Device {
  explicit Device(std::size_t count, std::size_t shift = 0) : size(count) {
    void* made = nullptr;
    if (cudaMalloc(&made, (shift + size) * sizeof(T) + (shift + size == 0)) == cudaSuccess) {
      memory = static_cast<T*>(made);
      data = memory + shift;
    }
  }
  explicit Device(const std::vector<T>& from, std::size_t shift = 0) : Device(from.size(), shift) {
    cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();  // the tests' stream does not wait for the one that copied
  }
  ~Device() { cudaFree(memory); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  std::vector<T> list() const {
    std::vector<T> to(size);
    cudaDeviceSynchronize();
    cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
    return to;
  }
  T* data = nullptr;
  T* memory = nullptr;
  std::size_t size;
};
