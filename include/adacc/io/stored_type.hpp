// SPDX-License-Identifier: MIT
/// The element types that files of tensors have, and what their elements are as float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "../core/bfloat16.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

enum class StoredType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64
};

namespace detail {

struct StoredTypeFacts {
  StoredType type;
  const char* name;  ///< in safetensors files
  std::size_t bytes;
};

inline constexpr StoredTypeFacts stored_types[] = {
    {StoredType::boolean, "BOOL", 1},    {StoredType::u8, "U8", 1},
    {StoredType::i8, "I8", 1},           {StoredType::f8_e5m2, "F8_E5M2", 1},
    {StoredType::f8_e4m3, "F8_E4M3", 1}, {StoredType::u16, "U16", 2},
    {StoredType::i16, "I16", 2},         {StoredType::f16, "F16", 2},
    {StoredType::bf16, "BF16", 2},       {StoredType::u32, "U32", 4},
    {StoredType::i32, "I32", 4},         {StoredType::f32, "F32", 4},
    {StoredType::u64, "U64", 8},         {StoredType::i64, "I64", 8},
    {StoredType::f64, "F64", 8},
};

template <class T>
T load_unaligned(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// A float with a sign, `exponent_bits` and `fraction_bits`, subnormals included (IEEE 754). Exact. If
/// its largest exponent is not for infinities and NaNs, only the code with all other bits set is a
/// NaN (E4M3 of the OCP formats).
template <int exponent_bits, int fraction_bits, bool has_infinity>
constexpr float small_float(std::uint32_t code) {
  constexpr std::uint32_t fractions = 1U << fraction_bits, exponents = 1U << exponent_bits;
  constexpr std::uint32_t bias = exponents / 2 - 1;
  const std::uint32_t sign = code >> (exponent_bits + fraction_bits) << 31;
  const std::uint32_t exponent = (code >> fraction_bits) & (exponents - 1);
  const std::uint32_t fraction = code & (fractions - 1);
  constexpr int shift = 23 - fraction_bits;
  if (has_infinity && exponent == exponents - 1)
    return bits_as<float>(sign | 0x7F800000U | fraction << shift);
  if (!has_infinity && exponent == exponents - 1 && fraction == fractions - 1)
    return bits_as<float>(sign | 0x7FC00000U);
  if (exponent == 0) {  // fraction * 2^(1 - bias - fraction_bits)
    const float unit = bits_as<float>((127 + 1 - bias - fraction_bits) << 23);
    const float value = static_cast<float>(fraction) * unit;
    return sign != 0 ? -value : value;
  }
  return bits_as<float>(sign | (exponent + 127 - bias) << 23 | fraction << shift);
}

/// Calls visit(read) with a function that reads one element, at any address, as a double or float.
template <class Visit>
void with_reader(StoredType type, const Visit& visit) {
  const auto number = [&]<class T>(T) {
    visit([](const std::byte* from) { return load_unaligned<T>(from); });
  };
  switch (type) {
    case StoredType::boolean:
      return visit([](const std::byte* from) { return *from != std::byte{0} ? 1.0F : 0.0F; });
    case StoredType::u8: return number(std::uint8_t{});
    case StoredType::i8: return number(std::int8_t{});
    case StoredType::u16: return number(std::uint16_t{});
    case StoredType::i16: return number(std::int16_t{});
    case StoredType::u32: return number(std::uint32_t{});
    case StoredType::i32: return number(std::int32_t{});
    case StoredType::u64: return number(std::uint64_t{});
    case StoredType::i64: return number(std::int64_t{});
    case StoredType::f32: return number(float{});
    case StoredType::f64: return number(double{});
    case StoredType::f16:
      return visit([](const std::byte* from) {
        return small_float<5, 10, true>(load_unaligned<std::uint16_t>(from));
      });
    case StoredType::bf16:
      return visit([](const std::byte* from) {
        return to_float(bfloat16{load_unaligned<std::uint16_t>(from)});
      });
    case StoredType::f8_e5m2:
      return visit([](const std::byte* from) {
        return small_float<5, 2, true>(static_cast<std::uint8_t>(*from));
      });
    case StoredType::f8_e4m3:
      return visit([](const std::byte* from) {
        return small_float<4, 3, false>(static_cast<std::uint8_t>(*from));
      });
  }
}

/// As T: float, double, or bfloat16 by way of float.
template <class T, class Number>
T converted(Number value) {
  if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(static_cast<float>(value));
  else return static_cast<T>(value);
}

}  // namespace detail

constexpr std::size_t bytes_of(StoredType type) {
  return detail::stored_types[static_cast<std::size_t>(type)].bytes;
}

/// As safetensors files write it: "F32".
constexpr const char* name_of(StoredType type) {
  return detail::stored_types[static_cast<std::size_t>(type)].name;
}

/// False if there is none of that name.
constexpr bool stored_type_of(std::string_view name, StoredType& type) {
  for (const detail::StoredTypeFacts& facts : detail::stored_types)
    if (name == facts.name) return type = facts.type, true;
  return false;
}

}}  // namespace adacc::v0_1
