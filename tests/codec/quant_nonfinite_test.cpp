// SPDX-License-Identifier: MIT
/// NaNs, infinities and what is beyond float stay visible through quantizing codecs.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
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

  // More than there are places: they decode to NaN, and the numbers of their groups to numbers.
  Matrix<T> many = sample::gaussian<T>(64, 40, 8);
  for (std::size_t i = 0; i < many.size(); i += 40) many[i + 3] = none[i / 40 % 3];
  const auto check_many = [&]<class Codec>(Codec) {
    const Matrix<T> y = round_trip<Codec>(many);
    for (std::size_t i = 0; i < many.size(); ++i) {
      CAPTURE(i);
      if (!std::isfinite(many[i])) CHECK(!std::isfinite(y[i]));
      else CHECK(std::abs(y[i] - many[i]) < T(0.1));
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

TEST_CASE("doubles beyond float are kept exactly or become the largest number of their sign") {
  Matrix<double> x = sample::gaussian<double>(64, 5, 3);
  x[17] = 1e300;
  CHECK(round_trip<Int8Outlier>(x)[17] == 1e300);
  x[18] = -1e300;
  const Matrix<double> y = round_trip<Int8OutlierWith<no_places>>(x);
  CHECK(std::isfinite(y[17]));
  CHECK(y[17] > 3.2e38);
  CHECK(std::isfinite(y[18]));
  CHECK(y[18] < -3.2e38);
}

/// Whether decoding gives a number wherever there was one, and none wherever there was none.
template <class Codec, class T>
void check_numbers(const Matrix<T>& x) {
  INFO(Codec::name << " " << x.rows << " x " << x.cols);
  const Matrix<T> y = round_trip<Codec>(x);
  std::size_t lost = 0, hidden = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    lost += detail::is_number(x[i]) && !detail::is_number(y[i]) ? 1U : 0U;
    hidden += !detail::is_number(x[i]) && detail::is_number(y[i]) ? 1U : 0U;
  }
  CHECK(lost == 0);
  CHECK(hidden == 0);
  // The reader that was written after the format's description alone reads the same.
  const Read<T> read = read_quant<Codec, T>(encoded<Codec>(x), x.rows, x.cols);
  CHECK(read.zeros);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool both = detail::is_number(read.x[i]) == detail::is_number(y[i]);
    if (!both || (detail::is_number(y[i]) &&
                  as_float(read.x[i]) != doctest::Approx(as_float(y[i])).epsilon(0.01))) {
      CAPTURE(i);
      CHECK(as_float(read.x[i]) == as_float(y[i]));
    }
  }
}

template <class T>
T as(float x) {
  return detail::from_number<T>(x);
}

template <class T>
void check_all_options(const Matrix<T>& x) {
  check_numbers<Int8Outlier>(x);
  check_numbers<Int4Outlier>(x);
  check_numbers<Int8OutlierWith<symmetric>>(x);
  check_numbers<Int4OutlierWith<group32>>(x);
  check_numbers<Int4OutlierWith<rows>>(x);
  check_numbers<Int8OutlierWith<group64>>(x);
  check_numbers<Int8OutlierWith<group128_channels>>(x);
  check_numbers<Int4OutlierWith<rows_channels>>(x);
  check_numbers<Int8OutlierWith<column_channels>>(x);
  check_numbers<Int8OutlierWith<no_places>>(x);
  check_numbers<Int4OutlierWith<group256_none>>(x);
  check_numbers<Int4OutlierWith<stochastic>>(x);
  check_numbers<Int8OutlierWith<symmetric_stochastic>>(x);
}

TEST_CASE_TEMPLATE("a number decodes to a number, whatever is around it", T, float, double,
                   bfloat16) {
  constexpr float lowest = -3.4028234e38F, infinity = std::numeric_limits<float>::infinity();
  const float wild[] = {lowest, -lowest, infinity, -infinity,
                        std::numeric_limits<float>::quiet_NaN()};
  const float lowest_of_bfloat16 = -3.3895314e38F;
  for (const int kind : {0, 1, 2}) {
    for (const int percent : {1, 30, 100}) {
      Matrix<float> from = sample::gaussian<float>(130, 300, 11);
      Matrix<T> x(130, 300);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::uint32_t word = random_word({.seed = 17}, i);
        if (word % 100 < static_cast<std::uint32_t>(percent))
          from[i] = kind == 0   ? lowest_of_bfloat16  // as masks of attention have it
                    : kind == 1 ? wild[word / 100 % 5]
                                : 1e10F;
        if (std::abs(from[i]) > 3.39e38F && std::isfinite(from[i]) && sizeof(T) == 2)
          from[i] = from[i] < 0 ? lowest_of_bfloat16 : -lowest_of_bfloat16;
        x[i] = as<T>(from[i]);
      }
      check_all_options(x);
    }
  }
}

}}  // namespace quant_nonfinite_test
