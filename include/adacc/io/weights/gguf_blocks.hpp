// SPDX-License-Identifier: MIT
/// Decodes the blocks of quantized numbers in GGUF files, exactly: each element of a block is the float that
/// llama.cpp has for it.
///
/// A block of 32 has a scale in fp16, perhaps a minimum, and whole numbers of 4, 5 or 8 bits. Blocks of 256
/// (K) are parts of 16 or 32 elements, whose scales and minima are whole numbers of 6 or 8 bits, times a
/// scale for all. Products of scales and whole numbers have at most 24 significant bits, so only the sum
/// with a minimum is rounded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/view.hpp"
#include "gguf_type.hpp"
#include "stored_type.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A minimum that changes no number: 0 would change the sign of a zero.
inline constexpr float no_minimum = -0.0F;

inline float half_at(const std::byte* from) {
  return small_float<5, 10, Specials::ieee>(load_unaligned<std::uint16_t>(from));
}
constexpr std::uint32_t unsigned_at(const std::byte* from, std::size_t i) {
  return static_cast<std::uint32_t>(from[i]);
}
constexpr float as_float(std::uint32_t code) {
  return static_cast<float>(static_cast<std::int32_t>(code));
}
constexpr float signed_at(const std::byte* from, std::size_t i) {
  return static_cast<float>(static_cast<std::int8_t>(from[i]));
}

/// 16 bytes of 32 numbers of 4 bits, the first half in the lower bits, with a fifth bit from `high`. A
/// number n is (n - middle) scale + minimum.
inline void decode_32(const std::byte* from, std::uint32_t high, float scale, float middle,
                      float minimum, float* to) {
  for (std::size_t i = 0; i < 16; ++i) {
    const std::uint32_t both = unsigned_at(from, i);
    const std::uint32_t low = (both & 15) | (high >> i & 1) << 4;
    const std::uint32_t up = both >> 4 | (high >> (i + 16) & 1) << 4;
    to[i] = (as_float(low) - middle) * scale + minimum;
    to[i + 16] = (as_float(up) - middle) * scale + minimum;
  }
}

inline void decode_q4_0(const std::byte* from, float* to) {
  decode_32(from + 2, 0, half_at(from), 8, no_minimum, to);
}
inline void decode_q4_1(const std::byte* from, float* to) {
  decode_32(from + 4, 0, half_at(from), 0, half_at(from + 2), to);
}
inline void decode_q5_0(const std::byte* from, float* to) {
  decode_32(from + 6, load_unaligned<std::uint32_t>(from + 2), half_at(from), 16, no_minimum, to);
}
inline void decode_q5_1(const std::byte* from, float* to) {
  const auto high = load_unaligned<std::uint32_t>(from + 4);
  decode_32(from + 8, high, half_at(from), 0, half_at(from + 2), to);
}
inline void decode_q8_0(const std::byte* from, float* to) {
  const float scale = half_at(from);
  for (std::size_t i = 0; i < 32; ++i) to[i] = signed_at(from + 2, i) * scale;
}

/// Scale and minimum of one of the eight parts of a block of Q4_K or Q5_K, from 12 bytes with 6 bits of each.
struct PartScale {
  float scale, minimum;

  PartScale(const std::byte* from, std::size_t part) {
    const auto at = [&](std::size_t i) { return unsigned_at(from, i); };
    const bool first = part < 4;
    const std::size_t p = first ? part : part - 4;
    scale = as_float(first ? at(p) & 63 : (at(p + 8) & 15) | at(p) >> 6 << 4);
    minimum = as_float(first ? at(p + 4) & 63 : at(p + 8) >> 4 | at(p + 4) >> 6 << 4);
  }
};

/// Two scales in fp16, 12 bytes of the parts' scales, fifth bits if there are any, and 128 bytes of which
/// each 32 have two parts.
template <bool five_bits>
void decode_q4_or_q5_k(const std::byte* from, float* to) {
  const float scale = half_at(from), minimum = half_at(from + 2);
  const std::byte *const high = from + 16, *const low = from + (five_bits ? 48 : 16);
  for (std::size_t part = 0; part < 8; ++part) {
    const PartScale mine(from + 4, part);
    const float s = scale * mine.scale, m = minimum * mine.minimum;
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint32_t n = unsigned_at(low, part / 2 * 32 + i) >> part % 2 * 4 & 15;
      if (five_bits) n |= (unsigned_at(high, i) >> part & 1) << 4;
      to[32 * part + i] = s * as_float(n) - m;
    }
  }
}

/// 128 bytes of lower and 64 of upper bits, 16 scales, and a scale of all in fp16.
inline void decode_q6_k(const std::byte* from, float* to) {
  const std::byte *const high = from + 128, *const scales = from + 192;
  const float scale = half_at(from + 208);
  for (std::size_t part = 0; part < 8; ++part) {
    const std::size_t half = part / 4, quarter = part % 4;
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t low = unsigned_at(from, 64 * half + quarter % 2 * 32 + i);
      const std::uint32_t up = unsigned_at(high, 32 * half + i) >> 2 * quarter & 3;
      const float n = as_float((low >> quarter / 2 * 4 & 15) | up << 4) - 32;
      to[32 * part + i] = scale * signed_at(scales, 2 * part + i / 16) * n;
    }
  }
}

}  // namespace detail

/// Decodes the first to.size() elements of the blocks at `from`; there have to be whole blocks.
inline void decode_blocks(GgufType type, const std::byte* from, View<float> to) {
  const detail::GgufTypeFacts& facts = detail::facts_of(type);
  const auto each = [&](const auto& decode) {
    for (std::size_t i = 0; i < to.size(); i += facts.block_elems, from += facts.block_bytes)
      decode(from, to.data() + i);
  };
  switch (type) {
    case GgufType::q4_0: return each(detail::decode_q4_0);
    case GgufType::q4_1: return each(detail::decode_q4_1);
    case GgufType::q5_0: return each(detail::decode_q5_0);
    case GgufType::q5_1: return each(detail::decode_q5_1);
    case GgufType::q8_0: return each(detail::decode_q8_0);
    case GgufType::q4_k: return each(detail::decode_q4_or_q5_k<false>);
    case GgufType::q5_k: return each(detail::decode_q4_or_q5_k<true>);
    case GgufType::q6_k: return each(detail::decode_q6_k);
    case GgufType::f32:
      return each(
          [](const std::byte* at, float* out) { *out = detail::load_unaligned<float>(at); });
    case GgufType::f16:
      return each([](const std::byte* at, float* out) { *out = detail::half_at(at); });
    case GgufType::bf16:
      return each([](const std::byte* at, float* out) {
        *out = detail::wide_bfloat16(detail::load_unaligned<std::uint16_t>(at));
      });
  }
}

}}  // namespace adacc::v0_1
