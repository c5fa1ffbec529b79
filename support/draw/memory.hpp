// SPDX-License-Identifier: MIT
/// The memory of a step against its instructions: what lives, by kind, the peak, which instructions run
/// in loops, and what is in the store meanwhile.
///
/// Schedule and layout are known before a step runs, so the picture is exact.
#pragma once

#include <adacc/program/program.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "loops.hpp"
#include "svg.hpp"

namespace draw {

/// What the bands of the picture are: kept or recomputed values, encoded ones, gradients (of
/// parameters, too, if updates are in the step), scratch.
struct Band {
  const char* label;
  const char* color;
  const char* tile_color;  ///< of those that hold one part at a time
};
inline constexpr std::array<Band, 4> bands{{{"activations", "#4e79a7", "#a9c4df"},
                                            {"encoded activations", "#76b7b2", "#c0dedc"},
                                            {"gradients", "#f28e2b", "#fad0a2"},
                                            {"aux and workspaces", "#bab0ac", "#e0dcda"}}};

inline std::size_t band_of(adacc::BufferKind kind) {
  switch (kind) {
    case adacc::BufferKind::activation: return 0;
    case adacc::BufferKind::encoded: return 1;
    case adacc::BufferKind::gradient:
    case adacc::BufferKind::lasting_gradient: return 2;
    default: return 3;
  }
}

/// Bytes of band b at 2 b, and at 2 b + 1 those of its buffers that are tiles.
using LiveBands = std::array<double, 2 * bands.size()>;

inline double sum_of(const LiveBands& live) {
  double sum = 0;
  for (const double bytes : live) sum += bytes;
  return sum;
}

/// Live bytes by band, one entry an instruction. What fills gaps of the arena, and no more, is left out.
inline std::vector<LiveBands> live_bands(const adacc::Schedule& schedule) {
  std::vector<LiveBands> live(schedule.instructions.size(), LiveBands{});
  for (const adacc::Buffer& buffer : schedule.buffers) {
    if (buffer.kind == adacc::BufferKind::packed) continue;
    const std::size_t at = 2 * band_of(buffer.kind) + (buffer.part_buffer ? 1 : 0);
    for (int i = buffer.first; i >= 0 && i <= buffer.last; ++i)
      live[static_cast<std::size_t>(i)][at] += static_cast<double>(buffer.bytes);
  }
  return live;
}

/// Bytes in the store, one entry an instruction: what has been sent, until it is back.
inline std::vector<double> stored_bytes(const adacc::Schedule& schedule) {
  std::vector<double> stored(schedule.instructions.size());
  double now = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const adacc::Instruction& inst = schedule.instructions[i];
    const bool sent = inst.op == adacc::Op::write_wait, back = inst.op == adacc::Op::read_wait;
    if (sent || back) {
      const auto& transfer = schedule.transfers[static_cast<std::size_t>(inst.transfer)];
      now += (sent ? 1 : -1) * static_cast<double>(transfer.bytes);
    }
    stored[i] = now;
  }
  return stored;
}

/// What else than bands a picture shows.
struct MemoryExtras {
  bool store = false, loops = false;

  static MemoryExtras of(const adacc::Schedule& schedule) {
    return {!schedule.transfers.empty(), !schedule.loops.empty()};
  }
  /// What would live without loops; if something goes to a store, other things would go then.
  bool straight() const { return loops && !store; }
};

/// How much of a scale a picture needs to show all that is drawn of `program`.
inline double most_shown_bytes(const adacc::Program& program) {
  double most =
      static_cast<double>(std::max(program.peak_bytes(), support::peak_without_loops(program)));
  for (const double bytes : stored_bytes(program.schedule)) most = std::max(most, bytes);
  return most;
}

/// Keeps at most `columns` columns, each the fullest of those it stands for.
inline std::vector<LiveBands> thinned(const std::vector<LiveBands>& live, std::size_t columns) {
  if (live.size() <= columns) return live;
  std::vector<LiveBands> out(columns, LiveBands{});
  std::vector<double> most(columns, -1);
  for (std::size_t i = 0; i < live.size(); ++i) {
    const std::size_t column = i * columns / live.size();
    const double sum = sum_of(live[i]);
    if (sum <= most[column]) continue;
    most[column] = sum;
    out[column] = live[i];
  }
  return out;
}

inline constexpr const char* store_color = "#7b3294";
inline constexpr const char* straight_color = "#555555";

/// The legend of the bands in one row, with that of `extras`.
inline std::string memory_legend(double x, double y, MemoryExtras extras = {}) {
  std::string svg;
  const auto next = [&x](const char* label) {
    x += 38 + 7.1 * static_cast<double>(std::string(label).size());
  };
  for (const Band& band : bands) {
    svg += key(x, y, band.color, band.label);
    next(band.label);
  }
  if (extras.store) {
    svg += line_key(x, y, store_color, 2, "in the store");
    next("in the store");
  }
  if (!extras.loops) return svg;
  svg +=
      print("<rect x='%.0f' y='%.0f' width='6' height='12' fill='%s'/>", x, y, bands[0].tile_color);
  svg += key(x + 6, y, bands[2].tile_color, "one part");
  x += 6, next("one part");
  if (extras.straight()) svg += line_key(x, y, straight_color, 1, "without loops");
  return svg;
}

/// One step's picture in `box`, whose height stands for `most` bytes. The peak is a red line with a
/// dot at its instruction, the budget (0: none) a dashed black line, the loss a dotted vertical
/// one, what is in the store a line of its own. If some instructions run in loops, these lie under the
/// axis, down to loops_depth below the box; buffers that hold one part of a tensor are lighter; and a grey
/// line is what would live without loops.
inline std::string memory_panel(const adacc::Program& program, const Box& box, double most,
                                double budget = 0) {
  const adacc::Schedule& schedule = program.schedule;
  const std::vector<LiveBands> live = thinned(live_bands(schedule), 1400);
  const double step = box.width / static_cast<double>(live.size());
  const double bottom = box.top + box.height, right = box.left + box.width;
  const auto y = [&](double bytes) { return bottom - bytes / most * box.height; };
  std::string svg;
  std::vector<double> below(live.size(), 0.0);
  for (std::size_t band = 0; band < 2 * bands.size(); ++band) {
    const auto has = [&](const LiveBands& bytes) { return bytes[band] > 0; };
    if (std::none_of(live.begin(), live.end(), has)) continue;
    std::string upper = print("M%.0f %.1f", box.left, y(below[0]));
    std::vector<std::string> lower;
    for (std::size_t i = 0; i < live.size(); ++i) {
      const double x = box.left + static_cast<double>(i) * step;
      lower.push_back(print("V%.1fH%.1f", y(below[i]), x));
      below[i] += live[i][band];
      upper += print("V%.1fH%.1f", y(below[i]), x + step);
    }
    const Band& drawn = bands[band / 2];
    svg += "<path fill='" + std::string(band % 2 == 0 ? drawn.color : drawn.tile_color) + "' d='" +
           upper;
    for (std::size_t i = lower.size(); i-- > 0;) svg += lower[i];
    svg += "Z'/>\n";
  }
  const auto line = [&](const std::vector<double>& bytes, const char* color, double width) {
    const double wide = box.width / static_cast<double>(bytes.size());
    std::string path = print("M%.1f %.1f", box.left, y(0));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (i == 0 || bytes[i] != bytes[i - 1])
        path += print("H%.1fV%.1f", box.left + static_cast<double>(i) * wide, y(bytes[i]));
    svg += print("<path fill='none' stroke-width='%g' stroke='%s' d='", width, color) + path +
           print("H%.1f", right) + "'/>\n";
  };
  Labels labels(right + 6, box.top, bottom);
  if (!schedule.transfers.empty()) line(stored_bytes(schedule), store_color, 2);
  if (MemoryExtras::of(schedule).straight()) {
    const auto without = adacc::make_straight_schedule(program.graph, program.plan, program.mode);
    std::vector<double> sums;
    for (const LiveBands& bytes : thinned(live_bands(without), 1400)) sums.push_back(sum_of(bytes));
    line(sums, straight_color, 1);
    const double bytes = static_cast<double>(adacc::make_layout(without).arena_bytes);
    labels.add(y(bytes), "no loops " + shown_bytes(bytes), straight_color);
  }
  svg += loops_strip(schedule, {box.left, bottom, box.width, loops_depth});
  std::size_t loss = 0;
  const auto& instructions = schedule.instructions;
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
  labels.add(y(peak), "peak " + shown_bytes(peak), "#c00");
  if (budget > 0) {
    svg += print("<path stroke='#000' stroke-dasharray='6 3' d='M%.0f %.1f H%.0f'/>\n", box.left,
                 y(budget), right);
    labels.add(y(budget), "budget " + shown_bytes(budget), "#000");
  }
  return svg + labels.svg();
}

}  // namespace draw
