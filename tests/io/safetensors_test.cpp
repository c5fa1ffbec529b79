// SPDX-License-Identifier: MIT
#include "adacc/io/weights/safetensors.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "../train/support.hpp"
#include "adacc/io/weights/write_safetensors.hpp"

namespace safetensors_test {
namespace {

using namespace adacc;
using train_test::bytes_of;
using train_test::Folder;
using train_test::write_file;

bool says(const Error& error, const char* piece) { return train_test::says(error.text(), piece); }

std::string framed(const std::string& header, const std::string& data = "") {
  return bytes_of(std::vector<std::uint64_t>{header.size()}) + header + data;
}

/// What opening a file with these bytes says.
Error refusal(const std::string& bytes) {
  const Folder folder;
  write_file(folder / "model", bytes);
  return SafeTensors::open(folder / "model").error;
}
Error refused_header(const std::string& header, std::size_t data_bytes = 0) {
  return refusal(framed(header, std::string(data_bytes, '\0')));
}

/// The elements of the tensor "t" of this type and these bytes, as T.
template <class T = float>
std::vector<T> elements(const char* type, const std::string& data) {
  StoredType stored{};
  REQUIRE(stored_type_of(type, stored));
  const std::size_t count = data.size() * 8 / bits_of(stored);
  const std::string size = std::to_string(data.size());
  const Folder folder;
  write_file(folder / "model",
             framed(std::string(R"({"t":{"dtype":")") + type + R"(","shape":[)" +
                        std::to_string(count) + R"(],"data_offsets":[0,)" + size + "]}}",
                    data));
  const auto file = SafeTensors::open(folder / "model");
  REQUIRE_MESSAGE(file, file.error.text());
  std::vector<T> out(count);
  REQUIRE(!copy_stored((*file)[0], View<T>(out.data(), Shape(count))));
  return out;
}

#if defined(__linux__)
/// Pages of files that are in this process's memory: the third number of statm.
long file_pages() {
  std::ifstream statm("/proc/self/statm");
  long all = 0, resident = 0, of_files = 0;
  statm >> all >> resident >> of_files;
  return of_files;
}
#endif

}  // namespace

TEST_CASE("what is written is read, and lies where the format wants it") {
  const Folder folder;
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<bfloat16> b{to_bfloat16(0.5F), to_bfloat16(-3)};
  const std::vector<double> c{1e300};
  REQUIRE(!write_safetensors(folder / "model",
                             {{"b \"\\\n\xC3\xA4", View<const bfloat16>(b.data(), Shape(2))},
                              {"a", View<const float>(a.data(), Shape(2, 3))},
                              {"c", View<const double>(c.data(), Shape(1))},
                              {"empty", View<const float>(a.data(), Shape(0, 3))}},
                             {{"format", "pt"}, {"say", "\"hi\""}}));
  const auto file = SafeTensors::open(folder / "model");
  REQUIRE_MESSAGE(file, file.error.text());
  CHECK(file->size() == 4);
  CHECK(file->metadata().at("format") == "pt");
  CHECK(file->metadata().at("say") == "\"hi\"");
  const StoredTensor* found = file->find("b \"\\\n\xC3\xA4");
  REQUIRE(found != nullptr);
  CHECK(found->type == StoredType::bf16);
  CHECK(std::memcmp(found->bytes.data(), b.data(), 4) == 0);
  REQUIRE(file->find("a") != nullptr);
  CHECK(file->find("a")->shape == std::vector<std::size_t>{2, 3});
  CHECK(file->find("a")->elems() == 6);
  CHECK(file->find("empty")->elems() == 0);
  CHECK(file->find("A") == nullptr);
  for (const StoredTensor& tensor : *file)
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % (bits_of(tensor.type) / 8) == 0);

  std::vector<float> back(6), turned(6);
  CHECK(!copy_stored(*file->find("a"), View<float>(back.data(), Shape(2, 3))));
  CHECK(back == a);
  CHECK(!copy_stored(*file->find("a"), View<float>(turned.data(), Shape(3, 2)), true));
  CHECK(turned == std::vector<float>{1, 4, 2, 5, 3, 6});
  const std::string twice =
      write_safetensors(folder / "model", {{"a", View<const float>(a.data(), Shape(2))},
                                           {"a", View<const float>(a.data(), Shape(2))}})
          .text();
  CHECK(twice.find("cannot be called \"a\"") != twice.npos);
  CHECK(SafeTensors::open(folder / "model"));  // the old one stays
}

TEST_CASE("every type becomes the number that it stands for") {
  const auto bytes = [](std::initializer_list<int> list) {
    std::string out;
    for (const int x : list) out += static_cast<char>(x);
    return out;
  };
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(elements("BOOL", bytes({0, 1, 2})) == std::vector<float>{0, 1, 1});
  CHECK(elements("U8", bytes({255})) == std::vector<float>{255});
  CHECK(elements("I8", bytes({255})) == std::vector<float>{-1});
  CHECK(elements("U16", bytes_of(std::vector<std::uint16_t>{65535})) == std::vector<float>{65535});
  CHECK(elements("I16", bytes_of(std::vector<std::int16_t>{-2})) == std::vector<float>{-2});
  CHECK(elements("U32", bytes_of(std::vector<std::uint32_t>{1U << 31})) ==
        std::vector<float>{2147483648.0F});
  CHECK(elements("I32", bytes_of(std::vector<std::int32_t>{-7})) == std::vector<float>{-7});
  CHECK(elements("U64", bytes_of(std::vector<std::uint64_t>{~std::uint64_t{0}})) ==
        std::vector<float>{18446744073709551616.0F});
  CHECK(elements("I64", bytes_of(std::vector<std::int64_t>{-9})) == std::vector<float>{-9});
  CHECK(elements<double>("F64", bytes_of(std::vector<double>{1e300})) ==
        std::vector<double>{1e300});
  CHECK(elements("F64", bytes_of(std::vector<double>{1e300})) == std::vector<float>{inf});
  CHECK(elements("BF16", bytes_of(std::vector<std::uint16_t>{0x3FC0})) == std::vector<float>{1.5F});
  // One, the largest, the smallest normal and subnormal, minus zero, an infinity.
  CHECK(elements("F16",
                 bytes_of(std::vector<std::uint16_t>{0x3C00, 0x7BFF, 0x0400, 0x0001, 0xFC00})) ==
        std::vector<float>{1, 65504, 0x1p-14F, 0x1p-24F, -inf});
  CHECK(elements("F8_E5M2", bytes({0x3C, 0x7B, 0x04, 0x01, 0xFC})) ==
        std::vector<float>{1, 57344, 0x1p-14F, 0x1p-16F, -inf});
  CHECK(elements("F8_E4M3", bytes({0x38, 0x7E, 0x08, 0x01, 0x81})) ==
        std::vector<float>{1, 448, 0x1p-6F, 0x1p-9F, -0x1p-9F});
  CHECK(std::signbit(elements("F16", bytes_of(std::vector<std::uint16_t>{0x8000}))[0]));
  CHECK(std::isnan(elements("F16", bytes_of(std::vector<std::uint16_t>{0x7E00}))[0]));
  CHECK(std::isnan(elements("F8_E4M3", bytes({0x7F}))[0]));
  CHECK(elements<bfloat16>("F32", bytes_of(std::vector<float>{1.0F + 0x1p-8F}))[0] ==
        to_bfloat16(1));
}

TEST_CASE("files that do not add up are refused in words") {
  const std::string t = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK(!refused_header(t, 8));
  CHECK(!refused_header(t + "   ", 8));  // the format allows spaces behind
  CHECK(!refused_header("{}"));
  CHECK(says(refusal("short"), "truncated"));
  CHECK(says(refusal(""), "is empty"));
  CHECK(says(refusal(bytes_of(std::vector<std::uint64_t>{~std::uint64_t{0}}) + "{}"), "100000000"));
  CHECK(says(refusal(bytes_of(std::vector<std::uint64_t>{50}) + "{}"), "its header alone"));
  CHECK(says(refused_header(t, 7), "is truncated"));
  CHECK(says(refused_header(t, 9), "is too long"));
  CHECK(says(refused_header(t + "x", 8), "behind the end"));
  CHECK(says(refused_header(t.substr(0, t.size() - 1), 8), "JSON lacks"));
  CHECK(says(refused_header("[]"), "lacks an object"));
  const auto tensor = [](const char* facts) {
    return refused_header(std::string(R"({"t\u0041":{)") + facts + "}}", 8);
  };
  CHECK(says(tensor(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"),
             "\"tA\" that it is of type F33"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "they have 12"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "begin before they end"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4,8])"), "not read to its end"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[2])"), "less than"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "no whole number"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "no whole number"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8])"),
             "too large"));
  CHECK(says(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
             "too large to address"));
  const auto two = [](int begin, int end) {
    return refused_header(
        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8",)"
        R"("shape":[)" +
            std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
            std::to_string(end) + "]}}",
        8);
  };
  CHECK(!two(4, 8));
  CHECK(says(two(3, 8), "inside"));
  CHECK(says(two(5, 8), "with a gap"));
  CHECK(says(refused_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":)"
                            R"("U8","shape":[4],"data_offsets":[4,8]}})",
                            8),
             "a second time"));
  CHECK(says(refused_header(R"({"__metadata__":{"a":1}})"), "a string"));
  CHECK(says(refused_header(std::string(200, '[') + std::string(200, ']')), "lacks an object"));
  CHECK(says(refused_header(R"({"t":{"x":)" + std::string(200, '[')), "in one another"));
  CHECK(says(refused_header(R"({"t":{"x":"\ud800"}})"), "surrogates"));
  CHECK(says(SafeTensors::open("/nowhere").error, "cannot be opened"));
  const Folder folder;
  CHECK(says(SafeTensors::open(folder / "").error, "neither model.safetensors"));
}

TEST_CASE("a model of several files is read by its index") {
  const Folder folder;
  const std::vector<float> numbers{1, 2, 3};
  const View<const float> view(numbers.data(), Shape(3));
  REQUIRE(!write_safetensors(folder / "one.safetensors", {{"a", view}, {"b", view}}));
  REQUIRE(!write_safetensors(folder / "two.safetensors", {{"c", view}, {"b", view}}));
  const auto open = [&](const std::string& map) {
    write_file(
        folder / "model.safetensors.index.json",
        R"({"metadata":{"total_size":1.5e3,"x":[true,null,-2]},"weight_map":{)" + map + "}}");
    return SafeTensors::open(folder / "");
  };
  const auto good = open(R"("a":"one.safetensors","b":"two.safetensors","c":"two.safetensors")");
  REQUIRE_MESSAGE(good, good.error.text());
  CHECK(good->size() == 3);
  for (const char* name : {"a", "b", "c"}) CHECK(good->find(name) != nullptr);
  CHECK(says(open(R"("d":"one.safetensors")").error, "none of that name"));
  CHECK(says(open(R"("a":"three.safetensors")").error, "three.safetensors"));
  CHECK(says(open(R"("a":"../one.safetensors")").error, "no name of a file beside it"));
  CHECK(says(open(R"("a":"/etc/passwd")").error, "no name of a file beside it"));
  write_file(folder / "model.safetensors.index.json", "{}");
  CHECK(says(SafeTensors::open(folder / "").error, "weight_map"));
}

TEST_CASE("all that does not fit is listed, and nothing is loaded then") {
  const Folder folder;
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  REQUIRE(
      !write_safetensors(folder / "model", {{"a", View<const float>(numbers.data(), Shape(2, 3))},
                                            {"b", View<const float>(numbers.data(), Shape(6))}}));
  const auto file = SafeTensors::open(folder / "model");
  REQUIRE(file);
  std::vector<float> to(6, -1);
  using Wanted = std::vector<WantedTensor<float>>;
  const Wanted wrong{{"a", View<float>(to.data(), Shape(3, 2))},
                     {"c", View<float>(to.data(), Shape(6))},
                     {"b", View<float>(to.data(), Shape(6))}};
  const auto problems = problems_of(*file, wrong);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0] == "\"a\" is (2, 3), not (3, 2)");
  CHECK(problems[1] == "\"c\" is missing");
  CHECK(says(load_tensors(*file, wrong), "2 of 3 tensors"));
  CHECK(says(load_tensors(*file, wrong), "not (3, 2), and 1 more"));
  CHECK(to == std::vector<float>(6, -1));
  CHECK(!load_tensors(*file, Wanted{{"a", View<float>(to.data(), Shape(3, 2)), true}}));
  CHECK(to == std::vector<float>{1, 4, 2, 5, 3, 6});
}

#if defined(__linux__)
TEST_CASE("a model that was read leaves the process, and can be read again") {
  const Folder folder;
  const std::size_t elems = std::size_t{1} << 21;  // 8 MiB
  std::vector<float> numbers(elems);
  for (std::size_t i = 0; i < elems; ++i) numbers[i] = static_cast<float>(i % 1000003);
  REQUIRE_FALSE(write_safetensors(folder / "model",
                                  {{"t", View<const float>(numbers.data(), Shape(elems))}}, {}));
  const auto file = SafeTensors::open(folder / "model");
  REQUIRE_MESSAGE(file, file.error.text());
  std::vector<float> read(elems);
  const long before = file_pages();
  CHECK_FALSE(load_tensors(*file, std::vector<WantedTensor<float>>{
                                      {"t", View<float>(read.data(), Shape(elems)), false}}));
  CHECK(read == numbers);
  CHECK(file_pages() - before < 512);  // of 2048
  std::vector<float> again(elems);
  CHECK(!copy_stored((*file)[0], View<float>(again.data(), Shape(elems))));
  CHECK(again == numbers);
  CHECK(file_pages() - before >= 512);
}
#endif

}  // namespace safetensors_test
