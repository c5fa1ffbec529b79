// SPDX-License-Identifier: MIT
/// Keep the activation encoded by `Codec`; decode it before the first reader in backward.
///
/// Forward is exact: the activation is encoded after the last reader there. `Compress<Tolerated>` leaves the choice
/// of the codec to the layers that read the activation in backward.
#pragma once

#include "policy.hpp"

namespace adacc { inline namespace v0_1 {

/// In place of a codec: the first candidate of the activation (Graph::candidates). Without candidates the activation
/// is retained.
struct Tolerated {};

template <class Codec>
struct Compress {
  static_assert(CodecInfoFor<Codec>::complete,
                "adacc: Compress<Codec> takes a codec: a type with a static name and a static "
                "constexpr encoded_bytes(rows, cols, dtype)");
  using codec = Codec;
  static constexpr Policy value = compress(&codec_info<Codec>);
};

namespace detail {

/// Stands for a codec in the types of a model until the graph knows the readers.
inline constexpr CodecInfo tolerated_codec{"tolerated", nullptr, false, false};

}  // namespace detail

template <>
struct Compress<Tolerated> {
  static constexpr Policy value = compress(&detail::tolerated_codec);
};

}}  // namespace adacc::v0_1
