// SPDX-License-Identifier: MIT
/// What the boundary before a step did to the plan, in words.
#pragma once

#include <adacc/train/plan_keeper.hpp>

#include <cstdio>
#include <string>
#include <vector>

/// A line for each change of the plan that `evolution` has by now and `program` runs.
inline std::vector<std::string> change_lines(const adacc::PlanBoundary& boundary,
                                             const adacc::Evolution& evolution,
                                             const adacc::Program& program) {
  std::vector<std::string> lines;
  for (const adacc::PlanChange& change : boundary.update.changes) {
    const adacc::Node& node = program.graph.node(change.activation);
    lines.push_back("activation " + std::to_string(change.activation) + " (" + node.name +
                    ", block " + std::to_string(node.copy) + "): " + name_of(change.from) + " -> " +
                    name_of(change.to) + ", " + name_of(change.reason));
  }
  if (!boundary.update.link_drifted) return lines;
  const adacc::LinkCost& link = evolution.request().link;
  char text[160];
  std::snprintf(text, sizeof text,
                "%s: writes %.2f GB/s, reads %.2f GB/s by now; %.1f MiB out and back a step, "
                "%.1f ms of waiting predicted",
                name_of(adacc::ChangeReason::link_drifted), link.write_rate / 1e9,
                link.read_rate / 1e9,
                static_cast<double>(program.schedule.store_bytes) / adacc::MiB,
                1e3 * evolution.outcome().stall_seconds);
  lines.push_back(text);
  return lines;
}
