// SPDX-License-Identifier: MIT
/// Elements of any type in fewer bytes without loss: masks as bits, indices in one, two or four bytes.
///
/// Autograd saves masks for dropout and comparisons, and indices for max-pooling: booleans, floats 0 or 1/(1-p),
/// 64-bit integers below a few thousands. The operator need not be known: elements are compared, and the third
/// distinct value ends the search.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "../../core/bytes.hpp"
#include "../../core/cpu.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// The packing of n elements of some unsigned or signed type: code = element - base in `bits` bits, or, if bits is 1,
/// 0 for `base` and 1 for `other`. bits == 0: not packed.
struct LosslessForm {
  int bits = 0;
  std::uint64_t base = 0;  ///< the bit pattern of an element
  std::uint64_t other = 0;

  std::size_t bytes(std::size_t n) const {
    return div_up(n * static_cast<std::size_t>(bits), std::size_t{8});
  }
};

namespace packing {

inline constexpr std::size_t tile_elems = 64 * KiB;  // a multiple of 8

template <class Body>
void in_tiles(const Cpu& cpu, std::size_t n, const Body& body) {
  cpu.parallel(div_up(n, tile_elems), [&](std::size_t i, int) {
    const std::size_t first = i * tile_elems;
    body(i, first, n - first < tile_elems ? n - first : tile_elems);
  });
}

/// Whether x has two distinct bit patterns at most, and which.
template <class U>
bool two_values(const Cpu& cpu, const U* x, std::size_t n, U& base, U& other) {
  base = other = x[0];
  for (std::size_t i = 1; i < n && other == base; ++i) other = x[i];
  std::atomic<bool> more = false;
  in_tiles(cpu, n, [&](std::size_t, std::size_t first, std::size_t count) {
    constexpr std::size_t step = 512;
    for (std::size_t i = first; i < first + count && !more.load(std::memory_order_relaxed);
         i += step) {
      const std::size_t end = std::min(i + step, first + count);
      bool odd = false;
      for (std::size_t k = i; k < end; ++k) odd |= x[k] != base && x[k] != other;
      if (odd) more.store(true, std::memory_order_relaxed);
    }
  });
  return !more.load();
}

/// Lowest and highest of x.
template <class S>
void range(const Cpu& cpu, const S* x, std::size_t n, S& low, S& high) {
  std::vector<S> lows(div_up(n, tile_elems)), highs(lows.size());
  in_tiles(cpu, n, [&](std::size_t i, std::size_t first, std::size_t count) {
    S least = x[first], most = x[first];
    for (std::size_t k = first; k < first + count; ++k) {
      least = std::min(least, x[k]);
      most = std::max(most, x[k]);
    }
    lows[i] = least, highs[i] = most;
  });
  low = *std::min_element(lows.begin(), lows.end());
  high = *std::max_element(highs.begin(), highs.end());
}

template <class U>
void pack_bits(const Cpu& cpu, const U* x, std::size_t n, U base, std::uint8_t* to) {
  in_tiles(cpu, n, [&](std::size_t, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; i += 8) {
      unsigned byte = 0;
      const std::size_t here = std::min<std::size_t>(8, first + count - i);
      for (std::size_t k = 0; k < here; ++k) byte |= (x[i + k] != base ? 1U : 0U) << k;
      to[i / 8] = static_cast<std::uint8_t>(byte);
    }
  });
}
template <class U>
void unpack_bits(const Cpu& cpu, const std::uint8_t* from, std::size_t n, U base, U other, U* x) {
  in_tiles(cpu, n, [&](std::size_t, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i)
      x[i] = (from[i / 8] >> (i % 8) & 1U) != 0 ? other : base;
  });
}

template <class Code, class U>
void subtract(const Cpu& cpu, const U* x, std::size_t n, U base, void* to) {
  auto* codes = static_cast<Code*>(to);
  in_tiles(cpu, n, [&](std::size_t, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i)
      codes[i] = static_cast<Code>(static_cast<U>(x[i] - base));
  });
}
template <class Code, class U>
void add(const Cpu& cpu, const void* from, std::size_t n, U base, U* x) {
  const auto* codes = static_cast<const Code*>(from);
  in_tiles(cpu, n, [&](std::size_t, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) x[i] = static_cast<U>(codes[i] + base);
  });
}

/// Calls call(U{}) with the unsigned integer of `size` bytes; false if there is none.
template <class Call>
bool with_pattern(std::size_t size, const Call& call) {
  switch (size) {
    case 1: return call(std::uint8_t{}), true;
    case 2: return call(std::uint16_t{}), true;
    case 4: return call(std::uint32_t{}), true;
    case 8: return call(std::uint64_t{}), true;
    default: return false;
  }
}

template <class U>
LosslessForm form_of(const Cpu& cpu, const U* x, std::size_t n, bool is_integer, bool is_signed) {
  U base = 0, other = 0;
  if (two_values(cpu, x, n, base, other)) return {1, base, other};
  if (!is_integer || sizeof(U) == 1) return {};
  U low = 0, high = 0;
  if (is_signed) {
    using S = std::make_signed_t<U>;
    S least = 0, most = 0;
    range(cpu, static_cast<const S*>(static_cast<const void*>(x)), n, least, most);
    low = static_cast<U>(least), high = static_cast<U>(most);
  } else {
    range(cpu, x, n, low, high);
  }
  const auto span = static_cast<std::uint64_t>(static_cast<U>(high - low));
  for (const int bits : {8, 16, 32})
    if (static_cast<std::size_t>(bits) < 8 * sizeof(U) && span >> bits == 0) return {bits, low, 0};
  return {};
}

}  // namespace packing

/// The form of n elements of `size` bytes each at x.
inline LosslessForm lossless_form(const Cpu& cpu, const void* x, std::size_t n, std::size_t size,
                                  bool is_integer, bool is_signed) {
  LosslessForm form;
  packing::with_pattern(size, [&]<class U>(U) {
    form = packing::form_of(cpu, static_cast<const U*>(x), n, is_integer, is_signed);
  });
  return form;
}

/// Writes form.bytes(n) bytes.
inline void pack_lossless(const Cpu& cpu, const LosslessForm& form, const void* x, std::size_t n,
                          std::size_t size, void* to) {
  packing::with_pattern(size, [&]<class U>(U) {
    const auto* from = static_cast<const U*>(x);
    const auto base = static_cast<U>(form.base);
    switch (form.bits) {
      case 1: return packing::pack_bits(cpu, from, n, base, static_cast<std::uint8_t*>(to));
      case 8: return packing::subtract<std::uint8_t>(cpu, from, n, base, to);
      case 16: return packing::subtract<std::uint16_t>(cpu, from, n, base, to);
      default: return packing::subtract<std::uint32_t>(cpu, from, n, base, to);
    }
  });
}

inline void unpack_lossless(const Cpu& cpu, const LosslessForm& form, const void* from,
                            std::size_t n, std::size_t size, void* x) {
  packing::with_pattern(size, [&]<class U>(U) {
    auto* to = static_cast<U*>(x);
    const auto base = static_cast<U>(form.base);
    switch (form.bits) {
      case 1:
        return packing::unpack_bits(cpu, static_cast<const std::uint8_t*>(from), n, base,
                                    static_cast<U>(form.other), to);
      case 8: return packing::add<std::uint8_t>(cpu, from, n, base, to);
      case 16: return packing::add<std::uint16_t>(cpu, from, n, base, to);
      default: return packing::add<std::uint32_t>(cpu, from, n, base, to);
    }
  });
}

}}}  // namespace adacc::v0_1::torch
