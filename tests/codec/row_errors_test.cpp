// SPDX-License-Identifier: MIT
/// row_errors() of quantizing codecs: which rows are over the bound, against a sum over what decode gives.
#include <doctest/doctest.h>

#include <adacc/codec/codec.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "../host_mode.hpp"
#include "quant_cases.hpp"

namespace row_errors_test { namespace {

using namespace quant_cases;

template <class Codec, class T>
RowErrors judged(const Matrix<T>& x, Cpu cpu = {}) {
  const Blob blob = encoded<Codec>(x);
  return Codec::template row_errors<T>(cpu, x.view(), blob.view());
}

template <class T>
Matrix<T> normal(std::size_t rows, std::size_t cols) {
  const Matrix<float> x = sample::gaussian<float>(rows, cols, rows + cols);
  Matrix<T> y(rows, cols);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = detail::from_number<T>(x[i]);
  return y;
}

/// Rows whose squared error exceeds `bound` times their own square.
template <class Codec, class T>
std::size_t rows_over(const Matrix<T>& x, double bound) {
  const Matrix<T> y = round_trip<Codec>(x);
  std::size_t over = 0;
  for (std::size_t r = 0; r < x.rows; ++r) {
    double error = 0, own = 0;
    for (std::size_t c = 0; c < x.cols; ++c) {
      const double a = as_float(x[r * x.cols + c]), b = as_float(y[r * x.cols + c]);
      error += (a - b) * (a - b);
      own += a * a;
    }
    over += error > bound * own ? 1U : 0U;
  }
  return over;
}

TEST_CASE_TEMPLATE("rows alike are within the bound, whatever their scale" *
                       doctest::test_suite("one_thread"),
                   T, float, double, bfloat16) {
  for (const std::size_t cols : {1U, 5U, 31U, 32U, 300U, 1500U})
    for (const float scale : {1e-25F, 1.0F, 1e30F}) {
      CAPTURE(cols);
      CAPTURE(scale);
      Matrix<T> x = normal<T>(130, cols);
      // Narrow rows of normal numbers differ in square by themselves.
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = detail::from_number<T>((as_float(x[i]) < 0 ? -1 : 1) * scale +
                                      0.2F * scale * as_float(x[i]));
      const auto check = [&]<class Codec>(Codec) {
        const RowErrors of = judged<Codec>(x);
        CHECK(of.rows == 130);
        CHECK(of.over == 0);
        CHECK(of.worst <= Codec::row_bound);
      };
      check(Int8Outlier{});
      check(Int4Outlier{});
      check(Int4OutlierWith<group32>{});
      check(Int8OutlierWith<rows>{});
      check(Int8OutlierWith<no_places>{});
      check(Int8OutlierWith<group128_channels>{});
    }
}

TEST_CASE(
    "rows much smaller than others are over the bound, as many as are; a scale per row holds "
    "them") {
  for (const std::size_t cols : {20U, 300U, 1500U}) {
    Matrix<float> x = normal<float>(130, cols);
    for (const std::size_t r : {3U, 70U, 100U})
      for (std::size_t c = 0; c < cols; ++c) x[r * cols + c] *= 0.01F;
    CAPTURE(cols);
    const auto check = [&]<class Codec>(Codec) {
      const RowErrors of = judged<Codec>(x);
      CHECK(of.over == rows_over<Codec>(x, Codec::row_bound));
      CHECK(of.over >= 3);
      CHECK(of.worst > 10 * Codec::row_bound);
    };
    check(Int4Outlier{});
    check(Int8Outlier{});
    check(Int4OutlierWith<stochastic>{});
    CHECK(judged<Int4OutlierWith<QuantOptions{.group = 128}>>(x).over == 0);
    CHECK(judged<Int8OutlierWith<rows>>(x).over == 0);
  }
}

TEST_CASE_TEMPLATE(
    "codecs for unlike rows hold them, in no more bytes than the codec that names them", Codec,
    Int4Outlier, Int8Outlier, Int4OutlierWith<stochastic>,
    Int8OutlierWith<QuantOptions{.positive = true}>) {
  using ByRows = typename Codec::for_unlike_rows;
  CHECK(codec_info<Codec>.for_unlike_rows == &codec_info<ByRows>);
  CHECK(codec_info<ByRows>.for_unlike_rows == nullptr);
  CHECK(ByRows::draws_numbers == Codec::draws_numbers);
  CHECK(ByRows::options.positive == Codec::options.positive);
  CHECK(ByRows::item_elements(100) == Codec::item_elements(100));
  for (const std::size_t cols : {64U, 384U, 768U})
    for (const std::size_t rows : {1U, 63U, 130U, 1024U})
      for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
        CHECK(ByRows::encoded_bytes(rows, cols, dtype) <= Codec::encoded_bytes(rows, cols, dtype));
  // Rows of every scale, with a channel that stands out.
  Matrix<float> x = normal<float>(130, 384);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] *= std::pow(10.0F, -static_cast<float>(i / 384 % 13) / 4) * (i % 384 == 7 ? 20.0F : 1.0F);
  CHECK(judged<Codec>(x).over > 50);
  CHECK(judged<ByRows>(x).over == 0);
  CHECK(rows_over<ByRows>(x, ByRows::row_bound) == 0);
}

TEST_CASE("outliers without a place that cost the rest of a row") {
  for (const float wild : {1e10F, -std::numeric_limits<float>::max()}) {
    Matrix<float> x = normal<float>(130, 300);
    std::size_t rows_hit = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (random_word({.seed = 5}, i) % 100 == 0) x[i] = wild;
    const Matrix<float> y = round_trip<Int8Outlier>(x);
    for (std::size_t r = 0; r < 130; ++r) {
      double error = 0, bulk = 0;
      for (std::size_t c = 0; c < 300; ++c) {
        const std::size_t i = r * 300 + c;
        if (std::abs(x[i]) > 100) continue;
        error += (double{y[i]} - x[i]) * (double{y[i]} - x[i]);
        bulk += double{x[i]} * x[i];
      }
      rows_hit += error > Int8Outlier::row_bound * bulk ? 1U : 0U;
    }
    CHECK(rows_hit > 100);
    CHECK(judged<Int8Outlier>(x).over == rows_hit);
  }
}

TEST_CASE(
    "a row with a NaN or an infinity that has no place is over the bound; with a place it is not") {
  Matrix<float> x = normal<float>(64, 300);
  x[5 * 300 + 7] = -std::numeric_limits<float>::infinity();
  CHECK(judged<Int8Outlier>(x).over == 0);
  const RowErrors of = judged<Int8OutlierWith<no_places>>(x);
  CHECK(of.over == 1);
  CHECK(of.worst >= 1e30);
}

TEST_CASE("zeros that are exact, and rows of a few large elements, are within the bound") {
  Matrix<float> x(130, 300);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t r = i / 300, c = i % 300;
    // Rows of softmax behind a causal mask; in between rows of zeros.
    x[i] = c <= r && r % 5 != 0 ? 1.0F / static_cast<float>(r + 1) : 0.0F;
  }
  CHECK(judged<Int8Outlier>(x).over <= rows_over<Int8Outlier>(x, Int8Outlier::row_bound));
  Matrix<float> relu = normal<float>(130, 300);
  for (std::size_t i = 0; i < relu.size(); ++i)
    relu[i] = i / 300 % 7 == 3 || relu[i] < 0 ? 0.0F : relu[i];
  CHECK(judged<Int8Outlier>(relu).over == 0);
  CHECK(judged<Int4Outlier>(relu).over == 0);
}

TEST_CASE("threads, parts and a host's floating-point mode change nothing") {
  Matrix<float> x = normal<float>(1000, 70);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] *= i / 70 % 90 == 5 ? 0.01F : i % 500 == 3 ? 1e9F : 1.0F;
  const RowErrors one = judged<Int4Outlier>(x);
  REQUIRE(one.over >= 11);
  for (const int workers : {2, 3}) {
    sample::Threads threads{workers};
    const RowErrors of = judged<Int4Outlier>(x, Cpu(threads));
    CHECK(of.over == one.over);
    CHECK(of.worst == one.worst);
  }
  const Blob blob = encoded<Int4Outlier>(x);
  RowErrors sum;
  Cpu cpu;
  for (std::size_t i = 0; i < 16; ++i)
    sum = sum + Int4Outlier::row_errors<float>(cpu, x.view(), blob.view(), Part{i, 1, 16});
  CHECK(sum.rows == one.rows);
  CHECK(sum.over == one.over);
  CHECK(sum.worst == one.worst);
  RowErrors there;
  {
    const HostMode mode(true);
    there = Int4Outlier::row_errors<float>(cpu, x.view(), blob.view());
  }
  CHECK(there.over == one.over);
  CHECK(there.worst == one.worst);
  // A blob of another codec is not judged.
  CHECK(Int8Outlier::row_errors<float>(cpu, x.view(), blob.view()).rows == 0);
}

}}  // namespace row_errors_test
