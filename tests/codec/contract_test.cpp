// SPDX-License-Identifier: MIT
/// Every codec against the codec contract: what holds for all of them, whatever their format.
#include <doctest/doctest.h>
#include <adacc/codec/bf16.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/blob.hpp>
#include <adacc/codec/codec.hpp>
#include <adacc/codec/packed_index.hpp>
#include <adacc/core/cpu.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "codecs.hpp"
#include "encoded.hpp"
#include "erased_codec.hpp"
#include "sample.hpp"

namespace contract_test { namespace {

using namespace adacc;
using sample::Blob;
using sample::ErasedCodec;
using sample::for_each_erased_codec;
using sample::Matrix;
using sample::Threads;

template <class T>
T number(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(static_cast<float>(value));
  else return static_cast<T>(value);
}

template <class T>
double value(T x) {
  if constexpr (std::is_same_v<T, bfloat16>) return to_float(x);
  else return x;
}

template <class T, class Predicate>
std::size_t count(const Matrix<T>& x, const Predicate& predicate) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < x.size(); ++i) found += predicate(value(x[i])) ? 1U : 0U;
  return found;
}

/// Numbers that every codec takes: small integers, of both signs where indices are not asked for.
template <class T>
Matrix<T> plain(const ErasedCodec<T>& codec, std::size_t rows, std::size_t cols) {
  Matrix<T> x(rows, cols);
  const bool index = std::string(codec.name).starts_with("packed_index");
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t word = random_word({.seed = 3}, i);
    x[i] = number<T>(index ? word % 2 : static_cast<double>(word % 101) - 50);
  }
  return x;
}

/// Any numbers.
template <class T>
Matrix<T> gaussian(std::size_t rows, std::size_t cols, std::uint64_t seed) {
  const Matrix<double> x = sample::gaussian<double>(rows, cols, seed);
  Matrix<T> y(rows, cols);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = number<T>(x[i]);
  return y;
}

template <class T>
Blob blob_for(const ErasedCodec<T>& codec, const Matrix<T>& x, unsigned char pattern) {
  return Blob(codec.bytes_for(x.rows, x.cols), pattern);
}

template <class T>
Blob encoded(const ErasedCodec<T>& codec, const Matrix<T>& x, unsigned char pattern = 0xA5) {
  Cpu cpu;
  Blob blob = blob_for(codec, x, pattern);
  CHECK(std::string(codec.encode(cpu, x.view(), blob.view()).text()) == "");
  REQUIRE(blob.guards_hold());
  return blob;
}

/// What decode says; x must be untouched if that is an error.
template <class T>
std::string decode_into(const ErasedCodec<T>& codec, ConstBytes blob, Matrix<T>& x) {
  Cpu cpu;
  std::memset(x.memory.data(), 0x7B, x.memory.size());
  const std::string error = codec.decode(cpu, blob, x.view()).text();
  REQUIRE(x.guards_hold());
  std::size_t written = 0;
  if (error != "")
    for (std::size_t i = 0; i < x.memory.size(); ++i) written += x.memory.data()[i] != 0x7B;
  REQUIRE(written == 0);
  return error;
}

/// The shapes that go through all paths: one element, one column, one row, tails on both sides,
/// several blocks, tiles and chunks.
constexpr std::size_t shapes[][2] = {{1, 1},   {1, 700}, {700, 1}, {3, 5},    {64, 64},
                                     {65, 33}, {70, 37}, {2, 257}, {130, 300}};

static_assert(
    [] {
      constexpr auto huge = static_cast<std::size_t>(-1);
      bool fine = true;
      for_each_codec([&]<class Codec>() {
        for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
          fine = fine && Codec::encoded_bytes(1, 1, dtype) > blob_header_bytes;
          fine = fine && Codec::encoded_bytes(0, 1, dtype) == 0 &&
                 Codec::encoded_bytes(1, 0, dtype) == 0 && Codec::encoded_bytes(0, 0, dtype) == 0;
          fine = fine && Codec::encoded_bytes(huge, 1, dtype) == 0 &&
                 Codec::encoded_bytes(1, huge, dtype) == 0 &&
                 Codec::encoded_bytes(huge, huge, dtype) == 0 &&
                 Codec::encoded_bytes(std::size_t{1} << 32, std::size_t{1} << 32, dtype) == 0 &&
                 Codec::encoded_bytes((std::size_t{1} << 32) + 1, std::size_t{1} << 32, dtype) == 0;
        }
        fine = fine && Codec::encoded_bytes(64, 64, Dtype::i32) == 0;
      });
      return fine;
    }(),
    "sizes are constants, and 0 where there is nothing to encode or too much");

TEST_CASE("names are unique, and so are their hashes") {
  std::vector<std::string> names;
  for_each_codec([&]<class Codec>() { names.emplace_back(Codec::name); });
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(names[i] != names[j]);
      CHECK(fnv1a(names[i].c_str()) != fnv1a(names[j].c_str()));
    }
}

TEST_CASE("every byte of the blob is written, and nothing else") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const auto& shape : shapes) {
      const Matrix<T> x = plain(codec, shape[0], shape[1]);
      const Blob a = encoded(codec, x, 0xA5), b = encoded(codec, x, 0x5A);
      CHECK(a == b);
      Matrix<T> y(x.rows, x.cols);
      CHECK(decode_into(codec, a.view(), y) == "");
      CHECK(count(y, [](double v) { return std::isfinite(v); }) == y.size());
    }
  });
}

TEST_CASE("the bytes do not depend on where the elements lie") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const std::size_t rows : {std::size_t{1}, std::size_t{130}}) {
      const Matrix<T> x = gaussian<T>(rows, 301, 5);
      const Blob aligned = encoded(codec, x);
      for (std::size_t skew = sizeof(T); skew < 64; skew += rows == 1 ? sizeof(T) : 20) {
        sample::Guarded room(x.size() * sizeof(T) + 64, 0xEE);
        T* moved = static_cast<T*>(static_cast<void*>(room.data() + skew / sizeof(T) * sizeof(T)));
        std::memcpy(moved, x.data(), x.size() * sizeof(T));
        Cpu cpu;
        Blob blob = blob_for(codec, x, 0xFF);
        CHECK_FALSE(codec.encode(cpu, View<const T>(moved, Shape(x.rows, x.cols)), blob.view()));
        CHECK(blob == aligned);
      }
    }
  });
}

TEST_CASE("zeros come back as zeros") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const auto& shape : shapes) {
      const Matrix<T> zeros(shape[0], shape[1]);
      Matrix<T> y(zeros.rows, zeros.cols);
      CHECK(decode_into(codec, encoded(codec, zeros).view(), y) == "");
      CHECK(count(y, [](double v) { return v == 0; }) == y.size());
    }
  });
}

TEST_CASE("the number of workers changes neither bytes nor values") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const std::size_t rows : {std::size_t{1}, std::size_t{200}}) {
      const Matrix<T> x = plain(codec, rows, 261);
      const Blob alone = encoded(codec, x);
      Matrix<T> y(x.rows, x.cols);
      CHECK(decode_into(codec, alone.view(), y) == "");
      for (int workers = 1; workers <= 3; ++workers) {
        Threads threads{workers};
        Cpu cpu(threads);
        Blob blob = blob_for(codec, x, 0xFF);
        CHECK_FALSE(codec.encode(cpu, x.view(), blob.view()));
        CHECK(blob == alone);
        Matrix<T> z(x.rows, x.cols);
        CHECK_FALSE(codec.decode(cpu, alone.view(), z.view()));
        CHECK(z.memory == y.memory);
        CHECK(z.guards_hold());
        CHECK(blob.guards_hold());
      }
    }
  });
}

TEST_CASE("in parts, in any order, a codec writes what it writes whole") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const std::size_t rows : {std::size_t{1}, std::size_t{270}}) {
      const Matrix<T> x = plain(codec, rows, 261);  // 5 blocks of 64 rows, 5 spans of elements
      const std::size_t items = codec.split_items(x.rows, x.cols);
      CHECK(items == (rows == 1 ? 1 : 5));
      const Blob whole = encoded(codec, x);
      Matrix<T> y(x.rows, x.cols);
      CHECK(decode_into(codec, whole.view(), y) == "");
      for (const std::size_t length : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
        Threads threads{2};
        Cpu cpu(threads);
        Blob blob = blob_for(codec, x, 0xFF);
        Matrix<T> z(x.rows, x.cols);
        const std::size_t parts = (items + length - 1) / length;
        const auto part = [&](std::size_t i) {
          return Part{i * length, std::min(length, items - i * length), items};
        };
        for (std::size_t i = parts; i-- > 0;)
          CHECK_FALSE(codec.encode(cpu, x.view(), blob.view(), part(i)));
        CHECK(blob == whole);
        for (std::size_t i = parts; i-- > 0;)
          CHECK_FALSE(codec.decode(cpu, whole.view(), z.view(), part(i)));
        CHECK(z.memory == y.memory);
        CHECK(z.guards_hold());
        CHECK(blob.guards_hold());
      }
    }
  });
}

TEST_CASE("NaNs and infinities are never hidden" * doctest::test_suite("one_thread")) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double bad[] = {std::nan(""), -std::nan(""), infinity, -infinity};
  for_each_erased_codec([&]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const auto& shape : shapes) {
      const Matrix<T> x = plain(codec, shape[0], shape[1]);
      Matrix<T> y(x.rows, x.cols);
      // One at a time, at several places, the ends among them; then everywhere.
      for (std::size_t i = 0; i < 7; ++i) {
        Matrix<T> hurt = x;
        const std::size_t at = i * (x.size() - 1) / 6;
        hurt[at] = number<T>(bad[i % 4]);
        CHECK(decode_into(codec, encoded(codec, hurt).view(), y) == "");
        CHECK_FALSE(std::isfinite(value(y[at])));
      }
      Matrix<T> all(x.rows, x.cols);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = number<T>(bad[i % 4]);
      CHECK(decode_into(codec, encoded(codec, all).view(), y) == "");
      CHECK(count(y, [](double v) { return std::isfinite(v); }) == 0);
    }
  });
}

TEST_CASE("numbers decode to numbers, the largest ones, too") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    if (std::string(codec.name).starts_with("packed_index"))
      return;  // a lossless one: whole numbers only
    CAPTURE(codec.name);
    for (const int every : {1, 3, 50}) {
      Matrix<T> x = gaussian<T>(70, 130, 4);
      const double most = sizeof(T) == 8   ? std::numeric_limits<double>::max()
                          : sizeof(T) == 4 ? double{std::numeric_limits<float>::max()}
                                           : double{to_float(bfloat16{0x7F7F})};
      for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(every))
        x[i] = number<T>(i % 2 == 0 ? most : -most);
      Matrix<T> y(x.rows, x.cols);
      CHECK(decode_into(codec, encoded(codec, x).view(), y) == "");
      CHECK(count(y, [](double v) { return !std::isfinite(v); }) == 0);
    }
  });
}

TEST_CASE("what no codec was made for: one magnitude, subnormals, the largest numbers" *
          doctest::test_suite("one_thread")) {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const auto& shape : shapes)
      for (const double magnitude : {1e30, 1e-41, 3e-39, 3.3e38, -3.3e38}) {
        Matrix<T> x = plain(codec, shape[0], shape[1]);
        for (std::size_t i = 0; i < x.size(); ++i)
          if (magnitude < 1 || i % 3 != 0) x[i] = number<T>(i % 2 == 0 ? magnitude : -magnitude);
        const Blob blob = encoded(codec, x, 0xA5);
        CHECK(blob == encoded(codec, x, 0x5A));
        Matrix<T> y(x.rows, x.cols);
        CHECK(decode_into(codec, blob.view(), y) == "");
      }
  });
}

TEST_CASE("arguments that do not fit are errors, and nothing is written") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    Cpu cpu;
    Matrix<T> x = plain(codec, 6, 16);
    const Blob good = encoded(codec, x);
    const std::size_t bytes = good.size();
    Blob blob(bytes + 64, 0xA5);
    const Blob before = blob;
    std::byte* start = blob.view().data();

    const auto refused = [&](View<const T> in, Bytes out) {
      const std::string error = codec.encode(cpu, in, out).text();
      CHECK(error.starts_with(std::string(codec.name) + ": "));
      CHECK(std::memcmp(blob.data(), before.data(), blob.size()) == 0);
      CHECK(blob.guards_hold());
    };
    const View<const T> all = x.view();
    const Bytes exact(start, Shape(bytes));
    refused(View<const T>(), exact);
    refused(View<const T>(x.data(), Shape(0, 16)), exact);
    refused(View<const T>(x.data(), Shape(6, 0)), exact);
    T* const askew = static_cast<T*>(static_cast<void*>(x.memory.data() + 1));
    refused(View<const T>(askew, Shape(6, 16)), exact);
    refused(View<const T>(nullptr, Shape(6, 16)), exact);
    refused(View<const T>(x.data(), Shape(std::size_t{1} << 40, std::size_t{1} << 40)), exact);
    refused(View<const T>(x.data(), Shape(std::size_t{1} << 31, std::size_t{1} << 32)), exact);
    refused(all, Bytes());
    refused(all, Bytes(nullptr, Shape(bytes)));
    refused(all, Bytes(start + 1, Shape(bytes)));
    refused(all, Bytes(start + 32, Shape(bytes)));
    for (const std::size_t wrong : {std::size_t{0}, std::size_t{1}, std::size_t{63}, bytes - 64,
                                    bytes - 1, bytes + 1, bytes + 64})
      refused(all, Bytes(start, Shape(wrong)));

    const auto rejected = [&](ConstBytes in, View<T> out) {
      const Matrix<T> kept = x;
      const std::string error = codec.decode(cpu, in, out).text();
      CHECK(error.starts_with(std::string(codec.name) + ": "));
      CHECK(x.memory == kept.memory);
      CHECK(x.guards_hold());
    };
    rejected(good.view(), View<T>());
    rejected(good.view(), View<T>(x.data(), Shape(0, 16)));
    rejected(good.view(), View<T>(x.data() + 1, Shape(6, 15)));
    rejected(good.view(), View<T>(nullptr, Shape(6, 16)));
    rejected(ConstBytes(), x.view());
    rejected(ConstBytes(nullptr, Shape(bytes)), x.view());
    std::memcpy(blob.data() + 32, good.data(), bytes);
    rejected(ConstBytes(start + 32, Shape(bytes)), x.view());
    std::memcpy(blob.data(), good.data(), bytes);
    for (std::size_t wrong = 0; wrong < bytes + 64; wrong += wrong < 70 ? 1 : 13)
      if (wrong != bytes) rejected(ConstBytes(start, Shape(wrong)), x.view());
    rejected(ConstBytes(start, Shape(bytes - 1)), x.view());
    rejected(ConstBytes(start, Shape(bytes + 1)), x.view());
  });
}

TEST_CASE("a blob of another codec, shape, dtype or version is refused") {
  std::vector<Blob> blobs;  // one of every codec and type
  for_each_erased_codec([&]<class T>(const ErasedCodec<T>& codec) {
    blobs.push_back(encoded(codec, plain(codec, 12, 32)));
  });
  std::size_t i = 0;
  for_each_erased_codec([&]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    const std::size_t bytes = codec.bytes_for(12, 32);
    Matrix<T> x(12, 32);
    for (std::size_t j = 0; j < blobs.size(); ++j) {
      // As it is, and with the size that is expected, so that the header alone is wrong.
      CHECK((decode_into(codec, blobs[j].view(), x) == "") == (i == j));
      Blob fitted(bytes, 0);
      std::memcpy(fitted.data(), blobs[j].data(),
                  bytes < blobs[j].size() ? bytes : blobs[j].size());
      CHECK((decode_into(codec, fitted.view(), x) == "") == (i == j));
    }
    Matrix<T> turned(32, 12), flat(1, 384), shorter(11, 32), longer(13, 32), narrower(12, 31);
    for (Matrix<T>* other : {&turned, &flat, &shorter, &longer, &narrower})
      CHECK(decode_into(codec, blobs[i].view(), *other) != "");
    ++i;
  });
}

TEST_CASE("whatever byte of a blob is corrupted, decode stays in its spans" *
          doctest::test_suite("one_thread")) {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    CAPTURE(codec.name);
    for (const auto& shape : {shapes[3], shapes[7]}) {
      Matrix<T> x = plain(codec, shape[0], shape[1]);
      x[x.size() / 2] = number<T>(1000);  // so that outliers are about
      const Blob good = encoded(codec, x);
      Matrix<T> y(x.rows, x.cols);
      for (std::size_t i = 0; i < good.size(); ++i)
        for (const unsigned corrupt : {0x00U, 0x01U, 0x7FU, 0x80U, 0xFFU}) {
          Blob bad = good;
          if (bad.data()[i] == corrupt) continue;
          bad.data()[i] = static_cast<unsigned char>(corrupt);
          const Blob kept = bad;
          const std::string error = decode_into(codec, bad.view(), y);
          REQUIRE(bad == kept);
          if (i < blob_header_bytes) REQUIRE(error != "");
        }
    }
  });
}

TEST_CASE("statistics of a blob, and of what is none") {
  for_each_erased_codec([]<class T>(const ErasedCodec<T>& codec) {
    if (codec.statistics != nullptr) {
      CAPTURE(codec.name);
      Matrix<T> x = plain(codec, 70, 37);
      x[100] = number<T>(std::nan(""));
      const Blob blob = encoded(codec, x);
      const CodecStatistics seen = codec.statistics(blob.view(), 70, 37, dtype_of<T>);
      CHECK(seen.elements == 70 * 37);
      CHECK(seen.nonfinite + seen.unplaced >= 1);
      const CodecStatistics none = codec.statistics(blob.view(), 70, 38, dtype_of<T>);
      CHECK(none.elements == 0);
      CHECK(codec.statistics(ConstBytes(), 70, 37, dtype_of<T>).elements == 0);
    }
  });
}

}}  // namespace contract_test
