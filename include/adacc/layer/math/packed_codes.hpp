// SPDX-License-Identifier: MIT
/// Small codes in a layer's aux: a bit for a mask, a few for the place of a maximum.
///
/// PackedIndex and BitMask do this for activations; here are no headers of blobs, since only the layer that writes the
/// codes reads them. 1, 2, 4, 8 or 16 bits, so that no code straddles two bytes (or pairs of them), and code e lies at
/// bit e * bits, the lowest first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/bytes.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The fewest of 1, 2, 4, 8 and 16 bits that tell `values` values apart; 32 if there are more.
constexpr std::size_t code_bits(std::size_t values) {
  std::size_t bits = 1;
  while (bits < 32 && values > (std::size_t{1} << bits)) bits *= 2;
  return bits;
}

constexpr std::size_t code_bytes(std::size_t count, std::size_t bits) {
  return div_up(count * bits, 8);
}

/// Writes codes `first` to `first + count` of `to`, whose bytes are zeros where they begin.
inline void write_codes(const std::uint32_t* codes, std::size_t first, std::size_t count,
                        std::size_t bits, std::byte* to) {
  if (bits == 16) {
    for (std::size_t i = 0; i < count; ++i) {
      to[2 * (first + i)] = static_cast<std::byte>(codes[i] & 0xFF);
      to[2 * (first + i) + 1] = static_cast<std::byte>(codes[i] >> 8);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (first + i) * bits;
    to[at / 8] |= static_cast<std::byte>(codes[i] << at % 8);
  }
}

/// Code number `e` of `from`.
inline std::uint32_t read_code(const std::byte* from, std::size_t e, std::size_t bits) {
  const std::size_t at = e * bits;
  const auto low = static_cast<std::uint32_t>(from[at / 8]);
  if (bits == 16) return low | static_cast<std::uint32_t>(from[at / 8 + 1]) << 8;
  return low >> at % 8 & ((1U << bits) - 1);
}

}}}  // namespace adacc::v0_1::detail
