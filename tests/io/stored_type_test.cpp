// SPDX-License-Identifier: MIT
// Types of safetensors whose elements are small: all codes of each, against what their definitions say.
#include "adacc/io/weights/stored_type.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "../train/support.hpp"
#include "adacc/io/weights/safetensors.hpp"

namespace stored_type_test {
namespace {

using namespace adacc;
using train_test::bytes_of;
using train_test::Folder;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

/// A float of a sign, an exponent and a fraction; `special` has what the definition excepts.
struct Format {
  const char* name;
  int exponent_bits, fraction_bits, bias;
  double largest;
  double (*special)(unsigned magnitude, bool negative);  ///< 0: it is an ordinary number
};

double ordinary(unsigned, bool) { return 0; }
double no_negative_zero(unsigned magnitude, bool negative) {
  return negative && magnitude == 0 ? nan : 0;
}
double all_ones(unsigned magnitude, bool) { return magnitude == 0x7F ? nan : 0; }
template <unsigned infinity>
double from_infinity_on(unsigned magnitude, bool) {
  return magnitude == infinity ? inf : magnitude > infinity ? nan : 0;
}

const Format formats[] = {
    {"F4", 2, 1, 1, 6, ordinary},
    {"F6_E2M3", 2, 3, 1, 7.5, ordinary},
    {"F6_E3M2", 3, 2, 3, 28, ordinary},
    {"F8_E5M2", 5, 2, 15, 57344, from_infinity_on<0x7C>},
    {"F8_E5M2FNUZ", 5, 2, 16, 57344, no_negative_zero},
    {"F8_E4M3", 4, 3, 7, 448, all_ones},
    {"F8_E4M3FNUZ", 4, 3, 8, 240, no_negative_zero},
    {"F16", 5, 10, 15, 65504, from_infinity_on<0x7C00>},
    {"BF16", 8, 7, 127, 0x1.FEp127, from_infinity_on<0x7F80>},
};

double value_of(const Format& format, unsigned code) {
  const unsigned fraction_count = 1U << format.fraction_bits;
  const unsigned magnitude = code % (fraction_count << format.exponent_bits);
  const bool negative = code != magnitude;
  double value = format.special(magnitude, negative);
  if (value == 0) {
    const double fraction = (magnitude % fraction_count) / static_cast<double>(fraction_count);
    const int exponent = static_cast<int>(magnitude / fraction_count);
    value = exponent == 0 ? std::ldexp(fraction, 1 - format.bias)
                          : std::ldexp(1 + fraction, exponent - format.bias);
  }
  return negative ? -value : value;
}

/// Elements of `bits` bits one behind the other, bit by bit, the lowest first.
std::string packed(const std::vector<unsigned>& codes, std::size_t bits) {
  std::string bytes(codes.size() * bits / 8, '\0');
  for (std::size_t i = 0; i < codes.size(); ++i)
    for (std::size_t b = 0; b < bits; ++b) {
      const std::size_t at = i * bits + b;
      const unsigned bit = codes[i] >> b & 1;
      bytes[at / 8] = static_cast<char>(static_cast<unsigned char>(bytes[at / 8]) | bit << at % 8);
    }
  return bytes;
}

std::vector<unsigned> all_codes(std::size_t bits) {
  std::vector<unsigned> codes(std::size_t{1} << bits);
  for (unsigned i = 0; i < codes.size(); ++i) codes[i] = i;
  return codes;
}

/// A file with one tensor, "t".
std::string with_tensor(const char* type, const std::string& shape, const std::string& data) {
  const std::string header = std::string(R"({"t":{"dtype":")") + type + R"(","shape":[)" + shape +
                             R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}";
  return bytes_of(std::vector<std::uint64_t>{header.size()}) + header + data;
}

Result<SafeTensors> opened(const Folder& folder, const std::string& bytes) {
  write_file(folder / "model", bytes);
  return SafeTensors::open(folder / "model");
}

/// All codes of a type, as T.
template <class T>
std::vector<T> all_numbers(const char* type, std::size_t bits) {
  const std::vector<unsigned> codes = all_codes(bits);
  const Folder folder;
  const auto file =
      opened(folder, with_tensor(type, std::to_string(codes.size()), packed(codes, bits)));
  REQUIRE_MESSAGE(file, file.error.text());
  CHECK((*file)[0].elems() == codes.size());
  std::vector<T> out(codes.size());
  REQUIRE(!copy_stored((*file)[0], View<T>(out.data(), Shape(out.size()))));
  return out;
}

bool same(double number, double expected) {
  if (std::isnan(expected)) return std::isnan(number);
  return number == expected && std::signbit(number) == std::signbit(expected);
}

}  // namespace

TEST_CASE("every code of a small float is the number of its definition") {
  for (const Format& format : formats) {
    CAPTURE(format.name);
    const auto bits = static_cast<std::size_t>(1 + format.exponent_bits + format.fraction_bits);
    const auto floats = all_numbers<float>(format.name, bits);
    const auto doubles = all_numbers<double>(format.name, bits);
    const auto narrow = all_numbers<bfloat16>(format.name, bits);
    double largest = 0;
    std::size_t wrong = 0;
    for (unsigned code = 0; code < floats.size(); ++code) {
      const double expected = value_of(format, code);
      if (expected > largest && std::isfinite(expected)) largest = expected;
      wrong += !same(static_cast<double>(floats[code]), expected);
      wrong += !same(doubles[code], expected);
      if (format.fraction_bits <= 7)  // others are rounded
        wrong += !same(static_cast<double>(to_float(narrow[code])), expected);
    }
    CHECK(wrong == 0);
    CHECK(largest == format.largest);
  }
}

TEST_CASE("a scale is a power of two, the smallest and the NaN included") {
  const auto floats = all_numbers<float>("F8_E8M0", 8);
  const auto narrow = all_numbers<bfloat16>("F8_E8M0", 8);
  for (int code = 0; code < 255; ++code) {
    const auto at = static_cast<std::size_t>(code);
    CHECK(static_cast<double>(floats[at]) == std::ldexp(1.0, code - 127));
    CHECK(static_cast<double>(to_float(narrow[at])) == std::ldexp(1.0, code - 127));
  }
  CHECK(std::isnan(floats[255]));
  CHECK(std::isnan(to_float(narrow[255])));
}

TEST_CASE("elements of less than a byte: a tensor is whole bytes, turned or loaded in parts") {
  const Folder folder;
  const auto refusal = [&](const char* type, const char* shape, std::size_t bytes) {
    return opened(folder, with_tensor(type, shape, std::string(bytes, '\0'))).error;
  };
  CHECK(!refusal("F4", "3,2", 3));
  CHECK(!refusal("F4", "0", 0));
  CHECK(!refusal("F6_E2M3", "2,2", 3));
  CHECK(!refusal("F6_E3M2", "8", 6));
  for (const std::size_t bytes : {1U, 2U})
    CHECK(says(refusal("F4", "3", bytes),
               "(3) of F4, which are 12 bits; the format has whole bytes"));
  CHECK(says(refusal("F4", "", 1), "() of F4, which are 4 bits"));
  CHECK(says(refusal("F6_E3M2", "2,3", 5), "which are 36 bits"));
  CHECK(says(refusal("F4", "4", 4), "(4) of F4 have 4 bytes; they have 2"));
  CHECK(says(refusal("F6_E2M3", "4", 4), "they have 3"));
  CHECK(says(refusal("F4", "4611686018427387904", 8), "too large to address"));
  CHECK(says(refusal("F4", "2305843009213693952", 8),
             sizeof(std::size_t) < 8 ? "too large to address" : "they have 1152921504606846976"));
  CHECK(says(refusal("C64", "2", 8), "they have 16"));

  std::vector<float> turned(12);
  const auto matrix = opened(
      folder, with_tensor("F6_E2M3", "3,4", packed({8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3}, 6)));
  REQUIRE_MESSAGE(matrix, matrix.error.text());
  REQUIRE(!copy_stored((*matrix)[0], View<float>(turned.data(), Shape(4, 3)), true));
  CHECK(turned == std::vector<float>{1, 1.5F, 0, 1.125F, 1.625F, 0.125F, 1.25F, 1.75F, 0.25F,
                                     1.375F, 1.875F, 0.375F});

  // More than load_tensors() copies at once.
  std::vector<unsigned> codes((std::size_t{1} << 20) + 12);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = i * 11 / 7 % 64;
  const Folder another;  // Windows replaces no file that is mapped
  const auto large =
      opened(another, with_tensor("F6_E3M2", std::to_string(codes.size()), packed(codes, 6)));
  REQUIRE_MESSAGE(large, large.error.text());
  std::vector<float> numbers(codes.size());
  REQUIRE(!load_tensors(*large, std::vector<WantedTensor<float>>{
                                    {"t", View<float>(numbers.data(), Shape(codes.size()))}}));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < codes.size(); ++i)
    wrong += !same(static_cast<double>(numbers[i]), value_of(formats[2], codes[i]));
  CHECK(wrong == 0);
}

TEST_CASE(
    "a file may have all types: of those that are wanted, complex numbers alone are refused") {
  std::string header, data;
  for (const auto& facts : detail::stored_types) {
    const std::size_t begin = data.size();
    data.append(facts.bits, '\0');  // 8 elements
    CHECK(bits_of(facts.type) == facts.bits);
    CHECK(std::string(name_of(facts.type)) == facts.name);
    header += (header.empty() ? "{\"" : ",\"") + std::string(facts.name) + R"(":{"dtype":")" +
              facts.name + R"(","shape":[2,4],"data_offsets":[)" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  header += "}";
  const Folder folder;
  const auto file =
      opened(folder, bytes_of(std::vector<std::uint64_t>{header.size()}) + header + data);
  REQUIRE_MESSAGE(file, file.error.text());
  CHECK(file->size() == 22);
  std::vector<float> to(8, 42);
  const View<float> view(to.data(), Shape(2, 4));
  for (const StoredTensor& tensor : *file) {
    CAPTURE(tensor.name);
    CHECK(tensor.elems() == 8);
    std::fill(to.begin(), to.end(), 42.0F);
    const std::vector<WantedTensor<float>> wanted{{tensor.name, view}};
    const Error why = load_tensors(*file, wanted);
    if (tensor.type != StoredType::c64) {
      CHECK_MESSAGE(!why, why.text());
      CHECK(to == std::vector<float>(8, tensor.type == StoredType::f8_e8m0 ? 0x1p-127F : 0));
      continue;
    }
    CHECK(says(why, "\"C64\" is of type C64, whose elements are complex numbers"));
    CHECK(problems_of(*file, wanted).size() == 1);
    CHECK(says(copy_stored(tensor, view), "\"C64\" is of type C64"));
    CHECK(to == std::vector<float>(8, 42));
  }
}

TEST_CASE("halves become wide without branches as by the definition, all 65536 of them") {
  std::size_t wrong = 0;
  for (std::uint32_t code = 0; code < 65536; ++code)
    wrong +=
        detail::bits_as<std::uint32_t>(detail::wide_half(code)) !=
        detail::bits_as<std::uint32_t>(detail::small_float<5, 10, detail::Specials::ieee>(code));
  CHECK(wrong == 0);
}

}  // namespace stored_type_test
