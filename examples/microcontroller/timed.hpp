// SPDX-License-Identifier: MIT
/// A training with a clock: the instructions of a step, and the depth of the stack.
///
/// For qemu's mps2 boards, run with -icount shift=0: an instruction is a nanosecond, and SysTick counts at 25 MHz.
#pragma once

#include <adacc/core/context.hpp>
#include <adacc/core/error.hpp>

#include <cstdint>
#include <cstdio>

extern "C" std::uint32_t stack_used(void);
extern "C" std::uint32_t ticks_left(void);

namespace timed {

/// Instructions of `work`, in thousands; at most 671 million.
template <class Work>
[[gnu::noinline]] unsigned thousands(const Work& work) {
  constexpr std::uint32_t tick_instructions = 40;
  const std::uint32_t before = ticks_left();
  work();
  return ((before - ticks_left()) & 0xFFFFFF) / (1000 / tick_instructions);
}

/// Writes millionths as a decimal, without printf's floating point.
inline void print_loss(double loss) {
  const auto millionths = static_cast<unsigned>(loss * 1e6 + 0.5);
  std::printf("loss %u.%06u\n", millionths / 1000000, millionths % 1000000);
}

/// Three steps of a FixedTraining, printed; what main() returns.
///
/// - set_up(cpu) returns whether it can begin
/// - take_batch(i) fills the i-th batch
/// - `x` and `y` are the batch
/// - `bytes` of static memory are printed
template <class Training, class X, class Y, class SetUp, class TakeBatch>
int three_steps(Training& training, const X& x, const Y& y, double rate, std::size_t bytes,
                const SetUp& set_up, const TakeBatch& take_batch) {
  static char text[512];
  std::setvbuf(stdout, text, _IOLBF, sizeof text);
  adacc::Cpu cpu;
  cpu.key.seed = 7;
  if (!set_up(cpu)) return 1;
  for (std::uint32_t i = 0; i < 3; ++i) {
    take_batch(i);
    adacc::Result<double> loss = 0.0;
    const unsigned learned = thousands([&] { loss = training.accumulate(cpu, x, y); });
    if (!loss) return std::printf("timed: %s\n", loss.error.text()), 1;
    const unsigned updated = thousands([&] { static_cast<void>(training.update(cpu, rate)); });
    const unsigned judged = thousands([&] { static_cast<void>(training.infer(cpu, x)); });
    print_loss(*loss);
    std::printf("thousand instructions: step %u, update %u, inference %u\n", learned, updated,
                judged);
  }
  std::printf("static %u bytes for training, stack %u bytes\n", static_cast<unsigned>(bytes),
              static_cast<unsigned>(stack_used()));
  return 0;
}

}  // namespace timed
