// SPDX-License-Identifier: MIT
/// Tokens that are taken out of a text before the rest is cut into words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adacc { inline namespace v0_1 {

class SpecialTokens {
 public:
  struct One {
    std::string text;  ///< not empty
    std::int32_t token;
  };

  SpecialTokens() = default;
  explicit SpecialTokens(std::vector<One> all) : all_(static_cast<std::vector<One>&&>(all)) {
    std::stable_sort(all_.begin(), all_.end(), [](const One& a, const One& b) {
      if (a.text[0] != b.text[0]) return byte(a.text[0]) < byte(b.text[0]);
      return a.text.size() > b.text.size();
    });
    std::size_t at = 0;
    for (std::size_t b = 0; b <= 256; ++b) {
      while (at < all_.size() && byte(all_[at].text[0]) < b) ++at;
      first_[b] = at;
    }
  }

  bool empty() const { return all_.empty(); }
  const One* begin() const { return all_.data(); }
  const One* end() const { return all_.data() + all_.size(); }

  /// Calls plain(piece) and special(token) for the parts of a text from front to back. At each place the longest token is taken.
  template <class Plain, class Taken>
  void split(std::string_view text, const Plain& plain, const Taken& taken) const {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size() && !empty();) {
      const One* const found = find(text, at);
      if (found == nullptr) {
        ++at;
        continue;
      }
      if (at > begin) plain(text.substr(begin, at - begin));
      taken(found->token);
      begin = at += found->text.size();
    }
    if (begin < text.size()) plain(text.substr(begin));
  }

 private:
  static unsigned char byte(char c) { return static_cast<unsigned char>(c); }
  const One* find(std::string_view text, std::size_t at) const {
    const std::size_t first = byte(text[at]);
    for (std::size_t i = first_[first]; i < first_[first + 1]; ++i)
      if (text.substr(at).starts_with(all_[i].text)) return &all_[i];
    return nullptr;
  }

  std::vector<One> all_;  ///< by first byte, the longest first
  std::size_t first_[257] = {};
};

}}  // namespace adacc::v0_1
