// SPDX-License-Identifier: MIT
/// Copies from global to shared memory beside the arithmetic of a CUDA kernel (cp.async).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace adacc { inline namespace v0_1 { namespace detail {

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

/// `bytes` of 16, or of 8, and zeros in the place of the others, by the time of wait_for_copies().
template <unsigned size>
__device__ void copy_beside(void* to, const void* from, unsigned bytes) {
#if defined(__CUDA_ARCH__)
  if constexpr (size == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
#endif
}
/// For the thread's own copies: other threads' need a barrier.
__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Ends a group of copies of the thread.
__device__ inline void commit_copies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// For the thread's own groups of copies, but for the last `groups` of them.
template <unsigned groups>
__device__ void wait_for_copies_before() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");
#endif
}

}}}  // namespace adacc::v0_1::detail
