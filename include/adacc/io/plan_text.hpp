// SPDX-License-Identifier: MIT
/// A plan as text and back: one line per activation, "id layer policy", as in checkpoints. A plan that limits the
/// room of a step (Plan::room_bytes) begins with the line "room BYTES". If sums depend on the rows of the loss's tiles
/// (LossNode::tile_rows), the line "tile ROWS" says how many there are.
///
/// A plan from measurements may differ from run to run, so resuming needs the plan itself.
#pragma once

#include <string>
#include <string_view>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "../core/no_memory.hpp"
#include "../core/read_number.hpp"
#include "../program/plan.hpp"

namespace adacc { inline namespace v0_1 {

/// The lines of `plan`, for instance "7 gelu recompute\n".
inline std::string plan_text(const Graph& graph, const Plan& plan) {
  std::string text;
  if (plan.room_bytes != 0) text += "room " + std::to_string(plan.room_bytes) + '\n';
  if (graph.loss.tile_rows != 0) text += "tile " + std::to_string(graph.loss.tile_rows) + '\n';
  for (std::size_t i = 0; i < plan.policies.size(); ++i) {
    text += std::to_string(i) + ' ' + graph.nodes[i].name + ' ';
    text += name_of(plan.policies[i]);
    text += '\n';
  }
  return text;
}

/// Reads the text of plan_text for the same graph, whose fingerprint is `made_for`, if known. Codecs are found by
/// name among `codecs` (null entries are skipped). Errors name the line. A plan of other tiles is refused: its bits could not
/// be had again.
inline Result<Plan> parse_plan(const std::string& text, const Graph& graph,
                               const Array<const CodecInfo*>& codecs,
                               const Fingerprint& made_for = {}) {
  return detail::or_no_memory("to read a plan", [&]() -> Result<Plan> {
    if (const Error why = detail::check_made_for("plan", made_for, graph.fingerprint)) return why;
    Plan plan;
    plan.made_for = graph.fingerprint;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = text.find('\n', at);
      if (end == std::string::npos) return Error::say("the plan's last line is cut off");
      const std::string line = text.substr(at, end - at);
      at = end + 1;
      if (plan.policies.empty() && line.compare(0, 5, "room ") == 0) {
        if (!read_number(std::string_view(line).substr(5), plan.room_bytes) || plan.room_bytes == 0)
          return Error::say("the plan's room is \"", line.substr(5, 60).c_str(),
                            "\"; expected a number of bytes");
        continue;
      }
      if (plan.policies.empty() && line.compare(0, 5, "tile ") == 0) {
        std::size_t rows = 0;
        if (!read_number(std::string_view(line).substr(5), rows) || rows == 0)
          return Error::say("the plan's tile is \"", line.substr(5, 60).c_str(),
                            "\"; expected a number of rows");
        if (graph.loss.tile_rows != 0 && graph.loss.tile_rows != rows)
          return Error::say("the plan's head takes ", rows, " rows at a time, and this graph's ",
                            graph.loss.tile_rows,
                            ", whose sums have other last digits: set device_tile_rows to ", rows);
        continue;
      }
      const std::size_t id = plan.policies.size();
      if (id >= graph.nodes.size())
        return Error::say("the plan has more lines than the graph's ", graph.nodes.size(),
                          " activations");
      const std::string start = std::to_string(id) + ' ' + graph.nodes[id].name + ' ';
      if (line.compare(0, start.size(), start) != 0)
        return Error::say("line ", id + 1, " of the plan is \"", line.substr(0, 60).c_str(),
                          "\"; expected \"", start.c_str(), "POLICY\"");
      const std::string word = line.substr(start.size());
      Policy policy;
      const auto read_form = [&](const Form& form) {
        if (word == form.name()) policy = keep(form);
      };
      each_form(nullptr, read_form);
      for (int runs = 1; runs <= most_runs; ++runs)
        if (word == name_of(recompute(runs))) policy = recompute(runs);
      for (const CodecInfo* codec : codecs)
        if (codec != nullptr) each_form(codec, read_form);
      if (policy.planned())
        return Error::say("line ", id + 1, " of the plan names the policy \"",
                          word.substr(0, 60).c_str(),
                          "\"; expected retain, offload, recompute or the name of a known codec");
      plan.policies.push_back(policy);
    }
    if (const Error why = examine(graph, plan)) return why;
    return plan;
  });
}

}}  // namespace adacc::v0_1
