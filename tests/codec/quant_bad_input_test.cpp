// SPDX-License-Identifier: MIT
/// Quantizing codecs given what does not fit, and blobs that are damaged.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include "quant_cases.hpp"

namespace quant_bad_input_test { namespace {

using namespace quant_cases;

TEST_CASE("arguments that do not fit are errors, and nothing is written") {
  Cpu cpu;
  const Matrix<float> x = sample::gaussian<float>(64, 8, 11);
  const std::size_t bytes = Int8Outlier::encoded_bytes(64, 8, Dtype::f32);
  Blob blob(bytes, 0xA5);
  const View<const float> good = x.view();
  const auto fails = [&](View<const float> from, Bytes to) {
    const bool failed = static_cast<bool>(Int8Outlier::encode<float>(cpu, from, to));
    return failed && blob == Blob(bytes, 0xA5);
  };
  CHECK(fails(good, Bytes(blob.view().data(), Shape(bytes - 64))));
  CHECK(fails(View<const float>(x.data(), Shape(0, 8)), blob.view()));
  CHECK(fails(View<const float>(x.data(), Shape(32, 8)), blob.view()));
  CHECK(fails(View<const float>(x.data() + 1, Shape(32, 8)), blob.view()));
  CHECK(fails(good, Bytes(blob.view().data() + 4, Shape(bytes))));
  const Blob made = encoded<Int8Outlier>(x);
  Matrix<float> y(64, 8);
  CHECK(!Int8Outlier::decode<float>(cpu, made.view(), y.view()));
  CHECK(Int8OutlierWith<stochastic>::decode<float>(cpu, made.view(), y.view()));
  Matrix<float> z(32, 16);
  CHECK(Int8Outlier::decode<float>(cpu, made.view(), z.view()));
  CHECK(Int8Outlier::statistics(made.view(), 64, 8, Dtype::f32).elements == 512);
  CHECK(Int8Outlier::statistics(made.view(), 8, 64, Dtype::f32).elements == 0);
}

TEST_CASE("whatever the blob says, decode writes its rows and nothing else") {
  Matrix<float> x = sample::gaussian<float>(67, 31, 10);
  x[100] = 1e9F;
  const auto check_damage = [&]<class Codec>(Codec) {
    const Blob blob = encoded<Codec>(x);
    Cpu cpu;
    Blob damaged = blob;
    Matrix<float> y(x.rows, x.cols);
    for (std::size_t i = 0; i < blob.size(); ++i) {
      damaged.data()[i] = static_cast<unsigned char>(~damaged.data()[i]);
      const bool failed =
          static_cast<bool>(Codec::template decode<float>(cpu, damaged.view(), y.view()));
      if (failed != (i < 64)) CHECK(i == blob.size());
      damaged.data()[i] = blob.data()[i];
    }
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      for (std::size_t i = 64; i < damaged.size(); ++i)
        damaged.data()[i] = static_cast<unsigned char>(random_word({.seed = seed}, i));
      CHECK(!Codec::template decode<float>(cpu, damaged.view(), y.view()));
    }
    CHECK(y.guards_hold());
  };
  check_damage(Int8Outlier{});
  check_damage(Int4OutlierWith<group32>{});
  check_damage(Int4OutlierWith<rows_channels>{});
}

}}  // namespace quant_bad_input_test
