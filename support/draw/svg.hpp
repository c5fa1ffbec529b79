// SPDX-License-Identifier: MIT
/// Pieces of SVG as text, for the programs that draw.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace draw {

/// printf into a string.
template <class... Values>
std::string print(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// Bytes in the unit that suits them, with the unit.
inline std::string shown_bytes(double bytes) {
  constexpr double kibi = 1024, mebi = kibi * kibi, gibi = kibi * mebi;
  if (bytes < mebi) return print("%.1f KiB", bytes / kibi);
  if (bytes < gibi) return print("%.1f MiB", bytes / mebi);
  return print("%.2f GiB", bytes / gibi);
}

/// `text` as it may stand in SVG and HTML.
inline std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '\'') out += "&#39;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

/// Opens a picture of the given size, white.
inline std::string open_svg(double width, double height) {
  return print(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' width='%.0f' "
      "font-family='sans-serif' font-size='13'>\n<rect width='%.0f' height='%.0f' fill='white'/>\n",
      width, height, width, width, height);
}

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
};

/// A square of a legend with its label.
inline std::string key(double x, double y, const std::string& color, const std::string& label) {
  return print("<rect x='%.0f' y='%.0f' width='12' height='12' fill='%s'/>", x, y, color.c_str()) +
         print("<text x='%.0f' y='%.0f'>%s</text>\n", x + 18, y + 11, label.c_str());
}

}  // namespace draw
