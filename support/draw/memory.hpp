// SPDX-License-Identifier: MIT
/// The memory of a step against its instructions: what lives, by kind, the peak, and what is in the
/// store meanwhile.
///
/// Schedule and layout are known before a step runs, so the picture is exact.
#pragma once

#include <adacc/program/program.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "svg.hpp"

namespace draw {

/// What the bands of the picture are: kept or recomputed values, encoded ones, gradients (of
/// parameters, too, if updates are in the step), scratch.
struct Band {
  const char* label;
  const char* color;
};
inline constexpr std::array<Band, 4> bands{{{"activations", "#4e79a7"},
                                            {"encoded activations", "#76b7b2"},
                                            {"gradients", "#f28e2b"},
                                            {"aux and workspaces", "#bab0ac"}}};

inline std::size_t band_of(adacc::BufferKind kind) {
  switch (kind) {
    case adacc::BufferKind::activation: return 0;
    case adacc::BufferKind::encoded: return 1;
    case adacc::BufferKind::gradient:
    case adacc::BufferKind::lasting_gradient: return 2;
    default: return 3;
  }
}

using LiveBytes = std::vector<std::array<double, 4>>;

/// Live bytes by band, one entry an instruction.
inline LiveBytes live_bands(const adacc::Schedule& schedule) {
  LiveBytes live(schedule.instructions.size(), std::array<double, 4>{});
  for (const adacc::Buffer& buffer : schedule.buffers)
    for (int i = buffer.first; i >= 0 && i <= buffer.last; ++i)
      live[static_cast<std::size_t>(i)][band_of(buffer.kind)] += static_cast<double>(buffer.bytes);
  return live;
}

/// Bytes in the store, one entry an instruction: what has been sent, until it is back.
inline std::vector<double> stored_bytes(const adacc::Schedule& schedule) {
  std::vector<double> stored(schedule.instructions.size());
  double now = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const adacc::Instruction& run = schedule.instructions[i];
    const bool sent = run.op == adacc::Op::write_wait, back = run.op == adacc::Op::read_wait;
    if (sent || back) {
      const auto& transfer = schedule.transfers[static_cast<std::size_t>(run.transfer)];
      now += (sent ? 1 : -1) * static_cast<double>(transfer.bytes);
    }
    stored[i] = now;
  }
  return stored;
}

/// How much of a scale a picture needs to show what is in the store.
inline double most_stored_bytes(const adacc::Schedule& schedule) {
  double most = 0;
  for (const double bytes : stored_bytes(schedule)) most = std::max(most, bytes);
  return most;
}

/// Keeps at most `columns` columns, each the fullest of those it stands for.
inline LiveBytes thinned(const LiveBytes& live, std::size_t columns) {
  if (live.size() <= columns) return live;
  LiveBytes out(columns, std::array<double, 4>{});
  std::vector<double> most(columns, -1);
  for (std::size_t i = 0; i < live.size(); ++i) {
    const std::size_t column = i * columns / live.size();
    double sum = 0;
    for (const double bytes : live[i]) sum += bytes;
    if (sum <= most[column]) continue;
    most[column] = sum;
    out[column] = live[i];
  }
  return out;
}

inline constexpr const char* store_color = "#7b3294";

/// The legend of the bands in one row, with what is in the store if `store`.
inline std::string memory_legend(double x, double y, bool store = false) {
  std::string svg;
  if (store)
    svg += print("<path stroke='%s' stroke-width='2' fill='none' d='M%.0f %.0f h14'/>", store_color,
                 x + 680, y + 6) +
           print("<text x='%.0f' y='%.0f'>in the store</text>\n", x + 700, y + 11);
  for (std::size_t i = 0; i < bands.size(); ++i)
    svg += key(x + 170 * static_cast<double>(i), y, bands[i].color, bands[i].label);
  return svg;
}

/// One step's picture in `box`, whose height stands for `most` bytes. The peak is a red line with a
/// dot at its instruction, the budget (0: none) a dashed black line, the loss a dotted vertical
/// one, what is in the store a line of its own.
inline std::string memory_panel(const adacc::Program& program, const Box& box, double most,
                                double budget = 0) {
  const LiveBytes live = thinned(live_bands(program.schedule), 1400);
  const double step = box.width / static_cast<double>(live.size());
  const double bottom = box.top + box.height, right = box.left + box.width;
  const auto y = [&](double bytes) { return bottom - bytes / most * box.height; };
  std::string svg;
  std::vector<double> below(live.size(), 0.0);
  for (std::size_t band = 0; band < bands.size(); ++band) {
    std::string upper = print("M%.0f %.1f", box.left, y(below[0]));
    std::vector<std::string> lower;
    for (std::size_t i = 0; i < live.size(); ++i) {
      const double x = box.left + static_cast<double>(i) * step;
      lower.push_back(print("V%.1fH%.1f", y(below[i]), x));
      below[i] += live[i][band];
      upper += print("V%.1fH%.1f", y(below[i]), x + step);
    }
    svg += "<path fill='" + std::string(bands[band].color) + "' d='" + upper;
    for (std::size_t i = lower.size(); i-- > 0;) svg += lower[i];
    svg += "Z'/>\n";
  }
  if (!program.schedule.transfers.empty()) {
    const std::vector<double> stored = stored_bytes(program.schedule);
    const double wide = box.width / static_cast<double>(stored.size());
    std::string line = print("M%.1f %.1f", box.left, y(0));
    for (std::size_t i = 0; i < stored.size(); ++i)
      if (i == 0 || stored[i] != stored[i - 1])
        line += print("H%.1fV%.1f", box.left + static_cast<double>(i) * wide, y(stored[i]));
    svg += "<path fill='none' stroke-width='2' stroke='" + std::string(store_color) + "' d='" +
           line + print("H%.1f", right) + "'/>\n";
  }
  std::size_t loss = 0;
  const auto& instructions = program.schedule.instructions;
  while (loss + 1 < instructions.size() && instructions[loss].op != adacc::Op::loss_gradient)
    ++loss;
  const double middle = box.left + (static_cast<double>(loss) + 0.5) /
                                       static_cast<double>(instructions.size()) * box.width;
  const double peak = static_cast<double>(program.peak_bytes());
  svg += print("<path stroke='#333' d='M%.0f %.0f H%.0f'/>\n", box.left, bottom, right);
  svg += print("<path stroke='#333' stroke-dasharray='2 3' d='M%.1f %.1f V%.1f'/>\n", middle,
               box.top, bottom);
  svg += print("<path stroke='#c00' d='M%.0f %.1f H%.0f'/>\n", box.left, y(peak), right);
  // The instruction that holds the most is often a single one, too narrow to be seen.
  const auto fullest = std::max_element(below.begin(), below.end()) - below.begin();
  svg += print("<circle cx='%.1f' cy='%.1f' r='3' fill='#c00'/>\n",
               box.left + (static_cast<double>(fullest) + 0.5) * step, y(peak));
  svg += print("<text x='%.0f' y='%.1f' font-size='12' fill='#c00'>peak %s</text>\n", right + 6,
               y(peak) + 4, shown_bytes(peak).c_str());
  if (budget <= 0) return svg;
  const double label = y(budget) > y(peak) - 14 ? y(peak) - 12 : y(budget) + 4;
  svg += print("<path stroke='#000' stroke-dasharray='6 3' d='M%.0f %.1f H%.0f'/>\n", box.left,
               y(budget), right);
  svg += print("<text x='%.0f' y='%.1f' font-size='12'>budget %s</text>\n", right + 6, label,
               shown_bytes(budget).c_str());
  return svg;
}

}  // namespace draw
