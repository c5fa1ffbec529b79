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
unsigned thousands(const Work& work) {
  constexpr std::uint32_t tick_instructions = 40;
  const std::uint32_t before = ticks_left();
  work();
  return ((before - ticks_left()) & 0xFFFFFF) / (1000 / tick_instructions);
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
  if (const Error why = set_up(cpu)) return fail(why);
  AdamW optimizer;
  for (std::uint32_t i = 0; i < 3; ++i) {
    simulate_batch(i * batch);
    cpu.key.step = i;
    Result<double> loss = 0.0;
    const unsigned learned = thousands([&] { loss = learn->run(cpu, input_view, target_view); });
    if (!loss) return fail(loss.error);
    const unsigned updated = thousands([&] {
      optimizer.step(cpu, View<float>(memory.params, elems), View<float>(memory.gradients, elems),
                     View<float>(memory.first_moments, elems),
                     View<float>(memory.second_moments, elems), learn->graph().parameters, i + 1,
                     4e-3);
    });
    const unsigned judged =
        thousands([&] { static_cast<void>(judge->run(cpu, input_view, target_view)); });
    print_loss(*loss);
    std::printf("thousand instructions: step %u, update %u, inference %u\n", learned, updated,
                judged);
  }
  std::printf("static %u bytes for training, stack %u bytes\n", static_cast<unsigned>(used_bytes),
              static_cast<unsigned>(stack_used()));
  return 0;
}
