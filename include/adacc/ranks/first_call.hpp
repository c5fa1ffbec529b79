// SPDX-License-Identifier: MIT
/// The calls that ranks make together, compared: a rank in load() would wait for ranks that train on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "collectives.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

enum class RankCall : std::uint8_t { accumulate, begin, update, failed_update, load };

constexpr const char* name_of(RankCall call) {
  constexpr const char* names[] = {"accumulate()", "begin()", "update()", "update()", "load()"};
  return names[static_cast<int>(call)];
}

/// The error of some of `ranks` ranks loading while others train; `which` call it is, in words.
/// call_of(rank): the rank's call.
template <class CallOf>
Error mixed_calls(const char* which, std::size_t ranks, const CallOf& call_of) {
  const RankCall first = call_of(0);
  std::string others;
  RankCall theirs = first;
  for (std::size_t r = 1; r < ranks; ++r) {
    if ((call_of(r) == RankCall::load) == (first == RankCall::load)) continue;
    if (others.empty()) theirs = call_of(r);
    if (others.size() < 60) others += (others.empty() ? "" : ", ") + std::to_string(r);
    else if (others.back() != '.') others += " ...";
  }
  if (others.empty()) return {};
  return Error::say("the ranks disagree on the ", which, ": rank 0 has ", name_of(first), ", rank ",
                    others.c_str(), " ", name_of(theirs));
}

/// Tells all ranks of `mine`, the call that comes first after an update or at all. An error on all ranks if some load
/// and others do not. all: a number for each rank.
inline Error meet_in_call(GroupRef group, RankCall mine, Array<double>& all) {
  const auto number = static_cast<double>(mine);
  const auto bytes_of = [](const double* numbers, std::size_t count) {
    return ConstBytes(reinterpret_cast<const std::byte*>(numbers), Shape(count * sizeof(double)));
  };
  if (const Error why =
          all_gather(group, bytes_of(&number, 1), sent_memory(bytes_of(all.data(), all.size()))))
    return why;
  return mixed_calls("call that comes first", all.size(), [&](std::size_t rank) {
    return static_cast<RankCall>(static_cast<int>(all[rank]));
  });
}

}}}  // namespace adacc::v0_1::detail
