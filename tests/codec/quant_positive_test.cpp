// SPDX-License-Identifier: MIT
/// The output of a ReLU through quantizing codecs: what was positive stays positive, and 0 stays 0.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>

#include "quant_cases.hpp"

namespace quant_positive_test { namespace {

using namespace quant_cases;

template <class Codec, class T>
void check(const Matrix<T>& x) {
  INFO(Codec::name << " " << x.rows << " x " << x.cols);
  const Blob blob = encoded<Codec>(x);
  const Matrix<T> y = decoded<Codec, T>(blob, x.rows, x.cols);
  const Read<T> read = read_quant<Codec, T>(blob, x.rows, x.cols);
  CHECK(same(y, read.x));
  std::size_t closed = 0, opened = 0, far = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = as_float(x[i]), b = as_float(y[i]), scale = read.scale[i];
    closed += a > 0 && !(b > 0) ? 1U : 0U;
    opened += a == 0 && b != 0 ? 1U : 0U;
    // A code moves up by less than one, where it was 0.
    far += std::abs(a - b) > (b <= scale * 1.01 ? 1.01 : 0.51) * scale + b / 128 ? 1U : 0U;
  }
  CHECK(closed == 0);
  CHECK(opened == 0);
  CHECK(far == 0);
}

TEST_CASE_TEMPLATE("gates stay as they are", T, float, double, bfloat16) {
  for (const std::size_t cols : {1U, 7U, 33U, 300U, 1100U}) {
    const Matrix<float> from = sample::gaussian<float>(130, cols, cols);
    Matrix<T> x(130, cols);
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Of some, a ten-thousandth; and the smallest there is.
      const float small = i % 7 == 3 ? 1e-4F : 1.0F;
      x[i] = detail::from_number<T>(from[i] < 0 ? 0.0F : from[i] * small);
      if (i % 211 == 5) x[i] = detail::from_number<T>(1e-38F);
      if (i % 223 == 6 && sizeof(T) == 4)
        x[i] = detail::from_number<T>(std::numeric_limits<float>::denorm_min());
    }
    check<Int8OutlierWith<QuantOptions{.positive = true}>>(x);
    check<Int4OutlierWith<QuantOptions{.positive = true}>>(x);
    check<Int8OutlierWith<QuantOptions{.group = whole_row, .positive = true}>>(x);
    check<Int4OutlierWith<QuantOptions{.group = 32, .positive = true}>>(x);
    check<Int8OutlierWith<QuantOptions{.outliers = Outliers::none, .positive = true}>>(x);
  }
}

}}  // namespace quant_positive_test
