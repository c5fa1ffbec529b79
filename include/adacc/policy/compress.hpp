/// Keep the activation encoded by `Codec`; decode it before its first reader in backward.
///
/// Forward is exact: the activation is encoded after its last reader there. `Compress<Tolerated>`
/// leaves the choice of the codec to the layers that read the activation in backward.
#pragma once

#include "policy.hpp"

namespace adacc { inline namespace v0_1 {

/// In place of a codec: the first candidate of the activation (Graph::candidates); where it has
/// none, the activation is retained.
struct Tolerated {};

template <class Codec>
struct Compress {
  static_assert(CodecInfoFor<Codec>::complete,
                "adacc: Compress<Codec> takes a codec: a type with a static name and a static "
                "constexpr encoded_bytes(rows, cols, dtype)");
  using codec = Codec;
  static constexpr Policy value{PolicyKind::compress, &codec_info<Codec>};
};

template <>
struct Compress<Tolerated> {
  /// The codec is filled in once the graph knows the readers.
  static constexpr Policy value{PolicyKind::compress, nullptr};
};

}}  // namespace adacc::v0_1
