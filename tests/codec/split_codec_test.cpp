/// Int8Outlier and Int4Outlier: format, error bound, and what is no ordinary number.
#include <doctest/doctest.h>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "split_reader.hpp"

namespace {

using namespace adacc;
using sample::Blob;
using sample::Matrix;
using sample::Read;
using sample::read_split;

constexpr SplitOptions symmetric{.symmetric = true};
constexpr SplitOptions rows{.group = whole_row};
constexpr SplitOptions group32{.group = 32, .outliers_per_mille = 20};
constexpr SplitOptions group64{.group = 64, .symmetric = true};
constexpr SplitOptions group128_channels{
    .group = 128, .outliers = Outliers::channels, .outliers_per_mille = 8};
constexpr SplitOptions rows_channels{.group = whole_row, .outliers = Outliers::channels};
constexpr SplitOptions column_channels{.outliers = Outliers::channels, .outliers_per_mille = 30};
constexpr SplitOptions no_places{.outliers = Outliers::none};
constexpr SplitOptions group256_none{.group = 256, .outliers = Outliers::none};
constexpr SplitOptions stochastic{.rounding = Rounding::stochastic};
constexpr SplitOptions symmetric_stochastic{
    .group = 32, .symmetric = true, .rounding = Rounding::stochastic};

// Of 64 x 256 floats: header, block header, 256 scales and minima, 33 places of 6 bytes after 8,
// codes.
static_assert(Int8Outlier::encoded_bytes(64, 256, Dtype::f32) == 64 + 64 + 1024 + 256 + 16384);
static_assert(Int4Outlier::encoded_bytes(64, 256, Dtype::f32) == 64 + 64 + 1024 + 256 + 8192);
static_assert(Int8Outlier::encoded_bytes(0, 64, Dtype::f32) == 0);
static_assert(Int8Outlier::encoded_bytes(64, 0, Dtype::f32) == 0);
static_assert(Int8Outlier::encoded_bytes(std::size_t{1} << 60, 1 << 20, Dtype::f32) == 0);
static_assert(Int8Outlier::encoded_bytes(static_cast<std::size_t>(-1), 1, Dtype::f64) == 0);
static_assert(Int8Outlier::encoded_bytes(1, static_cast<std::size_t>(-1), Dtype::f64) == 0);
static_assert(Int8Outlier::encoded_bytes(64, 64, Dtype::i32) == 0);

template <class T>
float as_float(T x) {
  return detail::to_number(x);
}

/// Threads of its own for every run: the plainest executor there is.
struct Threads {
  int count;
  int workers() const { return count; }
  void run(std::size_t tiles, TileFn tile) const {
    std::vector<std::thread> threads;
    for (int w = 0; w < count; ++w)
      threads.emplace_back([=, this] {
        for (std::size_t i = static_cast<std::size_t>(w); i < tiles;
             i += static_cast<std::size_t>(count))
          tile(i, w);
      });
    for (std::thread& thread : threads) thread.join();
  }
};

template <class Codec, class T>
Blob encoded(const Matrix<T>& x, unsigned char pattern = 0xA5, Cpu cpu = {}) {
  Blob blob(Codec::encoded_bytes(x.rows, x.cols, dtype_of<T>), pattern);
  const Error error = Codec::template encode<T>(cpu, x.view(), blob.view());
  CHECK(std::string(error.text()) == "");
  return blob;
}

template <class Codec, class T>
Matrix<T> decoded(const Blob& blob, std::size_t n, std::size_t cols) {
  Cpu cpu;
  Matrix<T> y(n, cols);
  const Error error = Codec::template decode<T>(cpu, blob.view(), y.view());
  CHECK(std::string(error.text()) == "");
  return y;
}

template <class Codec, class T>
Matrix<T> round_trip(const Matrix<T>& x) {
  return decoded<Codec, T>(encoded<Codec>(x), x.rows, x.cols);
}

template <class T>
bool same(const Matrix<T>& a, const Matrix<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Everything that holds for any finite input.
template <class Codec, class T>
void check(const Matrix<T>& x) {
  CAPTURE(std::string(Codec::name));
  const Blob blob = encoded<Codec>(x, 0xA5);
  CHECK(blob.guards_hold());
  CHECK(blob == encoded<Codec>(x, 0x5A));
  const Read<T> read = read_split<Codec, T>(blob, x.rows, x.cols);
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

TEST_CASE("names are unique and the default's is plain") {
  CHECK(std::string(Int8Outlier::name) == "int8_outlier");
  CHECK(std::string(Int4Outlier::name) == "int4_outlier");
  CHECK(std::string(Int8OutlierWith<group32>::name) == "int8_outlier_group32_places20");
  CHECK(std::string(Int8OutlierWith<rows_channels>::name) == "int8_outlier_rows_channels");
  CHECK(std::string(Int4OutlierWith<no_places>::name) == "int4_outlier_none");
  CHECK(std::string(
            Int4OutlierWith<SplitOptions{
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
  CHECK(hash_of<Int8Outlier>(x) == 10459835014427776396U);
  CHECK(hash_of<Int4Outlier>(x) == 11421627629412107539U);
  CHECK(hash_of<Int8OutlierWith<stochastic>>(x) == 6563183032375406409U);
  CHECK(hash_of<Int4OutlierWith<symmetric_stochastic>>(x) == 10532844424414854374U);
  CHECK(hash_of<Int8OutlierWith<rows>>(x) == 12386303213628201446U);
  CHECK(hash_of<Int8OutlierWith<group128_channels>>(x) == 13890694929583347419U);
}

TEST_CASE("the bits do not depend on the number of threads") {
  Matrix<float> x = sample::gaussian<float>(4300, 20, 3);  // several blocks go to a thread at once
  for (std::size_t i = 11; i < x.size(); i += 331) x[i] *= 500;
  const auto check_workers = [&]<class Codec>(Codec) {
    const Blob serial = encoded<Codec>(x);
    const Matrix<float> y = decoded<Codec, float>(serial, x.rows, x.cols);
    for (const int workers : {1, 2, 3}) {
      Threads threads{workers};
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

TEST_CASE("clean Gaussian data has no outliers") {
  for (const std::size_t n : std::initializer_list<std::size_t>{1024, 70}) {
    const Matrix<float> x = sample::gaussian<float>(n, 768, n);
    const auto outliers = [&]<class Codec>(Codec) {
      return Codec::statistics(encoded<Codec>(x).view(), n, 768, Dtype::f32).outliers;
    };
    CHECK(outliers(Int8Outlier{}) == 0);
    CHECK(outliers(Int8OutlierWith<group32>{}) == 0);
    CHECK(outliers(Int8OutlierWith<rows>{}) == 0);
    CHECK(outliers(Int8OutlierWith<group128_channels>{}) == 0);
    CHECK(outliers(Int8OutlierWith<rows_channels>{}) == 0);
  }
}

TEST_CASE("massive elements are exact, and leave their group's scale alone") {
  const Matrix<float> clean = sample::gaussian<float>(64, 100, 5);
  Matrix<float> x = clean;
  const auto check_massive = [&]<class Codec>(Codec) {
    const Read<float> before = read_split<Codec, float>(encoded<Codec>(clean), 64, 100);
    const Read<float> after = read_split<Codec, float>(encoded<Codec>(x), 64, 100);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] != clean[i]) CHECK(after.placed[i]);
      CHECK(after.scale[i] <= before.scale[i]);
    }
  };
  for (std::size_t i = 7; i < x.size(); i += 601) x[i] = x[i] < 0 ? -1000.0F : 1000.0F;
  check_massive(Int8Outlier{});
  check_massive(Int4OutlierWith<SplitOptions{.group = 64}>{});
  check_massive(Int8OutlierWith<rows>{});
}

TEST_CASE("outliers beyond the bound widen their group, the farthest out are taken first") {
  Matrix<float> x = sample::gaussian<float>(64, 50, 6);
  const std::size_t places = 7;  // 3200 elements, 2 in 1000, rounded up
  for (std::size_t c = 0; c < 50; ++c) x[c * 50 + c] = c % 10 == 3 ? 3000.0F : 100.0F;
  const Blob blob = encoded<Int8Outlier>(x);
  const Read<float> read = read_split<Int8Outlier, float>(blob, 64, 50);
  REQUIRE(read.outliers == places);
  CHECK(read.flagged == 50);
  CHECK(read.unplaced == 43);
  for (std::size_t c = 0; c < 50; ++c) {
    const std::size_t i = c * 50 + c;
    if (c % 10 == 3) CHECK(read.placed[i]);
    if (!read.placed[i]) CHECK(read.x[i] == doctest::Approx(100).epsilon(0.01));  // not clipped
    CHECK((read.scale[c] < 0.1F) == read.placed[i]);
  }
}

TEST_CASE("hit channels are exact, and leave the scales of the rows alone") {
  Matrix<float> x = sample::gaussian<float>(64, 256, 6);
  for (std::size_t r = 0; r < 64; ++r) x[r * 256 + 37] *= 20, x[r * 256 + 165] *= 20;
  using Codec = Int8OutlierWith<group128_channels>;
  const Read<float> read = read_split<Codec, float>(encoded<Codec>(x), 64, 256);
  CHECK(read.outliers == 128);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(read.placed[i] == (i % 128 == 37));
    CHECK(read.scale[i] < 0.05F);
  }
}

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

TEST_CASE("nothing but outliers: none is lost") {
  Matrix<float> x(64, 300);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i / 300 % 16 == i % 16 ? 1e6F : 1.0F;
  const Matrix<float> y = round_trip<Int8Outlier>(x);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(y[i] - x[i]) < 2010);
  using Every = Int8OutlierWith<SplitOptions{.group = 64, .outliers_per_mille = 1000}>;
  CHECK(same(round_trip<Every>(x), x) == false);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::numeric_limits<float>::infinity();
  CHECK(same(round_trip<Every>(x), x));  // a place for every element
}

TEST_CASE("stochastic rounding is unbiased, and keyed") {
  Matrix<float> x(64, 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i / 64 == 0 ? -1.0F : i / 64 == 1 ? 1.0F : 0.1F;
  const auto check_mean = [&]<class Codec>(Codec, const SplitOptions&) {
    const Read<float> read = read_split<Codec, float>(encoded<Codec>(x), 64, 64);
    double sum = 0, squares = 0;
    const double n = 62 * 64;
    for (std::size_t i = 128; i < x.size(); ++i) {
      const double error = static_cast<double>(read.x[i]) - static_cast<double>(x[i]);
      sum += error;
      squares += error * error;
    }
    const double mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
    CHECK(deviation > 0);
    CHECK(std::abs(mean) < 4 * deviation / std::sqrt(n));
  };
  check_mean(Int8OutlierWith<stochastic>{}, stochastic);
  check_mean(Int4OutlierWith<stochastic>{}, stochastic);
  check_mean(Int4OutlierWith<symmetric_stochastic>{}, symmetric_stochastic);

  using Codec = Int8OutlierWith<stochastic>;
  const RandomKey key{.seed = 1, .step = 2, .activation = 3};
  const auto with = [&](const RandomKey& k) {
    Cpu cpu;
    cpu.key = k;
    return encoded<Codec>(x, 0, cpu);
  };
  const Blob blob = with(key);
  CHECK(with(key) == blob);
  RandomKey other = key;
  other.seed = 2;
  CHECK(!(with(other) == blob));
  other = key, other.step = 3;
  CHECK(!(with(other) == blob));
  CHECK(!(with(key.with_activation(4)) == blob));
  CHECK(with(key.with_purpose(Purpose::data)) == blob);  // the purpose is the codec's
  // Every element its own halfword: those that the specification names.
  const RandomKey stream = key.with_purpose(Purpose::rounding);
  const Read<float> read = read_split<Codec, float>(blob, 64, 64);
  for (std::size_t i = 128; i < 256; ++i) {
    const std::uint32_t word = random_word(stream, i / 2);
    const std::uint32_t half = i % 2 == 0 ? word & 0xFFFF : word >> 16;
    const double steps = (static_cast<double>(x[i]) - static_cast<double>(read.low[i])) /
                         static_cast<double>(read.scale[i]) * 65536;
    const double code = std::floor((std::floor(steps) + half) / 65536);
    CHECK(read.x[i] == doctest::Approx(static_cast<double>(read.low[i]) +
                                       code * static_cast<double>(read.scale[i])));
  }
}

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

}  // namespace
