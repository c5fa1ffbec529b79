// SPDX-License-Identifier: MIT
/// Reads JSON (RFC 8259) from front to back, as far as file headers need it: takes objects, arrays, strings and
/// whole numbers, and can skip everything else.
///
/// Made for untrusted files: no recursion deeper than `most_depth`, no memory beyond the requested strings, and the
/// first fault ends reading, with the byte where it was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../../core/error.hpp"
#include "../utf8.hpp"

namespace adacc { inline namespace v0_1 {

class JsonReader {
 public:
  static constexpr int most_depth = 32;

  explicit JsonReader(std::string_view text) : text_(text) {}

  /// The first fault; empty if there is none. After a fault every call fails.
  const Error& fault() const { return fault_; }

  /// Calls visit(key) for each member of an object. visit must take or skip the value, and returns false to end
  /// reading for a reason of its own. False after a fault.
  template <class Visit>
  bool object(const Visit& visit) {
    if (!open('{')) return false;
    std::string key;
    for (bool first = true; !closes('}', first); first = false) {
      if (fault_ || !string(key) || !take(':', "\":\" behind a key")) return false;
      if (!visit(key)) return ended_by_visitor();
    }
    return !fault_;
  }

  /// Calls visit() for each element of an array; otherwise like object().
  template <class Visit>
  bool array(const Visit& visit) {
    if (!open('[')) return false;
    for (bool first = true; !closes(']', first); first = false)
      if (fault_ || !visit()) return ended_by_visitor();
    return !fault_;
  }

  /// Takes a string, with escapes resolved to UTF-8.
  bool string(std::string& out) {
    out.clear();
    if (!take('"', "a string")) return false;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 32) return fail("a control character in a string");
      if (c != '\\') out += c;
      else if (!escape(out)) return false;
    }
    return fail("a string that does not end");
  }

  /// Takes a whole number from 0 to 2^64 - 1.
  bool whole_number(std::uint64_t& out) {
    out = 0;
    space();
    const std::size_t begin = at_;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (out > (~std::uint64_t{0} - digit) / 10) return fail("a number that is too large");
      out = 10 * out + digit;
    }
    if (at_ == begin ||
        (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')))
      return fail("no whole number");
    if (text_[begin] == '0' && at_ > begin + 1) return fail("a number that starts with 0");
    return true;
  }

  /// Takes any number, in the written form.
  bool number(std::string& out) {
    space();
    const std::size_t begin = at_;
    if (fault_ || !number()) return false;
    out = text_.substr(begin, at_ - begin);
    return true;
  }

  /// Skips any value.
  bool skip() {
    space();
    if (at_ >= text_.size()) return fail("no value");
    std::string text;
    switch (text_[at_]) {
      case '{': return object([&](const std::string&) { return skip(); });
      case '[': return array([&] { return skip(); });
      case '"': return string(text);
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }

  /// Takes any value in the written form, for another reader.
  bool value(std::string& out) {
    space();
    const std::size_t begin = at_;
    if (!skip()) return false;
    out = text_.substr(begin, at_ - begin);
    return true;
  }

  /// Takes true or false. `raw` becomes the value in the written form, of another value, too, which fails.
  bool truth(bool& is, std::string& raw) {
    if (!value(raw)) return false;
    is = raw == "true";
    return is || raw == "false";
  }

  /// Whether null is next.
  bool is_null() {
    space();
    return text_.substr(at_).starts_with("null");
  }

  /// Whether a list is next.
  bool is_list() {
    space();
    return text_.substr(at_).starts_with('[');
  }

  /// Whether nothing but spaces follows.
  bool end() {
    space();
    return at_ == text_.size() ? !fault_ : fail("something behind the end");
  }

 private:
  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

  bool fail(const char* what) {
    if (!fault_) fault_ = Error::say("byte ", at_, " of its JSON has ", what);
    return false;
  }
  bool ended_by_visitor() {
    if (!fault_) fault_ = Error::say("it was not read to its end");
    return false;
  }

  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  bool take(char c, const char* what) {
    space();
    if (fault_) return false;
    if (at_ >= text_.size() || text_[at_] != c) {
      if (!fault_) fault_ = Error::say("byte ", at_, " of its JSON lacks ", what);
      return false;
    }
    ++at_;
    return true;
  }

  bool open(char bracket) {
    if (depth_ == most_depth) return fail("too many values in one another");
    if (!take(bracket, bracket == '{' ? "an object" : "an array")) return false;
    ++depth_;
    return true;
  }

  /// Whether the list ends here; if not, takes the due comma, except before the first element.
  bool closes(char bracket, bool first) {
    space();
    if (at_ < text_.size() && text_[at_] == bracket) {
      ++at_;
      --depth_;
      return true;
    }
    if (!first) static_cast<void>(take(',', "a comma or the end of a list"));
    return false;
  }

  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return fail("no value");
    at_ += expected.size();
    return true;
  }

  bool digits() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > begin;
  }
  bool has(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool number() {
    static_cast<void>(has('-'));
    if (!has('0') && !digits()) return fail("no value");
    if (has('.') && !digits()) return fail("no digits behind a point");
    if (has('e') || has('E')) {
      if (!has('+')) static_cast<void>(has('-'));
      if (!digits()) return fail("no digits in an exponent");
    }
    return true;
  }

  bool hexadecimal(std::uint32_t& out) {
    out = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return fail("no four hexadecimal digits");
      out = 16 * out + static_cast<std::uint32_t>(digit);
      ++at_;
    }
    return true;
  }

  bool escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
    if (at_ >= text_.size()) return fail("a string that does not end");
    const char c = text_[at_++];
    if (const std::size_t i = letters.find(c); i != letters.npos) {
      out += values[i];
      return true;
    }
    if (c != 'u') return fail("an unknown escape");
    std::uint32_t code = 0, low = 0;
    if (!hexadecimal(code)) return false;
    if (code >= 0xD800 && code < 0xE000) {  // half of a pair
      if (code >= 0xDC00 || !has('\\') || !has('u') || !hexadecimal(low) || low < 0xDC00 ||
          low >= 0xE000)
        return fail("half of a pair of surrogates");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_code(out, code);
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Error fault_;
};

}}  // namespace adacc::v0_1
