// SPDX-License-Identifier: MIT
/// A block of 256 threads on the device, for the algorithms of thread_block.hpp.
#pragma once

#include <cub/block/block_scan.cuh>

#include "../core/cuda.cuh"
#include "../core/exact_arithmetic.cuh"
#include "thread_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class CudaBlock {
 public:
  static constexpr int threads = 256;

  using Scan = cub::BlockScan<std::uint32_t, threads>;
  using Storage = typename Scan::TempStorage;

  __device__ explicit CudaBlock(Storage& storage) : storage_(storage) {
    require_exact_arithmetic();
  }

  template <class R>
  struct PerThread {
    R value;
    __device__ R& operator[](int) { return value; }
    __device__ const R& operator[](int) const { return value; }
  };

  template <class Phase>
  __device__ void each(const Phase& phase) {
    phase(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  template <class Condition>
  __device__ bool any(const Condition& condition) {
    return __syncthreads_or(condition(static_cast<int>(threadIdx.x)) ? 1 : 0) != 0;
  }

  template <class Value, class Use>
  __device__ void exclusive_sum(const Value& value, const Use& use) {
    const int thread = static_cast<int>(threadIdx.x);
    std::uint32_t before, total;
    Scan(storage_).ExclusiveSum(value(thread), before, total);
    use(thread, before, total);
    __syncthreads();
  }

  __device__ static std::uint32_t add(std::uint32_t& to, std::uint32_t by) {
    return atomicAdd(&to, by);
  }
  __device__ static void maximum(std::uint32_t& to, std::uint32_t value) { atomicMax(&to, value); }

  __device__ static void maximum(std::int32_t& to, std::int32_t value) { atomicMax(&to, value); }
  __device__ static void minimum(std::int32_t& to, std::int32_t value) { atomicMin(&to, value); }

  __device__ static bool last(std::uint32_t& arrived, std::uint32_t of) {
    __threadfence();
    const bool is = atomicInc(&arrived, of - 1) == of - 1;
    __threadfence();
    return is;
  }

  template <int width, class Values, class Combine>
  __device__ void lanes(const Values& values, const Combine& combine) {
    auto& registers = values(static_cast<int>(threadIdx.x));
#pragma unroll
    for (int step = 1; step < width; step *= 2) {
#pragma unroll
      for (auto& value : registers) value = combine(value, __shfl_xor_sync(~0U, value, step));
    }
  }

 private:
  Storage& storage_;
};

/// Why the memory passed to codec `name` is unusable; empty if it is usable.
template <class T>
Error codec_memory_fault(const Cuda& cuda, const char* name, View<T> x, const std::byte* blob,
                         std::size_t bytes) {
  return cuda.examine(
      name, {{"elements", x.data(), x.size() * sizeof(T)}, {"bytes of the blob", blob, bytes}});
}

/// Blocks in a grid over `parts` pieces of work: kernels loop, so any number will do.
inline unsigned grid_of(std::size_t parts) {
  constexpr std::size_t most = 0x7FFFFFFF;
  return static_cast<unsigned>(parts < most ? parts : most);
}

}}}  // namespace adacc::v0_1::detail
