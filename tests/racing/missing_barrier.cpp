// SPDX-License-Identifier: MIT
/// That the thread sanitizer sees the threads of codec/racing_block.hpp: without an argument every thread reads what
/// another one wrote behind a barrier, with one in the same phase, which must be reported.
#include <cstdio>

#include "../codec/emulated_block.hpp"

namespace {
int shared[256], got[256];
}

int main(int count, char**) {
  emulated::Block<emulated::Order::scattered> block;
  std::uint32_t sum = 0;
  block.each([&](int t) { shared[t] = t; });
  if (count == 1) {
    block.each([&](int t) { got[t] = shared[255 - t]; });
  } else {
    block.each([&](int t) {
      shared[t] = t + 1;
      got[t] = shared[255 - t];
    });
  }
  // What is added atomically is nobody's race.
  block.each([&](int t) { block.add(sum, static_cast<std::uint32_t>(got[t])); });
  std::printf("%u\n", sum);
  return count == 1 && sum != 255 * 128;
}
