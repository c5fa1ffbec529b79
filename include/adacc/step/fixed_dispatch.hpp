// SPDX-License-Identifier: MIT
/// A dispatch table in memory of a size known to the compiler: with a FixedProgram, set-up then allocates nothing.
#pragma once

#include <cstddef>

#include "dispatch.hpp"

namespace adacc { inline namespace v0_1 {

/// Memory for a dispatch table. If there are more than `codec_count` codecs (named by policies, or tolerated by
/// layers), the table takes memory of its own. Codecs for unlike rows are left out: a step that declines an encode
/// keeps the activation exactly, or by a codec that layers list.
template <class T, class Context, std::size_t layer_count, std::size_t codec_count = 8>
class FixedDispatch {
 public:
  constexpr FixedDispatch() = default;
  FixedDispatch(const FixedDispatch&) = delete;
  FixedDispatch& operator=(const FixedDispatch&) = delete;

  /// The dispatch table of `network`, which must outlive the table, in this memory: one at a time.
  template <class Network>
  Dispatch<T, Context> make(const Network& network) {
    Dispatch<T, Context> dispatch;
    dispatch.layers = Array<LayerDispatch<T, Context>>::over(layers_, 0, layer_count);
    dispatch.codecs = Array<CodecDispatch<T, Context>>::over(codecs_, 0, codec_count);
    return make_dispatch<T, Context, false>(network, static_cast<Dispatch<T, Context>&&>(dispatch));
  }

 private:
  LayerDispatch<T, Context> layers_[layer_count]{};
  CodecDispatch<T, Context> codecs_[codec_count]{};
};

}}  // namespace adacc::v0_1
