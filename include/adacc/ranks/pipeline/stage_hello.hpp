// SPDX-License-Identifier: MIT
/// The message between neighbouring stages of a pipeline before the first step.
#pragma once

#include <cstdint>

#include "../../core/error.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Facts that neighbours have to agree on.
struct StageHello {
  std::uint64_t structure = 0, activation_bytes = 0;  ///< for the whole network
  std::uint64_t seed = 0;
  std::int32_t stages = 0, micro_batches = 0, first = 0, last = 0;

  /// The disagreement, if any, between `mine`, of rank `rank`, and `theirs`, of the neighbour `peer`.
  static Error differences(const StageHello& mine, int rank, const StageHello& theirs, int peer) {
    const auto differ = [&](const char* what, auto a, auto b) {
      return Error::say("ranks ", rank, " and ", peer, " of the pipeline disagree on ", what, ": ",
                        a, " and ", b);
    };
    if (mine.structure != theirs.structure || mine.activation_bytes != theirs.activation_bytes)
      return Error::say("ranks ", rank, " and ", peer,
                        " of the pipeline have different networks, whose activations take ",
                        static_cast<unsigned long long>(mine.activation_bytes), " and ",
                        static_cast<unsigned long long>(theirs.activation_bytes), " bytes");
    if (mine.seed != theirs.seed)
      return differ("the seed", static_cast<unsigned long long>(mine.seed),
                    static_cast<unsigned long long>(theirs.seed));
    if (mine.stages != theirs.stages)
      return differ("the number of stages", mine.stages, theirs.stages);
    if (mine.micro_batches != theirs.micro_batches)
      return differ("the number of micro-batches", mine.micro_batches, theirs.micro_batches);
    const StageHello &before = rank < peer ? mine : theirs, &behind = rank < peer ? theirs : mine;
    if (before.last + 1 != behind.first)
      return Error::say(
          "ranks ", rank, " and ", peer,
          " of the pipeline have plans with different cuts: one stage ends with node ", before.last,
          " and the next begins with node ", behind.first);
    return {};
  }
};

}}}  // namespace adacc::v0_1::detail
