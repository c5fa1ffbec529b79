// SPDX-License-Identifier: MIT
/// The loops of a step, as a strip under its picture.
#pragma once

#include <adacc/program/instruction.hpp>
#include <support/loop_use.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "svg.hpp"

namespace draw {

/// Pixels that the strip takes.
inline constexpr double loops_depth = 14;

/// A bar for each loop in `box`, by turns dark and light, and of how many parts they are; nothing if there
/// are none. Neighbours that are too narrow to be told apart are drawn as one.
inline std::string loops_strip(const adacc::Schedule& schedule, const Box& box) {
  if (schedule.loops.empty()) return {};
  const double wide = box.width / static_cast<double>(schedule.instructions.size());
  struct Bar {
    double from = 0, to = 0;
    std::string title;
  };
  std::vector<Bar> bars;
  for (const adacc::Loop& loop : schedule.loops) {
    const double from = loop.first * wide, to = (loop.last + 1) * wide;
    if (to - from < 1.5 && !bars.empty() && from - bars.back().to < 0.2) {
      bars.back() = {bars.back().from, to, {}};
      continue;
    }
    bars.push_back({from, to,
                    "instructions " + std::to_string(loop.first) + " to " +
                        std::to_string(loop.last) + ", in " + std::to_string(loop.parts) +
                        " parts"});
  }
  std::string svg = "<g class='loops'>\n";
  for (std::size_t i = 0; i < bars.size(); ++i) {
    svg +=
        print("<rect x='%.1f' y='%.1f' width='%.1f' height='6' fill='%s'>", box.left + bars[i].from,
              box.top + 4, bars[i].to - bars[i].from, i % 2 == 0 ? "#59a14f" : "#a5cf9f");
    if (!bars[i].title.empty()) svg += "<title>" + bars[i].title + "</title>";
    svg += "</rect>\n";
  }
  return svg + "</g>\n" +
         print("<text x='%.0f' y='%.1f' font-size='11' fill='#59a14f'>loops of %s parts</text>\n",
               box.left + box.width + 6, box.top + 12, support::parts_text(schedule).c_str());
}

}  // namespace draw
