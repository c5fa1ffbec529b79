// SPDX-License-Identifier: MIT
/// The fate of activations whose codecs lost rows (program/declinable.hpp), in words.
#pragma once

#include <string>

#include "../core/error.hpp"
#include "../program/program.hpp"

namespace adacc { inline namespace v0_1 {

/// "2 kept exactly, 1 left with rows over the bound"; empty if there are none.
inline std::string declined_text(const DeclinedCounts& counts) {
  std::string text;
  const auto add = [&](std::size_t count, KeptAs kept) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ' + name_of(kept);
  };
  add(counts.exactly, KeptAs::exactly);
  add(counts.milder, KeptAs::milder);
  add(counts.over_bound, KeptAs::over_bound);
  return text;
}

/// A line for each activation declined in the last step of `program`, the program of the Step or Stash that
/// ran, for instance "activation 7 (gelu): 2 of 256 rows are over the bound of int8_outlier: kept exactly\n".
inline std::string declined_text(const Program& program) {
  std::string text;
  for (const Declinable& one : program.declinables) {
    if (one.now.kept == KeptAs::as_planned) continue;
    text += Error::say("activation ", one.activation, " (", program.graph.node(one.activation).name,
                       "): ", one.now.errors.over, " of ", one.now.errors.rows,
                       " rows are over the bound of ", program.plan[one.activation].codec()->name,
                       ": ", name_of(one.now.kept), one.now.codec != nullptr ? ", " : "",
                       one.now.codec != nullptr ? one.now.codec->name : "")
                .text();
    text += '\n';
  }
  return text;
}

}}  // namespace adacc::v0_1
