// SPDX-License-Identifier: MIT
#include "adacc/io/weights/weights_header.hpp"

#include "adacc/io/weights/int8_tensors.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "../train/support.hpp"

namespace weights_header_test {
namespace {

using namespace adacc;
using train_test::Folder;
using train_test::write_file;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
bool has(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

/// Prints the table of a header: a line for each tensor, with its name and the bits of its elements.
std::string reader(const std::string& header) {
  return "#include \"" + header + R"("
#include "twin.h"
#include <stdio.h>
#include <string.h>
int main(void) {
  int i, k;
  size_t e;
  for (i = 0; i < w_tensor_count; ++i) {
    const w_tensor *t = &w_tensors[i];
    printf("%s|%d", t->name, t->rank);
    for (k = 0; k < t->rank; ++k) printf(" %lu", (unsigned long)t->shape[k]);
    printf("|");
    for (e = 0; e < t->elems; ++e) {
      unsigned bits;
      memcpy(&bits, t->data + e, sizeof bits);
      printf(" %08x", bits);
    }
    printf("\n");
  }
  return twin_tensor_count != 1;
}
)";
}

}  // namespace

TEST_CASE("a C compiler reads the bits that were written, under names that it takes") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> values{0.0F,
                                  -0.0F,
                                  1.0F,
                                  -1.5F,
                                  0.1F,
                                  tiny,
                                  -7 * tiny,
                                  std::numeric_limits<float>::max(),
                                  1e-38F,
                                  3e-39F,
                                  std::numeric_limits<float>::min(),
                                  -16777215.0F};
  const View<const float> all(values.data(), Shape(12));
  const std::string lengthy(80, 'a');
  const std::vector<NamedTensor> tensors{
      {"0.linear.weight", View<const float>(values.data(), Shape(3, 4))},
      {"0_linear.weight", View<const float>(values.data(), Shape(2, 3, 2))},
      {"0_linear_weight_2", View<const float>(values.data(), Shape(1, 2, 3, 2))},
      {"tensors", all},
      {"tensor_count", all},
      {"WEIGHTS_H", all},
      {"*/ \"\\ ?\?/ %s\n \x01\xc3\xa4", all},
      {"int", all},
      {"", all},
      {lengthy + "b", all},
      {lengthy + "c", all}};
  const Folder folder;
  REQUIRE(!write_weights_header(folder / "weights.h", tensors, "w"));
  REQUIRE(!write_weights_header(folder / "twin.h", {{"t", all}}));
  const std::string text = text_of(folder / "weights.h");
  CHECK(has(text, "w_CONST float w_0_linear_weight[3][4] ="));
  CHECK(has(text, "w_CONST float w_0_linear_weight_2[2][3][2] ="));
  CHECK(has(text, "w_CONST float w_0_linear_weight_2_2[1][2][3][2] ="));
  CHECK(has(text, "w_CONST float w_tensors_2[12] ="));
  CHECK(has(text, "-0x1.8p0f, 0x1.99999ap-4f,"));
  CHECK(has(text, "\n#ifndef W_WEIGHTS_H\n"));
  // C tells 63 characters apart.
  CHECK(has(text, "w_CONST float w_" + std::string(61, 'a') + "[12] ="));
  CHECK(has(text, "w_CONST float w_" + std::string(59, 'a') + "_2[12] ="));
  REQUIRE(!write_weights_header(folder / "loud.h", {{"WEIGHTS_H", all}}, "LOUD"));
  CHECK(has(text_of(folder / "loud.h"), "LOUD_CONST float LOUD_WEIGHTS_H_2[12] ="));
  CHECK(has(text_of(folder / "twin.h"), "twin_CONST float twin_t[12] ="));

  std::string expected;
  for (const NamedTensor& tensor : tensors) {
    expected += tensor.name + "|" + std::to_string(tensor.shape.rank());
    for (int i = 0; i < tensor.shape.rank(); ++i) expected += " " + std::to_string(tensor.shape[i]);
    expected += "|";
    for (const float value : values) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      char word[12];
      std::snprintf(word, sizeof word, " %08x", bits);
      expected += word;
    }
    expected += "\n";
  }
  write_file(folder / "reader.c", reader("weights.h"));
  write_file(folder / "reader.cpp", reader("weights.h"));
  const std::string warnings = " -Wall -Wextra -pedantic -Wshadow -Wconversion -Werror ";
  for (const std::string compiler : {"cc -std=c99 -x c", "c++ -std=c++17 -x c++"}) {
    CAPTURE(compiler);
    const std::string found =
        "command -v " + compiler.substr(0, compiler.find(' ')) + " > /dev/null 2>&1";
    if (std::system(found.c_str()) != 0) {
      MESSAGE("there is no such compiler");
      continue;
    }
    const std::string build = compiler + warnings + (folder / "reader.c") + " -o " +
                              (folder / "reader") + " && " + (folder / "reader") + " > " +
                              (folder / "out");
    REQUIRE(std::system(build.c_str()) == 0);
    CHECK(text_of(folder / "out") == expected);
  }
}

TEST_CASE("int8 beside float: what C and C++ read, in constant expressions, too") {
  std::vector<std::int8_t> all(256);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int8_t>(i - 128);
  const float scale[] = {0.1F, -3e-39F};
  const Folder folder;
  REQUIRE(!write_weights_header(folder / "q.h",
                                {{"w", View<const std::int8_t>(all.data(), Shape(4, 64))},
                                 {"scale", View<const float>(scale, Shape(2))}}));
  CHECK(has(text_of(folder / "q.h"), "q_CONST signed char q_w[4][64] ="));
  write_file(folder / "reader.c", R"(#include "q.h"
#ifdef __cplusplus
static_assert(q_w[0][0] == -128 && q_w[3][63] == 127 && q_scale[0] == 0.1F, "");
#endif
int main(void) {
  int i, wrong = q_tensor_count != 2 || q_tensors[0].data || q_tensors[1].int8_data;
  for (i = 0; i < 256; ++i) wrong |= q_tensors[0].int8_data[i] != i - 128;
  return wrong || q_tensors[1].data[0] != 0.1F || q_tensors[1].data[1] != -3e-39F;
}
)");
  const std::string warnings = " -Wall -Wextra -pedantic -Wshadow -Wconversion -Werror ";
  for (const std::string compiler : {"cc -std=c99 -x c", "c++ -std=c++17 -x c++"})
    CHECK(std::system((compiler + warnings + (folder / "reader.c") + " -o " + (folder / "reader") +
                       " && " + (folder / "reader"))
                          .c_str()) == 0);
}

TEST_CASE("matrices in int8 come back within half a scale of their row, vectors as they were") {
  std::vector<float> matrix(3 * 5 * 2), vector(7);
  for (std::size_t i = 0; i < matrix.size(); ++i)
    matrix[i] = unit_float(random_word({}, i)) - (i < 10 ? 0.1F : 0.5F);
  for (std::size_t i = 10; i < 20; ++i) matrix[i] = 0;
  matrix[25] = -300;
  const std::vector<NamedTensor> given{{"m", View<const float>(matrix.data(), Shape(3, 5, 2))},
                                       {"v", View<const float>(vector.data(), Shape(7))}};
  const auto made = Int8Tensors::make(given);
  REQUIRE_MESSAGE(made, made.error.text());
  const std::vector<NamedTensor>& all = made->tensors();
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "m");
  CHECK(all[0].type == StoredType::i8);
  CHECK(all[0].shape == Shape(3, 5, 2));
  CHECK(all[1].name == "m.scale");
  CHECK(all[1].shape == Shape(3));
  CHECK(all[2].name == "v");
  CHECK(all[2].data == vector.data());

  // What a C program makes of the header.
  const Folder folder;
  REQUIRE(!write_weights_header(folder / "q.h", all));
  std::string expected;
  for (const float value : matrix)
    expected += NumberText::shortest(value).c_str() + std::string(", ");
  write_file(folder / "reader.c", R"(#include "q.h"
#include <math.h>
int main(void) {
  static const double real[3][10] = {)" +
                                      expected + R"(};
  int r, i, wrong = 0, ends[3] = {0, 0, 0};
  for (r = 0; r < 3; ++r)
    for (i = 0; i < 10; ++i) {
      const double scale = q_m_scale[r];
      const int code = q_m[r][i / 2][i % 2];
      wrong |= fabs(scale * code - real[r][i]) > 0.5 * scale + 1e-6;
      ends[r] |= code == 127 || code == -127;
    }
  return wrong || !ends[0] || ends[1] || !ends[2] || q_m[2][2][1] != -127;
}
)");
  CHECK(std::system(("cc -std=c99 -w " + (folder / "reader.c") + " -o " + (folder / "reader") +
                     " -lm && " + (folder / "reader"))
                        .c_str()) == 0);

  matrix[12] = std::numeric_limits<float>::infinity();
  CHECK(has(Int8Tensors::make(given).error.text(), "\"m\" is not finite in row 1"));
}

TEST_CASE("the parameters of a graph have names, each storage once") {
  Graph graph;
  Node node;
  node.name = "linear";
  graph.nodes.push_back(node);
  node.layer = 1;
  graph.nodes.push_back(node);
  const auto parameter = [&](const char* name, Shape shape, std::size_t offset, int of,
                             bool owner) {
    Parameter p;
    p.name = name;
    p.shape = shape;
    p.offset = offset;
    p.node = of;
    p.owner = owner;
    graph.parameters.push_back(p);
  };
  parameter("weight", Shape(2, 3), 0, 0, true);
  parameter("weight", Shape(2, 3), 0, 1, false);
  parameter("bias", Shape(2), 16, 1, true);
  parameter("scale", Shape(1), 32, -1, true);
  const std::vector<float> block(48);
  const auto named = named_parameters(graph, {block.data(), Shape(block.size())});
  REQUIRE(named.size() == 3);
  CHECK(named[0].name == "linear.weight");
  CHECK(named[0].shape == Shape(2, 3));
  CHECK(named[1].name == "linear2.bias");
  CHECK(named[1].data == block.data() + 16);
  CHECK(named[2].name == "head.scale");
}

TEST_CASE("what cannot stand in a C header is refused, and the old one stays") {
  const Folder folder;
  const std::string path = folder / "1 player.v2.h";
  const std::vector<float> one{1};
  const View<const float> good(one.data(), Shape(1));
  REQUIRE(!write_weights_header(path, {{"a", good}}));
  const std::string before = text_of(path);
  CHECK(has(before, "float weights1_player_a[1] = {0x1p0f};"));  // no identifier begins with 1
  const auto refuses = [&](const std::vector<NamedTensor>& tensors, const std::string& prefix,
                           const char* piece) {
    const Error why = write_weights_header(path, tensors, prefix);
    CHECK_MESSAGE(train_test::says(why.text(), piece), why.text());
    CHECK(text_of(path) == before);
  };
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> broken{1, 2, bad};
    refuses({{"a", good}, {"b", View<const float>(broken.data(), Shape(3))}}, "",
            "\"b\" is not finite at element 2");
  }
  const std::vector<double> wide{1};
  refuses({{"a", View<const double>(wide.data(), Shape(1))}}, "",
          "F64; a C header takes F32 and I8");
  refuses({{"a", good}, {"a", good}}, "", "two tensors are called \"a\"");
  refuses({{"a", View<const float>(one.data(), Shape(0, 4))}}, "", "no elements");
  refuses({}, "", "no tensors");
  for (const char* prefix : {"1a", "_a", "a-b", "a b", "a234567890123456789012345678901x"})
    refuses({{"a", good}}, prefix, "cannot be the prefix");
  CHECK(train_test::says(write_weights_header(folder / "nowhere/a.h", {{"a", good}}).text(),
                         "cannot be written"));
}

}  // namespace weights_header_test
