// SPDX-License-Identifier: MIT
/// Pairs of texts that belong together, as tokens: those to learn from, and those that are held out.
#pragma once

#include <adacc/core/block.hpp>
#include <adacc/core/random.hpp>
#include <adacc/core/view.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/mapped_file.hpp>
#include <support/wordpiece/wordpiece.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune {

/// Two texts as tokens: what is asked, and what answers it.
using Pair = std::array<std::vector<std::int32_t>, 2>;

struct Pairs {
  std::vector<Pair> train, held_out;

  /// Reads lines of GROUP TAB TEXT TAB TEXT. A group is learnt from or held out as a whole, by a hash
  /// of its name: about one of `every`. Texts have at most `most` tokens.
  static adacc::Result<Pairs> read(const std::string& path, const support::WordPiece& tokenizer,
                                   std::size_t most, std::uint32_t every) {
    const auto file = adacc::MappedFile::open(path, "lines of three columns between tabs");
    if (!file) return file.error;
    const void* const bytes = file->bytes().data();
    const std::string_view text(static_cast<const char*>(bytes), file->bytes().size());
    Pairs pairs;
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      at = end + 1;
      ++number;
      const std::size_t first = line.find('\t');
      const std::size_t second = first == line.npos ? line.npos : line.find('\t', first + 1);
      if (second == line.npos) return file->fault("has fewer than three columns in line ", number);
      auto& to = hash(line.substr(0, first)) % every == 0 ? pairs.held_out : pairs.train;
      to.push_back({tokenizer.encode(line.substr(first + 1, second - first - 1), most),
                    tokenizer.encode(line.substr(second + 1), most)});
    }
    return pairs;
  }

 private:
  /// FNV-1a, its upper half.
  static std::uint32_t hash(std::string_view text) {
    std::uint64_t value = 0xCBF29CE484222325;
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    return static_cast<std::uint32_t>(value >> 32);
  }
};

/// The numbers below `count` in another order for each round; a function of the seed.
inline std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed,
                                         std::uint32_t round) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const adacc::RandomKey key{seed, round, 0, 0, adacc::Purpose::sampling};
  for (std::size_t i = count; i > 1; --i)
    std::swap(order[i - 1], order[adacc::random_word(key, i) % i]);
  return order;
}

/// Sequences of at most `time` tokens, padded with zeros, and how long each is.
class Batch {
 public:
  Batch(std::size_t sequences, std::size_t time)
      : time_(time), tokens_(*adacc::Block<std::int32_t>::make(sequences * time, "tokens")),
        lengths_(sequences, 1) {}

  /// All sequences have room for `time` tokens from now on; each is to be set anew.
  void resize(std::size_t time) { time_ = time; }

  void set(std::size_t sequence, const std::vector<std::int32_t>& tokens) {
    std::int32_t* const row = tokens_.data() + sequence * time_;
    for (std::size_t t = 0; t < time_; ++t) row[t] = t < tokens.size() ? tokens[t] : 0;
    lengths_[sequence] = static_cast<std::int32_t>(tokens.size());
  }

  adacc::View<const std::int32_t> tokens() const {
    return {tokens_.data(), adacc::Shape(lengths_.size(), time_)};
  }
  adacc::View<const std::int32_t> lengths() const {
    return {lengths_.data(), adacc::Shape(lengths_.size())};
  }

 private:
  std::size_t time_;
  adacc::Block<std::int32_t> tokens_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace finetune
