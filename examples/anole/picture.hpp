// SPDX-License-Identifier: MIT
/// Accuracy along a stream, as a picture.
#pragma once

#include <support/draw/svg.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "stream.hpp"

namespace anole {

/// A point for every scene that was visited; scenes that nothing had learned from are shaded.
inline std::string picture(const StreamResult& result) {
  constexpr double width = 860, height = 380;
  const draw::Box box{60, 46, 780, 260};
  const std::size_t frames = result.right[0].size();
  const auto x = [&](std::size_t frame) {
    return box.left + box.width * static_cast<double>(frame) / static_cast<double>(frames);
  };
  const auto y = [&](double share) { return box.top + box.height * (1 - share); };

  std::string svg = draw::open_svg(width, height);
  svg += draw::print(
      "<text x='%.0f' y='24' font-size='15'>right answers in each visit of a "
      "scene, %% (shaded: scenes not learned from)</text>\n",
      box.left);
  std::size_t first = 0;
  for (const Visit& visit : result.visits) {
    if (visit.unseen)
      svg += draw::print("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='#eee'/>\n",
                         x(first), box.top, x(first + visit.frames) - x(first), box.height);
    first += visit.frames;
  }
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double share = quarter / 4.0;
    svg += draw::print("<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#ddd'/>", box.left,
                       box.left + box.width, y(share), y(share)) +
           draw::print("<text x='%.0f' y='%.1f' text-anchor='end'>%d</text>\n", box.left - 8,
                       y(share) + 4, 25 * quarter);
    const std::size_t frame = frames * static_cast<std::size_t>(quarter) / 4;
    svg += draw::print("<text x='%.1f' y='%.0f' text-anchor='middle'>%zu</text>\n", x(frame),
                       box.top + box.height + 22, frame);
  }
  constexpr std::array<System, 2> shown{army_learning, large_frozen};
  constexpr std::array<const char*, 2> colors{"#4e79a7", "#f28e2b"};
  double at = box.left;
  for (std::size_t s = 0; s < shown.size(); ++s) {
    std::string line, dots;
    first = 0;
    for (const Visit& visit : result.visits) {
      const auto begin = result.right[shown[s]].begin() + static_cast<std::ptrdiff_t>(first);
      const auto right = std::count(begin, begin + static_cast<std::ptrdiff_t>(visit.frames), 1);
      const double share =
          Count::share(static_cast<std::size_t>(right), std::max<std::size_t>(visit.frames, 1));
      const double middle = (x(first) + x(first + visit.frames)) / 2;
      line += draw::print("%.1f,%.1f ", middle, y(share));
      dots += draw::print("<circle cx='%.1f' cy='%.1f' r='2.5' fill='%s'/>", middle, y(share),
                          colors[s]);
      first += visit.frames;
    }
    svg += draw::print("<polyline fill='none' stroke='%s' stroke-width='2' points='", colors[s]) +
           line + "'/>\n" + dots + "\n";
    svg += draw::key(at, height - 22, colors[s], system_names[shown[s]]);
    at += 200;
  }
  return svg + "</svg>\n";
}

}  // namespace anole
