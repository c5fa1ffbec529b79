// SPDX-License-Identifier: MIT
/// Quantizing codecs with groups along rows: the CUDA kernels' algorithms, run on the
/// host, make the same bytes as the CPU's codecs.
#include "cuda_algorithm_quant.hpp"

namespace cuda_algorithm_rows_test { namespace {

using namespace cuda_algorithm;

TEST_CASE("quantizing codecs, groups along rows: emulated kernels make the CPU's bytes") {
  check_options<QuantOptions{.group = 64, .positive = true}>();
  check_options<QuantOptions{.group = 32}>();
  check_types<QuantOptions{.group = 64, .outliers_per_mille = 150, .rounding = stochastic}>();
  check_options<QuantOptions{.group = 128, .outliers = Outliers::channels}>();
  check_options<QuantOptions{.group = 128, .outliers_per_mille = 1000}>();
  check_options<QuantOptions{.group = 256, .outliers_per_mille = 10, .symmetric = true}>();
  check_options<QuantOptions{.group = 32, .outliers = Outliers::none}>();
}

}}  // namespace cuda_algorithm_rows_test
