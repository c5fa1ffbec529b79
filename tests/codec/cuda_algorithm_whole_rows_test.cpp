// SPDX-License-Identifier: MIT
/// Quantizing codecs with scales of whole rows: the CUDA kernels' algorithms, run on the
/// host, make the same bytes as the CPU's codecs.
#include "cuda_algorithm_quant.hpp"

namespace cuda_algorithm_whole_rows_test { namespace {

using namespace cuda_algorithm;

TEST_CASE("quantizing codecs, scales of whole rows: emulated kernels make the CPU's bytes") {
  check_types<QuantOptions{.group = whole_row}>();
  check_options<QuantOptions{
      .group = whole_row, .outliers = Outliers::channels, .outliers_per_mille = 8}>();
  check_options<QuantOptions{
      .group = whole_row, .outliers = Outliers::none, .rounding = stochastic}>();
}

}}  // namespace cuda_algorithm_whole_rows_test
