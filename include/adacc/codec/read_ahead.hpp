// SPDX-License-Identifier: MIT
/// What keeps memory busy while a codec computes: reading ahead, and writing past the caches.
///
/// An encoder that waits for memory while it looks for extremes, and lets it idle while it makes
/// codes, takes the sum of both times. So it asks for the lines of the piece after this one, a few
/// at a time, and finds them in the second-level cache when it gets there. (In the first-level
/// cache they would push out what is worked on: measured, that takes twice as long.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/bytes.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr std::size_t cache_line = 64;

/// A piece larger than this would push out what is worked on.
inline constexpr std::size_t most_read_ahead = 512 * KiB;

/// The lines of a piece of a tensor, asked for a few at a time.
class ReadAhead {
 public:
  ReadAhead() = default;  ///< of nothing
  /// `rows` rows of `bytes` bytes, `stride` bytes apart.
  ReadAhead(const void* from, std::size_t rows, std::size_t bytes, std::size_t stride)
      : row_(static_cast<const char*>(from)), rows_(rows * bytes > most_read_ahead ? 0 : rows),
        lines_(div_up(bytes, cache_line)), stride_(stride) {}

  /// Lines not asked for yet.
  std::size_t left() const { return rows_ == 0 ? 0 : rows_ * lines_ - line_; }

  void more(std::size_t lines) {
    while (lines != 0 && rows_ != 0) {
      const std::size_t n = lines < lines_ - line_ ? lines : lines_ - line_;
      const char* from = row_ + line_ * cache_line;
      for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(from + i * cache_line, 0, 2);
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

/// A store to a page that is missing from the processor's table of translations (TLB) stalls, so
/// pages are touched before: so many bytes ahead.
inline constexpr std::size_t written_ahead = 24 * KiB;

/// Rows ahead of the one that is written, of `row_bytes` each, whose page to touch.
constexpr std::size_t rows_ahead(std::size_t row_bytes) {
  return row_bytes >= written_ahead ? 1 : written_ahead / row_bytes;
}
inline void open_page_to_write(const void* page) { __builtin_prefetch(page, 1, 3); }

/// What is written of tensors of so many bytes and more has left the caches when it is read again.
/// It is written past them, which spares reading every line before it is written.
inline constexpr std::size_t least_streamed = 32 * MiB;

// Without the compilers' headers of instructions, which cost more to compile than all of this.
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

/// 16, 32 or 64 bytes to memory. If Streamed, with stores that go past the caches: `to` must then
/// be aligned to as many bytes, at most to 32, and stream_end() must follow before another thread
/// may read them.
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
