// SPDX-License-Identifier: MIT
/// The common part of readers of binary files: little-endian words, kinds of file, a checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/bytes.hpp"
#include "../core/little_endian.hpp"

namespace adacc { inline namespace v0_1 {

/// First words of llm.c's files.
inline constexpr std::int32_t llmc_model_magic = 20240326;
inline constexpr std::int32_t llmc_tokens_magic = 20240520;

/// First eight bytes of a checkpoint of ours.
inline constexpr char checkpoint_magic[8] = {'A', 'D', 'A', 'C', 'C', 'K', 'P', 'T'};

/// Layers of a model described by a file, at most: many more than any has, and few enough that a graph of so many is
/// made in seconds.
inline constexpr std::size_t most_model_layers = 4096;

namespace detail {

/// The probable kind of a file with these first eight bytes.
inline const char* kind_of_file(const void* first_eight) {
  char start[8];
  std::memcpy(start, first_eight, 8);
  std::int32_t word = 0;
  std::memcpy(&word, start, 4);
  if (word == llmc_model_magic) return "an llm.c model checkpoint";
  if (word == llmc_tokens_magic) return "an llm.c token file";
  if (word == 20240327) return "an llm.c debug state";
  if (word == 20240328) return "an llm.c tokenizer";
  if (std::memcmp(start, checkpoint_magic, 8) == 0) return "an adacc checkpoint";
  if (std::memcmp(start, "GGUF", 4) == 0) return "a GGUF model";
  if (std::memcmp(start, "PK\x03\x04", 4) == 0) return "a zip archive (or a PyTorch file)";
  if (std::memcmp(start, "\x1f\x8b", 2) == 0) return "a gzip archive";
  for (const char c : start)
    if ((c < 32 && c != '\t' && c != '\n' && c != '\r') || c == 127) return "something else";
  return "text";
}

}  // namespace detail

/// A 64-bit checksum over little-endian 64-bit words:
///
///     h = 0xcbf29ce484222325
///     for every word: h = (h xor word) * 0x100000001b3, h = h xor (h >> 32)
///
/// FNV-1a (Fowler, Noll, Vo) over words instead of bytes, as fast as memory, plus a fold: a product alone never
/// carries a high bit downwards, and two flipped signs would cancel. Each step is a bijection of h: damage within one
/// word is always noticed.
class Checksum {
 public:
  /// `bytes` is a multiple of 8.
  void add(const void* data, std::size_t bytes) {
    const char* from = static_cast<const char*>(data);
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + i, 8);
      state_ = (state_ ^ word) * 0x100000001b3U;
      state_ ^= state_ >> 32;
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325U;
};

}}  // namespace adacc::v0_1
