// SPDX-License-Identifier: MIT
/// Pieces of SVG as text, for the programs that draw.
#pragma once

#include <algorithm>
#include <clocale>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace draw {

/// Appends what `format` has before its next conversion, which is returned.
inline const char* add_words(std::string& out, const char* format) {
  for (; *format != '\0' && (*format != '%' || format[1] == '%'); ++format) {
    out += *format;
    if (*format == '%') ++format;
  }
  return format;
}

/// Appends `value` as the conversion says that `format` begins with; what follows is returned.
template <class Value>
const char* add_value(std::string& out, const char* format, Value value) {
  const std::size_t length = std::strcspn(format, "diuxXcsfFeEgGp") + 1;
  const std::string conversion(format, length);
  char text[512];
  std::snprintf(text, sizeof text, conversion.c_str(), value);
  std::string shown = text;
  if constexpr (std::is_floating_point_v<Value>) {
    const char* const point = std::localeconv()->decimal_point;
    const std::size_t at = shown.find(point);
    if (at != std::string::npos) shown.replace(at, std::strlen(point), ".");
  }
  out += shown;
  return format + length;
}

/// printf into a string, but numbers have a point whatever the locale is. Widths stand in `format`.
template <class... Values>
std::string print(const char* format, Values... values) {
  std::string out;
  format = add_words(out, format);
  ((format = add_words(out, add_value(out, format, values))), ...);
  return out;
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

/// A line of a legend with its label.
inline std::string line_key(double x, double y, const char* color, double width,
                            const char* label) {
  return print("<path stroke='%s' stroke-width='%g' fill='none' d='M%.0f %.0f h14'/>", color, width,
               x, y + 6) +
         print("<text x='%.0f' y='%.0f'>%s</text>\n", x + 20, y + 11, label);
}

/// Labels beside a box at `x`, each at a height of its own: what would overlap moves apart, within the
/// box from `top` to `bottom`.
class Labels {
 public:
  Labels(double x, double top, double bottom) : x_(x), top_(top), bottom_(bottom) {}

  void add(double y, const std::string& text, const char* color) {
    labels_.push_back({y, text, color});
  }

  std::string svg() {
    std::stable_sort(labels_.begin(), labels_.end(),
                     [](const Label& a, const Label& b) { return a.y < b.y; });
    // From the top each below the one before, then from the bottom up what has gone too far.
    for (std::size_t i = 0; i < labels_.size(); ++i)
      labels_[i].y = std::max(labels_[i].y, i == 0 ? top_ : labels_[i - 1].y + line);
    for (std::size_t i = labels_.size(); i-- > 0;)
      labels_[i].y =
          std::min(labels_[i].y, i + 1 == labels_.size() ? bottom_ - 4 : labels_[i + 1].y - line);
    std::string svg;
    for (const Label& label : labels_)
      svg += print("<text x='%.0f' y='%.1f' font-size='11' fill='%s'>%s</text>\n", x_, label.y + 4,
                   label.color, label.text.c_str());
    return svg;
  }

 private:
  static constexpr double line = 14;
  struct Label {
    double y = 0;
    std::string text;
    const char* color = "";
  };
  double x_, top_, bottom_;
  std::vector<Label> labels_;
};

}  // namespace draw
