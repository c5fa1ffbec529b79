// SPDX-License-Identifier: MIT
#include "adacc/io/weights/gguf.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../train/support.hpp"
#include "adacc/io/file_format.hpp"
#include "gguf_bytes.hpp"

namespace gguf_test {
namespace {

using namespace adacc;
using train_test::Folder;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

/// What opening a file with these bytes says.
Error refusal(const std::string& bytes) {
  const Folder folder;
  write_file(folder / "model.gguf", bytes);
  return Gguf::open(folder / "model.gguf").error;
}
Error refusal(const GgufBytes& file) { return refusal(file.file()); }

GgufBytes good() {
  GgufBytes file;
  file.text("general.architecture", "llama");
  file.number("n", 7);
  file.floats("b", {2, 3}, {1, 2, 3, 4, 5, 6});
  file.floats("a", {2}, {7, 8});
  return file;
}

/// Elements of 1024 in blocks of a type, whose bytes follow from their number, but for scales that are finite
/// halves. The expected numbers are those of the PyPI package gguf 0.19.0: some of them, and the Checksum of
/// all.
struct Blocks {
  GgufType type;
  std::vector<std::size_t> halves;  ///< where in a block they are
  float first, second, last_of_32, last;
  std::uint64_t checksum;
};
const Blocks all_blocks[] = {
    {GgufType::q4_0,
     {0},
     0.299926758F,
     -0.599853516F,
     -0.599853516F,
     -0.166625977F,
     0xb6d3692849325718U},
    {GgufType::q4_1,
     {0, 2},
     0.733154297F,
     -0.166625977F,
     0.533203125F,
     -0.733154297F,
     0x26b6954adb104c9eU},
    {GgufType::q5_0,
     {0},
     0.699829102F,
     1.3996582F,
     -0.399902344F,
     -0.166625977F,
     0x655939d2e1f0271cU},
    {GgufType::q5_1,
     {0, 2},
     1.93286133F,
     1.03308105F,
     1.4329834F,
     -2.06616211F,
     0xfd9d6db7a1a71df5U},
    {GgufType::q8_0,
     {0},
     9.09777832F,
     0.199951172F,
     -10.7973633F,
     -2.99926758F,
     0xaddab069b31e2911U},
    {GgufType::q4_k,
     {0, 2},
     54.1201172F,
     17.229126F,
     25.427124F,
     -52.4871826F,
     0x19dc6f085ec2e9ceU},
    {GgufType::q5_k,
     {0, 2},
     119.704102F,
     17.229126F,
     25.427124F,
     -125.735962F,
     0xc073b24b82491163U},
    {GgufType::q6_k,
     {208},
     -23.0943604F,
     -215.547363F,
     -7.19824219F,
     -115.471802F,
     0xf924547a6c0d95f1U},
};

std::string bytes_of(const Blocks& blocks) {
  const detail::GgufTypeFacts& facts = detail::facts_of(blocks.type);
  const std::size_t count = 1024 / facts.block_elems;
  std::string bytes;
  for (std::size_t i = 0; i < count * facts.block_bytes; ++i)
    bytes += static_cast<char>((i * 167 + (i >> 8) * 59 + 13) & 255);
  const std::uint16_t scales[] = {0x2E66, 0xB155};
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t j = 0; j < blocks.halves.size(); ++j)
      std::memcpy(bytes.data() + k * facts.block_bytes + blocks.halves[j], &scales[(j + k) % 2], 2);
  return bytes;
}

std::vector<float> copied(const GgufTensor& tensor, bool transposed = false) {
  std::vector<float> out(tensor.elems());
  const Shape shape = tensor.shape.size() == 1 ? Shape(out.size())
                      : transposed             ? Shape(tensor.shape[1], tensor.shape[0])
                                               : Shape(tensor.shape[0], tensor.shape[1]);
  REQUIRE(!copy_stored(tensor, View<float>(out.data(), shape), transposed));
  return out;
}

}  // namespace

TEST_CASE("metadata and tensors of a GGUF file are where it says") {
  GgufBytes bytes = good();
  bytes.value("small", GgufKind::i8, raw<std::int8_t>(-3));
  bytes.value("large", GgufKind::u64, raw<std::uint64_t>(1));
  bytes.value("wide", GgufKind::f64, raw(0.25));
  bytes.real("epsilon", 1e-5F);
  bytes.truth("yes", true);
  bytes.texts("words", {"a", "", "bc"});
  bytes.array("scores", GgufKind::f32, 2, raw(0.5F) + raw(-1.0F));
  bytes.array("none", GgufKind::string, 0, "");
  const Folder folder;
  write_file(folder / "model.gguf", bytes.file());
  const auto file = Gguf::open(folder / "model.gguf");
  REQUIRE_MESSAGE(file, file.error.text());
  CHECK(file->architecture() == "llama");
  CHECK(file->size() == 2);
  CHECK((*file)[0].name == "a");
  REQUIRE(file->find("b") != nullptr);
  CHECK(file->find("c") == nullptr);
  CHECK(file->find("b")->shape == std::vector<std::size_t>{2, 3});
  CHECK(copied(*file->find("b")) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(copied(*file->find("b"), true) == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(copied(*file->find("a")) == std::vector<float>{7, 8});
  std::uint64_t number = 0;
  std::string_view text;
  CHECK((file->value("n")->whole_number(number) && number == 7));
  CHECK_FALSE(file->value("small")->whole_number(number));
  CHECK_FALSE(file->value("epsilon")->whole_number(number));
  CHECK_FALSE(file->value("n")->text(text));
  CHECK_FALSE(file->value("words")->text(text));
  CHECK(file->value("small")->json() == "-3");
  CHECK(file->value("large")->json() == "1");
  CHECK(file->value("wide")->json() == "0.25");
  CHECK(file->value("epsilon")->json() == "1e-05");
  CHECK(file->value("yes")->is_true());
  CHECK(file->value("words")->json() == "[3 values]");
  std::string words;
  CHECK(file->value("words")->each_string(
      [&](std::string_view word) { return words += std::string(word) + ".", true; }));
  CHECK(words == "a..bc.");
  double sum = 0;
  CHECK(file->value("scores")->each_number([&](double x) { return sum += x, true; }));
  CHECK(sum == -0.5);
  CHECK(file->value("none")->count == 0);
  CHECK(file->value("nothing") == nullptr);
}

TEST_CASE("blocks of every type decode to the floats of another program, bit by bit") {
  for (const Blocks& blocks : all_blocks) {
    CAPTURE(name_of(blocks.type));
    GgufBytes bytes;
    bytes.tensor("t", {2, 512}, static_cast<std::uint32_t>(blocks.type), bytes_of(blocks));
    const Folder folder;
    write_file(folder / "model.gguf", bytes.file());
    const auto file = Gguf::open(folder / "model.gguf");
    REQUIRE_MESSAGE(file, file.error.text());
    REQUIRE((*file)[0].elems() == 1024);
    const std::vector<float> numbers = copied((*file)[0]);
    CHECK(numbers[0] == blocks.first);
    CHECK(numbers[1] == blocks.second);
    CHECK(numbers[31] == blocks.last_of_32);
    CHECK(numbers[1023] == blocks.last);
    Checksum sum;
    sum.add(numbers.data(), numbers.size() * sizeof(float));
    CHECK(sum.value() == blocks.checksum);
    // A row alone, and as another type.
    std::vector<double> row(512);
    REQUIRE(!copy_stored((*file)[0].part(512, 512), View<double>(row.data(), Shape(512))));
    for (std::size_t i = 0; i < 512; ++i) CHECK(row[i] == static_cast<double>(numbers[512 + i]));
  }
}

TEST_CASE("halves and bfloat16 of GGUF files are read, and so are numbers that are none") {
  GgufBytes bytes;
  bytes.tensor(
      "h", {3}, 1,
      raw<std::uint16_t>(0x3C00) + raw<std::uint16_t>(0x0001) + raw<std::uint16_t>(0x7C00));
  bytes.tensor("b", {2}, 30, raw<std::uint16_t>(0x3F80) + raw<std::uint16_t>(0xC040));
  const Folder folder;
  write_file(folder / "model.gguf", bytes.file());
  const auto file = Gguf::open(folder / "model.gguf");
  REQUIRE_MESSAGE(file, file.error.text());
  CHECK(copied(*file->find("b")) == std::vector<float>{1, -3});
  CHECK(copied(*file->find("h")) == std::vector<float>{1, std::ldexp(1.0F, -24), INFINITY});
}

TEST_CASE("a GGUF file that is cut anywhere is refused in one line") {
  GgufBytes bytes = good();
  bytes.texts("words", {"a", "bc"});
  const std::string whole = bytes.file();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Error why = refusal(whole.substr(0, size));
    CAPTURE(size);
    CHECK(static_cast<bool>(why));
    CHECK(says(why, "expected a GGUF file"));
  }
  CHECK_FALSE(refusal(whole));
  CHECK(says(refusal(whole.substr(0, whole.size() - 1)), "is truncated: tensor \"a\" has 8 bytes"));
}

TEST_CASE("counts that the file has no room for are refused before anything is made of them") {
  constexpr std::uint64_t enormous = std::uint64_t{1} << 60;
  GgufBytes bytes = good();
  bytes.tensor_count = enormous;
  CHECK(says(refusal(bytes), "says that it has 1152921504606846976 tensors"));
  bytes = good();
  bytes.value_count = enormous;
  CHECK(says(refusal(bytes), "says that it has 1152921504606846976 values"));
  bytes = good();
  bytes.array("words", GgufKind::string, enormous, "");
  CHECK(says(refusal(bytes), "\"words\" is an array of 1152921504606846976 values"));
  bytes = good();
  bytes.array("numbers", GgufKind::u64, enormous, "");
  CHECK(says(refusal(bytes), "\"numbers\" is an array of"));
  bytes = good();
  bytes.value("text", GgufKind::string, raw(enormous));
  CHECK(says(refusal(bytes), "end in the value of \"text\""));
  bytes = good();
  bytes.place("t", {enormous, 32}, 0, 0);
  CHECK(says(refusal(bytes), sizeof(std::size_t) < 8 ? "it is (4294967295, 32) of F32"
                                                     : "it is (1152921504606846976, 32) of F32"));
  bytes = good();
  bytes.place("t", {std::uint64_t{1} << 40}, 0, 0);
  CHECK(says(refusal(bytes), "was never as large"));
  bytes = good();
  bytes.place("t", {1}, 0, enormous);
  CHECK(says(refusal(bytes), sizeof(std::size_t) < 8 ? "at byte 4294967295, which is no multiple"
                                                     : "is truncated: tensor \"t\""));
}

TEST_CASE("unknown types, overlaps, and everything else that is wrong with a GGUF file are named") {
  GgufBytes bytes = good();
  bytes.place("t", {1}, 77, 64);
  CHECK(
      says(refusal(bytes), "tensor \"t\" that it is of the unknown type (77); those read are F32"));
  bytes = good();
  bytes.place("t", {256}, 17, 64);
  CHECK(says(refusal(bytes), "it is of IQ2_XS (17)"));
  bytes = good();
  bytes.place("t", {4}, 0, 0);
  CHECK(says(refusal(bytes), "has tensor \"b\" at byte 0, inside the one that ends at 16"));
  bytes = good();
  bytes.place("t", {1}, 0, 33);
  CHECK(says(refusal(bytes), "at byte 33, which is no multiple of 32"));
  bytes = good();
  bytes.place("t", {16}, 2, 64);
  CHECK(says(refusal(bytes), "rows of 16 in Q4_0, whose blocks have 32"));
  bytes = good();
  bytes.place("t", {}, 0, 64);
  CHECK(says(refusal(bytes), "it has 0 extents"));
  bytes = good();
  bytes.place("t", {1, 1, 1, 1, 1}, 0, 64);
  CHECK(says(refusal(bytes), "it has 5 extents, of 1 to 4"));
  bytes = good();
  bytes.floats("a", {1}, {0});
  CHECK(says(refusal(bytes), "has tensor \"a\" a second time"));
  bytes = good();
  bytes.number("n", 8);
  CHECK(says(refusal(bytes), "has the key \"n\" a second time"));
  bytes = good();
  bytes.value("x", static_cast<GgufKind>(13), "");
  CHECK(says(refusal(bytes), "a value of the unknown type 13 under \"x\""));
  bytes = good();
  bytes.array("x", GgufKind::array, 0, "");
  CHECK(says(refusal(bytes), "has arrays in an array under \"x\""));
  bytes = good();
  bytes.number("general.alignment", 24);
  CHECK(says(refusal(bytes), "general.alignment 24, which is no power of two"));
  bytes = good();
  bytes.value("split.count", GgufKind::u16, raw<std::uint16_t>(3));
  CHECK(says(refusal(bytes), "is one of 3 files"));
  bytes = good();
  bytes.version = 1;
  CHECK(says(refusal(bytes), "is of version 1"));
  bytes.version = 0x03000000;
  CHECK(says(refusal(bytes), "is big-endian"));
  CHECK(says(refusal("PK\x03\x04" + std::string(40, '\0')), "a zip archive"));
  bytes = {};
  bytes.alignment = 64;
  bytes.number("general.alignment", 64);
  bytes.floats("a", {1}, {1});
  bytes.floats("b", {1}, {2});
  CHECK_FALSE(refusal(bytes));
}

TEST_CASE("tensors of a GGUF file are loaded as those of any other") {
  const Folder folder;
  write_file(folder / "model.gguf", good().file());
  const auto file = Gguf::open(folder / "model.gguf");
  REQUIRE(file);
  std::vector<float> a(2), b(6);
  using Wanted = std::vector<WantedTensor<float>>;
  const Wanted good_ones{{"a", View<float>(a.data(), Shape(2))},
                         {"b", View<float>(b.data(), Shape(3, 2)), true}};
  REQUIRE(!load_tensors(*file, good_ones));
  CHECK(a == std::vector<float>{7, 8});
  CHECK(b == std::vector<float>{1, 4, 2, 5, 3, 6});
  const Wanted wrong{{"a", View<float>(b.data(), Shape(3))},
                     {"c", View<float>(b.data(), Shape(3))}};
  CHECK(problems_of(*file, wrong) ==
        std::vector<std::string>{"\"a\" is (2), not (3)", "\"c\" is missing"});
}

}  // namespace gguf_test
