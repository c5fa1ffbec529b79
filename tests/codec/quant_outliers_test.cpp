// SPDX-License-Identifier: MIT
/// What quantizing codecs take for outliers, and which of them get a place.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>

#include "quant_cases.hpp"

namespace quant_outliers_test { namespace {

using namespace quant_cases;

TEST_CASE("clean Gaussian data has no outliers") {
  for (const std::size_t n : std::initializer_list<std::size_t>{1024, 70}) {
    const Matrix<float> x = sample::gaussian<float>(n, 768, n);
    const auto outliers = [&]<class Codec>(Codec) {
      return Codec::statistics(encoded<Codec>(x).view(), n, 768, Dtype::f32).outliers;
    };
    CHECK(outliers(Int8Outlier{}) == 0);
    CHECK(outliers(Int8OutlierWith<group32>{}) == 0);
    CHECK(outliers(Int8OutlierWith<rows>{}) == 0);
    CHECK(outliers(Int8OutlierWith<group128_channels>{}) == 0);
    CHECK(outliers(Int8OutlierWith<rows_channels>{}) == 0);
  }
}

TEST_CASE("massive elements are exact, and leave their group's scale alone") {
  const Matrix<float> clean = sample::gaussian<float>(64, 100, 5);
  Matrix<float> x = clean;
  const auto check_massive = [&]<class Codec>(Codec) {
    const Read<float> before = read_quant<Codec, float>(encoded<Codec>(clean), 64, 100);
    const Read<float> after = read_quant<Codec, float>(encoded<Codec>(x), 64, 100);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] != clean[i]) CHECK(after.placed[i]);
      CHECK(after.scale[i] <= before.scale[i]);
    }
  };
  for (std::size_t i = 7; i < x.size(); i += 601) x[i] = x[i] < 0 ? -1000.0F : 1000.0F;
  check_massive(Int8Outlier{});
  check_massive(Int4OutlierWith<QuantOptions{.group = 64}>{});
  check_massive(Int8OutlierWith<rows>{});
}

TEST_CASE("outliers beyond the bound widen their group, the farthest out are taken first") {
  Matrix<float> x = sample::gaussian<float>(64, 50, 6);
  const std::size_t places = 7;  // 3200 elements, 2 in 1000, rounded up
  for (std::size_t c = 0; c < 50; ++c) x[c * 50 + c] = c % 10 == 3 ? 3000.0F : 100.0F;
  const Blob blob = encoded<Int8Outlier>(x);
  const Read<float> read = read_quant<Int8Outlier, float>(blob, 64, 50);
  REQUIRE(read.outliers == places);
  CHECK(read.flagged == 50);
  CHECK(read.unplaced == 43);
  for (std::size_t c = 0; c < 50; ++c) {
    const std::size_t i = c * 50 + c;
    if (c % 10 == 3) CHECK(read.placed[i]);
    if (!read.placed[i]) CHECK(read.x[i] == doctest::Approx(100).epsilon(0.01));  // not clipped
    CHECK((read.scale[c] < 0.1F) == read.placed[i]);
  }
}

TEST_CASE("hit channels are exact, and leave the scales of the rows alone") {
  Matrix<float> x = sample::gaussian<float>(64, 256, 6);
  for (std::size_t r = 0; r < 64; ++r) x[r * 256 + 37] *= 20, x[r * 256 + 165] *= 20;
  using Codec = Int8OutlierWith<group128_channels>;
  const Read<float> read = read_quant<Codec, float>(encoded<Codec>(x), 64, 256);
  CHECK(read.outliers == 128);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(read.placed[i] == (i % 128 == 37));
    CHECK(read.scale[i] < 0.05F);
  }
}

TEST_CASE("nothing but outliers: none is lost") {
  Matrix<float> x(64, 300);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i / 300 % 16 == i % 16 ? 1e6F : 1.0F;
  const Matrix<float> y = round_trip<Int8Outlier>(x);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(y[i] - x[i]) < 2010);
  using Every = Int8OutlierWith<QuantOptions{.group = 64, .outliers_per_mille = 1000}>;
  CHECK(same(round_trip<Every>(x), x) == false);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::numeric_limits<float>::infinity();
  CHECK(same(round_trip<Every>(x), x));  // a place for every element
}

}}  // namespace quant_outliers_test
