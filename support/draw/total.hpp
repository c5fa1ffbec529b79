// SPDX-License-Identifier: MIT
/// Where every byte of a training is: a stacked bar for each way to train.
#pragma once

#include <adacc/program/liveness.hpp>
#include <adacc/program/program.hpp>
#include <adacc/train/memory_use.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "svg.hpp"

namespace draw {

/// A way to train, and what it holds: the arena by band, at the instruction at which it is fullest.
struct TotalBar {
  std::string name;
  adacc::TrainingMemoryUse use;
  std::array<double, bands.size()> arena{};
};

/// What of `program`'s arena is what where most bytes live; what alignment and layout take counts
/// with the scratch.
inline std::array<double, bands.size()> fullest(const adacc::Program& program) {
  const std::size_t at = adacc::live_bytes_of(program.schedule).worst();
  const LiveBands there = live_bands(program.schedule)[at];
  std::array<double, bands.size()> live{};
  for (std::size_t band = 0; band < live.size(); ++band)
    live[band] = there[2 * band] + there[2 * band + 1];
  const double rest = static_cast<double>(program.peak_bytes()) - sum_of(there);
  live.back() += std::max(rest, 0.0);
  return live;
}

/// The bars in `box`, the longest as long as it is wide, with their names on the left and what they
/// come to on the right.
inline std::string total_bars(const std::vector<TotalBar>& bars, const Box& box) {
  double most = 1;
  for (const TotalBar& bar : bars) most = std::max(most, static_cast<double>(bar.use.total()));
  const double high = box.height / static_cast<double>(bars.size());
  std::string svg;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const TotalBar& bar = bars[i];
    const double top = box.top + static_cast<double>(i) * high;
    double x = box.left;
    const auto part = [&](double bytes, const char* color) {
      const double wide = bytes / most * box.width;
      svg += print("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'/>", x, top, wide,
                   0.72 * high, color);
      x += wide;
    };
    part(static_cast<double>(bar.use.parameters), "#6b6b6b");
    part(static_cast<double>(bar.use.gradients), "#e15759");
    part(static_cast<double>(bar.use.moments), "#edc948");
    for (std::size_t band = 0; band < bands.size(); ++band)
      part(bar.arena[band], bands[band].color);
    svg += print("<text x='%.0f' y='%.1f' text-anchor='end'>%s</text>", box.left - 8,
                 top + 0.5 * high, escaped(bar.name).c_str());
    svg += print("<text x='%.1f' y='%.1f'>%s</text>\n", x + 6, top + 0.5 * high,
                 shown_bytes(static_cast<double>(bar.use.total())).c_str());
  }
  return svg;
}

/// The legend of the bars in one row.
inline std::string total_legend(double x, double y) {
  const std::pair<const char*, const char*> keys[] = {{"parameters", "#6b6b6b"},
                                                      {"their gradients", "#e15759"},
                                                      {"moments", "#edc948"},
                                                      {"activations", bands[0].color},
                                                      {"encoded", bands[1].color},
                                                      {"gradients in the arena", bands[2].color},
                                                      {"aux, workspaces", bands[3].color}};
  std::string svg;
  for (const auto& [label, color] : keys) {
    svg += key(x, y, color, label);
    x += 38 + 6.6 * static_cast<double>(std::string(label).size());
  }
  return svg;
}

}  // namespace draw
