// SPDX-License-Identifier: MIT
/// tiny_camera.cpp with a clock (timed.hpp).
#define main camera_main
#include "../tiny_camera.cpp"
#undef main

#include "timed.hpp"

namespace {

/// Errors are 200 bytes: their frame is not below the steps.
[[gnu::noinline]] bool set_up(Cpu&) {
  if (const Error why = training.set_up(net, memory)) return fail(why) == 0;
  reset();
  return true;
}

}  // namespace

int main() {
  static const Conditions conditions = place(1);
  return timed::three_steps(training, input_view, target_view, Lesson{}.rate, used_bytes, set_up,
                            [](std::uint32_t i) {
                              take_batch(conditions, lessons, i * batch, seen.input, seen.targets);
                            });
}
