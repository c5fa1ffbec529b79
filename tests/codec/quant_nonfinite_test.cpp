// SPDX-License-Identifier: MIT
/// NaNs, infinities and what is beyond float stay visible through quantizing codecs.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>

#include "quant_cases.hpp"

namespace quant_nonfinite_test { namespace {

using namespace quant_cases;

TEST_CASE_TEMPLATE("NaNs and infinities stay visible", T, float, double) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T none[] = {std::numeric_limits<T>::quiet_NaN(), infinity, -infinity};
  Matrix<T> few = sample::gaussian<T>(130, 40, 7);
  for (int i = 0; i < 3; ++i) few[static_cast<std::size_t>(i) * 1733 + 5] = none[i];
  const auto check_few = [&]<class Codec>(Codec, bool exact) {
    const Matrix<T> y = round_trip<Codec>(few);
    for (std::size_t i = 0; i < few.size(); ++i) {
      CAPTURE(i);
      if (!std::isfinite(few[i])) CHECK(!std::isfinite(y[i]));
      if (!exact) continue;
      if (std::isinf(few[i])) CHECK(y[i] == few[i]);
      else if (!std::isnan(few[i])) CHECK(std::abs(y[i] - few[i]) < T(0.1));
    }
    CHECK(Codec::statistics(encoded<Codec>(few).view(), 130, 40, dtype_of<T>).nonfinite == 3);
  };
  check_few(Int8Outlier{}, true);
  check_few(Int8OutlierWith<symmetric>{}, true);
  check_few(Int8OutlierWith<group32>{}, true);
  check_few(Int8OutlierWith<rows>{}, true);
  check_few(Int8OutlierWith<group128_channels>{}, false);  // one place, three such columns
  check_few(Int8OutlierWith<no_places>{}, false);
  check_few(Int4OutlierWith<group256_none>{}, false);

  // More than there are places: whole groups, but no others, decode to NaN.
  Matrix<T> many = sample::gaussian<T>(64, 40, 8);
  for (std::size_t i = 0; i < many.size(); i += 40) many[i + 3] = none[i / 40 % 3];
  const auto check_many = [&]<class Codec>(Codec) {
    const Matrix<T> y = round_trip<Codec>(many);
    for (std::size_t i = 0; i < many.size(); ++i) {
      CAPTURE(i);
      if (!std::isfinite(many[i])) CHECK(!std::isfinite(y[i]));
      else if (i % 40 >= 32) CHECK(std::abs(y[i] - many[i]) < T(0.1));
    }
  };
  check_many(Int8Outlier{});
  check_many(Int8OutlierWith<no_places>{});
  check_many(Int8OutlierWith<group32>{});

  Matrix<T> all(65, 3);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = none[i % 3];
  const auto check_all = [&]<class Codec>(Codec) {
    const Matrix<T> y = round_trip<Codec>(all);
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(!std::isfinite(y[i]));
  };
  check_all(Int8Outlier{});
  check_all(Int4OutlierWith<rows>{});
  check_all(Int4OutlierWith<rows_channels>{});

  // NaNs go before finite outliers, however large those are.
  Matrix<T> both = sample::gaussian<T>(64, 50, 9);
  for (std::size_t c = 0; c < 40; ++c) both[5 * 50 + c] = T(1e30);
  for (std::size_t c = 43; c < 50; ++c) both[9 * 50 + c] = none[0];  // 7 places
  const Matrix<T> z = round_trip<Int8Outlier>(both);
  for (std::size_t i = 0; i < both.size(); ++i) {
    CAPTURE(i);
    CHECK(std::isnan(z[i]) == std::isnan(both[i]));
    if (i % 50 >= 40 && !std::isnan(both[i])) CHECK(std::abs(z[i] - both[i]) < T(0.1));
  }
}

TEST_CASE("doubles beyond float are kept exactly or become NaN") {
  Matrix<double> x = sample::gaussian<double>(64, 5, 3);
  x[17] = 1e300;
  CHECK(round_trip<Int8Outlier>(x)[17] == 1e300);
  CHECK(std::isnan(round_trip<Int8OutlierWith<no_places>>(x)[17]));
}

}}  // namespace quant_nonfinite_test
