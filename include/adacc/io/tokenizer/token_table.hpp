// SPDX-License-Identifier: MIT
/// The texts of tokens by number, and their numbers by text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Mixes 64 bits into the upper ones.
constexpr std::uint64_t mixed(std::uint64_t value) {
  value *= 0x9E3779B97F4A7C15U;
  return (value ^ value >> 29) * 0xBF58476D1CE4E5B9U;
}

/// Places of things in an array of their own, found by hash. A table of twice as many places or more.
class HashedPlaces {
 public:
  void reserve(std::size_t count) {
    std::size_t places = 16;
    bits_ = 4;
    for (; places < 2 * count; places *= 2) ++bits_;
    slots_.assign(places, -1);
  }
  /// The place for which is_it(place), or -1.
  template <class IsIt>
  std::int32_t find(std::uint64_t hash, const IsIt& is_it) const {
    if (slots_.empty()) return -1;
    for (std::size_t i = slot(hash); slots_[i] >= 0; i = (i + 1) & (slots_.size() - 1))
      if (is_it(slots_[i])) return slots_[i];
    return -1;
  }
  void add(std::uint64_t hash, std::int32_t place) {
    std::size_t i = slot(hash);
    while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = place;
  }

 private:
  std::size_t slot(std::uint64_t hash) const {
    return static_cast<std::size_t>(hash >> (64 - bits_));
  }
  std::vector<std::int32_t> slots_;
  int bits_ = 4;
};

}  // namespace detail

/// Numbers run from 0 to size() - 1; a text of several numbers is found as the first of them.
class TokenTable {
 public:
  /// Texts in the order of their numbers; those that are not `found` are read by number alone.
  TokenTable(const std::vector<std::string>& texts, const std::vector<bool>& found) {
    places_.reserve(texts.size());
    ends_.push_back(0);
    for (const std::string& text : texts) {
      all_ += text;
      ends_.push_back(all_.size());
    }
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (found[i] && find(texts[i]) < 0)
        places_.add(hash_of(texts[i]), static_cast<std::int32_t>(i));
  }
  TokenTable() = default;

  std::size_t size() const { return ends_.empty() ? 0 : ends_.size() - 1; }
  std::string_view operator[](std::size_t i) const {
    return std::string_view(all_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }
  /// -1 if there is none of that text.
  std::int32_t find(std::string_view text) const {
    return places_.find(hash_of(text), [&](std::int32_t place) {
      return (*this)[static_cast<std::size_t>(place)] == text;
    });
  }

 private:
  static std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = text.size();
    for (; text.size() > 8; text.remove_prefix(8)) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), 8);
      hash = detail::mixed(hash ^ word);
    }
    std::uint64_t rest = 0;
    if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
    return detail::mixed(hash ^ rest);
  }

  std::string all_;
  std::vector<std::size_t> ends_;
  detail::HashedPlaces places_;
};

}}  // namespace adacc::v0_1
