// SPDX-License-Identifier: MIT
/// Succeeds if all units of the program found the same.
#include <cstdio>

#include "run.hpp"

int main() {
  const Findings a = find_forwards(), b = find_backwards();
  std::printf("loss %g and %g, parameters %lx and %lx, codec %p and %p, errors of %lu and %lu\n",
              a.loss, b.loss, a.checksum, b.checksum, a.codec, b.codec, a.error_bytes,
              b.error_bytes);
  const bool trained = a.loss > 0 && a.loss < 0.1;
  return trained && a.loss == b.loss && a.checksum == b.checksum && a.codec == b.codec &&
                 a.error_bytes == b.error_bytes
             ? 0
             : 1;
}
