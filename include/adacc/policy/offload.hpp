// SPDX-License-Identifier: MIT
/// Keep the activation outside of the arena, in a store lent by the caller: on a disk, in other memory, on a GPU's
/// host.
///
/// `Offload<>` sends the activation unencoded, so nothing is lost; `Offload<Compress<Codec>>` sends the encoded one.
/// The activation leaves the arena only if the step needs the room (Plan::room_bytes). The peak does not depend on
/// the speed of the store: a slow store makes steps longer.
#pragma once

#include "policy.hpp"
#include "retain.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class Kept>
struct CodecOf {};
template <class Kept>
  requires requires { typename Kept::codec; }
struct CodecOf<Kept> {
  using codec = typename Kept::codec;
};

}  // namespace detail

template <class Kept = Retain>
struct Offload : detail::CodecOf<Kept> {
  static constexpr bool keeps = [] {
    if constexpr (requires { Policy{Kept::value}; })
      return Kept::value.keeps() && !Kept::value.form().travels();
    else return false;
  }();
  static_assert(keeps,
                "adacc: Offload<...> takes what is sent: Retain (the default) or Compress<Codec>; "
                "what is recomputed or left to the planner is not kept, so it cannot be sent");
  static constexpr Policy value = [] {
    if constexpr (keeps) return keep(Form{Kept::value.form().codec, Place::store});
    else return Policy{};
  }();
};

}}  // namespace adacc::v0_1
