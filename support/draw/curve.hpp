// SPDX-License-Identifier: MIT
/// A curve over steps with its axes, for example the loss.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "svg.hpp"

namespace draw {

using Points = std::vector<std::pair<double, double>>;

struct Curve {
  std::string label;
  std::string color;
  Points points;
  bool dots = false;               ///< marks instead of a line
  std::vector<std::string> names;  ///< of marks; shorter or empty if they have none
};

/// A round number near `span` / 5: 1, 2 or 5 times a power of ten.
inline double tick_distance(double span) {
  const double raw = span / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double round : {1.0, 2.0, 5.0})
    if (raw <= round * power) return round * power;
  return 10 * power;
}

/// At most `count` points: the mean of each run of neighbours.
inline Points thinned(const Points& points, std::size_t count) {
  if (points.size() <= count) return points;
  Points out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i * points.size() / count;
    const std::size_t last = (i + 1) * points.size() / count;
    double x = 0, y = 0;
    for (std::size_t p = first; p < last; ++p) x += points[p].first, y += points[p].second;
    const double n = static_cast<double>(last - first);
    out.push_back({x / n, y / n});
  }
  return out;
}

/// The curves in one box, with grid lines and a legend; vertical lines at the x of `marks`.
inline std::string curves(const std::vector<Curve>& all, const Box& box, const std::string& x_name,
                          const std::vector<double>& marks = {}) {
  double x0 = 1e300, x1 = -1e300, y0 = 1e300, y1 = -1e300;
  for (const Curve& curve : all)
    for (const auto& [x, y] : curve.points) {
      x0 = std::min(x0, x), x1 = std::max(x1, x);
      y0 = std::min(y0, y), y1 = std::max(y1, y);
    }
  if (!(x1 >= x0)) return {};
  if (x1 == x0) x1 = x0 + 1;
  if (y1 == y0) y1 = y0 + 1;
  const double margin = 0.04 * (y1 - y0);
  y0 -= margin, y1 += margin;
  const auto px = [&](double x) { return box.left + (x - x0) / (x1 - x0) * box.width; };
  const auto py = [&](double y) {
    return box.top + box.height - (y - y0) / (y1 - y0) * box.height;
  };
  std::string svg;
  const double dy = tick_distance(y1 - y0), dx = tick_distance(x1 - x0);
  for (double y = std::ceil(y0 / dy) * dy; y <= y1; y += dy)
    svg += print("<path stroke='#e4e4e4' d='M%.0f %.1f H%.0f'/>", box.left, py(y),
                 box.left + box.width) +
           print("<text x='%.0f' y='%.1f' font-size='11' text-anchor='end'>%g</text>\n",
                 box.left - 6, py(y) + 4, std::fabs(y) < 1e-9 * dy ? 0 : y);
  for (double x = std::ceil(x0 / dx) * dx; x <= x1; x += dx)
    svg += print("<text x='%.1f' y='%.0f' font-size='11' text-anchor='middle'>%g</text>\n", px(x),
                 box.top + box.height + 16, x);
  svg += print("<text x='%.0f' y='%.0f' font-size='11' text-anchor='end'>%s</text>\n",
               box.left + box.width, box.top + box.height + 30, x_name.c_str());
  for (const double mark : marks)
    if (mark >= x0 && mark <= x1)
      svg += print("<path stroke='#999' stroke-dasharray='3 3' d='M%.1f %.0f V%.0f'/>\n", px(mark),
                   box.top, box.top + box.height);
  double legend = box.left + 8;
  for (const Curve& curve : all) {
    std::string path;
    for (std::size_t i = 0; curve.dots && i < curve.names.size(); ++i)
      svg += print("<text x='%.1f' y='%.1f' font-size='11' text-anchor='%s'>",
                   px(curve.points[i].first) +
                       (px(curve.points[i].first) > box.left + 0.9 * box.width ? -7 : 7),
                   py(curve.points[i].second) + 4,
                   px(curve.points[i].first) > box.left + 0.9 * box.width ? "end" : "start") +
             escaped(curve.names[i]) + "</text>\n";
    for (const auto& [x, y] : thinned(curve.points, curve.dots ? 400 : 1000)) {
      if (curve.dots)
        svg += print("<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'/>\n", px(x), py(y),
                     curve.color.c_str());
      else path += print("%s%.1f %.1f", path.empty() ? "M" : "L", px(x), py(y));
    }
    if (!path.empty())
      svg +=
          "<path fill='none' stroke-width='1.5' stroke='" + curve.color + "' d='" + path + "'/>\n";
    if (curve.label.empty()) continue;
    svg += key(legend, box.top - 16, curve.color, escaped(curve.label));
    legend += 40 + 8.0 * static_cast<double>(curve.label.size());
  }
  svg += print("<path stroke='#333' fill='none' d='M%.0f %.0f V%.0f H%.0f'/>\n", box.left, box.top,
               box.top + box.height, box.left + box.width);
  return svg;
}

}  // namespace draw
