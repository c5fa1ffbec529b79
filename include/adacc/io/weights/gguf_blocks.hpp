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
#include <cstring>
#include <iterator>
#include <utility>

#include "../../core/vector_target.hpp"
#include "../../core/view.hpp"
#include "gguf_type.hpp"
#include "stored_type.hpp"

#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // pragmas that the host's compiler understands
#endif

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A minimum that changes no number: 0 would change the sign of a zero.
inline constexpr float no_minimum = -0.0F;

/// wide_half(), quickly for numbers with a leading 1.
inline float half_at(const std::byte* from) {
  const auto code = load_unaligned<std::uint16_t>(from);
  if (((code + 0x400U) & 0x7800U) == 0) return wide_half(code);
  const auto extended = static_cast<std::uint32_t>(static_cast<std::int16_t>(code));
  return bits_as<float>((extended << 13 & 0x8FFFE000U) + ((127U - 15U) << 23));
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

ADACC_TARGET_CODE_BEGIN
/// to[i] = (codes[i] - middle) * scale + minimum.
template <class Target, std::size_t count>
[[gnu::always_inline]] inline void scale_codes(const std::uint8_t* codes, float middle, float scale,
                                               float minimum, float* to) {
  constexpr std::size_t lanes = Target::bytes / sizeof(float);
  static_assert(count % lanes == 0);
  using Codes = typename Simd<std::uint8_t, lanes>::type;
  using Wholes = typename Simd<std::int32_t, Target::bytes>::type;
  using Floats = typename Simd<float, Target::bytes>::type;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < count; i += lanes) {
    Codes bytes;
    std::memcpy(&bytes, codes + i, sizeof bytes);
    const Floats numbers = ADACC_CONVERT_LANES(ADACC_CONVERT_LANES(bytes, Wholes), Floats);
    const Floats scaled = (numbers - middle) * scale + minimum;
    std::memcpy(to + i, &scaled, sizeof scaled);
  }
}

/// Bits `shift` and above of 16 bytes, as far as `mask` has them.
[[gnu::always_inline]] inline void pick_bits(const std::byte* from, int shift, std::uint8_t mask,
                                             std::uint8_t* to) {
  Simd<std::uint8_t, 16>::type bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  bytes = bytes >> static_cast<std::uint8_t>(shift) & mask;
  std::memcpy(to, &bytes, sizeof bytes);
}

/// 32 signed bytes.
template <class Target>
void decode_bytes(const std::byte* from, float scale, float* to) {
  std::uint8_t codes[32];
  for (std::size_t i = 0; i < 32; i += 16) {
    Simd<std::uint8_t, 16>::type bytes;
    std::memcpy(&bytes, from + i, sizeof bytes);
    bytes ^= 128;  // numbers from 0 on
    std::memcpy(codes + i, &bytes, sizeof bytes);
  }
  scale_codes<Target, 32>(codes, 128, scale, no_minimum, to);
}

/// 16 bytes of 32 numbers of 4 bits, the first half in the lower bits, with a fifth bit from `high` where there are
/// five. A number n is (n - middle) scale + minimum.
template <class Target, bool five_bits = false>
void decode_32(const std::byte* from, std::uint32_t high, float scale, float middle, float minimum,
               float* to) {
  std::uint8_t codes[32];
  pick_bits(from, 0, 15, codes);
  pick_bits(from, 4, 15, codes + 16);
  if constexpr (five_bits)
    for (std::uint32_t i = 0; i < 32; ++i)
      codes[i] = static_cast<std::uint8_t>(codes[i] | (high >> i & 1) << 4);
  scale_codes<Target, 32>(codes, middle, scale, minimum, to);
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
template <class Target, bool five_bits>
void decode_q4_or_q5_k(const std::byte* from, float* to) {
  const float scale = half_at(from), minimum = half_at(from + 2);
  const std::byte *const high = from + 16, *const low = from + (five_bits ? 48 : 16);
  for (std::size_t part = 0; part < 8; ++part) {
    const PartScale own(from + 4, part);
    std::uint8_t codes[32];
    for (std::size_t i = 0; i < 32; i += 16) {
      pick_bits(low + part / 2 * 32 + i, part % 2 == 0 ? 0 : 4, 15, codes + i);
      if constexpr (five_bits) {
        std::uint8_t fifth[16];
        pick_bits(high + i, static_cast<int>(part), 1, fifth);
        for (std::size_t e = 0; e < 16; ++e)
          codes[i + e] = static_cast<std::uint8_t>(codes[i + e] | fifth[e] << 4);
      }
    }
    // The minimum is subtracted, and rounds as if its negative were added.
    scale_codes<Target, 32>(codes, 0, scale * own.scale, -(minimum * own.minimum), to + 32 * part);
  }
}

/// 128 bytes of lower and 64 of upper bits, 16 scales, and a scale of all in fp16.
template <class Target>
void decode_q6_k(const std::byte* from, float* to) {
  const std::byte *const high = from + 128, *const scales = from + 192;
  const float scale = half_at(from + 208);
  for (std::size_t part = 0; part < 16; ++part) {  // of 16 elements
    const std::size_t half = part / 8, quarter = part / 2 % 4, second = part % 2 * 16;
    std::uint8_t codes[16], upper[16];
    pick_bits(from + 64 * half + quarter % 2 * 32 + second, quarter / 2 == 0 ? 0 : 4, 15, codes);
    pick_bits(high + 32 * half + second, 2 * static_cast<int>(quarter), 3, upper);
    for (std::size_t e = 0; e < 16; ++e)
      codes[e] = static_cast<std::uint8_t>(codes[e] | upper[e] << 4);
    scale_codes<Target, 16>(codes, 32, scale * signed_at(scales, part), no_minimum, to + 16 * part);
  }
}

/// Decodes `blocks` blocks of a type.
template <GgufType type, class Target>
void decode_blocks_at(const std::byte* from, std::size_t blocks, float* __restrict to) {
  for (std::size_t b = 0; b < blocks; ++b) {
    if constexpr (type == GgufType::f32) {
      to[b] = load_unaligned<float>(from + 4 * b);
    } else if constexpr (type == GgufType::f16) {
      to[b] = wide_half(load_unaligned<std::uint16_t>(from + 2 * b));
    } else if constexpr (type == GgufType::bf16) {
      to[b] = wide_bfloat16(load_unaligned<std::uint16_t>(from + 2 * b));
    } else {
      constexpr GgufTypeFacts facts = facts_of(type);
      const std::byte* const at = from + b * facts.block_bytes;
      float* const out = to + b * facts.block_elems;
      if constexpr (type == GgufType::q4_0) {
        decode_32<Target>(at + 2, 0, half_at(at), 8, no_minimum, out);
      } else if constexpr (type == GgufType::q4_1) {
        decode_32<Target>(at + 4, 0, half_at(at), 0, half_at(at + 2), out);
      } else if constexpr (type == GgufType::q5_0) {
        const auto high = load_unaligned<std::uint32_t>(at + 2);
        decode_32<Target, true>(at + 6, high, half_at(at), 16, no_minimum, out);
      } else if constexpr (type == GgufType::q5_1) {
        const auto high = load_unaligned<std::uint32_t>(at + 4);
        decode_32<Target, true>(at + 8, high, half_at(at), 0, half_at(at + 2), out);
      } else if constexpr (type == GgufType::q8_0) {
        decode_bytes<Target>(at + 2, half_at(at), out);
      } else if constexpr (type == GgufType::q6_k) {
        decode_q6_k<Target>(at, out);
      } else {
        decode_q4_or_q5_k<Target, type == GgufType::q5_k>(at, out);
      }
    }
  }
}
ADACC_TARGET_CODE_END

/// The same with the instructions of the program's level.
template <GgufType type>
void decode_blocks(const std::byte* from, std::size_t blocks, float* to) {
  with_target(target_level(), [&]<class Target>(Target) {
    Target::template call<decode_blocks_at<type, Target>>(from, blocks, to);
  });
}

template <std::size_t... i>
auto* decoder_of(GgufType type, std::index_sequence<i...>) {
  using Decode = void (*)(const std::byte*, std::size_t, float*);
  static constexpr Decode decoders[] = {&decode_blocks<gguf_types[i].type>...};
  std::size_t at = 0;
  while (gguf_types[at].type != type) ++at;
  return decoders[at];
}

}  // namespace detail

/// Decodes the first to.size() elements of the blocks at `from`; there have to be whole blocks.
inline void decode_blocks(GgufType type, const std::byte* from, View<float> to) {
  constexpr auto types = std::make_index_sequence<std::size(detail::gguf_types)>();
  detail::decoder_of(type, types)(from, to.size() / detail::facts_of(type).block_elems, to.data());
}

}}  // namespace adacc::v0_1

#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
