// SPDX-License-Identifier: MIT
/// tiny_device.cpp with a clock (timed.hpp).
#define main device_main
#include "../tiny_device.cpp"
#undef main

#include "timed.hpp"

namespace {

/// Errors are 200 bytes: their frame is not below the steps.
[[gnu::noinline]] bool set_up(Cpu& cpu) {
  if (const Error why = training.set_up(net, memory)) return fail(why) == 0;
  training.initialize(cpu, 7);
  return true;
}

}  // namespace

int main() {
  return timed::three_steps(training, input_view, target_view, 4e-3, used_bytes, set_up,
                            [](std::uint32_t i) { simulate_batch(i * batch); });
}
