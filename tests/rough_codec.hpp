// SPDX-License-Identifier: MIT
/// Codecs that judge themselves row by row: one that loses small rows beside large ones, and one that is
/// never content.
#pragma once

#include <adacc/codec/codec.hpp>
#include <adacc/core/cpu.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rough {

using namespace adacc;

inline constexpr std::size_t rows_of_item = 4;

/// Rounds to `Code`, with one scale for four rows.
template <class Code>
struct Rounded {
  static constexpr std::size_t split_items(std::size_t rows, std::size_t) {
    return div_up(rows, rows_of_item);
  }
  static constexpr std::size_t item_elements(std::size_t cols) { return rows_of_item * cols; }
  static constexpr std::size_t item_bytes(std::size_t cols) {
    return sizeof(double) + rows_of_item * cols * sizeof(Code);
  }
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype) {
    return split_items(rows, cols) * item_bytes(cols);
  }
  static constexpr double most = sizeof(Code) == 1 ? 127 : 32767;

  /// use(item, first element, elements) of those that `part` names.
  template <class Use>
  static void each_item(Cpu& cpu, std::size_t rows, std::size_t cols, Part part, const Use& use) {
    const Part mine = part.of(split_items(rows, cols));
    cpu.parallel(mine.count, [&](std::size_t i, int) {
      const std::size_t item = mine.first + i, first = item * item_elements(cols);
      const std::size_t left = rows * cols - first;
      use(item, first, left < item_elements(cols) ? left : item_elements(cols));
    });
  }

  template <class T>
  static Error encode(Cpu& cpu, View<const T> x, Bytes blob, Part part = {}) {
    each_item(
        cpu, x.rows(), x.cols(), part, [&](std::size_t item, std::size_t first, std::size_t count) {
          std::byte* to = blob.data() + item * item_bytes(x.cols());
          double scale = 0;
          for (std::size_t e = first; e < first + count; ++e)
            scale = std::fmax(scale, std::fabs(static_cast<double>(x[e])));
          std::memset(to, 0, item_bytes(x.cols()));
          std::memcpy(to, &scale, sizeof scale);
          for (std::size_t e = 0; e < count; ++e) {
            const double value = static_cast<double>(x[first + e]);
            const auto code = static_cast<Code>(scale > 0 ? std::lrint(value / scale * most) : 0);
            std::memcpy(to + sizeof scale + e * sizeof code, &code, sizeof code);
          }
        });
    return {};
  }
  template <class T>
  static Error decode(Cpu& cpu, ConstBytes blob, View<T> x, Part part = {}) {
    each_item(cpu, x.rows(), x.cols(), part,
              [&](std::size_t item, std::size_t first, std::size_t count) {
                for (std::size_t e = 0; e < count; ++e)
                  x[first + e] = static_cast<T>(value(blob, x.cols(), item, e));
              });
    return {};
  }
  static double value(ConstBytes blob, std::size_t cols, std::size_t item, std::size_t e) {
    const std::byte* from = blob.data() + item * item_bytes(cols);
    double scale = 0;
    Code code = 0;
    std::memcpy(&scale, from, sizeof scale);
    std::memcpy(&code, from + sizeof scale + e * sizeof code, sizeof code);
    return code * scale / most;
  }

  template <class T>
  static RowErrors errors(View<const T> x, ConstBytes blob, Part part, double bound) {
    RowErrors found;
    const Part mine = part.of(split_items(x.rows(), x.cols()));
    const std::size_t end = (mine.first + mine.count) * rows_of_item;
    for (std::size_t r = mine.first * rows_of_item; r < end && r < x.rows(); ++r) {
      double noise = 0, signal = 0;
      for (std::size_t c = 0; c < x.cols(); ++c) {
        const auto was = static_cast<double>(x[r * x.cols() + c]);
        const double off =
            value(blob, x.cols(), r / rows_of_item, r % rows_of_item * x.cols() + c) - was;
        noise += off * off;
        signal += was * was;
      }
      ++found.rows;
      found.over += noise > bound * signal ? 1 : 0;
      if (signal > 0 && noise / signal > found.worst) found.worst = noise / signal;
    }
    return found;
  }
};

/// 8 bits.
struct Rough : Rounded<std::int8_t> {
  static constexpr const char* name = "rough";
  static constexpr double row_bound = 0.05;
  template <class T>
  static RowErrors row_errors(Cpu&, View<const T> x, ConstBytes blob, Part part) {
    return errors(x, blob, part, row_bound);
  }
};

/// The same, with a bound that hardly a row is below.
struct Picky : Rounded<std::int8_t> {
  static constexpr const char* name = "picky";
  static constexpr double row_bound = 1e-9;
  template <class T>
  static RowErrors row_errors(Cpu&, View<const T> x, ConstBytes blob, Part part) {
    return errors(x, blob, part, row_bound);
  }
};

/// 8 bits, which nobody judges.
struct Content : Rounded<std::int8_t> {
  static constexpr const char* name = "content";
};

/// As picky, and names a codec that holds every row.
struct Fussy : Picky {
  static constexpr const char* name = "fussy";
  using for_unlike_rows = Content;
};

/// 16 bits, which nobody judges.
struct Fine : Rounded<std::int16_t> {
  static constexpr const char* name = "fine";
};

/// The same, if it is not told to fail.
struct Failing : Rounded<std::int16_t> {
  static constexpr const char* name = "failing";
  static inline bool fails = false;
  template <class T>
  static Error encode(Cpu& cpu, View<const T> x, Bytes blob, Part part = {}) {
    if (fails) return Error::say("this codec was told to fail");
    return Rounded::encode(cpu, x, blob, part);
  }
};

/// No row is thought well.
template <class Code>
struct NeverContent : Rounded<Code> {
  static constexpr double row_bound = 1e-9;
  template <class T>
  static RowErrors row_errors(Cpu&, View<const T> x, ConstBytes, Part) {
    return {x.rows(), x.rows(), 1};
  }
};
/// 16 bits.
struct Gloomy : NeverContent<std::int16_t> {
  static constexpr const char* name = "gloomy";
};
/// 8 bits.
struct Doubtful : NeverContent<std::int8_t> {
  static constexpr const char* name = "doubtful";
};

}  // namespace rough
