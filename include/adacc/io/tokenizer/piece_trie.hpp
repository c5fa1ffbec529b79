// SPDX-License-Identifier: MIT
/// The pieces of a vocabulary that a text has at a place, by one look at each byte.
///
/// A trie in two arrays (J. Aoe, "An efficient digital search algorithm by using a double-array structure", IEEE
/// Transactions on Software Engineering 15(9), 1989): the child of a node by a byte is at the node's base XOR the byte, if the
/// unit there names the node as its parent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace adacc { inline namespace v0_1 {

class PieceTrie {
 public:
  struct Piece {
    std::string_view text;
    std::int32_t token;
  };

  PieceTrie() = default;
  /// The last one of several pieces of one text counts; empty pieces do not.
  explicit PieceTrie(std::vector<Piece> pieces) {
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.text < b.text; });
    Free free(units_);
    units_[0].parent = root_parent;
    std::vector<Range> open{{0, 0, pieces.size(), 0}};
    std::vector<Range> children;
    for (std::size_t next = 0; next < open.size(); ++next) {  // parents before their children
      const Range range = open[next];
      std::size_t at = range.begin;
      while (at < range.end && pieces[at].text.size() == range.depth)
        units_[range.node].token = range.depth > 0 ? pieces[at++].token : (++at, -1);
      children.clear();
      while (at < range.end) {
        const std::size_t begin = at;
        const std::uint8_t byte = byte_at(pieces[begin].text, range.depth);
        while (at < range.end && byte_at(pieces[at].text, range.depth) == byte) ++at;
        children.push_back({byte, begin, at, range.depth + 1});
      }
      if (children.empty()) continue;
      const std::uint32_t base = free.base_for(children);
      units_[range.node].base = base;
      for (Range child : children) {
        child.node ^= base;  // the byte until here
        free.take(child.node);
        units_[child.node].parent = range.node;
        open.push_back(child);
      }
    }
  }

  /// Calls visit(end, token) for each piece that the text has at `at`, the shortest first.
  template <class Visit>
  void each_piece(std::string_view text, std::size_t at, const Visit& visit) const {
    if (units_.empty()) return;
    for (std::uint32_t node = 0; at < text.size();) {
      const std::uint32_t child = units_[node].base ^ byte_at(text, at++);
      if (units_[child].parent != node) return;
      node = child;
      if (units_[node].token >= 0) visit(at, units_[node].token);
    }
  }
  /// -1 if no piece is this text.
  std::int32_t find(std::string_view text) const {
    std::int32_t found = -1;
    each_piece(text, 0, [&](std::size_t end, std::int32_t token) {
      if (end == text.size()) found = token;
    });
    return found;
  }

 private:
  static constexpr std::uint32_t no_parent = ~0U, root_parent = ~1U;
  /// Bases are below the count of units, which is a multiple of 256: so is every child's place.
  struct Unit {
    std::uint32_t base = 0, parent = no_parent;
    std::int32_t token = -1;
  };
  /// Pieces that begin alike.
  struct Range {
    std::uint32_t node;
    std::size_t begin, end, depth;
  };

  /// The units that are free, in a list.
  class Free {
   public:
    explicit Free(std::vector<Unit>& units) : units_(units) { grow(); }

    /// Looks at some of the first free units, and at those of the last block: a new block is made only if the last one has no room,
    /// so that memory is bounded by the pieces.
    std::uint32_t base_for(const std::vector<Range>& children) {
      const auto fits = [&](std::uint32_t place) {
        const std::uint32_t base = place ^ children[0].node;
        return base != 0 && std::all_of(children.begin(), children.end(), [&](const Range& child) {
                 return units_[base ^ child.node].parent == no_parent;
               });
      };
      std::uint32_t place = links_[0].next;
      for (int tries = 0; tries < 64 && place != 0; ++tries, place = links_[place].next)
        if (fits(place)) return place ^ children[0].node;
      place = links_[0].before;
      for (const std::size_t last = units_.size() - 256; place > 0 && place >= last;
           place = links_[place].before)
        if (fits(place)) return place ^ children[0].node;
      const auto base = static_cast<std::uint32_t>(units_.size());
      grow();
      return base;
    }
    void take(std::uint32_t place) {
      links_[links_[place].before].next = links_[place].next;
      links_[links_[place].next].before = links_[place].before;
    }

   private:
    /// Place 0 is the root's, and the ends of the list.
    struct Link {
      std::uint32_t before = 0, next = 0;
    };
    void grow() {
      for (int i = 0; i < 256; ++i) {
        const auto place = static_cast<std::uint32_t>(units_.size());
        units_.emplace_back();
        links_.emplace_back();
        links_[place].before = links_[0].before;
        links_[place].next = 0;
        links_[links_[0].before].next = place;
        links_[0].before = place;
      }
    }

    std::vector<Unit>& units_;
    std::vector<Link> links_;
  };

  static std::uint8_t byte_at(std::string_view text, std::size_t at) {
    return static_cast<std::uint8_t>(text[at]);
  }

  std::vector<Unit> units_;
};

}}  // namespace adacc::v0_1
