// SPDX-License-Identifier: MIT
/// A list of codecs in order of preference: those that a layer's backward tolerates for an activation.
///
/// A CodecList names codecs without instantiating them, so a layer that declares a list costs nothing until a step is
/// made of it. `CodecSpan` is the list without types, for the graph.
#pragma once

#include <cstddef>

#include "codec.hpp"

namespace adacc { inline namespace v0_1 {

/// CodecList<Int8Outlier, Bf16>: Int8Outlier if possible, else Bf16. CodecList<> tolerates none.
template <class... Codecs>
struct CodecList {};

/// A list of codecs, owned by somebody else.
struct CodecSpan {
  const CodecInfo* const* first = nullptr;
  std::size_t count = 0;

  constexpr const CodecInfo* operator[](std::size_t i) const { return first[i]; }
  constexpr bool contains(const CodecInfo* codec) const {
    for (std::size_t i = 0; i < count; ++i)
      if (first[i] == codec) return true;
    return false;
  }
  /// Whether a reader with this list tolerates `codec`, which another reader lists.
  constexpr bool tolerates(const CodecInfo& codec) const {
    return contains(&codec) || (codec.tolerated_as != nullptr && contains(codec.tolerated_as));
  }
};

namespace detail {

template <class List>
struct CodecTable {
  static constexpr bool is_list = false;
  static constexpr CodecSpan span() { return {}; }
};

template <class... Codecs>
struct CodecTable<CodecList<Codecs...>> {
  static constexpr bool is_list = true;
  static constexpr const CodecInfo* infos[] = {&codec_info<Codecs>..., nullptr};
  static constexpr CodecSpan span() { return {infos, sizeof...(Codecs)}; }
};

}  // namespace detail

/// The codecs of a CodecList.
template <class List>
constexpr CodecSpan codecs_of() {
  return detail::CodecTable<List>::span();
}

}}  // namespace adacc::v0_1
