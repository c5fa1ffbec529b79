// SPDX-License-Identifier: MIT
/// State that layers carry from one forward pass to the next: attention's keys and values of earlier positions.
#pragma once

#include <cstddef>

namespace adacc { inline namespace v0_1 {

/// The state of all layers of a network, and the place of a pass in its sequences. The memory is the caller's; each
/// layer finds its part by the number of its node.
struct CarriedState {
  std::byte* memory = nullptr;          ///< 64-byte aligned
  const std::size_t* places = nullptr;  ///< by node: bytes from `memory` to the state of the layer
  std::size_t nodes = 0;                ///< of the graph
  std::size_t room = 0;                 ///< positions of a sequence that the state has room for
  std::size_t first = 0;  ///< the position of the first token of a pass, in every sequence
  std::size_t valid = 0;  ///< tokens of a pass in each sequence; those behind are padding

  /// The state of node `node`.
  template <class T>
  T* of(std::size_t node) const {
    return static_cast<T*>(static_cast<void*>(memory + places[node]));
  }
};

}}  // namespace adacc::v0_1
