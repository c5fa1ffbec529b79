// SPDX-License-Identifier: MIT
/// Keeps memory busy while a codec computes: reads ahead, and writes past the caches.
///
/// An encoder that waits for memory while it looks for extremes, and leaves memory idle while it makes codes, takes
/// the sum of both times. So encoders request the lines of the next piece, a few at a time, and later find them in
/// the second-level cache. (In the first-level cache the lines would push out the data in use: measured, this takes
/// twice as long.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/bytes.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr std::size_t cache_line = 64;

/// A larger piece would push out the data in use.
inline constexpr std::size_t most_read_ahead = 512 * KiB;

/// Requests the lines of a piece of a tensor, a few at a time.
class ReadAhead {
 public:
  ReadAhead() = default;  ///< reads nothing ahead
  /// A piece of `rows` rows of `bytes` bytes, `stride` bytes apart.
  ReadAhead(const void* from, std::size_t rows, std::size_t bytes, std::size_t stride)
      : row_(static_cast<const char*>(from)), rows_(rows * bytes > most_read_ahead ? 0 : rows),
        lines_(div_up(bytes, cache_line)), stride_(stride) {}

  /// Lines not requested yet.
  std::size_t left() const { return rows_ == 0 ? 0 : rows_ * lines_ - line_; }

  void more(std::size_t lines) {
    while (lines != 0 && rows_ != 0) {
      const std::size_t n = lines < lines_ - line_ ? lines : lines_ - line_;
      const char* from = row_ + line_ * cache_line;
      for (std::size_t i = 0; i < n; ++i) ADACC_PREFETCH(from + i * cache_line, 0, 2);
      lines -= n;
      line_ += n;
      if (line_ < lines_) continue;
      line_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  const char* row_ = nullptr;
  std::size_t rows_ = 0, lines_ = 0, stride_ = 0, line_ = 0;
};

/// Bytes ahead of the current one at which pages are touched: a store to a page missing from the processor's table of
/// translations (TLB) stalls.
inline constexpr std::size_t written_ahead = 24 * KiB;

/// How many rows ahead of the written row a page is touched, for rows of `row_bytes`.
constexpr std::size_t rows_ahead(std::size_t row_bytes) {
  return row_bytes >= written_ahead ? 1 : written_ahead / row_bytes;
}
inline void open_page_to_write(const void* page) { ADACC_PREFETCH(page, 1, 3); }

/// Output of at least so many bytes leaves the caches before it is read again. Such output is written past the
/// caches, which saves reading each line before it is written.
inline constexpr std::size_t least_streamed = 32 * MiB;

// Without the compilers' headers of intrinsics, which cost more to compile than this whole file.
#if defined(__SSE2__) && !defined(__CUDACC__)
using Stream16 = long long __attribute__((vector_size(16)));
using Stream32 = long long __attribute__((vector_size(32)));
template <class Part>
inline void stream(const Part& from, void* to) {
#ifdef __clang__
  __builtin_nontemporal_store(from, static_cast<Part*>(to));
#else
  if constexpr (sizeof(Part) == 16) __builtin_ia32_movntdq(static_cast<Part*>(to), from);
#ifdef __AVX__
  else __builtin_ia32_movntdq256(static_cast<Part*>(to), from);
#endif
#endif
}
#endif

/// Stores 16, 32 or 64 bytes. If Streamed, the store goes past the caches: `to` must then be aligned to as many
/// bytes, at most to 32, and stream_end() must follow before another thread may read the bytes.
template <bool Streamed, class Vector, class To>
inline void store_vector(const Vector& from, To* to) {
#if defined(__SSE2__) && !defined(__CUDACC__)
  if constexpr (Streamed) {
#ifdef __AVX__
    using Part = std::conditional_t<sizeof(Vector) == 16, Stream16, Stream32>;
#else
    using Part = Stream16;
#endif
    constexpr std::size_t count = sizeof(Vector) / sizeof(Part);
    Part parts[count];
    std::memcpy(parts, &from, sizeof from);
    for (std::size_t i = 0; i < count; ++i) stream(parts[i], to + i * (sizeof(Part) / sizeof(To)));
    return;
  }
#endif
  std::memcpy(to, &from, sizeof from);
}
inline void stream_end() {
#if defined(__SSE2__) && !defined(__CUDACC__)
  __builtin_ia32_sfence();
#endif
}

}}}  // namespace adacc::v0_1::detail
