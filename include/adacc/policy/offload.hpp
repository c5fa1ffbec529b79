// SPDX-License-Identifier: MIT
/// Keep the activation outside of the arena, in a store that the caller lends: on a disk, in other
/// memory, on a GPU's host.
///
/// `Offload<>` sends it as it is, so nothing is lost; `Offload<Compress<Codec>>` sends it encoded.
/// It leaves the arena only as far as the step's room demands (Plan::room_bytes), and the peak holds
/// whatever the store's speed is: a slow one makes steps longer.
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
