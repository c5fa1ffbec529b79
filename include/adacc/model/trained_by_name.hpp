// SPDX-License-Identifier: MIT
/// Names of a network's parameters, and sets of them by patterns: "block.5.*,head".
///
/// A name has two parts, the layer's and the parameter's: "embedding.wte", "linear.weight". If several layers have one
/// name, the second has a 2 behind it, and so on: "linear2.bias". In a Repeat the copy comes first:
/// "block.5.linear2.bias". The loss is the head: "head.weight".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "frozen.hpp"
#include "graph.hpp"

namespace adacc { inline namespace v0_1 {

/// The name of parameter `i` of Graph::parameters.
inline std::string parameter_name(const Graph& graph, std::size_t i) {
  const Parameter& parameter = graph.parameters[i];
  if (parameter.node < 0) return std::string("head.") + parameter.name;
  const Node& node = graph.node(parameter.node);
  int before = 0, last = -1;  // layers with the node's name
  for (const Node& other : graph.nodes) {
    if (other.layer <= last || other.layer >= node.layer || other.repeated != node.repeated)
      continue;
    last = other.layer;
    if (std::string_view(other.name) == node.name) ++before;
  }
  std::string name = node.repeated ? "block." + std::to_string(node.copy) + "." : std::string();
  name += node.name;
  if (before > 0) name += std::to_string(before + 1);
  return name + "." + parameter.name;
}

namespace detail {

/// Whether `pattern` matches `name`: * is any number of letters, ? is one.
inline bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) && pattern[p] != '*') {
      ++p, ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = n;
    } else if (star != std::string_view::npos) {
      p = star + 1, n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// A pattern may also name something as a whole: "block.5" is "block.5.*".
inline bool names(std::string_view pattern, std::string_view name) {
  return matches(pattern, name) || matches(std::string(pattern) + ".*", name);
}

/// Letters to change, add or leave out to make one text of the other (Levenshtein).
inline std::size_t distance(std::string_view a, std::string_view b) {
  Array<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      std::size_t best = corner + (a[i] == b[j] ? 0 : 1);
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j + 1] + 1 < best) best = row[j + 1] + 1;
      corner = row[j + 1];
      row[j + 1] = best;
    }
  }
  return row[b.size()];
}

/// The parameter name, or part of a name before its dot, most like `pattern`.
inline std::string nearest_name(const Graph& graph, std::string_view pattern) {
  std::string best;
  std::size_t least = static_cast<std::size_t>(-1);
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const std::string name = parameter_name(graph, i);
    for (std::size_t end = name.size(); end != std::string::npos && end != 0;
         end = name.rfind('.', end - 1)) {
      const std::size_t apart = distance(pattern, std::string_view(name).substr(0, end));
      if (apart < least) least = apart, best = name.substr(0, end);
    }
  }
  return best;
}

}  // namespace detail

/// The parameters of `graph` named by `patterns`, with commas between them. * and ? stand for any letters; a part
/// before a dot names all behind the dot. A shared parameter is trained if a pattern names it in any of its layers. An
/// error if a pattern names none.
inline Result<TrainedSet> trained_by_name(const Graph& graph, std::string_view patterns) {
  TrainedSet trained(graph.parameters.size());
  for (std::size_t at = 0; at <= patterns.size();) {
    std::size_t end = patterns.find(',', at);
    if (end == std::string_view::npos) end = patterns.size();
    const std::string pattern(patterns.substr(at, end - at));
    at = end + 1;
    bool found = false;
    for (std::size_t i = 0; i < trained.size(); ++i) {
      if (!detail::names(pattern, parameter_name(graph, i))) continue;
      found = true;
      for (std::size_t j = 0; j < trained.size(); ++j)
        if (graph.parameters[j].offset == graph.parameters[i].offset) trained[j] = true;
    }
    if (!found)
      return Error::say("no parameter is called \"", pattern.c_str(), "\"; the nearest is \"",
                        detail::nearest_name(graph, pattern).c_str(), "\"");
  }
  return trained;
}

}}  // namespace adacc::v0_1
