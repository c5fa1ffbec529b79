// SPDX-License-Identifier: MIT
/// Bf16: its format, its rounding, and what it does not change.
#include <doctest/doctest.h>
#include <adacc/codec/bf16.hpp>
#include <adacc/core/random.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "encoded.hpp"
#include "sample.hpp"

namespace bf16_test { namespace {

using namespace adacc;
using sample::Blob;
using sample::encoded;
using sample::Matrix;
using sample::round_trip;

static_assert(Bf16::encoded_bytes(64, 64, Dtype::f32) == 64 + 2 * 4096);
static_assert(Bf16::encoded_bytes(3, 5, Dtype::f64) == 64 + 64);
static_assert(Bf16::encoded_bytes(1, 33, Dtype::bf16) == 64 + 128);
static_assert(!Bf16::lossless);

std::uint16_t code_at(const Blob& blob, std::size_t e) {
  std::uint16_t code;
  std::memcpy(&code, blob.data() + 64 + 2 * e, sizeof code);
  return code;
}

TEST_CASE("elements lie where the table says, and zeros after them") {
  const Matrix<float> x = sample::gaussian<float>(7, 13, 1);
  const Blob blob = encoded<Bf16>(x);
  for (std::size_t e = 0; e < x.size(); ++e) CHECK(code_at(blob, e) == to_bfloat16(x[e]).bits);
  REQUIRE(blob.size() == 256);
  for (std::size_t i = 64 + 2 * 91; i < blob.size(); ++i) CHECK(blob.data()[i] == 0);
}

TEST_CASE("the relative error of normal numbers is at most 2^-8") {
  const Matrix<float> x = sample::gaussian<float>(200, 300, 2);  // several tiles
  const Matrix<float> y = round_trip<Bf16>(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::fmax(worst, std::fabs(double{y[i]} - double{x[i]}) / std::fabs(double{x[i]}));
  CHECK(worst <= 0x1p-8);
  CHECK(worst > 0x1p-8 * 0.9);  // the bound is tight
}

TEST_CASE("every bfloat16 is copied bit by bit, as such and as float") {
  Matrix<bfloat16> x(256, 256);
  for (std::uint32_t i = 0; i < 65536; ++i) x[i] = bfloat16{static_cast<std::uint16_t>(i)};
  CHECK(round_trip<Bf16>(x).memory == x.memory);
  Matrix<float> wide(256, 256);
  for (std::uint32_t i = 0; i < 65536; ++i) wide[i] = to_float(x[i]);
  const Matrix<float> back = round_trip<Bf16>(wide);
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto in = adacc::detail::bits_as<std::uint32_t>(wide[i]),
               out = adacc::detail::bits_as<std::uint32_t>(back[i]);
    // A NaN made quiet is the only thing that may change.
    if (out != (std::isnan(wide[i]) ? in | 0x00400000 : in)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a float that is nearest to infinity stays a number, and infinities stay what they are") {
  const float largest = std::numeric_limits<float>::max(),
              infinity = std::numeric_limits<float>::infinity();
  const float most = to_float(bfloat16{0x7F7F}), tie = adacc::detail::bits_as<float>(0x7F7F8000U);
  const float in[] = {largest, -largest, tie, std::nextafter(tie, 0.0F), infinity, -infinity};
  const float out[] = {most, -most, most, most, infinity, -infinity};
  Matrix<float> x(1, 6);
  for (std::size_t i = 0; i < 6; ++i) x[i] = in[i];
  const Matrix<float> y = round_trip<Bf16>(x);
  for (std::size_t i = 0; i < 6; ++i) CHECK(y[i] == out[i]);
}

TEST_CASE("doubles are rounded to float first; numbers beyond the range stay numbers") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Matrix<double> x(1, 7);
  const double in[] = {1.0 / 3, -infinity, 1e300, -1e39, 1e-300, 0x1.01p0, 0x1.01000001p0};
  for (std::size_t i = 0; i < 7; ++i) x[i] = in[i];
  const Matrix<double> y = round_trip<Bf16>(x);
  CHECK(y[0] == double{to_float(to_bfloat16(1.0F / 3))});
  CHECK(y[1] == -infinity);
  const double most = to_float(bfloat16{0x7F7F});
  CHECK(y[2] == most);
  CHECK(y[3] == -most);
  CHECK(y[4] == 0);
  CHECK(y[5] == 1);  // to even
  CHECK(y[6] == 1);  // the float is the one before
}

}}  // namespace bf16_test
