// SPDX-License-Identifier: MIT
/// How a row of an encoded block is judged, on the host and on devices: both ask the same questions, in one order of
/// additions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/config.hpp"
#include "../../core/extremes.hpp"
#include "layout.hpp"
#include "quantize.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Columns whose squares are added up at a time.
inline constexpr std::size_t judged_cols = 4 * tile_cols;

/// Sums of a row, without elements that have a place; bulk: elements within the row's limit.
struct RowSums {
  double error, signal, bulk_error, bulk_signal;
  std::size_t elements, bulk;

  ADACC_HD double ratio() const {
    const double all = of(error, signal);
    // Outliers in its groups may cost the bulk of a row, though the row's error is small beside the outliers.
    const double within = 2 * bulk >= elements ? of(bulk_error, bulk_signal) : 0;
    return larger(all, within);
  }

 private:
  static constexpr double largest_ratio = 1e30;

  ADACC_HD static double of(double error, double signal) {
    if (error == 0) return 0;
    return error < largest_ratio * signal ? error / signal : largest_ratio;  // also of NaN
  }
};

/// Elements of a row in group k of the row; of one element if groups are columns.
template <QuantOptions O>
ADACC_HD double elements_of_group(const QuantBlock& block, std::size_t k) {
  if constexpr (O.group == 0) return 1;
  else if constexpr (O.group == whole_row) return static_cast<double>(block.cols);
  else return static_cast<double>(smaller(O.group, block.cols - k * O.group));
}

/// Whether a row is possibly over the bound, from the sum of scale^2 over its elements and its typical magnitude.
template <QuantOptions O>
ADACC_HD bool is_suspect(double squares, double bound, std::size_t cols, std::int32_t magnitude) {
  constexpr double rounding = O.rounding == Rounding::stochastic ? 1.0 / 6 : 1.0 / 12;
  const double typical = bits_as<float>(magnitude);
  // The square of the largest of eight normal numbers is about 2.4 times their mean square. Half the bound is near.
  const double guess = static_cast<double>(cols) * typical * typical / 2.4;
  return !(rounding * squares <= 0.5 * bound * guess);
}

/// The sum of eight sums of every eighth number.
ADACC_HD inline double sum_of_neighbours(const double (&sums)[8]) {
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}
/// The sum of the eight lanes of a vector, which is added to its own halves.
ADACC_HD inline double sum_of_halves(const double (&lanes)[8]) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

}}}  // namespace adacc::v0_1::detail
