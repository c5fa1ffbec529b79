// SPDX-License-Identifier: MIT
/// A plan as a picture: a row per block, a column per activation of a block, coloured by policy.
#pragma once

#include <adacc/cost/evaluate.hpp>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "svg.hpp"

namespace draw {

/// The colour of a policy; an activation that backward never needs is grey whatever its policy.
inline std::string policy_color(const adacc::Policy& policy) {
  if (policy.retains()) return "#4e79a7";
  if (policy.travels()) return policy.codec() == nullptr ? "#7b3294" : "#c2a5cf";
  if (policy.recomputes()) return "#e15759";
  if (policy.codec() == nullptr) return "#dddddd";
  const char* name = policy.codec()->name;
  const auto starts = [&](const char* with) { return std::strncmp(name, with, 4) == 0; };
  if (starts("int8")) return "#76b7b2";
  if (starts("int4")) return "#59a14f";
  if (starts("bf16")) return "#edc948";
  return "#b07aa1";
}

/// How often each policy occurs in `plan`, by name.
inline std::map<std::string, int> policy_counts(const adacc::Plan& plan) {
  std::map<std::string, int> counts;
  for (const adacc::Policy& policy : plan.policies) ++counts[name_of(policy)];
  return counts;
}

struct PlanPicture {
  std::string svg;
  double height = 0;
};

/// The plan of `graph`, drawn in `width` pixels from (left, top) on. Copies of a repeated block are
/// rows; what stands before and behind them has rows of its own.
inline PlanPicture plan_picture(const adacc::Graph& graph, const adacc::Plan& plan, double left,
                                double top, double width) {
  struct Row {
    std::string label;
    std::vector<int> nodes;
  };
  std::vector<Row> rows;
  std::size_t columns = 1;
  for (int k = 0; k < graph.node_count(); ++k) {
    const adacc::Node& node = graph.node(k);
    // A new row starts with each copy, and where the layers of a block do not follow each other.
    const bool starts = rows.empty() || node.copy != graph.node(k - 1).copy ||
                        (node.layer <= graph.node(k - 1).layer) ||
                        (k > 0 && rows.back().label != "block" && node.copy == 0 &&
                         k + 1 < graph.node_count() && graph.node(k - 1).takes_tokens) ||
                        k + 1 == graph.node_count();
    if (starts)
      rows.push_back({node.takes_tokens || k + 1 == graph.node_count() ? node.name : "block", {}});
    rows.back().nodes.push_back(k);
    if (rows.back().nodes.size() > columns) columns = rows.back().nodes.size();
  }
  const double label_width = 90;
  const double cell = (width - label_width) / static_cast<double>(columns);
  const double row_height = rows.size() > 24 ? 480.0 / static_cast<double>(rows.size()) : 20;
  const double gap = row_height > 6 ? 2 : 0;

  PlanPicture picture;
  std::string& svg = picture.svg;
  std::size_t widest = 0;
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (rows[r].nodes.size() > rows[widest].nodes.size()) widest = r;
  double y = top + 16;
  for (std::size_t c = 0; c < rows[widest].nodes.size(); ++c)
    svg += print("<text x='%.1f' y='%.1f' font-size='10' text-anchor='middle'>%s</text>\n",
                 left + label_width + (static_cast<double>(c) + 0.5) * cell, top + 10,
                 escaped(graph.node(rows[widest].nodes[c]).name).c_str());
  int block = 0;
  int labelled = 1;  // every so many blocks have room for a label
  while (labelled * row_height < 12) labelled *= 2;
  for (const Row& row : rows) {
    const bool is_block = row.label == "block";
    // Where rows are thin, what stands before the blocks moves up, and what stands behind them
    // down.
    const double thin = row_height >= 12 || is_block ? 0 : block == 0 ? -9 : 8;
    if (!is_block || block % labelled == 0) {
      const std::string label = is_block ? "block " + std::to_string(block) : row.label;
      svg += print("<text x='%.0f' y='%.1f' font-size='11' text-anchor='end'>%s</text>\n",
                   left + label_width - 8, y + row_height / 2 + 4 + thin, escaped(label).c_str());
    }
    block += is_block;
    for (std::size_t c = 0; c < row.nodes.size(); ++c) {
      const int k = row.nodes[c];
      const adacc::Node& node = graph.node(k);
      svg += print("<rect x='%.1f' y='%.2f' width='%.1f' height='%.2f' fill='%s'>",
                   left + label_width + static_cast<double>(c) * cell, y, cell - (gap > 0 ? 2 : 0),
                   row_height - gap, policy_color(plan[k]).c_str());
      svg += "<title>" + std::to_string(k) + " " + escaped(node.name) + ": " +
             escaped(name_of(plan[k])) + ", " +
             print("%.2f MiB", static_cast<double>(node.output_bytes) / adacc::MiB) +
             "</title></rect>\n";
    }
    y += row_height;
  }
  // The policies that occur, once each.
  y += row_height < 12 ? 14 : 8;
  double x = left + label_width;
  std::vector<std::string> seen;
  for (const adacc::Policy& policy : plan.policies) {
    bool known = false;
    for (const std::string& name : seen) known = known || name == name_of(policy);
    if (known) continue;
    seen.push_back(name_of(policy));
    svg += key(x, y, policy_color(policy), escaped(name_of(policy)));
    x += 30 + 8.0 * static_cast<double>(seen.back().size());
  }
  picture.height = y + 20 - top;
  return picture;
}

}  // namespace draw
