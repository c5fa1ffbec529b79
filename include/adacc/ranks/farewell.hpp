// SPDX-License-Identifier: MIT
/// How a rank ends: all tell each other with what status, so that a launcher hears of none too early.
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
  int status = 0;  ///< this rank's, or if that is 0 the first other one's
  Error alone;     ///< why not all ranks have met
};

/// All ranks call it, as their last use of `group`. `beside`, if there is one, is another group of the same
/// ranks, with one ticket at least: where that is broken somebody is known to be gone, and this rank does not
/// wait for its limit a second time.
inline Farewell say_farewell(GroupRef group, int status, GroupRef beside = {}) {
  Farewell end;
  end.status = status;
  if (beside && beside.done(0))
    if ((end.alone = beside.wait(0))) return end;
  // Of a size that nothing else has: whoever is elsewhere hears at once that this is the end.
  std::uint64_t mine[5] = {static_cast<std::uint64_t>(status)};
  std::vector<std::uint64_t> all(5 * static_cast<std::size_t>(group.size()));
  end.alone = all_gather(group, {reinterpret_cast<const std::byte*>(mine), Shape(sizeof mine)},
                         {reinterpret_cast<std::byte*>(all.data()), Shape(8 * all.size())});
  for (std::size_t r = 0; r < all.size() && !end.alone; r += 5)
    if (end.status == 0) end.status = static_cast<int>(all[r]);
  return end;
}

}}  // namespace adacc::v0_1
