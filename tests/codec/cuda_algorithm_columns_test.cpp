/// Split codecs with groups along columns: the CUDA kernels' algorithms, run on the
/// host, make the same bytes as the CPU's codecs.
#include "cuda_algorithm_split.hpp"

namespace cuda_algorithm_columns_test { namespace {

using namespace cuda_algorithm;

TEST_CASE("split codecs, groups along columns: emulated kernels make the CPU's bytes") {
  check_options<SplitOptions{}>();
  check_options<SplitOptions{.symmetric = true, .rounding = stochastic}>();
  check_options<SplitOptions{.outliers = Outliers::channels, .outliers_per_mille = 20}>();
  check_options<SplitOptions{.outliers = Outliers::none}>();
  check_options<SplitOptions{.outliers_per_mille = 0}>();
}

}}  // namespace cuda_algorithm_columns_test
