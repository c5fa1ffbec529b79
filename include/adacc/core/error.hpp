// SPDX-License-Identifier: MIT
/// Errors as values: a sentence that names the request and the possibilities.
///
/// Nothing here throws or prints. The text lives inside the value, so errors work without a heap and in constant
/// expressions. The compiler warns if an error is ignored; taking the value of a failed Result ends the program on
/// the spot.
#pragma once

#include <cstddef>

#include "bytes.hpp"
#include "config.hpp"
#include "shape.hpp"

namespace adacc { inline namespace v0_1 {

/// A byte count shown with a unit: "96.0 MiB (100663296 bytes)".
struct ShownBytes {
  std::size_t bytes;
};
constexpr ShownBytes shown(std::size_t bytes) { return {bytes}; }

/// An empty error means success.
class [[nodiscard]] Error {
 public:
  static constexpr std::size_t capacity = 320;

  constexpr Error() = default;

  /// Error::say("the budget is ", shown(n), ", but ", count, " …"): pieces are text, integers, shapes and byte
  /// counts. Text beyond `capacity` is cut.
  template <class... Pieces>
  static constexpr Error say(const Pieces&... pieces) {
    Error error;
    (error.append(pieces), ...);
    return error;
  }

  /// Like say(), for errors caused only by a mistake in the calling code, such as too small a span: a
  /// debug build asserts first (ADACC_ASSERT in config.hpp).
  template <class... Pieces>
  static constexpr Error misuse(const Pieces&... pieces) {
    const Error error = say(pieces...);
    if (!__builtin_is_constant_evaluated()) ADACC_ASSERT(false, error.text());
    return error;
  }

  /// True if there is an error.
  constexpr explicit operator bool() const { return size_ != 0; }
  constexpr const char* text() const { return text_; }

  // Out of line: sentences of many pieces would be much code for rare cases.
  [[gnu::noinline, gnu::cold]] constexpr void append(const char* text) {
    while (*text != '\0' && size_ + 1 < capacity) text_[size_++] = *text++;
  }

  [[gnu::noinline, gnu::cold]] constexpr void append(long long number) {
    if (number < 0) append("-");
    const auto bits = static_cast<unsigned long long>(number);
    append(number < 0 ? 0ULL - bits : bits);
  }
  constexpr void append(int number) { append(static_cast<long long>(number)); }
  constexpr void append(long number) { append(static_cast<long long>(number)); }
  constexpr void append(unsigned number) { append(static_cast<unsigned long long>(number)); }
  constexpr void append(unsigned long number) { append(static_cast<unsigned long long>(number)); }
  [[gnu::noinline, gnu::cold]] constexpr void append(unsigned long long number) {
    char digits[24] = {};
    std::size_t i = sizeof digits - 1;
    do digits[--i] = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    append(&digits[i]);
  }

  /// A piece with a member append_to(error).
  template <class Piece>
    requires requires(const Piece& piece, Error& error) { piece.append_to(error); }
  constexpr void append(const Piece& piece) { piece.append_to(*this); }

  [[gnu::noinline, gnu::cold]] constexpr void append(Shape shape) {
    append("(");
    for (int i = 0; i < shape.rank(); ++i) {
      if (i != 0) append(", ");
      append(shape[i]);
    }
    append(")");
  }

  [[gnu::noinline, gnu::cold]] constexpr void append(ShownBytes value) {
    const std::size_t units[] = {GiB, MiB, KiB};
    const char* names[] = {" GiB (", " MiB (", " KiB ("};
    for (int i = 0; i < 3; ++i) {
      if (value.bytes < units[i]) continue;
      append(value.bytes / units[i]);
      append(".");
      // Ten times the rest may need more than 32 bits.
      const std::size_t rest = value.bytes % units[i];
      append((rest / 32 * 10 + rest % 32 * 10 / 32) / (units[i] / 32));
      append(names[i]);
      append(value.bytes);
      append(" bytes)");
      return;
    }
    append(value.bytes);
    append(" bytes");
  }

 private:
  char text_[capacity] = {};
  std::size_t size_ = 0;
};

namespace detail {

/// There is no value to go on with: calls the hook and ends the program here, rather than later with a value that
/// nobody computed.
[[noreturn, gnu::cold, gnu::noinline]] inline void no_value(const char* why) {
  ADACC_ASSERT(false, why);
  static_cast<void>(why);
  ADACC_TRAP();
}

}  // namespace detail

/// A value, or the error that stands in its place. Look at the error first: `*` and `->` of a
/// failed result call ADACC_ASSERT (config.hpp) and then end the program, in release builds, too.
template <class T>
class [[nodiscard]] Result {
 public:
  Error error{};

  constexpr Result() = default;
  constexpr Result(T made) : value_(static_cast<T&&>(made)) {}
  constexpr Result(const Error& why) : error(why) {}

  /// True if there is a value.
  constexpr explicit operator bool() const { return !error; }
  constexpr T& operator*() & { return checked(), value_; }
  constexpr const T& operator*() const& { return checked(), value_; }
  constexpr T operator*() && { return checked(), static_cast<T&&>(value_); }
  constexpr T* operator->() { return checked(), &value_; }
  constexpr const T* operator->() const { return checked(), &value_; }

 private:
  constexpr void checked() const {
    if (error) [[unlikely]]
      detail::no_value(error.text());
  }

  T value_{};
};

}}  // namespace adacc::v0_1
