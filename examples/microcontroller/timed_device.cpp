// SPDX-License-Identifier: MIT
/// tiny_device.cpp with a clock: the instructions of a training step, and the depth of the stack.
///
/// For qemu's mps2 boards, run with -icount shift=0: an instruction is a nanosecond, and SysTick counts at 25 MHz.
#define main device_main
#include "../tiny_device.cpp"
#undef main

extern "C" std::uint32_t stack_used(void);
extern "C" std::uint32_t ticks_left(void);

namespace {

/// Instructions of `work`, in thousands; at most 671 million.
template <class Work>
[[gnu::noinline]] unsigned thousands(const Work& work) {
  constexpr std::uint32_t tick_instructions = 40;
  const std::uint32_t before = ticks_left();
  work();
  return ((before - ticks_left()) & 0xFFFFFF) / (1000 / tick_instructions);
}

/// Sets up the training. Errors are 200 bytes: their frame is not below the steps.
[[gnu::noinline]] int set_up(Cpu& cpu) {
  if (const Error why = training.set_up(net, memory)) return fail(why);
  training.initialize(cpu, 7);
  return 0;
}

/// Writes millionths as a decimal, without printf's floating point.
void print_loss(double loss) {
  const auto millionths = static_cast<unsigned>(loss * 1e6 + 0.5);
  std::printf("loss %u.%06u\n", millionths / 1000000, millionths % 1000000);
}

}  // namespace

int main() {
  static char text[512];
  std::setvbuf(stdout, text, _IOLBF, sizeof text);
  Cpu cpu;
  cpu.key.seed = 7;
  if (set_up(cpu) != 0) return 1;
  for (std::uint32_t i = 0; i < 3; ++i) {
    simulate_batch(i * batch);
    Result<double> loss = 0.0;
    const unsigned learned =
        thousands([&] { loss = training.accumulate(cpu, input_view, target_view); });
    if (!loss) return fail(loss.error);
    const unsigned updated = thousands([&] { static_cast<void>(training.update(cpu, 4e-3)); });
    const unsigned judged = thousands([&] { static_cast<void>(training.infer(cpu, input_view)); });
    print_loss(*loss);
    std::printf("thousand instructions: step %u, update %u, inference %u\n", learned, updated,
                judged);
  }
  std::printf("static %u bytes for training, stack %u bytes\n", static_cast<unsigned>(used_bytes),
              static_cast<unsigned>(stack_used()));
  return 0;
}
