// SPDX-License-Identifier: MIT
/// Errors of every group: wrong calls, and a peer that does not answer.
///
/// A group's tickets are an array, by number, of anything with `bool active`: from begin() until wait().
#pragma once

#include <cmath>
#include <cstddef>

#include "../core/error.hpp"
#include "group.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The mistake in a call of prepare(), if any.
template <class Tickets>
Error fault_of_prepare(const Tickets& tickets) {
  for (const auto& ticket : tickets)
    if (ticket.active)
      return Error::misuse("a message is under way: wait() for it before prepare()");
  return {};
}

/// The mistake in a call of begin() by `rank` of `size` ranks, if any.
template <class Tickets>
Error fault_of_begin(const Tickets& tickets, int rank, int size, int ticket,
                     const GroupMessage& what) {
  if (ticket < 0 || static_cast<std::size_t>(ticket) >= tickets.size())
    return Error::misuse("ticket ", ticket, " was not prepared: there are ", tickets.size());
  if (tickets[static_cast<std::size_t>(ticket)].active)
    return Error::misuse("the message of ticket ", ticket, " is under way");
  if (what.peer < 0 || what.peer >= size || what.peer == rank)
    return Error::misuse("rank ", rank, " of ", size, " has no peer ", what.peer);
  if (what.memory.empty()) return Error::misuse("a message has at least one byte");
  return {};
}

inline const char* words_of(GroupMessage::Direction direction) {
  return direction == GroupMessage::Direction::send ? "send to" : "receive from";
}

/// The error of a wait() of `rank` beyond the group's limit.
inline Error not_heard_of(int rank, const GroupMessage& what, double limit_seconds) {
  return Error::say("rank ", rank, " waited ", std::llround(limit_seconds * 1e3), " ms to ",
                    words_of(what.direction), " rank ", what.peer, ", which was not heard of");
}

}}}  // namespace adacc::v0_1::detail
