/// How a kept activation waits from its last reader in forward to its first in backward.
///
/// As it is, or encoded by a codec. A new form is a field here, an entry in forms_of()
/// (plan/options.hpp) where planners are to choose it, its two instructions in the scheduler
/// (put_away() and bring_back() in program/schedule.hpp) and their execution in the step.
#pragma once

#include "../codec/codec.hpp"

namespace adacc { inline namespace v0_1 {

struct Form {
  const CodecInfo* codec = nullptr;  ///< null: as it is

  /// Whether instructions put it into this form and bring it back.
  constexpr bool moves() const { return codec != nullptr; }
  /// Whether it comes back with the bits that forward computed.
  constexpr bool lossless() const { return codec == nullptr || codec->lossless; }
  /// Whether it comes back with values: some codecs keep no more than certain readers need.
  constexpr bool keeps_values() const { return codec == nullptr || codec->keeps_values; }

  /// Bytes that an activation of `shape` takes in this form; 0 where the codec cannot encode it.
  constexpr std::size_t bytes(Shape shape, Dtype scalar) const {
    return codec == nullptr ? shape.elems() * bytes_of(scalar)
                            : codec->encoded_bytes(shape.rows(), shape.cols(), scalar);
  }
  /// "retain", or the codec's name.
  constexpr const char* name() const { return codec == nullptr ? "retain" : codec->name; }

  friend constexpr bool operator==(const Form&, const Form&) = default;
};

}}  // namespace adacc::v0_1
