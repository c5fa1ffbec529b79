// SPDX-License-Identifier: MIT
/// The bytes of quantizing codecs: sizes, names, and the same blob from every machine and thread.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "quant_cases.hpp"

namespace quant_bytes_test { namespace {

using namespace quant_cases;

// Of 64 x 256 floats: header, block header, 256 scales and minima, 33 places of 6 bytes after 8,
// codes.
static_assert(Int8Outlier::encoded_bytes(64, 256, Dtype::f32) == 64 + 64 + 1024 + 256 + 16384);
static_assert(Int4Outlier::encoded_bytes(64, 256, Dtype::f32) == 64 + 64 + 1024 + 256 + 8192);
static_assert(Int8Outlier::encoded_bytes(0, 64, Dtype::f32) == 0);
static_assert(Int8Outlier::encoded_bytes(64, 0, Dtype::f32) == 0);
static_assert(Int8Outlier::encoded_bytes((~std::size_t{0} >> 4) + 1, 1 << 20, Dtype::f32) == 0);
static_assert(Int8Outlier::encoded_bytes(static_cast<std::size_t>(-1), 1, Dtype::f64) == 0);
static_assert(Int8Outlier::encoded_bytes(1, static_cast<std::size_t>(-1), Dtype::f64) == 0);
static_assert(Int8Outlier::encoded_bytes(64, 64, Dtype::i32) == 0);

TEST_CASE("names are unique and the default's is plain") {
  CHECK(std::string(Int8Outlier::name) == "int8_outlier");
  CHECK(std::string(Int4Outlier::name) == "int4_outlier");
  CHECK(std::string(Int8OutlierWith<group32>::name) == "int8_outlier_group32_places20");
  CHECK(std::string(Int8OutlierWith<rows_channels>::name) == "int8_outlier_rows_channels");
  CHECK(std::string(Int4OutlierWith<no_places>::name) == "int4_outlier_none");
  CHECK(std::string(
            Int4OutlierWith<QuantOptions{
                .outlier_ratio = 8, .symmetric = true, .rounding = Rounding::stochastic}>::name) ==
        "int4_outlier_ratio8_symmetric_stochastic");
}

/// FNV-1a with 64 bits.
std::uint64_t hash(const unsigned char* bytes, std::size_t size) {
  std::uint64_t h = 14695981039346656037U;
  for (std::size_t i = 0; i < size; ++i) h = (h ^ bytes[i]) * 1099511628211U;
  return h;
}

template <class Codec>
std::uint64_t hash_of(const Matrix<float>& x) {
  const Cpu cpu = [] {
    Cpu keyed;
    keyed.key = {.seed = 77, .step = 3, .micro_step = 1, .activation = 9};
    return keyed;
  }();
  const Blob blob = encoded<Codec>(x, 0, cpu);
  const Matrix<float> y = decoded<Codec, float>(blob, x.rows, x.cols);
  return hash(blob.data(), blob.size()) ^ hash(y.memory.data(), y.memory.size()) * 3;
}

TEST_CASE("the bytes are the same from every compiler and for every processor") {
  Matrix<float> x(100, 301);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = unit_float(random_word({.seed = 8}, i)) - 0.3F;
  for (std::size_t i = 0; i < x.size(); i += 711) x[i] *= 999;
  CHECK(hash_of<Int8Outlier>(x) == 3070175181676870062U);
  CHECK(hash_of<Int4Outlier>(x) == 8481100842541672913U);
  CHECK(hash_of<Int8OutlierWith<stochastic>>(x) == 11251226393284664231U);
  CHECK(hash_of<Int4OutlierWith<symmetric_stochastic>>(x) == 1516140135979419236U);
  CHECK(hash_of<Int8OutlierWith<rows>>(x) == 18395941742527919304U);
  CHECK(hash_of<Int8OutlierWith<group128_channels>>(x) == 14638563004386687261U);
}

/// Bytes of a block of 64 x 300 numbers, and the numbers decoded from it, at an instruction level.
template <class Codec, class T>
std::uint64_t hash_at(InstructionLevel level) {
  constexpr std::size_t rows = 64, cols = 300;
  Matrix<T> x(rows, cols), y(rows, cols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    float number = unit_float(random_word({.seed = 8}, i)) - 0.3F;
    if (i % 511 == 0) number *= 999;
    if (i == 77) number = std::numeric_limits<float>::quiet_NaN();
    if constexpr (std::is_same_v<T, bfloat16>) x[i] = to_bfloat16(number);
    else x[i] = number;
  }
  const detail::QuantBlock block(Codec::bits, Codec::options, rows, cols, sizeof(T));
  Blob bytes(block.bytes, 0xA5);
  const RandomKey stream = {.seed = 77};
  constexpr std::uint64_t packed = detail::packed_options(Codec::options);
  detail::with_target(level, [&]<class Target>(Target) {
    Target::template call<detail::encode_block<Codec::bits, packed, T>>(
        block, x.view().data(), bytes.view().data(), stream, std::uint64_t{0}, std::size_t{0},
        false);
    Target::template call<detail::decode_block<Codec::bits, packed, T>>(
        block, bytes.view().data(), y.view().data(), std::size_t{0});
  });
  return hash(bytes.data(), bytes.size()) ^ hash(y.memory.data(), y.memory.size()) * 3;
}

TEST_CASE("the bytes of a block are the same at every instruction level") {
  const auto check_levels = [&]<class Codec, class T>(Codec, T) {
    const std::uint64_t plain = hash_at<Codec, T>(InstructionLevel::plain);
    for (const InstructionLevel level : instruction_levels)
      if (has_level(level)) CHECK(hash_at<Codec, T>(level) == plain);
  };
  check_levels(Int8Outlier{}, float{});
  check_levels(Int4Outlier{}, bfloat16{});
  check_levels(Int8OutlierWith<stochastic>{}, float{});
  check_levels(Int8OutlierWith<group128_channels>{}, float{});
}

TEST_CASE("the bits do not depend on the number of threads") {
  Matrix<float> x = sample::gaussian<float>(4300, 20, 3);  // several blocks go to a thread at once
  for (std::size_t i = 11; i < x.size(); i += 331) x[i] *= 500;
  const auto check_workers = [&]<class Codec>(Codec) {
    const Blob serial = encoded<Codec>(x);
    const Matrix<float> y = decoded<Codec, float>(serial, x.rows, x.cols);
    for (const int workers : {1, 2, 3}) {
      sample::Threads threads{workers};
      Cpu cpu(threads);
      CHECK(encoded<Codec>(x, 1, cpu) == serial);
      Matrix<float> z(x.rows, x.cols);
      CHECK(!Codec::template decode<float>(cpu, serial.view(), z.view()));
      CHECK(same(y, z));
    }
  };
  check_workers(Int8Outlier{});
  check_workers(Int4OutlierWith<stochastic>{});
}

TEST_CASE("blobs of large tensors, written past the caches, have the bytes of small ones") {
  constexpr std::size_t cols = 4096, some = 128;
  constexpr std::size_t rows = detail::least_streamed / (cols * sizeof(float)) + 70;
  Matrix<float> x = sample::gaussian<float>(rows, cols, 5), y(some, cols);
  for (std::size_t i = 11; i < x.size(); i += 3331) x[i] *= 500;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i];
  const auto check_streamed = [&]<class Codec>(Codec) {
    const Blob all = encoded<Codec>(x), part = encoded<Codec>(y);
    const std::size_t begin = blob_header_bytes, bytes = part.view().size() - begin;
    CHECK(std::memcmp(all.view().data() + begin, part.view().data() + begin, bytes) == 0);
    sample::Threads threads{2};
    CHECK(encoded<Codec>(x, 1, Cpu(threads)) == all);
  };
  check_streamed(Int8Outlier{});
  check_streamed(Int4OutlierWith<stochastic>{});
  check_streamed(Int8OutlierWith<group32>{});
  check_streamed(Int8OutlierWith<quant_cases::rows>{});
}

}}  // namespace quant_bytes_test
