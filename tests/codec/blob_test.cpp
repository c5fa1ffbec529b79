// SPDX-License-Identifier: MIT
/// The header of every blob, and what the checks say of arguments that do not fit.
#include <doctest/doctest.h>
#include <adacc/codec/blob.hpp>

#include <cstdint>
#include <cstring>
#include <string>

#include "sample.hpp"

namespace blob_test { namespace {

using namespace adacc;
using sample::Blob;
using sample::Matrix;

// RFC 9923, appendix C: the FNV-1a test vectors of 32 bits.
static_assert(fnv1a("") == 0x811C9DC5);
static_assert(fnv1a("a") == 0xE40C292C);
static_assert(fnv1a("foobar") == 0xBF9CF968);

constexpr std::size_t bytes = 128;

Blob made(std::size_t rows = 3, std::size_t cols = 5) {
  Blob blob(bytes, 0xA5);
  write_blob_header(blob.view().data(), "one", Dtype::f32, rows, cols);
  return blob;
}

std::string why(const Error& error) { return error.text(); }

std::string checked(const Blob& blob, const char* name = "one", Dtype dtype = Dtype::f32,
                    std::size_t rows = 3, std::size_t cols = 5, std::size_t expected = bytes) {
  return why(check_blob(blob.view(), name, dtype, rows, cols, expected));
}

TEST_CASE("the header lies where the table says") {
  constexpr std::uint64_t rows = 0x0102030405060708;
  const Blob blob = made(static_cast<std::size_t>(rows), 9);
  CHECK(std::memcmp(blob.data(), "ADC1\3\0\0\0", 8) == 0);
  std::uint32_t hash, dtype;
  std::memcpy(&hash, blob.data() + 8, 4);
  std::memcpy(&dtype, blob.data() + 12, 4);
  CHECK(hash == fnv1a("one"));
  CHECK(dtype == 0);
  std::string counts("\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0", 16);
  for (std::size_t i = sizeof(std::size_t); i < 8; ++i) counts[i] = '\0';
  CHECK(std::memcmp(blob.data() + 16, counts.data(), 16) == 0);
  for (std::size_t i = 32; i < 64; ++i) CHECK(blob.data()[i] == 0);
  for (std::size_t i = 64; i < bytes; ++i) CHECK(blob.data()[i] == 0xA5);
  CHECK(blob.guards_hold());
}

TEST_CASE("a blob is known by its header, and every byte of it counts") {
  CHECK(checked(made()) == "");
  for (std::size_t i = 0; i < 64; ++i)
    for (const unsigned flip : {0x01U, 0x80U}) {
      Blob blob = made();
      blob.data()[i] = static_cast<unsigned char>(blob.data()[i] ^ flip);
      CHECK(checked(blob) != "");
    }
}

TEST_CASE("the errors name what differs") {
  CHECK(checked(made(), "two") == "two: the blob is of another codec");
  CHECK(checked(made(), "one", Dtype::bf16) == "one: the blob's elements are not bf16");
  CHECK(checked(made(), "one", Dtype::f32, 4) ==
        "one: the blob is of 3 rows of 5 columns, asked for are 4 of 5");
  CHECK(checked(made(), "one", Dtype::f32, 5, 3).find("asked for are 5 of 3") != std::string::npos);
  CHECK(checked(made(), "one", Dtype::f32, 3, 5, 192) ==
        "one: the blob has 128 bytes, but 3 rows of 5 columns of f32 take 192");
  CHECK(checked(made(), "one", Dtype::f32, 3, 5, 0).find("cannot encode") != std::string::npos);
  Blob blob = made();
  blob.data()[4] = 1;
  CHECK(checked(blob) == "one: the blob has format 1, known is 3");
  blob.data()[0] = 'B';
  CHECK(checked(blob) == "one: this is no blob of adacc");
  const Blob empty(0, 0);
  CHECK(checked(empty, "one", Dtype::f32, 3, 5, 0) != "");
  CHECK(checked(empty).find("has 0 bytes") != std::string::npos);
}

TEST_CASE("arguments of encode and decode") {
  Matrix<float> x(3, 5);
  Blob blob = made();
  const auto encode = [&](View<const float> in, Bytes out, std::size_t expected = bytes) {
    return why(check_encode("one", in, out, expected));
  };
  const auto decode = [&](ConstBytes in, View<float> out, std::size_t expected = bytes) {
    return why(check_decode("one", in, out, expected));
  };
  const View<float> good = x.view();
  CHECK(encode(good, blob.view()) == "");
  CHECK(decode(blob.view(), good) == "");

  // encode reads from any float on, decode writes to lines alone.
  const View<float> shifted(x.data() + 1, Shape(3, 5));
  CHECK(encode(shifted, blob.view()) == "");
  CHECK(decode(blob.view(), shifted) == "one: the tensor must start at a multiple of 64 bytes");

  constexpr std::size_t many = std::size_t{1} << 5 * sizeof(std::size_t);
  const View<float> nothing(x.data(), Shape(0, 5)),
      skewed(reinterpret_cast<float*>(reinterpret_cast<std::byte*>(x.data()) + 2), Shape(3, 5)),
      null(nullptr, Shape(3, 5)), huge(x.data(), Shape(many, many));
  for (const View<float>& bad : {nothing, skewed, null, huge}) {
    CHECK(encode(bad, blob.view()) != "");
    CHECK(decode(blob.view(), bad) != "");
  }
  CHECK(encode(nothing, blob.view()) == "one: the tensor (0, 5) has no elements");
  CHECK(encode(skewed, blob.view()) == "one: the tensor must start at a multiple of 4 bytes");
  CHECK(encode(good, blob.view(), 0) == "one: cannot encode 3 rows of 5 columns of f32");

  const Bytes small(blob.view().data(), Shape(bytes - 1)), large(small.data(), Shape(bytes + 1)),
      late(small.data() + 1, Shape(bytes)), absent(nullptr, Shape(bytes)), unset;
  for (const Bytes& bad : {small, large, late, absent, unset}) {
    CHECK(encode(good, bad) != "");
    CHECK(decode(bad, good) != "");
  }
  CHECK(encode(good, late) == "one: the blob must start at a multiple of 64 bytes");
  CHECK(encode(good, small) ==
        "one: the blob has 127 bytes, but 3 rows of 5 columns of f32 take 128");
  CHECK(decode(made(5, 3).view(), good) != "");
}

}}  // namespace blob_test
