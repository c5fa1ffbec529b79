// SPDX-License-Identifier: MIT
/// Bf16: two bytes per element, a float's range, 8 bits of precision; the codec without risk.
///
///     offset        bytes   contents
///     0             64      header (blob.hpp), codec "bf16"
///     64            2 * n   u16 bfloat16 of element e at 64 + 2 * e; n = rows * columns
///     64 + 2 * n    p       zeros, up to a multiple of 64
///
/// Rounding is to nearest, ties to even, so the relative error of a normal number is at most 2^-8. Doubles are
/// rounded to float first. NaNs stay NaNs of their sign, infinities infinities, and a number rounded beyond 3.39e38
/// becomes 3.39e38 of its sign. A tensor of bfloat16 is copied, bit by bit.
///
/// Memory bounds the speed, even without bfloat16 instructions: rounding takes a few integer operations, and the
/// codec moves three quarters of the bytes that memcpy of the same floats moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/bytes.hpp"
#include "../core/config.hpp"
#include "../core/cpu.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/extremes.hpp"
#include "../core/float_mode.hpp"
#include "../core/vector_target.hpp"
#include "../core/view.hpp"
#include "blob.hpp"
#include "float_bits.hpp"
#include "spans.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
ADACC_HD constexpr std::uint16_t bf16_code(T x) {
  if constexpr (std::is_same_v<T, bfloat16>) return x.bits;
  else return to_finite_bfloat16(to_number(x)).bits;
}

template <class T>
ADACC_HD constexpr T bf16_value(std::uint16_t code) {
  if constexpr (std::is_same_v<T, bfloat16>) return bfloat16{code};
  else return static_cast<T>(to_float(bfloat16{code}));
}

// Separate functions, because compilers trust __restrict on parameters.
ADACC_TARGET_CODE_BEGIN

template <class T>
void bf16_encode(std::size_t n, const T* __restrict x, std::uint16_t* __restrict codes) {
  if constexpr (std::is_same_v<T, float>) {
    // Almost always all elements round to finite numbers: then one check for all of them is enough.
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t bits = pattern_of(x[i]);
      most = larger(most, bits & 0x7FFFFFFF);
      codes[i] = static_cast<std::uint16_t>(rounded_upper_half(bits));
    }
    if (most < rounds_to_infinity) return;
  }
  for (std::size_t i = 0; i < n; ++i) codes[i] = bf16_code(x[i]);
}

template <class T>
void bf16_decode(std::size_t n, const std::uint16_t* __restrict codes, T* __restrict x) {
  for (std::size_t i = 0; i < n; ++i) x[i] = bf16_value<T>(codes[i]);
}
ADACC_TARGET_CODE_END

}  // namespace detail

struct Bf16 {
  static constexpr const char* name = "bf16";
  static constexpr double noise = 2.4e-6;  ///< 8 bits behind the leading one, not 16
  static constexpr bool lossless = false;

  ADACC_HD static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols,
                                                      Dtype dtype) {
    const std::size_t elements = detail::codable_elements(rows, cols, dtype);
    return elements == 0 ? 0 : align_up(blob_header_bytes + 2 * elements);
  }

  static constexpr std::size_t split_items(std::size_t rows, std::size_t cols) {
    return detail::span_count(rows, cols);
  }
  static constexpr std::size_t item_elements(std::size_t) { return detail::elements_per_tile; }

  template <class T>
  static Error encode(Cpu& cpu, View<const T> x, Bytes blob, Part part = {}) {
    const std::size_t rows = x.rows(), cols = x.cols(), n = x.size();
    const std::size_t bytes = encoded_bytes(rows, cols, dtype_of<T>);
    if (Error error = check_encode(name, x, blob, bytes)) return error;
    const detail::FloatModeScope plain;
    write_blob_header(blob.data(), name, dtype_of<T>, rows, cols);
    auto* codes = static_cast<std::uint16_t*>(codes_of(blob.data()));
    detail::for_each_span(cpu, n, part, [&](std::size_t first, std::size_t count) {
      detail::call_at_level<detail::bf16_encode<T>>(count, x.data() + first, codes + first);
    });
    std::memset(codes + n, 0, align_up(2 * n) - 2 * n);
    return {};
  }

  template <class T>
  static Error decode(Cpu& cpu, ConstBytes blob, View<T> x, Part part = {}) {
    const std::size_t bytes = encoded_bytes(x.rows(), x.cols(), dtype_of<T>);
    if (Error error = check_decode(name, blob, x, bytes)) return error;
    const detail::FloatModeScope plain;
    const auto* codes = static_cast<const std::uint16_t*>(codes_of(blob.data()));
    detail::for_each_span(cpu, x.size(), part, [&](std::size_t first, std::size_t count) {
      detail::call_at_level<detail::bf16_decode<T>>(count, codes + first, x.data() + first);
    });
    return {};
  }

 private:
  static void* codes_of(std::byte* blob) { return blob + blob_header_bytes; }
  static const void* codes_of(const std::byte* blob) { return blob + blob_header_bytes; }
};

}}  // namespace adacc::v0_1
