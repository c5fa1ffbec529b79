// SPDX-License-Identifier: MIT
/// Succeeds if each library of the program runs the version that it was built with: the linker
/// keeps one of two inline functions of equal name, so their names must not be equal.
#include <cstddef>
#include <cstdio>

extern "C" std::size_t this_version_error_bytes();
extern "C" std::size_t other_version_error_bytes();

int main() {
  const std::size_t mine = this_version_error_bytes(), other = other_version_error_bytes();
  std::printf("errors of %zu and %zu bytes\n", mine, other);
  return mine == 319 && other == 63 ? 0 : 1;
}
