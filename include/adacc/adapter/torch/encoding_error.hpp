// SPDX-License-Identifier: MIT
/// The error of an encoding, by the measure needed in an operator's backward.
///
/// The error is computed from the original and from the scales in the blob, without decoding. An element is off by at
/// most half a step of the group's scale, and a uniform error of a step has the square of a twelfth. (A codec's own
/// row_errors() knows rows alone: neither parts of rows, nor x (1 - x), nor steps.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../../codec/bf16.hpp"
#include "../../codec/quant/codec.hpp"
#include "../../core/cpu.hpp"
#include "../../core/view.hpp"
#include "side_rows.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// The reference for an error.
struct Measure {
  std::size_t row = 1;      ///< neighbouring elements of one row: a part of the columns
  bool complement = false;  ///< measures x (1 - x) in place of x
};

struct EncodingError {
  bool numbers = true;     ///< all elements are finite, and so are their products
  double row = 0;          ///< the worst row's squared error by its square
  double whole = 0;        ///< squared error by square of all
  float step = 0;          ///< the largest distance of neighbouring codes
  double mean_square = 0;  ///< the largest of a row
};

namespace quant = ::adacc::detail;  // this namespace has another detail

namespace detail {

/// Whether the codec's blobs have a scale for each group of elements.
template <class Codec>
inline constexpr bool has_scales = requires {
  Codec::options.group;
};

/// Where a blob of Codec has its scales, encoded from `rows` x `cols` elements of T.
template <class Codec, class T>
RowScales row_scales(std::size_t rows, std::size_t cols) {
  if constexpr (has_scales<Codec>) {
    const quant::QuantFormat format(Codec::bits, Codec::options, rows, cols, sizeof(T));
    constexpr std::size_t group = Codec::options.group;
    return {format.start_of(0), format.whole.bytes, group == 0 ? 1 : std::min(group, cols),
            group == 0};
  } else {
    return {};
  }
}

struct ErrorSum {
  double noise = 0, square = 0, row = 0, mean_square = 0;
  float step = 0;
  bool numbers = true;

  void add(const ErrorSum& other) {
    noise += other.noise, square += other.square;
    row = std::max(row, other.row);
    mean_square = std::max(mean_square, other.mean_square);
    step = std::max(step, other.step);
    numbers = numbers && other.numbers;
  }
  void add_row(double error, double its_square, std::size_t n) {
    numbers = numbers && its_square < largest_square;
    noise += error, square += its_square;
    mean_square = std::max(mean_square, its_square / static_cast<double>(n));
    if (its_square > 0) row = std::max(row, error / its_square);
  }
};

/// Sum of squares, in a form that vectorizes; no number if any element is none.
template <bool Complement, class T>
double sum_of_squares(const T* x, std::size_t n) {
  const auto weighed = [](T element) {
    const auto value = static_cast<double>(quant::to_number(element));
    return Complement ? value * (1 - value) : value;
  };
  constexpr std::size_t lanes = 16;
  double sums[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t k = 0; k < lanes; ++k) {
      const double value = weighed(x[i + k]);
      sums[k] += value * value;
    }
  double sum = 0;
  for (; i < n; ++i) {
    const double value = weighed(x[i]);
    sum += value * value;
  }
  for (const double each : sums) sum += each;
  return sum;
}
template <class T>
double square_of(const T* x, std::size_t n, bool complement) {
  return complement ? sum_of_squares<true>(x, n) : sum_of_squares<false>(x, n);
}

/// Squared error of `n` elements of row `r` of a block from column `c` on, by their groups' scales, which are noted
/// in `sum`.
template <class Codec>
double noise_of(const quant::QuantBlock& block, const std::byte* bytes, std::size_t r,
                std::size_t c, std::size_t n, ErrorSum& sum) {
  constexpr std::size_t group = Codec::options.group;
  double noise = 0;
  for (std::size_t k = c; k < c + n;) {
    // The end of the group along the row.
    const std::size_t end = group == 0           ? k + 1
                            : group == whole_row ? c + n
                                                 : std::min(c + n, (k / group + 1) * group);
    bfloat16 stored;
    std::memcpy(&stored, bytes + block.scales + 2 * block.template group_of<Codec::options>(r, k),
                2);
    const float scale = to_float(quant::without_mark(stored));
    sum.numbers = sum.numbers && !quant::is_marked(stored);
    sum.step = std::max(sum.step, scale);
    noise +=
        static_cast<double>(scale) * static_cast<double>(scale) / 12 * static_cast<double>(end - k);
    k = end;
  }
  return noise;
}

/// Sums over blocks of 64 rows, each with one sum.
template <class Body>
EncodingError sum_of_blocks(Cpu& cpu, std::size_t rows, const Body& body) {
  std::vector<ErrorSum> sums(div_up(rows, quant::block_rows));
  cpu.parallel(sums.size(), [&](std::size_t i, int) {
    const std::size_t first = i * quant::block_rows;
    sums[i] = body(i, first, std::min(quant::block_rows, rows - first));
  });
  ErrorSum all;
  for (const ErrorSum& each : sums) all.add(each);
  return {all.numbers, all.row, all.square > 0 ? all.noise / all.square : 0, all.step,
          all.mean_square};
}

}  // namespace detail

/// The error of `blob`, encoded by Codec from x.
template <class Codec, class T>
EncodingError encoding_error(Cpu& cpu, View<const T> x, Measure measure, ConstBytes blob) {
  const std::size_t cols = x.cols();
  if constexpr (detail::has_scales<Codec>) {
    const quant::QuantFormat format(Codec::bits, Codec::options, x.rows(), cols, sizeof(T));
    return detail::sum_of_blocks(
        cpu, x.rows(), [&](std::size_t index, std::size_t first, std::size_t rows) {
          const quant::QuantBlock block(Codec::bits, Codec::options, rows, cols, sizeof(T));
          const std::byte* bytes = blob.data() + format.start_of(index);
          detail::ErrorSum sum;
          for (std::size_t c = 0; c < cols; c += measure.row) {
            const std::size_t n = std::min(measure.row, cols - c);
            double noise = 0;
            for (std::size_t r = 0; r < rows; ++r) {
              // A scale along a column serves all rows.
              if (r == 0 || Codec::options.group != 0)
                noise = detail::noise_of<Codec>(block, bytes, r, c, n, sum);
              sum.add_row(
                  noise,
                  detail::square_of(x.data() + (first + r) * cols + c, n, measure.complement), n);
            }
          }
          return sum;
        });
  } else {
    EncodingError error;
    if constexpr (requires {
                    Codec::statistics(blob, cols, cols, dtype_of<T>);
                  })  // of a mask's chunks
      error.numbers = Codec::statistics(blob, x.rows(), cols, dtype_of<T>).nonfinite == 0;
    if constexpr (std::is_same_v<Codec, Bf16>) {
      const EncodingError seen = detail::sum_of_blocks(
          cpu, x.rows(), [&](std::size_t, std::size_t first, std::size_t rows) {
            detail::ErrorSum sum;
            const T* from = x.data() + first * cols;
            float most = 0;
            for (std::size_t i = 0; i < rows * cols; ++i)
              most = std::max(most, std::abs(quant::to_number(from[i])));
            // An error of at most 2^-9 of each element, evenly spread.
            double noise = 0;
            if (measure.complement)
              noise = detail::square_of(from, rows * cols, false) / (3.0 * 512 * 512);
            sum.add_row(noise, detail::square_of(from, rows * cols, measure.complement),
                        rows * cols);
            sum.step = most / 256;
            return sum;
          });
      error.step = seen.step;
      error.whole = seen.whole;
      error.mean_square = seen.mean_square;
      error.numbers = error.numbers && seen.numbers;
    }
    return error;
  }
}

}}}  // namespace adacc::v0_1::torch
