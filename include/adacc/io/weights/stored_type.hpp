// SPDX-License-Identifier: MIT
/// The element types of tensors in files, and the values of their elements as floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "../../core/bfloat16.hpp"
#include "../../core/little_endian.hpp"
#include "../../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// All types of the format. Two elements of f4 take a byte, four of f6 take three bytes.
enum class StoredType : std::uint8_t {
  f4,
  f6_e2m3,
  f6_e3m2,
  boolean,
  u8,
  i8,
  f8_e8m0,
  f8_e5m2,
  f8_e5m2fnuz,
  f8_e4m3,
  f8_e4m3fnuz,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64,
  c64
};

namespace detail {

struct StoredTypeFacts {
  StoredType type;
  const char* name;  ///< in safetensors files
  std::size_t bits;
};

inline constexpr StoredTypeFacts stored_types[] = {
    {StoredType::f4, "F4", 4},
    {StoredType::f6_e2m3, "F6_E2M3", 6},
    {StoredType::f6_e3m2, "F6_E3M2", 6},
    {StoredType::boolean, "BOOL", 8},
    {StoredType::u8, "U8", 8},
    {StoredType::i8, "I8", 8},
    {StoredType::f8_e8m0, "F8_E8M0", 8},
    {StoredType::f8_e5m2, "F8_E5M2", 8},
    {StoredType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {StoredType::f8_e4m3, "F8_E4M3", 8},
    {StoredType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {StoredType::u16, "U16", 16},
    {StoredType::i16, "I16", 16},
    {StoredType::f16, "F16", 16},
    {StoredType::bf16, "BF16", 16},
    {StoredType::u32, "U32", 32},
    {StoredType::i32, "I32", 32},
    {StoredType::f32, "F32", 32},
    {StoredType::u64, "U64", 64},
    {StoredType::i64, "I64", 64},
    {StoredType::f64, "F64", 64},
    {StoredType::c64, "C64", 64},
};

template <class T>
T load_unaligned(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The code of element i among packed codes of `bits` bits: 16, 4, 6 or 8. Codes of less than 16 bits begin in the
/// lowest bits of the first byte, as in PyTorch and ONNX; the format leaves the order open.
template <std::size_t bits>
std::uint32_t code_at(const std::byte* from, std::size_t i) {
  if constexpr (bits == 16) return load_unaligned<std::uint16_t>(from + 2 * i);
  const std::size_t first = i * bits, low = first % 8;
  auto word = static_cast<std::uint32_t>(from[first / 8]);
  if (low + bits > 8) word |= static_cast<std::uint32_t>(from[first / 8 + 1]) << 8;
  return word >> low & ((1U << bits) - 1);
}

/// The codes of a small float without a number.
enum class Specials : std::uint8_t {
  ieee,     ///< the largest exponent: infinities and NaNs
  one_nan,  ///< all bits set, with either sign: NaN (E4M3 of the OCP formats)
  fnuz,     ///< minus zero is the NaN; exponents are one lower
  none
};

/// A float with a sign, `exponent_bits` and `fraction_bits`, subnormals included (IEEE 754; OCP
/// Microscaling Formats 1.0; FNUZ: arXiv 2206.02915). Exact.
template <int exponent_bits, int fraction_bits, Specials specials>
constexpr float small_float(std::uint32_t code) {
  constexpr std::uint32_t fractions = 1U << fraction_bits, exponents = 1U << exponent_bits;
  constexpr std::uint32_t bias = exponents / 2 - (specials == Specials::fnuz ? 0 : 1);
  const std::uint32_t sign = code >> (exponent_bits + fraction_bits) << 31;
  const std::uint32_t exponent = (code >> fraction_bits) & (exponents - 1);
  const std::uint32_t fraction = code & (fractions - 1);
  constexpr int shift = 23 - fraction_bits;
  constexpr std::uint32_t nan = 0x7FC00000;
  if (specials == Specials::ieee && exponent == exponents - 1)
    return bits_as<float>(sign | 0x7F800000U | fraction << shift);
  if (specials == Specials::one_nan && exponent == exponents - 1 && fraction == fractions - 1)
    return bits_as<float>(sign | nan);
  if (specials == Specials::fnuz && sign != 0 && exponent == 0 && fraction == 0)
    return bits_as<float>(nan);
  if (exponent == 0) {  // fraction * 2^(1 - bias - fraction_bits)
    const float unit = bits_as<float>((127 + 1 - bias - fraction_bits) << 23);
    const float value = static_cast<float>(fraction) * unit;
    return sign != 0 ? -value : value;
  }
  return bits_as<float>(sign | (exponent + 127 - bias) << 23 | fraction << shift);
}

/// small_float<5, 10, Specials::ieee>() without branches, for loops over many.
constexpr float wide_half(std::uint32_t code) {
  constexpr std::uint32_t rebias = (127 - 15) << 23;
  const std::uint32_t magnitude = code & 0x7FFF;
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
  const std::uint32_t special = magnitude >= 0x7C00 ? rebias : 0;
  const std::uint32_t bits =
      magnitude < 0x400 ? bits_as<std::uint32_t>(subnormal) : (magnitude << 13) + rebias + special;
  return bits_as<float>(bits | (code & 0x8000) << 16);
}

/// A scale of the OCP Microscaling Formats: 2^(code - 127), or a NaN.
constexpr float power_of_two(std::uint32_t code) {
  if (code == 255) return bits_as<float>(0x7FC00000);
  return bits_as<float>(code == 0 ? 1U << 22 : code << 23);
}

constexpr float truth(std::uint32_t code) { return code != 0 ? 1.0F : 0.0F; }
constexpr float wide_bfloat16(std::uint32_t code) {
  return to_float(bfloat16{static_cast<std::uint16_t>(code)});
}

// Readers of element i of an array at any address, as a double or float.

template <class T>
struct ReadNumber {
  T operator()(const std::byte* from, std::size_t i) const {
    return load_unaligned<T>(from + i * sizeof(T));
  }
};
template <int exponent_bits, int fraction_bits, Specials specials>
struct ReadSmallFloat {
  float operator()(const std::byte* from, std::size_t i) const {
    return small_float<exponent_bits, fraction_bits, specials>(
        code_at<1 + exponent_bits + fraction_bits>(from, i));
  }
};
template <float (*number_of)(std::uint32_t), std::size_t bits>
struct ReadCode {
  float operator()(const std::byte* from, std::size_t i) const {
    return number_of(code_at<bits>(from, i));
  }
};

/// Calls visit(read) with a reader for elements of this type. False, without a call, if elements are no single
/// numbers (C64).
template <class Visit>
bool with_reader(StoredType type, const Visit& visit) {
  using enum Specials;
  const auto by = [&](const auto& read) { return visit(read), true; };
  switch (type) {
    case StoredType::f4: return by(ReadSmallFloat<2, 1, none>{});
    case StoredType::f6_e2m3: return by(ReadSmallFloat<2, 3, none>{});
    case StoredType::f6_e3m2: return by(ReadSmallFloat<3, 2, none>{});
    case StoredType::boolean: return by(ReadCode<truth, 8>{});
    case StoredType::u8: return by(ReadNumber<std::uint8_t>{});
    case StoredType::i8: return by(ReadNumber<std::int8_t>{});
    case StoredType::f8_e8m0: return by(ReadCode<power_of_two, 8>{});
    case StoredType::f8_e5m2: return by(ReadSmallFloat<5, 2, ieee>{});
    case StoredType::f8_e5m2fnuz: return by(ReadSmallFloat<5, 2, fnuz>{});
    case StoredType::f8_e4m3: return by(ReadSmallFloat<4, 3, one_nan>{});
    case StoredType::f8_e4m3fnuz: return by(ReadSmallFloat<4, 3, fnuz>{});
    case StoredType::u16: return by(ReadNumber<std::uint16_t>{});
    case StoredType::i16: return by(ReadNumber<std::int16_t>{});
    case StoredType::f16: return by(ReadSmallFloat<5, 10, ieee>{});
    case StoredType::bf16: return by(ReadCode<wide_bfloat16, 16>{});
    case StoredType::u32: return by(ReadNumber<std::uint32_t>{});
    case StoredType::i32: return by(ReadNumber<std::int32_t>{});
    case StoredType::f32: return by(ReadNumber<float>{});
    case StoredType::u64: return by(ReadNumber<std::uint64_t>{});
    case StoredType::i64: return by(ReadNumber<std::int64_t>{});
    case StoredType::f64: return by(ReadNumber<double>{});
    case StoredType::c64: break;
  }
  return false;
}

}  // namespace detail

/// Bits of an element.
constexpr std::size_t bits_of(StoredType type) {
  return detail::stored_types[static_cast<std::size_t>(type)].bits;
}

/// Whether elements have a value as a float: all but complex numbers.
constexpr bool is_number(StoredType type) { return type != StoredType::c64; }

/// The name in safetensors files: "F32".
constexpr const char* name_of(StoredType type) {
  return detail::stored_types[static_cast<std::size_t>(type)].name;
}

/// False if there is no type of this name.
constexpr bool stored_type_of(std::string_view name, StoredType& type) {
  for (const detail::StoredTypeFacts& facts : detail::stored_types)
    if (name == facts.name) return type = facts.type, true;
  return false;
}

}}  // namespace adacc::v0_1
