// SPDX-License-Identifier: MIT
/// Counts the allocations of a whole program, and refuses them from some number on: include it in just one
/// source of it.
#pragma once

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>

namespace {
std::atomic<long> allocations{0};
std::atomic<long> most_allocations{LONG_MAX};  ///< what goes beyond gets no memory

/// Counts one more; whether it is to be had.
bool allocate_one_more() {
  if (++allocations <= most_allocations) return true;
  errno = ENOMEM;
  return false;
}
}  // namespace

// glibc's own entry points behind the public names.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) { return allocate_one_more() ? __libc_malloc(size) : nullptr; }
void* calloc(std::size_t count, std::size_t size) {
  return allocate_one_more() ? __libc_calloc(count, size) : nullptr;
}
void* realloc(void* block, std::size_t size) {
  return allocate_one_more() ? __libc_realloc(block, size) : nullptr;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return allocate_one_more() ? __libc_memalign(alignment, size) : nullptr;
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  *block = allocate_one_more() ? __libc_memalign(alignment, size) : nullptr;
  return *block == nullptr ? ENOMEM : 0;
}
}
