// SPDX-License-Identifier: MIT
/// One self-contained HTML page about a run: the plan, its memory, the losses, what changed, and
/// what was predicted against what was measured.
#pragma once

#include <adacc/io/file.hpp>
#include <adacc/plan/request.hpp>
#include <support/draw/curve.hpp>
#include <support/draw/lanes.hpp>
#include <support/draw/memory.hpp>
#include <support/draw/plan.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

struct RunReport {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  ///< name and value, as shown
  const adacc::Program* program = nullptr;                 ///< the step as it ran last
  const adacc::CostProfile* profile = nullptr;             ///< null: nothing is known of costs
  adacc::LinkCost link;                                    ///< to the store, if there is one
  double budget_bytes = 0;                                 ///< 0: none
  double retain_peak_bytes = 0;
  /// One line each: name, predicted, measured, in the words that are shown.
  struct Comparison {
    std::string name, predicted, measured, deviation;
  };
  std::vector<Comparison> comparisons;
  draw::Points losses, validation;
  struct Event {
    double step = 0;
    std::string text;
  };
  std::vector<Event> events;
  std::vector<std::string> reasons;  ///< one per activation of the first block, or of the network
};

inline std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    html += "<tr>";
    for (const std::string& cell : rows[r])
      html += (r == 0 ? "<th>" : "<td>") + draw::escaped(cell) + (r == 0 ? "</th>" : "</td>");
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

/// `svg` as wide as the page and, if that is too narrow to read it, in a box that scrolls.
inline std::string html_picture(double width, double height, const std::string& svg) {
  return "<div class='picture'>" + draw::open_svg(width, height) + svg + "</svg></div>\n";
}

inline std::string html_page(const RunReport& report) {
  std::string html =
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>\n<title>" +
      draw::escaped(report.title) +
      "</title>\n<style>body{font:15px/1.45 sans-serif;max-width:980px;margin:24px auto;"
      "padding:0 "
      "16px;color:#222;background:#fff}h1{font-size:22px}h2{font-size:17px;margin-top:32px}"
      "table{border-collapse:collapse}td,th{padding:3px 14px 3px 0;text-align:left;"
      "border-bottom:1px solid #eee;vertical-align:top}svg{max-width:100%;height:auto}"
      ".picture{overflow-x:auto}@media(max-width:760px){.picture svg{max-width:none}}"
      "</style></head><body>\n<h1>" +
      draw::escaped(report.title) + "</h1>\n";
  std::vector<std::vector<std::string>> facts{{"", ""}};
  for (const auto& [name, value] : report.facts) facts.push_back({name, value});
  html += html_table(facts);

  html += "<h2>The plan: what becomes of each activation</h2>\n";
  const auto plan = draw::plan_picture(report.program->graph, report.program->plan, 0, 0, 940);
  html += html_picture(940, plan.height, plan.svg);
  if (!report.reasons.empty()) {
    html += "<details><summary>Why each activation got its policy</summary><ul>\n";
    for (const std::string& reason : report.reasons)
      html += "<li>" + draw::escaped(reason) + "</li>\n";
    html += "</ul></details>\n";
  }

  html +=
      "<h2>Memory against the instructions of a step</h2>\n<p>Forward on the left of the "
      "dotted line, backward on its right.";
  const auto extras = draw::MemoryExtras::of(report.program->schedule);
  if (extras.loops)
    html +=
        " Bars under the axis are loops over rows; buffers that hold one part of the rows at a "
        "time are "
        "lighter.";
  html += "</p>\n";
  double most = static_cast<double>(report.program->peak_bytes());
  if (report.budget_bytes > most) most = report.budget_bytes;
  if (report.retain_peak_bytes > most && report.retain_peak_bytes < 2 * most)
    most = report.retain_peak_bytes;
  most = std::max(most, draw::most_shown_bytes(*report.program));
  html += html_picture(
      940, 270,
      draw::memory_legend(20, 4, extras) + draw::memory_panel(*report.program, {20, 34, 790, 220},
                                                              1.03 * most, report.budget_bytes));

  if (extras.store && report.profile != nullptr && report.link.exists()) {
    html +=
        "<h2>Computation and link</h2>\n<p>A step against time, as it is predicted: where it waits "
        "for the store is red.</p>\n";
    html += html_picture(
        940, 150,
        draw::lanes_legend(20, 4) +
            draw::lanes_panel(*report.program, *report.profile, report.link, {20, 30, 800, 100}));
  }

  html += "<h2>Loss</h2>\n";
  std::vector<draw::Curve> curves{{"training", "#4e79a7", report.losses, false, {}}};
  if (!report.validation.empty())
    curves.push_back({"validation", "#e15759", report.validation, true, {}});
  std::vector<double> marks;
  for (const auto& event : report.events) marks.push_back(event.step);
  html += html_picture(940, 300, draw::curves(curves, {60, 30, 860, 220}, "step", marks));

  html += "<h2>Changes of the plan</h2>\n";
  if (report.events.empty()) html += "<p>None: the plan of the first step served to the end.</p>\n";
  else {
    std::vector<std::vector<std::string>> rows{{"step", "what changed"}};
    for (const auto& event : report.events)
      rows.push_back({draw::print("%.0f", event.step), event.text});
    html += html_table(rows);
  }

  html += "<h2>Predicted and measured</h2>\n";
  std::vector<std::vector<std::string>> rows{{"", "predicted", "measured", "difference"}};
  for (const auto& line : report.comparisons)
    rows.push_back({line.name, line.predicted, line.measured, line.deviation});
  return html + html_table(rows) + "</body></html>\n";
}

/// Writes the page beside `path` and renames it.
inline adacc::Error write_report(const std::string& path, const RunReport& report) {
  return adacc::write_file(path, html_page(report));
}
