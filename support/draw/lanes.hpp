// SPDX-License-Identifier: MIT
/// A step against time, in two lanes: computation, with where it waits for the store, and the link.
#pragma once

#include <adacc/cost/evaluate.hpp>
#include <adacc/program/program.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "svg.hpp"

namespace draw {

/// What a stretch of a lane is, with its colour.
struct LaneKind {
  const char* label;
  const char* color;
};
inline constexpr LaneKind lane_kinds[] = {{"forward", "#4e79a7"},       {"backward", "#f28e2b"},
                                          {"again", "#edc948"},         {"codec", "#76b7b2"},
                                          {"waiting", "#c00"},          {"to the store", "#b07aa1"},
                                          {"from the store", "#59a14f"}};

inline std::size_t lane_kind_of(const adacc::LaneTime& time, const adacc::Instruction& inst) {
  using Kind = adacc::LaneTime::Kind;
  using adacc::Op;
  if (time.kind == Kind::stall) return 4;
  if (time.kind == Kind::transfer) return inst.op == Op::write_begin ? 5 : 6;
  if (inst.op == Op::encode || inst.op == Op::decode) return 3;
  if (inst.again) return 2;
  const bool forward = inst.op == Op::forward || inst.op == Op::add || inst.op == Op::loss ||
                       inst.op == Op::write_begin;
  return forward ? 0 : 1;
}

/// How a step goes over `link` as it is predicted, drawn in `box`: computation above, link below,
/// the axis of time under both. Neighbours of one kind that are too narrow to be told apart are drawn
/// as one.
inline std::string lanes_panel(const adacc::Program& program, const adacc::CostProfile& profile,
                               const adacc::LinkCost& link, const Box& box) {
  using adacc::LaneTime;
  std::vector<LaneTime> times;
  const adacc::PlanCost cost =
      adacc::evaluate(program.graph, profile, program.plan, program.schedule, link,
                      [&](const LaneTime& time) { times.push_back(time); });
  const double seconds = cost.seconds - profile.rest;
  if (!(seconds > 0)) return {};
  const double lane = 0.36 * box.height, gap = 0.08 * box.height;
  const auto x = [&](double at) { return box.left + at / seconds * box.width; };
  struct Stretch {
    std::size_t kind = 0;
    double from = 0, to = 0;
    std::string title;
  };
  std::string svg;
  for (const bool of_link : {false, true}) {
    const double y = box.top + (of_link ? lane + gap : 0);
    std::vector<Stretch> stretches;
    for (const LaneTime& time : times) {
      if ((time.kind == LaneTime::Kind::transfer) != of_link) continue;
      const adacc::Instruction& inst = program.schedule.instructions[time.instruction];
      const std::size_t kind = lane_kind_of(time, inst);
      const double from = x(time.from), to = x(time.to);
      const bool narrow = to - from < 1.5;
      if (narrow && !stretches.empty() && stretches.back().kind == kind &&
          from - stretches.back().to < 0.2) {
        stretches.back().to = to;
        stretches.back().title.clear();
        continue;
      }
      const std::string name = inst.op == adacc::Op::loss_gradient
                                   ? program.graph.loss.name
                                   : program.graph.node(inst.node).name;
      stretches.push_back({kind, from, to,
                           std::string(name_of(inst.op)) + " " + std::to_string(inst.node) + " (" +
                               name + "), " + print("%.3f ms", 1e3 * time.seconds())});
    }
    svg += print("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='#f4f4f4'/>\n", box.left,
                 y, box.width, lane);
    for (const Stretch& stretch : stretches) {
      // A wait of a hair's breadth is still one to be seen.
      const double width = stretch.to - stretch.from;
      const double least = stretch.kind == 4 ? 0.8 : 0.1;
      svg += print("<rect x='%.2f' y='%.1f' width='%.2f' height='%.1f' fill='%s'>", stretch.from, y,
                   width > least ? width : least, lane, lane_kinds[stretch.kind].color);
      if (!stretch.title.empty()) svg += "<title>" + escaped(stretch.title) + "</title>";
      svg += "</rect>\n";
    }
    svg += print("<text x='%.0f' y='%.1f' font-size='12'>%s</text>\n", box.left + box.width + 6,
                 y + lane / 2 + 4, of_link ? "link" : "computation");
  }
  // Some five marks at round numbers of milliseconds.
  const double whole = 1e3 * seconds, rough = whole / 5;
  double unit = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double times_unit : {5.0, 2.0})
    if (rough >= times_unit * unit) {
      unit *= times_unit;
      break;
    }
  const double axis = box.top + 2 * lane + 2 * gap;
  svg +=
      print("<path stroke='#333' d='M%.1f %.1f H%.1f'/>\n", box.left, axis, box.left + box.width);
  for (int i = 0; i * unit <= whole; ++i) {
    const double at = x(i * unit / 1e3);
    svg += print("<path stroke='#333' d='M%.1f %.1f v4'/>", at, axis);
    svg += print("<text x='%.1f' y='%.1f' font-size='11' text-anchor='middle'>%g%s</text>\n", at,
                 axis + 16, i * unit, i == 0 ? " ms" : "");
  }
  return svg;
}

/// The legend of the lanes in one row.
inline std::string lanes_legend(double x, double y) {
  std::string svg;
  for (const LaneKind& kind : lane_kinds) {
    svg += key(x, y, kind.color, kind.label);
    x += 36 + 7.5 * static_cast<double>(std::string(kind.label).size());
  }
  return svg;
}

}  // namespace draw
