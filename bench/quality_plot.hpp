// SPDX-License-Identifier: MIT
/// Draws SQNR against bits per element: a panel per input, a mark per codec and option.
///
/// 4 and 8 bits have axes of their own, because both decibels and bits are empty between. Labels go
/// to the nearest free place around their mark; marks on a line without a label are the groups that
/// the labelled line next to it has.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "codec_list.hpp"

namespace quality_plot {

struct Mark {
  codec_list::Entry codec;
  double bits, bulk, all;
  double least, most;  ///< of the bulk, where a mark stands for several tensors
};

struct Panel {
  std::string title;
  std::vector<Mark> marks;
};

namespace detail {

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

struct Box {
  double left, top, right, bottom;

  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

inline const char* color_of(codec_list::Family family) {
  switch (family) {
    case codec_list::Family::int4: return "#e15759";
    case codec_list::Family::int8: return "#3b6fb0";
    default: return "#3f9b4f";
  }
}

enum class Kind { elements, more_elements, channels, none, symmetric, stochastic, bf16 };

inline Kind kind_of(const codec_list::Entry& codec) {
  const adacc::QuantOptions& o = codec.options;
  if (!codec.is_quant()) return Kind::bf16;
  if (o.symmetric) return Kind::symmetric;
  if (o.rounding == adacc::Rounding::stochastic) return Kind::stochastic;
  if (o.outliers == adacc::Outliers::channels) return Kind::channels;
  if (o.outliers == adacc::Outliers::none) return Kind::none;
  return o.outliers_per_mille == codec_list::more_places ? Kind::more_elements : Kind::elements;
}

inline std::string label_of(const codec_list::Entry& codec) {
  switch (kind_of(codec)) {
    case Kind::bf16: return "bf16";
    case Kind::symmetric: return "sym";
    case Kind::stochastic: return "stoch";
    default: break;
  }
  if (codec.options.group == 0) return "64 rows";
  if (codec.options.group == adacc::whole_row) return "row";
  return std::to_string(codec.options.group);
}

/// Channels are hollow, because single elements often do as well and lie within.
inline std::string style_of(Kind kind, const std::string& color) {
  const bool hollow = kind == Kind::none || kind == Kind::channels;
  return hollow ? "fill='none' stroke='" + color + "'" : "fill='" + color + "' stroke='white'";
}

/// The outline of a mark around (x, y), `r` its half size.
inline std::string shape(Kind kind, double x, double y, double r, const std::string& style) {
  switch (kind) {
    case Kind::more_elements:
      return print("<path %s d='M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fZ'/>", style.c_str(), x,
                   y - 1.3 * r, 1.3 * r, 1.3 * r, -1.3 * r, 1.3 * r, -1.3 * r, -1.3 * r);
    case Kind::channels:
      return print("<rect %s stroke-width='1.6' x='%.1f' y='%.1f' width='%.1f' height='%.1f'/>",
                   style.c_str(), x - 1.5 * r, y - 1.5 * r, 3 * r, 3 * r);
    case Kind::none:
      return print("<path %s stroke-width='2' d='M%.1f %.1fl%.1f %.1fM%.1f %.1fl%.1f %.1f'/>",
                   style.c_str(), x - r, y - r, 2 * r, 2 * r, x - r, y + r, 2 * r, -2 * r);
    case Kind::symmetric:
      return print("<path %s d='M%.1f %.1fl%.1f %.1fh%.1fZ'/>", style.c_str(), x, y - 1.2 * r,
                   1.2 * r, 2.2 * r, -2.4 * r);
    case Kind::stochastic:
      return print("<path %s d='M%.1f %.1fl%.1f %.1fh%.1fZ'/>", style.c_str(), x, y + 1.2 * r,
                   1.2 * r, -2.2 * r, -2.4 * r);
    default: return print("<circle %s cx='%.1f' cy='%.1f' r='%.1f'/>", style.c_str(), x, y, r);
  }
}

/// What one width of codes takes of a panel: its own axis of bits and, since 4 bits and 8 bits are
/// 25 dB apart, its own axis of decibels.
struct Part {
  codec_list::Family family;
  double first_bit, last_bit, left, right;
  double least = 0, most = 1, tick = 1;
};

class Drawing {
 public:
  static constexpr double width = 740, height = 440;

  Drawing(const Panel& panel, double x, double y) : panel_(panel), x_(x), y_(y) {
    for (Part& part : parts_) scale(part);
  }

  std::string svg() {
    axes();
    lines();
    for (const Mark& mark : panel_.marks) place(mark);
    for (const bool first : {true, false})
      for (const Mark& mark : panel_.marks) label(mark, first);
    return text_;
  }

 private:
  static constexpr double top = 34, bottom = 396;

  void scale(Part& part) const {
    double least = 1e9, most = -1e9;
    for (const Mark& m : panel_.marks)
      for (const double db : {m.bulk, m.all, m.least, m.most}) {
        if (!std::isfinite(db) || m.codec.family != part.family) continue;
        least = std::min(least, db), most = std::max(most, db);
      }
    if (least > most) least = 0, most = 1;
    if (part.family == codec_list::Family::bf16) {  // one mark, in the middle
      part.least = least - 100, part.most = least + 100;
      return;
    }
    const double range = most - least;
    part.tick = range > 40 ? 10 : range > 16 ? 5 : range > 8 ? 2 : 1;
    part.least = std::floor(least - 0.08 * range - 0.2);
    part.most = std::ceil(most + 0.08 * range + 0.2);
  }

  const Part& part_of(const Mark& mark) const {
    for (const Part& part : parts_)
      if (part.family == mark.codec.family) return part;
    return parts_[0];
  }
  double at(const Part& p, double bits) const {
    return x_ + p.left + (bits - p.first_bit) / (p.last_bit - p.first_bit) * (p.right - p.left);
  }
  double height_of(const Part& p, double db) const {
    const double bounded = std::isnan(db) ? p.least : std::clamp(db, p.least, p.most);
    return y_ + bottom - (bounded - p.least) / (p.most - p.least) * (bottom - top);
  }

  void axes() {
    text_ += print("<text x='%.0f' y='%.0f' font-size='15' font-weight='bold'>%s</text>\n", x_ + 52,
                   y_ + 22, panel_.title.c_str());
    for (const Part& p : parts_) {
      text_ += print("<rect x='%.0f' y='%.0f' width='%.0f' height='%.0f' fill='#f4f4f4'/>\n",
                     x_ + p.left, y_ + top, p.right - p.left, bottom - top);
      for (double bits = std::ceil(p.first_bit / 0.5) * 0.5; bits < p.last_bit; bits += 0.5)
        text_ += print(
            "<path stroke='#fff' d='M%.1f %.1fV%.1f'/><text x='%.1f' y='%.1f' "
            "text-anchor='middle' fill='#444'>%g</text>\n",
            at(p, bits), y_ + top, y_ + bottom, at(p, bits), y_ + bottom + 16, bits);
      if (p.family == codec_list::Family::bf16) continue;  // one mark: it says its figure itself
      for (double db = std::ceil(p.least / p.tick) * p.tick; db <= p.most; db += p.tick)
        text_ += print(
            "<path stroke='#fff' d='M%.1f %.1fH%.1f'/><text x='%.1f' y='%.1f' "
            "text-anchor='end' fill='#444'>%g</text>\n",
            x_ + p.left, height_of(p, db), x_ + p.right, x_ + p.left - 5, height_of(p, db) + 4,
            db == 0 ? 0 : db);  // no -0
      text_ += print(
          "<text x='%.0f' y='%.0f' text-anchor='middle' fill='#444'>bits per element"
          "</text>\n<text transform='translate(%.0f %.0f) rotate(-90)' "
          "text-anchor='middle' fill='#444'>SQNR in dB</text>\n",
          x_ + (p.left + p.right) / 2, y_ + bottom + 33, x_ + p.left - 28, y_ + (top + bottom) / 2);
    }
  }

  /// The groups along the row of one kind and width.
  void lines() {
    for (const auto family : {codec_list::Family::int4, codec_list::Family::int8})
      for (const Kind kind : {Kind::elements, Kind::more_elements, Kind::channels, Kind::none}) {
        std::vector<const Mark*> on_line;
        for (const Mark& m : panel_.marks)
          if (m.codec.family == family && kind_of(m.codec) == kind && m.codec.options.group != 0)
            on_line.push_back(&m);
        std::sort(on_line.begin(), on_line.end(),
                  [](const Mark* a, const Mark* b) { return a->bits < b->bits; });
        std::string path;
        for (const Mark* m : on_line)
          path += print("%s%.1f %.1f", path.empty() ? "M" : "L", at(part_of(*m), m->bits),
                        height_of(part_of(*m), m->bulk));
        text_ += print("<path fill='none' stroke='%s' stroke-opacity='0.45' d='%s'/>\n",
                       color_of(family), path.c_str());
      }
  }

  void place(const Mark& mark) {
    const Part& part = part_of(mark);
    const double x = at(part, mark.bits), y = height_of(part, mark.bulk);
    const double all = height_of(part, mark.all);
    const std::string color = color_of(mark.codec.family);
    const Kind kind = kind_of(mark.codec);
    const std::string style = style_of(kind, color);
    if (mark.least < mark.most && kind != Kind::bf16)
      text_ += print("<path stroke='%s' stroke-opacity='0.35' d='M%.1f %.1fV%.1f'/>\n",
                     color.c_str(), x, height_of(part, mark.least), height_of(part, mark.most));
    if (std::fabs(all - y) > 6 && kind != Kind::bf16) {
      text_ += print(
          "<path stroke='%s' stroke-opacity='0.3' stroke-dasharray='2 2' "
          "d='M%.1f %.1fV%.1f'/>",
          color.c_str(), x, y, all);
      text_ += shape(kind == Kind::none ? Kind::none : Kind::elements, x, all, 2.2,
                     "fill='white' stroke='" + color + "' stroke-opacity='0.7'") +
               "\n";
      taken_.push_back({x - 3, all - 3, x + 3, all + 3});
    }
    const bool whole = mark.codec.options.group == 0;
    if (whole && mark.codec.is_quant())
      text_ += print("<circle fill='none' stroke='#333' cx='%.1f' cy='%.1f' r='8'/>", x, y);
    text_ += shape(kind, x, y, 4.2, style) + "\n";
    const double r = whole ? 8 : 5;
    taken_.push_back({x - r, y - r, x + r, y + r});
  }

  /// Labels of what has none to share come first.
  void label(const Mark& mark, bool first) {
    const Kind kind = kind_of(mark.codec);
    const bool important = kind == Kind::bf16 || kind == Kind::symmetric ||
                           kind == Kind::stochastic || kind == Kind::elements ||
                           mark.codec.options.group == 0;
    if (important != first) return;
    const std::string text = label_of(mark.codec);
    const Part& part = part_of(mark);
    const double x = at(part, mark.bits), y = height_of(part, mark.bulk);
    if (kind == Kind::bf16) {
      for (const auto& [line, dy] :
           {std::pair{text, 20.0}, std::pair{print("%.1f", mark.bulk), 34.0},
            std::pair{std::string("dB"), 48.0}})
        text_ += print(
            "<text x='%.1f' y='%.1f' text-anchor='middle' font-size='11' fill='%s'>%s"
            "</text>\n",
            x, y + dy, color_of(mark.codec.family), line.c_str());
      return;
    }
    const double wide = 7.2 * static_cast<double>(text.size()) + 4, high = 12;
    constexpr double near[][2] = {{0, -1}, {0, 1},   {1, 0}, {-1, 0},
                                  {1, -1}, {-1, -1}, {1, 1}, {-1, 1}};
    for (const double gap : {6.0, 10.0, 16.0, 24.0, 34.0})
      for (const auto& [dx, dy] : near) {
        if (gap > 10 && !important) continue;
        const double cx = x + dx * (wide / 2 + gap), cy = y + dy * (high / 2 + gap);
        const Box box{cx - wide / 2, cy - high / 2, cx + wide / 2, cy + high / 2};
        if (!free(part, box)) continue;
        taken_.push_back(box);
        if (gap > 10)
          text_ += print("<path stroke='#999' stroke-width='0.7' d='M%.1f %.1fL%.1f %.1f'/>", x, y,
                         cx - dx * wide / 2, cy - dy * high / 2);
        text_ += print(
            "<text x='%.1f' y='%.1f' text-anchor='middle' font-size='11' fill='%s'>%s"
            "</text>\n",
            cx, cy + 4, color_of(mark.codec.family), text.c_str());
        return;
      }
  }

  bool free(const Part& part, const Box& box) const {
    const Box inside{x_ + part.left, y_ + top, x_ + part.right, y_ + bottom};
    if (box.left < inside.left || box.right > inside.right || box.top < inside.top ||
        box.bottom > inside.bottom)
      return false;
    for (const Box& other : taken_)
      if (box.meets(other)) return false;
    return true;
  }

  const Panel& panel_;
  double x_, y_;
  std::array<Part, 3> parts_{{{codec_list::Family::int4, 3.93, 5.57, 50, 342},
                              {codec_list::Family::int8, 7.93, 9.57, 392, 684},
                              {codec_list::Family::bf16, 15.9, 16.1, 698, 734}}};
  std::vector<Box> taken_;
  std::string text_;
};

inline std::string legend() {
  struct Item {
    Kind kind;
    const char* color;
    const char* text;
  };
  const char* black = "#333";
  const Item items[] = {{Kind::elements, color_of(codec_list::Family::int4), "Int4Outlier"},
                        {Kind::elements, color_of(codec_list::Family::int8), "Int8Outlier"},
                        {Kind::elements, color_of(codec_list::Family::bf16), "Bf16"},
                        {Kind::elements, black, "2 of 1000 elements kept exactly (default)"},
                        {Kind::more_elements, black, "8 of 1000 elements kept exactly"},
                        {Kind::channels, black, "3 of 256 channels kept exactly"},
                        {Kind::none, black, "nothing kept exactly"},
                        {Kind::symmetric, black, "sym: the default, symmetric"},
                        {Kind::stochastic, black, "stoch: the default, stochastic rounding"}};
  std::string svg;
  double x = 24, y = 58;
  for (const Item& item : items) {
    const double wide = 34 + 7 * static_cast<double>(std::string(item.text).size());
    if (x + wide > 1490) x = 24, y += 22;
    const std::string color = item.color;
    svg += shape(item.kind, x + 6, y - 4, 4.5, style_of(item.kind, color)) +
           print("<text x='%.0f' y='%.0f'>%s</text>\n", x + 18, y, item.text);
    x += wide;
  }
  svg += print(
      "<text x='24' y='%.0f'>Labels: elements that share a scale. Ringed: 64 rows along a column "
      "(the default). Lines: along the row, from left to right the whole row, 256, 128, 64, 32."
      "</text>\n<text x='24' y='%.0f'>Marks: over the bulk, outliers left out. Small hollow marks "
      "on a dotted line: the same codec over all elements, where that differs.</text>\n",
      y + 24, y + 44);
  return svg;
}

}  // namespace detail

/// One self-contained SVG.
inline std::string draw(const std::vector<Panel>& panels) {
  using detail::Drawing;
  constexpr double head = 140;
  const std::size_t rows = (panels.size() + 1) / 2;
  const double height = head + static_cast<double>(rows) * Drawing::height + 6;
  std::string svg = detail::print(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1520 %.0f' font-family='sans-serif' "
      "font-size='12.5'>\n<rect width='1520' height='%.0f' fill='white'/>\n"
      "<text x='24' y='30' font-size='18' font-weight='bold'>What codecs keep of a tensor: signal "
      "to quantization noise against bits per element</text>\n",
      height, height);
  svg += detail::legend();
  for (std::size_t i = 0; i < panels.size(); ++i)
    svg += Drawing(panels[i], 10 + static_cast<double>(i % 2) * (Drawing::width + 10),
                   head + static_cast<double>(i / 2) * Drawing::height)
               .svg();
  return svg + "</svg>\n";
}

}  // namespace quality_plot
