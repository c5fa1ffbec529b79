// SPDX-License-Identifier: MIT
/// The parts of a graph that plans depend on: enough to recognize a plan made for another graph.
///
/// A plan is a policy per activation, without bytes or readers. Used on another graph with as many activations, a plan
/// would break budget or tolerance without a word. So graphs carry a fingerprint of all that plans depend on,
/// and plans and profiles carry the fingerprint of their graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/error.hpp"

namespace adacc { inline namespace v0_1 {

struct Fingerprint {
  std::size_t bytes = 0;        ///< sum over all activations
  std::uint64_t structure = 0;  ///< hash of their shapes, readers, sums and candidates

  friend constexpr bool operator==(const Fingerprint&, const Fingerprint&) = default;

  /// False for graphs, plans and profiles written by hand, which are not checked.
  constexpr bool known() const { return structure != 0; }
};

namespace detail {

/// An error if `what` was made for a graph other than the one of fingerprint `graph`.
constexpr Error check_made_for(const char* what, const Fingerprint& made_for,
                               const Fingerprint& graph) {
  if (!made_for.known() || !graph.known() || made_for == graph) return {};
  if (made_for.bytes != graph.bytes)
    return Error::say("the ", what, " was made for another graph: its activations take ",
                      shown(made_for.bytes), ", and this graph's ", shown(graph.bytes));
  return Error::say("the ", what, " was made for another graph, whose activations take ",
                    shown(graph.bytes),
                    " as this one's do, but differ in shapes, readers, the codecs that those "
                    "tolerate, or trained parameters");
}

/// FNV-1a over words of 64 bits, with the upper half folded in: any one differing word shows.
class Mixer {
 public:
  constexpr void mix(std::uint64_t word) {
    hash_ = (hash_ ^ word) * 0x100000001B3;
    hash_ ^= hash_ >> 32;
  }
  /// Never 0.
  constexpr std::uint64_t value() const { return hash_ == 0 ? 1 : hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325;
};

}  // namespace detail

}}  // namespace adacc::v0_1
