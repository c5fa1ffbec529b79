// SPDX-License-Identifier: MIT
/// Values of the metadata in a GGUF file, read where they lie.
///
/// A reader with bounds takes them apart; a value is a kind, a count and bytes that have been looked through,
/// so that an array of millions costs nothing until somebody asks for its elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "../../core/number_text.hpp"
#include "../../core/view.hpp"
#include "stored_type.hpp"

namespace adacc { inline namespace v0_1 {

/// Numbers as in files.
enum class GgufKind : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
  kinds
};

namespace detail {

/// Bytes from front to back; nothing is taken behind their end.
class GgufCursor {
 public:
  explicit GgufCursor(ConstBytes bytes) : bytes_(bytes) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }

  template <class T>
  bool take(T& value) {
    if (left() < sizeof value) return false;
    value = load_unaligned<T>(bytes_.data() + at_);
    at_ += sizeof value;
    return true;
  }
  /// A length of eight bytes, and so many characters.
  bool take(std::string_view& text) {
    std::uint64_t length = 0;
    if (!take(length) || length > left()) return false;
    const void* const from = bytes_.data() + at_;
    text = {static_cast<const char*>(from), static_cast<std::size_t>(length)};
    return skip(text.size());
  }
  bool skip(std::size_t bytes) {
    if (bytes > left()) return false;
    at_ += bytes;
    return true;
  }

 private:
  ConstBytes bytes_;
  std::size_t at_ = 0;
};

}  // namespace detail

struct GgufValue {
  GgufKind kind = GgufKind::u8;  ///< of the value, or of an array's elements
  bool array = false;
  std::size_t count = 1;  ///< of an array's elements
  ConstBytes bytes;

  /// Bytes of one value; 0 for strings, whose size is their own.
  static constexpr std::size_t size_of(GgufKind kind) {
    constexpr std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return sizes[static_cast<std::size_t>(kind)];
  }

  /// Calls visit(text) for each element of an array of strings, or the one string, until one returns false.
  /// True if all were visited.
  template <class Visit>
  bool each_string(const Visit& visit) const {
    if (kind != GgufKind::string) return false;
    detail::GgufCursor cursor(bytes);
    std::string_view text;
    for (std::size_t i = 0; i < count; ++i)
      if (!cursor.take(text) || !visit(text)) return false;
    return true;
  }

  /// Calls visit(number), a double, for each element or the one value, as each_string() does. Truth is 1.
  template <class Visit>
  bool each_number(const Visit& visit) const {
    const std::size_t size = size_of(kind);
    if (size == 0) return false;
    for (std::size_t i = 0; i < count; ++i)
      if (!with_number(bytes.data() + i * size,
                       [&](auto value) { return visit(static_cast<double>(value)); }))
        return false;
    return true;
  }

  /// False if it is no whole number, or below 0.
  bool whole_number(std::uint64_t& value) const {
    return !array && with_number(bytes.data(), [&](auto found) {
      if constexpr (std::is_integral_v<decltype(found)>) {
        if (std::cmp_less(found, 0)) return false;
        value =
            static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<decltype(found)>>(found));
        return true;
      }
      return false;
    });
  }
  /// False if it is no string.
  bool text(std::string_view& value) const {
    return !array && each_string([&](std::string_view found) { return value = found, true; });
  }
  /// False if it is not true, or no boolean at all.
  bool is_true() const {
    return !array && kind == GgufKind::boolean && static_cast<int>(bytes[0]) != 0;
  }

  /// The value as JSON writes it, arrays as "[N values]", strings without escapes.
  std::string json() const {
    std::string_view found;
    if (array) return "[" + std::to_string(count) + " values]";
    if (text(found)) return '"' + std::string(found) + '"';
    if (kind == GgufKind::boolean) return is_true() ? "true" : "false";
    std::string written;
    with_number(bytes.data(), [&](auto value) {
      if constexpr (std::is_integral_v<decltype(value)>) written = std::to_string(value);
      else written = NumberText::shortest(value).c_str();
      return true;
    });
    return written;
  }

 private:
  template <class Visit>
  bool with_number(const std::byte* from, const Visit& visit) const {
    using detail::load_unaligned;
    switch (kind) {
      case GgufKind::u8:
      case GgufKind::boolean: return visit(load_unaligned<std::uint8_t>(from));
      case GgufKind::i8: return visit(load_unaligned<std::int8_t>(from));
      case GgufKind::u16: return visit(load_unaligned<std::uint16_t>(from));
      case GgufKind::i16: return visit(load_unaligned<std::int16_t>(from));
      case GgufKind::u32: return visit(load_unaligned<std::uint32_t>(from));
      case GgufKind::i32: return visit(load_unaligned<std::int32_t>(from));
      case GgufKind::f32: return visit(load_unaligned<float>(from));
      case GgufKind::u64: return visit(load_unaligned<std::uint64_t>(from));
      case GgufKind::i64: return visit(load_unaligned<std::int64_t>(from));
      case GgufKind::f64: return visit(load_unaligned<double>(from));
      default: return false;
    }
  }
};

}}  // namespace adacc::v0_1
