// SPDX-License-Identifier: MIT
/// How a rank ends: all exchange their status first, so a launcher hears of no rank too early.
///
///     const Farewell end = say_farewell(group, status, beside);
///     if (end.alone) ...                    // not all others are about to end: say so, and do not wait for them
///     return end.status;
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives.hpp"
#include "group.hpp"

namespace adacc { inline namespace v0_1 {

struct Farewell {
  int status = 0;  ///< this rank's; if 0, the first other one that is not 0
  Error alone;     ///< why not all ranks have met
};

/// All ranks call say_farewell(), as their last use of `group`. `beside`: another group of the same
/// ranks, if there is one, with at least one ticket. If `beside` is broken, some rank is known to be gone, and
/// this rank does not wait for the limit a second time.
inline Farewell say_farewell(GroupRef group, int status, GroupRef beside = {}) {
  Farewell end;
  end.status = status;
  if (beside && beside.done(0))
    if ((end.alone = beside.wait(0))) return end;
  // No other message has this size, so a rank in another call gets an error at once.
  std::uint64_t mine[5] = {static_cast<std::uint64_t>(status)};
  std::vector<std::uint64_t> all(5 * static_cast<std::size_t>(group.size()));
  end.alone = all_gather(group, {reinterpret_cast<const std::byte*>(mine), Shape(sizeof mine)},
                         {reinterpret_cast<std::byte*>(all.data()), Shape(8 * all.size())});
  for (std::size_t r = 0; r < all.size() && !end.alone; r += 5)
    if (end.status == 0) end.status = static_cast<int>(all[r]);
  return end;
}

}}  // namespace adacc::v0_1
