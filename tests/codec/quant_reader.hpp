// SPDX-License-Identifier: MIT
/// A decoder of quantized blobs after the table in codec/quant/layout.hpp alone: it shares no code with
/// the codec but its options.
#pragma once

#include <adacc/codec/quant/layout.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "sample.hpp"

namespace sample {

template <class T>
struct Read {
  Read(std::size_t rows, std::size_t cols)
      : x(rows, cols), scale(rows * cols), low(rows * cols), placed(rows * cols, false) {}

  Matrix<T> x;
  std::vector<float> scale, low;  // of every element: its group's scale and smallest value
  std::vector<bool> placed;       // the outliers with a place
  std::size_t outliers = 0;       // how many
  bool zeros = true;              // in all that is unused
  bool well_formed = true;        // counts and places in bounds, ascending
  std::size_t flagged = 0, unplaced = 0, nonfinite = 0;
};

inline float number(std::uint16_t bfloat16_bits) {
  const std::uint32_t bits = std::uint32_t{bfloat16_bits} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
template <class T>
T element(float x) {
  return static_cast<T>(x);
}
template <>
inline adacc::bfloat16 element<adacc::bfloat16>(float x) {
  return adacc::to_bfloat16(x);
}

template <class T>
Read<T> read_quant(unsigned bits, const adacc::QuantOptions& o, const Blob& blob, std::size_t rows,
                   std::size_t cols) {
  const auto up = [](std::size_t n, std::size_t to) { return (n + to - 1) / to * to; };
  const auto get = [&](std::size_t at, auto value) {
    if (at + sizeof value <= blob.size()) std::memcpy(&value, blob.data() + at, sizeof value);
    return value;
  };
  Read<T> out(rows, cols);
  std::vector<bool> used(blob.size(), false);
  const auto use = [&](std::size_t at, std::size_t n) {
    for (std::size_t i = at; i < at + n; ++i) used[i] = true;
  };
  use(0, 64);
  const bool channels = o.outliers == adacc::Outliers::channels;
  const std::size_t E = sizeof(T);
  const int middle = bits == 8 ? 128 : 8;
  std::size_t start = 64;
  for (std::size_t top = 0; top < rows; top += 64) {
    const std::size_t r = rows - top < 64 ? rows - top : 64;
    const std::size_t g = o.group == adacc::whole_row ? cols : o.group;
    const std::size_t per_row = g == 0 ? 0 : (cols + g - 1) / g;
    const std::size_t G = g == 0 ? cols : r * per_row, M = o.symmetric ? 0 : G;
    use(start, 40);
    out.flagged += get(start, std::uint32_t{});
    out.unplaced += get(start + 4, std::uint32_t{});
    out.nonfinite += get(start + 8, std::uint32_t{});
    use(start + 64, 2 * (G + M));
    std::size_t section = start + up(64 + 2 * (G + M), 64);
    std::size_t end = section;
    const auto places = [&](std::size_t n) {
      if (o.outliers == adacc::Outliers::none) return std::size_t{0};
      return ((channels ? n : r * n) * o.outliers_per_mille + 999) / 1000;
    };
    const auto section_bytes = [&](std::size_t n) {
      const std::size_t K = places(n), V = channels ? r * K : K;
      return K == 0 ? 0 : up(8 + E * V + 2 * K, 16);
    };
    for (std::size_t c = 0; c < cols; c += 256)
      end += section_bytes(cols - c < 256 ? cols - c : 256);
    const std::size_t Q = start + up(end - start, 64);
    const std::size_t R = bits == 8 ? cols : cols / 32 * 16 + (cols % 32 + 1) / 2;
    use(Q, r * R);
    for (std::size_t i = 0; i < r; ++i)
      for (std::size_t c = 0; c < cols; ++c) {
        const std::size_t group = g == 0 ? c : c / g * r + i;
        const auto bits_of_scale = get(start + 64 + 2 * group, std::uint16_t{});
        const bool marked = bits_of_scale >> 15 != 0;
        const float scale = number(bits_of_scale & 0x7FFF);
        const float low = o.symmetric ? scale * static_cast<float>(-middle)
                                      : number(get(start + 64 + 2 * (G + group), std::uint16_t{}));
        int code = 0;
        if (bits == 8) {
          code = blob.data()[Q + i * R + c];
        } else {
          const std::size_t n = cols - c / 32 * 32 < 32 ? cols - c / 32 * 32 : 32;
          const std::size_t h = (n + 1) / 2, j = c % 32;
          const int byte = blob.data()[Q + i * R + c / 32 * 16 + j % h];
          code = j < h ? byte & 15 : byte >> 4;
        }
        const int nan = o.symmetric ? 0 : 2 * middle - 1;
        const float value =
            marked && code == nan ? std::numeric_limits<float>::quiet_NaN()
            : o.symmetric
                ? scale * static_cast<float>(code - middle)
                : static_cast<float>(static_cast<double>(low) + static_cast<double>(scale) * code);
        const std::size_t at = (top + i) * cols + c;
        out.x[at] = element<T>(value);
        out.scale[at] = scale;
        out.low[at] = low;
      }
    for (std::size_t left = 0; left < cols; left += 256) {
      const std::size_t n = cols - left < 256 ? cols - left : 256;
      const std::size_t K = places(n), V = channels ? r * K : K;
      if (K == 0) continue;
      const std::size_t count = get(section, std::uint32_t{});
      use(section, 4);
      out.well_formed = out.well_formed && count <= K;
      std::size_t before = 0;
      for (std::size_t k = 0; k < count && k < K; ++k) {
        const std::size_t place = get(section + 8 + E * V + 2 * k, std::uint16_t{});
        use(section + 8 + E * V + 2 * k, 2);
        out.well_formed = out.well_formed && (k == 0 || place > before);
        before = place;
        for (std::size_t i = 0; i < (channels ? r : 1); ++i) {
          const std::size_t row = channels ? i : place / 256, col = channels ? place : place % 256;
          const std::size_t from = section + 8 + E * (channels ? r * k + i : k);
          use(from, E);
          if (row >= r || col >= n) {
            out.well_formed = false;
            continue;
          }
          const std::size_t at = (top + row) * cols + left + col;
          out.x[at] = get(from, T{});
          out.placed[at] = true;
          ++out.outliers;
        }
      }
      section += section_bytes(n);
    }
    start += up(Q + r * R - start, 64);
  }
  out.well_formed = out.well_formed && start == blob.size();
  for (std::size_t i = 0; i < blob.size(); ++i)
    out.zeros = out.zeros && (used[i] || blob.data()[i] == 0);
  return out;
}

template <class Codec, class T>
Read<T> read_quant(const Blob& blob, std::size_t rows, std::size_t cols) {
  return read_quant<T>(Codec::bits, Codec::options, blob, rows, cols);
}

}  // namespace sample
