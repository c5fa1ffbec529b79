// SPDX-License-Identifier: MIT
/// Encodes numbers as the elements of tensors in GGUF files, as ggml's reference does: the scale of a block is that of
/// its largest number, and every number goes to the nearest code.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../../core/bfloat16.hpp"
#include "gguf_type.hpp"
#include "stored_type.hpp"

namespace adacc { inline namespace v0_1 {

/// Whether elements of this type can be written.
constexpr bool is_written(GgufType type) {
  switch (type) {
    case GgufType::f32:
    case GgufType::f16:
    case GgufType::bf16:
    case GgufType::q8_0:
    case GgufType::q4_0:
    case GgufType::q4_1: return true;
    default: return false;
  }
}

namespace detail {

/// The nearest number of fp16, ties to even; infinity for numbers beyond the largest.
inline std::uint16_t half_bits(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  constexpr std::uint32_t infinity = 0x7C00;
  if (magnitude > 0x7F800000) return static_cast<std::uint16_t>(sign | infinity | 0x200);
  std::uint32_t code = 0;
  if (magnitude >= 0x38800000) {  // 2^-14: normal
    const std::uint32_t rebased = magnitude - (112U << 23);
    code = (rebased + 0xFFF + (rebased >> 13 & 1)) >> 13;
    if (code > infinity || magnitude >= 0x47800000) code = infinity;
  } else {  // multiples of 2^-24; the sum rounds
    constexpr float shift = 0.5F;
    const float sum = std::fabs(x) + shift;
    std::uint32_t rounded = 0, base = 0;
    std::memcpy(&rounded, &sum, sizeof rounded);
    std::memcpy(&base, &shift, sizeof base);
    code = rounded - base;
  }
  return static_cast<std::uint16_t>(sign | code);
}

inline void put_half(std::byte* to, float x) {
  const std::uint16_t bits = half_bits(x);
  std::memcpy(to, &bits, sizeof bits);
}
/// 32 codes of 4 bits, the first half in the lower bits.
template <class Code>
void put_codes(std::byte* to, const float* from, const Code& code) {
  for (std::size_t i = 0; i < 16; ++i)
    to[i] = static_cast<std::byte>(code(from[i]) | code(from[i + 16]) << 4);
}
/// x cut to whole numbers from 0 to 15.
inline unsigned code_4_bits(double x) {
  return x < 0 ? 0 : x >= 15 ? 15 : static_cast<unsigned>(x);
}

inline void encode_q8_0(const float* from, std::byte* to) {
  float most = 0;
  for (std::size_t i = 0; i < 32; ++i) most = std::fmax(most, std::fabs(from[i]));
  const float scale = most / 127, inverse = scale != 0 ? 1 / scale : 0;
  put_half(to, scale);
  for (std::size_t i = 0; i < 32; ++i)
    to[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(from[i] * inverse)));
}
inline void encode_q4_0(const float* from, std::byte* to) {
  float most = 0;
  for (std::size_t i = 0; i < 32; ++i)
    if (std::fabs(from[i]) > std::fabs(most)) most = from[i];
  const float scale = most / -8, inverse = scale != 0 ? 1 / scale : 0;
  put_half(to, scale);
  put_codes(to + 2, from, [&](float x) {
    return code_4_bits(static_cast<double>(x) * static_cast<double>(inverse) + 8.5);
  });
}
inline void encode_q4_1(const float* from, std::byte* to) {
  float least = from[0], most = from[0];
  for (std::size_t i = 1; i < 32; ++i) {
    least = std::fmin(least, from[i]);
    most = std::fmax(most, from[i]);
  }
  const float scale = (most - least) / 15, inverse = scale != 0 ? 1 / scale : 0;
  put_half(to, scale);
  put_half(to + 2, least);
  put_codes(to + 4, from, [&](float x) {
    return code_4_bits(static_cast<double>((x - least) * inverse + 0.5F));
  });
}

}  // namespace detail

/// Encodes `count` numbers, whole blocks, of a type that is_written().
inline void encode_blocks(GgufType type, const float* from, std::size_t count, std::byte* to) {
  const detail::GgufTypeFacts& facts = detail::facts_of(type);
  const auto each = [&](const auto& encode) {
    for (std::size_t i = 0; i < count; i += facts.block_elems, to += facts.block_bytes)
      encode(from + i, to);
  };
  switch (type) {
    case GgufType::f16:
      return each([](const float* x, std::byte* at) { detail::put_half(at, *x); });
    case GgufType::bf16:
      return each([](const float* x, std::byte* at) {
        const std::uint16_t bits = to_bfloat16(*x).bits;
        std::memcpy(at, &bits, sizeof bits);
      });
    case GgufType::q8_0: return each(detail::encode_q8_0);
    case GgufType::q4_0: return each(detail::encode_q4_0);
    case GgufType::q4_1: return each(detail::encode_q4_1);
    default: std::memcpy(to, from, count * sizeof(float));
  }
}

}}  // namespace adacc::v0_1
