// SPDX-License-Identifier: MIT
/// BitMask and PackedIndexWith: the format, read by a decoder after the table alone, and what they
/// make of numbers that they cannot represent.
#include <doctest/doctest.h>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/packed_index.hpp>
#include <adacc/core/random.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "encoded.hpp"
#include "sample.hpp"

namespace bit_groups_test { namespace {

using namespace adacc;
using sample::Blob;
using sample::encoded;
using sample::Matrix;
using sample::round_trip;

static_assert(BitMask::encoded_bytes(64, 64, Dtype::f32) == 64 + 64 + 8 * 64);
static_assert(BitMask::encoded_bytes(1, 1, Dtype::bf16) == 64 + 64 + 64);
static_assert(PackedIndexWith<4>::encoded_bytes(64, 65, Dtype::f32) == 64 + 64 + 9 * 4 * 64);
static_assert(PackedIndexWith<16>::encoded_bytes(4096, 4096, Dtype::f64) ==
              64 + 2 * 4096 + 2 * 4096 * 4096);
static_assert(BitMask::lossless && PackedIndexWith<3>::lossless);

/// What the table in bit_groups.hpp says.
struct Found {
  std::vector<unsigned> codes, marks;
  std::size_t end = 0;
  bool zeros = true;  // in all that is unused
};

Found read_blob(const Blob& blob, std::size_t n, std::size_t bits) {
  const auto u16 = [&](std::size_t at) {
    return static_cast<unsigned>(blob.data()[at] | blob.data()[at + 1] << 8);
  };
  Found found;
  std::size_t at = 64;
  for (std::size_t chunk = 0; chunk * 4096 < n; ++chunk, at += 2) found.marks.push_back(u16(at));
  for (; at % 64 != 0; ++at) found.zeros = found.zeros && blob.data()[at] == 0;
  for (std::size_t first = 0; first < n; first += 512, at += 64 * bits)
    for (std::size_t i = 0; i < 512; ++i) {
      const std::size_t j = i / 32, lane = i % 32;
      unsigned code = 0;
      for (std::size_t b = 0; b < bits; ++b) {
        const std::size_t position = j * bits + b;
        code |= (u16(at + 64 * (position / 16) + 2 * lane) >> position % 16 & 1) << b;
      }
      if (first + i < n) found.codes.push_back(code);
      else found.zeros = found.zeros && code == 0;
    }
  found.end = at;
  return found;
}

template <class T>
Matrix<T> indices(std::size_t rows, std::size_t cols, unsigned bits) {
  Matrix<T> x(rows, cols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const unsigned index = random_word({.seed = 9}, i) & ((1U << bits) - 1);
    if constexpr (std::is_same_v<T, bfloat16>) x[i] = to_bfloat16(static_cast<float>(index));
    else x[i] = static_cast<T>(index);
  }
  return x;
}

template <int bits, class T>
void check_packed() {
  using Codec = PackedIndexWith<bits>;
  CAPTURE(Codec::name);
  CHECK(std::string(Codec::name) == "packed_index_" + std::to_string(bits));
  for (const std::size_t cols : {std::size_t{1}, std::size_t{511}, std::size_t{512},
                                 std::size_t{513}, std::size_t{9001}, std::size_t{17000}}) {
    const Matrix<T> x = indices<T>(1, cols, bits);
    const Blob blob = encoded<Codec>(x);
    const Found found = read_blob(blob, cols, bits);
    CHECK(found.end == blob.size());
    CHECK(found.zeros);
    for (const unsigned mark : found.marks) CHECK(mark == 0);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < cols; ++i)
      if constexpr (std::is_same_v<T, bfloat16>)
        wrong += static_cast<float>(found.codes[i]) != to_float(x[i]);
      else wrong += static_cast<T>(found.codes[i]) != x[i];
    CHECK(wrong == 0);
    CHECK(round_trip<Codec>(x).memory == x.memory);
  }
}

TEST_CASE_TEMPLATE("indices of every width come back, from where the table says", T, float,
                   double) {
  check_packed<1, T>();
  check_packed<2, T>();
  check_packed<3, T>();
  check_packed<4, T>();
  check_packed<5, T>();
  check_packed<6, T>();
  check_packed<7, T>();
  check_packed<8, T>();
  check_packed<9, T>();
  check_packed<10, T>();
  check_packed<11, T>();
  check_packed<12, T>();
  check_packed<13, T>();
  check_packed<14, T>();
  check_packed<15, T>();
  check_packed<16, T>();
}

TEST_CASE("indices in bfloat16, which counts to 256") {
  check_packed<1, bfloat16>();
  check_packed<5, bfloat16>();
  check_packed<8, bfloat16>();
}

TEST_CASE_TEMPLATE("what is no index of so many bits makes its chunk NaN, and no other", T, float,
                   double) {
  using Codec = PackedIndexWith<4>;
  using Limits = std::numeric_limits<T>;
  const T smallest_above_3 = std::nextafter(T(3), T(4));
  const T bad[] = {16,
                   -1,
                   T(0.5),
                   T(-0.5),
                   T(15.5),
                   smallest_above_3,
                   65536,
                   T(4294967296.0),
                   T(4294967299.0),
                   Limits::max(),
                   Limits::lowest(),
                   Limits::denorm_min(),
                   -Limits::denorm_min(),
                   Limits::infinity(),
                   -Limits::infinity(),
                   Limits::quiet_NaN(),
                   -Limits::quiet_NaN()};
  for (const T x_bad : bad) {
    CAPTURE(x_bad);
    Matrix<T> x = indices<T>(100, 100, 4);
    x[5000] = x[5001] = x_bad;
    const Blob blob = encoded<Codec>(x);
    const Found found = read_blob(blob, x.size(), 4);
    CHECK(found.marks == std::vector<unsigned>{0, 2, 0});
    const Matrix<T> y = round_trip<Codec>(x);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      wrong += i / 4096 == 1 ? !std::isnan(y[i]) : y[i] != x[i];
    CHECK(wrong == 0);
    const CodecStatistics seen = Codec::statistics(blob.view(), 100, 100, dtype_of<T>);
    CHECK(seen.elements == 10000);
    CHECK(seen.unplaced == 2);
  }
}

TEST_CASE("-0 is the index 0") {
  Matrix<float> x(1, 3);
  x[0] = -0.0F, x[1] = 3, x[2] = 0;
  const Matrix<float> y = round_trip<PackedIndexWith<2>>(x);
  CHECK(y[0] == 0);
  CHECK(y[1] == 3);
}

TEST_CASE_TEMPLATE("a mask says what is positive, and no more", T, float, double) {
  using Limits = std::numeric_limits<T>;
  for (const std::size_t cols :
       {std::size_t{1}, std::size_t{33}, std::size_t{512}, std::size_t{5000}, std::size_t{40001}}) {
    Matrix<T> x = sample::gaussian<T>(1, cols, 5);
    const T special[] = {
        0, -T(0), Limits::denorm_min(), -Limits::denorm_min(), Limits::max(), Limits::lowest()};
    for (std::size_t i = 0; i < cols; i += 7) x[i] = special[i / 7 % 6];
    const Blob blob = encoded<BitMask>(x);
    const Found found = read_blob(blob, cols, 1);
    CHECK(found.end == blob.size());
    CHECK(found.zeros);
    const Matrix<T> y = round_trip<BitMask>(x);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < cols; ++i)
      wrong += found.codes[i] != (x[i] > 0 ? 1U : 0U) || y[i] != (x[i] > 0 ? T(1) : T(0));
    CHECK(wrong == 0);
    CHECK(BitMask::statistics(blob.view(), 1, cols, dtype_of<T>).nonfinite == 0);
  }
}

TEST_CASE("a mask of bfloat16") {
  Matrix<bfloat16> x(1, 0x7F80 * 2);  // all that are finite, of both signs
  for (std::uint32_t i = 0; i < x.size(); ++i)
    x[i] = bfloat16{static_cast<std::uint16_t>(i % 2 == 0 ? i / 2 : 0x8000 | i / 2)};
  const Matrix<bfloat16> y = round_trip<BitMask>(x);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    wrong += to_float(y[i]) != (to_float(x[i]) > 0 ? 1.0F : 0.0F);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("what is not finite makes its chunk of the mask NaN, and no other", T, float,
                   double) {
  using Limits = std::numeric_limits<T>;
  for (const T bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    Matrix<T> x = sample::gaussian<T>(100, 100, 6);
    x[0] = x[8191] = x[9999] = bad;
    x[4096] = bad;
    const Blob blob = encoded<BitMask>(x);
    CHECK(read_blob(blob, x.size(), 1).marks == std::vector<unsigned>{1, 2, 1});
    CHECK(BitMask::statistics(blob.view(), 100, 100, dtype_of<T>).nonfinite == 4);
    x[4096] = x[8191] = 1;
    const Matrix<T> y = round_trip<BitMask>(x);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      wrong += i / 4096 == 1 ? y[i] != (x[i] > 0 ? T(1) : T(0)) : !std::isnan(y[i]);
    CHECK(wrong == 0);
  }
}

}}  // namespace bit_groups_test
