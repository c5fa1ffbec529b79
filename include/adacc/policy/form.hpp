// SPDX-License-Identifier: MIT
/// How a kept activation waits from its last reader in forward to its first in backward: in which
/// place, and as it is or encoded by a codec.
///
/// A new form is a field here, with what names, numbers and lists forms below; an entry in forms_of()
/// (plan/choices.hpp) if planners are to choose it; and its instructions: where they are placed
/// (program/scheduler.hpp, program/passes/transfers.hpp) and where they are performed (step/step.hpp). Files of
/// plans and ranks that compare theirs go by what is here.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "../codec/codec.hpp"

namespace adacc { inline namespace v0_1 {

enum class Place : std::uint8_t {
  arena,
  store,  ///< outside, in a store that the caller lends (store/store.hpp), as far as room demands it
};

struct Form {
  const CodecInfo* codec = nullptr;  ///< null: as it is
  Place place = Place::arena;

  /// Whether instructions encode it and decode it.
  constexpr bool encoded() const { return codec != nullptr; }
  /// Whether it may leave the arena.
  constexpr bool travels() const { return place == Place::store; }
  /// Whether it comes back with the bits that forward computed.
  constexpr bool lossless() const { return codec == nullptr || codec->lossless; }
  /// Whether it comes back with values: some codecs keep no more than certain readers need.
  constexpr bool keeps_values() const { return codec == nullptr || codec->keeps_values; }

  /// Bytes that an activation of `shape` takes in this form; 0 if the codec cannot encode it.
  constexpr std::size_t bytes(Shape shape, Dtype scalar) const {
    return codec == nullptr ? shape.elems() * bytes_of(scalar)
                            : codec->encoded_bytes(shape.rows(), shape.cols(), scalar);
  }
  /// "retain", "offload", the codec's name, or that behind "offload_".
  constexpr const char* name() const {
    if (codec == nullptr) return travels() ? "offload" : "retain";
    return travels() ? codec->offloaded_name : codec->name;
  }

  /// Another one for each form, the same in every process.
  constexpr std::uint64_t number() const {
    return std::uint64_t{codec == nullptr ? 0 : codec->id} << 1 | (travels() ? 1U : 0U);
  }

  friend constexpr bool operator==(const Form&, const Form&) = default;
};

/// visit(form) for all forms with `codec`, or, if that is null, as it is.
template <class Visit>
constexpr void each_form(const CodecInfo* codec, const Visit& visit) {
  for (const Place place : {Place::arena, Place::store}) visit(Form{codec, place});
}

}}  // namespace adacc::v0_1
