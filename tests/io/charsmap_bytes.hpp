// SPDX-License-Identifier: MIT
/// Writes a small precompiled_charsmap, as SentencePiece's models have one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace charsmap_test {

inline std::string stored(const std::vector<std::uint32_t>& units, const std::string& texts) {
  std::string bytes;
  const auto put = [&](std::uint32_t number) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift & 0xFF);
  };
  put(static_cast<std::uint32_t>(4 * units.size()));
  for (const std::uint32_t unit : units) put(unit);
  return bytes + texts;
}

/// Keys and their replacements. Each node of the trie has 256 units of its own, so that nothing has to be fitted together.
inline std::string charsmap_of(const std::vector<std::pair<std::string, std::string>>& rules) {
  constexpr std::uint32_t leaf = 1U << 8, value = 1U << 31;
  std::vector<std::map<unsigned char, std::size_t>> nodes(1);
  std::vector<std::uint32_t> units(512);
  std::string texts;
  const auto distance = [](std::size_t from, std::size_t to) {
    return static_cast<std::uint32_t>(from ^ to) << 10;
  };
  units[0] = distance(0, 256);
  for (const auto& [key, text] : rules) {
    std::size_t node = 0, unit = 0;
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      unit = 256 * (node + 1) + byte;
      if (!nodes[node].contains(byte)) {
        nodes[node][byte] = nodes.size();
        nodes.emplace_back();
        units.resize(256 * (nodes.size() + 1));
        units[unit] = byte | distance(unit, 256 * nodes.size());
      }
      node = nodes[node][byte];
    }
    units[unit] |= leaf;
    units[256 * (node + 1)] = value | static_cast<std::uint32_t>(texts.size());
    texts += text + '\0';
  }
  return stored(units, texts);
}

/// "A" becomes "a", in few bytes.
inline std::string small_charsmap() {
  std::vector<std::uint32_t> units(68);
  units[0] = 1U << 10;  // to place 1, and by 'A' to place 64
  units['A' ^ 1] = 'A' | 1U << 8 | 2U << 10;
  units[('A' ^ 1) ^ 2] = 1U << 31;
  return stored(units, "a");
}

}  // namespace charsmap_test
