// SPDX-License-Identifier: MIT
/// The costs for the one plan of all ranks: the slowest rank's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../cost/evaluate.hpp"
#include "../../io/profile_text.hpp"
#include "../collectives.hpp"

namespace adacc { inline namespace v0_1 {

/// Returns, on all ranks, the costs of the rank on which a step of `graph` retaining everything takes longest,
/// of the first if several do. `mine`: this rank's costs, or why there are none: an error on all ranks.
inline Result<CostProfile> slowest_costs(GroupRef group, const Graph& graph,
                                         const Result<CostProfile>& mine,
                                         const std::string& model) {
  if (const Error why = share_error(group, mine.error)) return why;
  const double seconds = evaluate(graph, *mine, retain_all(graph)).seconds;
  std::vector<std::uint64_t> times;
  // Nanoseconds are compared alike everywhere.
  if (const Error why = all_gather(group, static_cast<std::uint64_t>(seconds * 1e9), times))
    return why;
  std::size_t slowest = 0;
  for (std::size_t r = 1; r < times.size(); ++r)
    if (times[r] > times[slowest]) slowest = r;
  const ProfileSource source{"a rank", model, 0};
  std::string costs;
  if (group.rank() == static_cast<int>(slowest)) costs = profile_text(graph, *mine, source);
  if (const Error why = broadcast(group, costs, static_cast<int>(slowest))) return why;
  Result<CostProfile> profile = parse_profile(costs, graph, source);
  if (!profile) return Error::say("the costs of rank ", slowest, ": ", profile.error.text());
  return profile;
}

}}  // namespace adacc::v0_1
