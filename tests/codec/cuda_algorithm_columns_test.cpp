// SPDX-License-Identifier: MIT
/// Quantizing codecs with groups along columns: the CUDA kernels' algorithms, run on the
/// host, make the same bytes as the CPU's codecs.
#include "cuda_algorithm_quant.hpp"

namespace cuda_algorithm_columns_test { namespace {

using namespace cuda_algorithm;

TEST_CASE("quantizing codecs, groups along columns: emulated kernels make the CPU's bytes") {
  check_types<QuantOptions{}>();
  check_options<QuantOptions{.symmetric = true, .rounding = stochastic}>();
  check_options<QuantOptions{.outliers = Outliers::channels, .outliers_per_mille = 20}>();
  check_options<QuantOptions{.outliers = Outliers::none}>();
  check_options<QuantOptions{.positive = true}>();
  check_options<QuantOptions{.outliers_per_mille = 0}>();
}

}}  // namespace cuda_algorithm_columns_test
