// SPDX-License-Identifier: MIT
/// Quantizing codecs on finite numbers: the error bound, for any size, type and range.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <string>

#include "quant_cases.hpp"

namespace quant_round_trip_test { namespace {

using namespace quant_cases;

/// Everything that holds for any finite input.
template <class Codec, class T>
void check(const Matrix<T>& x) {
  CAPTURE(std::string(Codec::name));
  const Blob blob = encoded<Codec>(x, 0xA5);
  CHECK(blob.guards_hold());
  CHECK(blob == encoded<Codec>(x, 0x5A));
  const Read<T> read = read_quant<Codec, T>(blob, x.rows, x.cols);
  CHECK(read.zeros);
  CHECK(read.well_formed);
  const Matrix<T> y = decoded<Codec, T>(blob, x.rows, x.cols);
  CHECK(y.guards_hold());
  CHECK(same(y, read.x));
  const double part = Codec::options.rounding == Rounding::nearest ? 0.5 : 1;
  std::size_t too_far = 0, inexact = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = as_float(x[i]), b = as_float(y[i]);
    // The roundings of x - minimum, of the division, and of the sum; of the result to bfloat16.
    const double epsilon = sizeof(T) == 2 ? 1.0 / 256 : 0;
    const double slack =
        4e-7 * (std::abs(a) + 256.0 * static_cast<double>(read.scale[i])) + epsilon * std::abs(b);
    if (!(std::abs(a - b) <= part * static_cast<double>(read.scale[i]) + slack)) ++too_far;
    if (read.placed[i] && std::memcmp(&x[i], &y[i], sizeof(T)) != 0) ++inexact;
    if (read.placed[i] && std::abs(a - b) == 0 && too_far != 0) --too_far;
  }
  CHECK(too_far == 0);
  CHECK(inexact == 0);
  const CodecStatistics s = Codec::statistics(blob.view(), x.rows, x.cols, dtype_of<T>);
  CHECK(s.elements == x.size());
  CHECK(s.outliers - s.unplaced == read.outliers);
  CHECK(s.nonfinite == 0);
  float most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(as_float(x[i])));
  CHECK(s.max_magnitude == most);
}

template <class T>
Matrix<T> test_matrix(std::size_t n, std::size_t cols) {
  const Matrix<float> from = sample::gaussian<float>(n, cols, n * 1000 + cols);
  Matrix<T> x(n, cols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = detail::from_number<T>(from[i]);
  return x;
}

TEST_CASE_TEMPLATE("any size, clean and with massive elements", T, float, double, bfloat16) {
  for (const std::size_t n : std::initializer_list<std::size_t>{1, 3, 64, 65, 100})
    for (const std::size_t cols : std::initializer_list<std::size_t>{1, 7, 33, 100, 300, 1100}) {
      CAPTURE(n);
      CAPTURE(cols);
      Matrix<T> x = test_matrix<T>(n, cols);
      for (int massive = 0; massive < 2; ++massive) {
        check<Int8Outlier>(x);
        check<Int4Outlier>(x);
        if (cols < 1000) {
          check<Int8OutlierWith<symmetric>>(x);
          check<Int8OutlierWith<rows>>(x);
          check<Int4OutlierWith<group32>>(x);
          check<Int8OutlierWith<group64>>(x);
          check<Int8OutlierWith<group128_channels>>(x);
          check<Int4OutlierWith<rows_channels>>(x);
          check<Int4OutlierWith<column_channels>>(x);
          check<Int8OutlierWith<no_places>>(x);
          check<Int4OutlierWith<group256_none>>(x);
          check<Int8OutlierWith<stochastic>>(x);
          check<Int4OutlierWith<symmetric_stochastic>>(x);
        }
        for (std::size_t i = 5; i < x.size(); i += 97)
          x[i] = detail::from_number<T>(as_float(x[i]) * 1000);
        for (std::size_t r = 0; r < n; ++r)
          x[r * cols + cols / 2] = detail::from_number<T>(as_float(x[r * cols + cols / 2]) * 90);
      }
    }
}

TEST_CASE("zeros are exact, constants nearly") {
  Matrix<float> x(130, 65);
  const auto check_zeros = [&]<class Codec>(Codec) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0;
    CHECK(same(round_trip<Codec>(x), x));
    for (const float value : {0.1F, -3e37F, 1e-44F, 3.2e38F}) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = value;
      const Matrix<float> y = round_trip<Codec>(x);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (!(std::abs(y[i] - value) <= std::abs(value) / 6 + 1e-30F)) {
          CHECK(y[i] == value);
          break;
        }
    }
  };
  check_zeros(Int8Outlier{});
  check_zeros(Int4Outlier{});
  check_zeros(Int8OutlierWith<symmetric>{});
  check_zeros(Int8OutlierWith<rows_channels>{});
  check_zeros(Int4OutlierWith<symmetric_stochastic>{});
}

TEST_CASE("ranges that are no number, and the smallest") {
  Matrix<float> x(64, 6);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float part = static_cast<float>(i / 6) / 63;  // 0 to 1
    const float all[] = {3e38F * part - 3e38F * (1 - part),
                         3.29e38F * part,
                         -3.29e38F * part,
                         part * 1e-38F,
                         part * 1e-44F,
                         part};
    x[i] = all[i % 6];
  }
  const auto check_ranges = [&]<class Codec>(Codec) {
    const Matrix<float> y = round_trip<Codec>(x);
    const double steps = Codec::bits == 8 ? 250 : 14.5;
    for (std::size_t i = 0; i < x.size(); ++i) {
      CAPTURE(i);
      REQUIRE(std::isfinite(y[i]));
      const double range[] = {6e38, 3.29e38, 3.29e38, 0, 0, 1};
      const double error = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      CHECK(error <= range[i % 6] / steps + 1e-30);
    }
  };
  check_ranges(Int8Outlier{});
  check_ranges(Int4Outlier{});
  check_ranges(Int4OutlierWith<symmetric>{});
}

}}  // namespace quant_round_trip_test
