// SPDX-License-Identifier: MIT
/// Preloaded into a program, counts its calls of malloc and its like; prints the count at the end.
#include <unistd.h>

#include <cstddef>
#include <cstdio>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

static long count;

void* malloc(std::size_t size) {
  ++count;
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  ++count;
  return __libc_calloc(number, size);
}
void* realloc(void* block, std::size_t size) {
  ++count;
  return __libc_realloc(block, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++count;
  return __libc_memalign(alignment, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  ++count;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  ++count;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr;
}

__attribute__((destructor)) static void report() {
  char text[64];
  const int length = std::snprintf(text, sizeof text, "calls of malloc: %ld\n", count);
  if (write(STDERR_FILENO, text, static_cast<std::size_t>(length)) < 0) _exit(1);
}
}
