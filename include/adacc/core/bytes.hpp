// SPDX-License-Identifier: MIT
/// Byte units and alignment.
///
/// Every buffer and every parameter starts on a 64-byte boundary: one cache line, one AVX-512
/// register, and the alignment under which vectorized sums keep their order of summation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "config.hpp"

namespace adacc { inline namespace v0_1 {

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t MiB = 1024 * KiB;
inline constexpr std::size_t GiB = 1024 * MiB;

/// Alignment, in bytes, of every buffer, parameter and caller-supplied block.
inline constexpr std::size_t alignment = 64;

/// `bytes` rounded up to a multiple of `alignment`.
ADACC_HD constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Stores a * b in `product`; false on overflow.
ADACC_HD constexpr bool multiply(std::size_t a, std::size_t b, std::size_t& product) {
  if (b != 0 && a > static_cast<std::size_t>(-1) / b) return false;
  product = a * b;
  return true;
}

/// The most bytes of one tensor, counted as 8 per element. Below this limit all bytes that layers and codecs ask for
/// beside a tensor fit std::size_t; sums over several tensors are checked. In 64 bits the limit is the address space
/// of today's machines, in 32 bits an eighth of their memory.
inline constexpr std::size_t most_tensor_bytes = sizeof(std::size_t) > 4
                                                     ? static_cast<std::size_t>(-1) >> 16
                                                     : (static_cast<std::size_t>(-1) >> 3) + 1;

/// Equally spaced pieces of a block of memory: `count` pieces of `bytes` bytes. The first begins at byte `first`,
/// each next one `stride` bytes further.
struct Pieces {
  std::size_t first = 0, bytes = 0, stride = 0, count = 0;

  constexpr std::size_t total() const { return bytes * count; }
};

/// The number of `part`-sized pieces that cover `whole`.
ADACC_HD constexpr std::size_t div_up(std::size_t whole, std::size_t part) {
  return whole / part + (whole % part != 0 ? 1 : 0);
}

namespace detail {
/// A number of a file, or the largest that std::size_t counts, which is too many of anything.
constexpr std::size_t counted(std::uint64_t number) {
  constexpr std::size_t most = static_cast<std::size_t>(-1);
  return number < most ? static_cast<std::size_t>(number) : most;
}

/// Stores a + b in `sum`; false on overflow.
constexpr bool add(std::size_t a, std::size_t b, std::size_t& sum) {
  if (a > static_cast<std::size_t>(-1) - b) return false;
  sum = a + b;
  return true;
}

/// Adds `count` blocks of `bytes` bytes to `sum`, each of which begins 64-byte aligned; false on overflow.
constexpr bool add_aligned(std::size_t bytes, std::size_t count, std::size_t& sum) {
  std::size_t all = 0;
  return add(bytes, alignment - 1, all) && multiply(all / alignment * alignment, count, all) &&
         add(sum, all, sum);
}

}  // namespace detail

}}  // namespace adacc::v0_1
