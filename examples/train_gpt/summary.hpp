// SPDX-License-Identifier: MIT
/// What stands at the end of a run: the memory that it took, predicted and measured.
#pragma once

#include <adacc/train/memory_use.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>

#include "report.hpp"

/// `step_ms`: the median of what steps took. `declined`: what codecs lost in them.
template <class AnyTrainer>
void print_summary(AnyTrainer& trainer, double step_ms, const adacc::DeclinedCounts& declined) {
  const auto line = [](const char* what, std::size_t bytes) {
    std::printf("%-28s %14zu bytes  %s\n", what, bytes, mebibytes(bytes).c_str());
  };
  if constexpr (requires { trainer.stage(); }) {
    if (step_ms > 0)
      std::printf("step, predicted and measured %11.1f ms and %.1f ms (the median)\n",
                  1e3 * trainer.planned().plan.time.seconds, step_ms);
    std::printf("of stage %d:\n", trainer.stage());
  }
  if (const std::size_t measured = trainer.measured_peak(); measured > 0)
    line("activation peak, measured", measured);
  else
    std::printf(
        "activation peak, measured    not measured: the plan was made right before the last step, "
        "or none ran\n");
  line("activation peak, predicted", trainer.predicted_peak());
  if constexpr (requires { trainer.retain_peak(); })
    line("retain would have needed", trainer.retain_peak());
  const adacc::TrainingMemoryUse memory = trainer.memory_use();
  line("parameters", memory.parameters);
  line("gradients", memory.gradients);
  line(memory.stored > 0 ? "moments, their window" : "moments", memory.moments);
  line("arena", memory.arena);
  if (memory.watched > 0) line("what codecs saw", memory.watched);
  if (memory.sums > 0) line("sums over shards and ranks", memory.sums);
  if (memory.set_up > 0) line("set-up, given back", memory.set_up);
  line("in all", memory.total());
  if (trainer.total_bytes() > 0) line("--total", trainer.total_bytes());
  if constexpr (requires { trainer.captured_steps(); })
    if (const auto captured = trainer.captured_steps()) {
      std::printf("%-28s %14llu\n", "steps launched as graphs",
                  static_cast<unsigned long long>(*captured));
      if (const adacc::Error why = trainer.capture_failure())
        std::printf("%-28s %s\n", "not captured", why.text());
    }
  if (memory.stored > 0) line("moments in --moments-store", memory.stored);
  if (declined.total() > 0)
    std::printf("%-28s %s\n", "rows that codecs lost", lost_rows_text(declined).c_str());
  if constexpr (requires { trainer.resident(); }) {
    const std::size_t resident = trainer.resident().bytes(), most = trainer.resident().in_set_up();
    if (resident == 0) return;
    // Beside what it holds: pages of code, tables of graph and plan, stacks of threads.
    std::printf(
        "%-28s %14zu bytes  %s, %.1f %% %s what it holds; %s of it are pages of code\n",
        "resident, over before", resident, mebibytes(resident).c_str(),
        100 * std::abs(static_cast<double>(resident) / static_cast<double>(memory.total()) - 1),
        resident < memory.total() ? "below" : "above",
        mebibytes(trainer.resident().code()).c_str());
    line("resident, in set-up", most);
  }
}
