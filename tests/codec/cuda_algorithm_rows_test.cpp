/// Split codecs with groups along rows: the CUDA kernels' algorithms, run on the
/// host, make the same bytes as the CPU's codecs.
#include "cuda_algorithm_split.hpp"

namespace cuda_algorithm_rows_test { namespace {

using namespace cuda_algorithm;

TEST_CASE("split codecs, groups along rows: emulated kernels make the CPU's bytes") {
  check_options<SplitOptions{.group = 32}>();
  check_options<SplitOptions{.group = 64, .outliers_per_mille = 150, .rounding = stochastic}>();
  check_options<SplitOptions{.group = 128, .outliers = Outliers::channels}>();
  check_options<SplitOptions{.group = 128, .outliers_per_mille = 1000}>();
  check_options<SplitOptions{.group = 256, .outliers_per_mille = 10, .symmetric = true}>();
  check_options<SplitOptions{.group = 32, .outliers = Outliers::none}>();
}

}}  // namespace cuda_algorithm_rows_test
