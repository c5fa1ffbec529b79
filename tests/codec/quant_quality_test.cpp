// SPDX-License-Identifier: MIT
/// The quantizing codecs' signal-to-noise ratios, against the figures that the design rests on.
#include <doctest/doctest.h>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>

#include <cmath>
#include <string>

#include "sample.hpp"

namespace quant_quality_test { namespace {

using namespace adacc;
using sample::Matrix;

constexpr std::size_t rows = 1024, cols = 768;

/// Decibels, over the elements for which in_bulk(i).
template <class Codec, class InBulk>
double sqnr(const Matrix<float>& x, const InBulk& in_bulk) {
  Cpu cpu;
  sample::Blob blob(Codec::encoded_bytes(x.rows, x.cols, Dtype::f32), 0);
  Matrix<float> y(x.rows, x.cols);
  CHECK(!Codec::template encode<float>(cpu, x.view(), blob.view()));
  CHECK(!Codec::template decode<float>(cpu, blob.view(), y.view()));
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!in_bulk(i)) continue;
    const double value = x[i], error = value - static_cast<double>(y[i]);
    signal += value * value;
    noise += error * error;
  }
  return 10 * std::log10(signal / noise);
}

const auto all = [](std::size_t) { return true; };
const auto not_hit = [](std::size_t i) { return i % 128 != 37; };
const auto not_massive = [](std::size_t i) { return i % 4999 != 12; };

Matrix<float> clean() { return sample::gaussian<float>(rows, cols, 1); }
Matrix<float> hit_channels() {
  Matrix<float> x = clean();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!not_hit(i)) x[i] *= 20;
  return x;
}
Matrix<float> massive_elements() {
  Matrix<float> x = clean();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!not_massive(i)) x[i] *= 1000;
  return x;
}

template <unsigned Bits, std::size_t Group>
using Elements = QuantCodec<Bits, QuantOptions{.group = Group}>;
template <unsigned Bits, std::size_t Group>
using Channels =
    QuantCodec<Bits, QuantOptions{
                         .group = Group, .outliers = Outliers::channels, .outliers_per_mille = 8}>;
template <unsigned Bits, std::size_t Group>
using Unsplit = QuantCodec<Bits, QuantOptions{.group = Group, .outliers = Outliers::none}>;
template <unsigned Bits>
using Symmetric = QuantCodec<Bits, QuantOptions{.symmetric = true}>;

TEST_CASE("clean Gaussian data: the design's figures within 1 dB") {
  const Matrix<float> x = clean();
  CHECK(std::abs(sqnr<Elements<8, whole_row>>(x, all) - 42.9) < 1);
  CHECK(std::abs(sqnr<Elements<8, 128>>(x, all) - 44.6) < 1);
  CHECK(std::abs(sqnr<Elements<8, 32>>(x, all) - 46.8) < 1);
  CHECK(std::abs(sqnr<Elements<4, whole_row>>(x, all) - 18.3) < 1);
  CHECK(std::abs(sqnr<Elements<4, 128>>(x, all) - 20.0) < 1);
  CHECK(std::abs(sqnr<Elements<4, 32>>(x, all) - 22.1) < 1);
  // For groups of 64 rows the design says 44.5 and 19.4, which is what symmetric scales reach.
  CHECK(std::abs(sqnr<Symmetric<8>>(x, all) - 44.5) < 1);
  CHECK(std::abs(sqnr<Symmetric<4>>(x, all) - 19.4) < 1);
  CHECK(std::abs(sqnr<Int8Outlier>(x, all) - 45.6) < 0.5);
  CHECK(std::abs(sqnr<Int4Outlier>(x, all) - 21.0) < 0.5);
}

TEST_CASE("six channels of 768 scaled by 20") {
  const Matrix<float> x = hit_channels();
  // Scales by column do not notice; along the row, splitting channels brings the clean figure back.
  CHECK(std::abs(sqnr<Int8Outlier>(x, not_hit) - 45.6) < 1);
  CHECK(std::abs(sqnr<Int4Outlier>(x, not_hit) - 21.0) < 1);
  CHECK(std::abs(sqnr<Channels<8, 128>>(x, not_hit) - 44.6) < 1);
  CHECK(std::abs(sqnr<Channels<8, 32>>(x, not_hit) - 46.8) < 1);
  CHECK(std::abs(sqnr<Channels<8, whole_row>>(x, not_hit) - 42.9) < 1);
  CHECK(std::abs(sqnr<Channels<4, 128>>(x, not_hit) - 20.1) < 1);
  CHECK(std::abs(sqnr<Unsplit<8, 128>>(x, not_hit) - 32.0) < 1);
}

TEST_CASE("a few massive elements: splitting elements brings the clean figure back") {
  const Matrix<float> x = massive_elements();
  CHECK(std::abs(sqnr<Int8Outlier>(x, not_massive) - 45.6) < 1);
  CHECK(std::abs(sqnr<Int4Outlier>(x, not_massive) - 21.0) < 1);
  CHECK(std::abs(sqnr<Elements<8, 128>>(x, not_massive) - 44.6) < 1);
  CHECK(std::abs(sqnr<Elements<8, 32>>(x, not_massive) - 46.8) < 1);
  CHECK(std::abs(sqnr<Elements<8, whole_row>>(x, not_massive) - 42.9) < 1);
  CHECK(sqnr<Unsplit<8, 0>>(x, not_massive) < 20);
}

TEST_CASE("the sampled error of the bulk is near the whole") {
  Cpu cpu;
  const auto check_sampled = [&]<class Codec>(Codec, const Matrix<float>& x, double expected) {
    sample::Blob blob(Codec::encoded_bytes(rows, cols, Dtype::f32), 0);
    CHECK(!Codec::template encode<float>(cpu, x.view(), blob.view()));
    const CodecStatistics s = Codec::statistics(blob.view(), rows, cols, Dtype::f32);
    CHECK(s.samples > 700);
    CHECK(std::abs(10 * std::log10(s.bulk_signal / s.bulk_noise) - expected) < 1);
  };
  check_sampled(Int8Outlier{}, clean(), 45.6);
  check_sampled(Int4Outlier{}, massive_elements(), 21.0);
  check_sampled(Elements<8, 128>{}, massive_elements(), 44.6);
}

}}  // namespace quant_quality_test
