// SPDX-License-Identifier: MIT
/// How a kept activation is stored from the last reader in forward to the first reader in backward: in which place,
/// and encoded by which codec, if any.
///
/// A new form needs a field here, with the names, numbers and lists of forms below; an entry in forms_of()
/// (plan/choices.hpp) if planners may choose the form; and instructions, which are placed (program/scheduler.hpp,
/// program/passes/transfers.hpp) and performed (step/step.hpp). Files of plans, and ranks that compare plans, use the
/// names and numbers defined here.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "../codec/codec.hpp"

namespace adacc { inline namespace v0_1 {

enum class Place : std::uint8_t {
  arena,
  store,  ///< in a store lent by the caller (store/store.hpp), if the arena has no room
};

struct Form {
  const CodecInfo* codec = nullptr;  ///< null: not encoded
  Place place = Place::arena;

  /// Whether instructions encode and decode the activation.
  constexpr bool encoded() const { return codec != nullptr; }
  /// Whether the activation may leave the arena.
  constexpr bool travels() const { return place == Place::store; }
  /// Whether backward reads the very bits of forward.
  constexpr bool lossless() const { return codec == nullptr || codec->lossless; }
  /// Whether backward reads values: some codecs keep no more than certain readers need.
  constexpr bool keeps_values() const { return codec == nullptr || codec->keeps_values; }

  /// Bytes of an activation of `shape` in this form; 0 if the codec cannot encode the shape.
  constexpr std::size_t bytes(Shape shape, Dtype scalar) const {
    return codec == nullptr ? shape.elems() * bytes_of(scalar)
                            : codec->encoded_bytes(shape.rows(), shape.cols(), scalar);
  }
  /// "retain", "offload", the codec's name, or the codec's name behind "offload_".
  constexpr const char* name() const {
    if (codec == nullptr) return travels() ? "offload" : "retain";
    return travels() ? codec->offloaded_name : codec->name;
  }

  /// A distinct number for each form, equal in every process.
  constexpr std::uint64_t number() const {
    return std::uint64_t{codec == nullptr ? 0 : codec->id} << 1 | (travels() ? 1U : 0U);
  }

  friend constexpr bool operator==(const Form&, const Form&) = default;
};

/// Calls visit(form) for all forms with `codec`; with null, for all forms without a codec.
template <class Visit>
constexpr void each_form(const CodecInfo* codec, const Visit& visit) {
  for (const Place place : {Place::arena, Place::store}) visit(Form{codec, place});
}

}}  // namespace adacc::v0_1
