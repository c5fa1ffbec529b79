// SPDX-License-Identifier: MIT
// Adapters as files: what is written is read, and what does not fit is listed.
#include <adacc/io/weights/adapters.hpp>

#include <doctest/doctest.h>

#include <adacc/model/graph_builder.hpp>
#include <adacc/model/layer.hpp>
#include <adacc/model/network.hpp>
#include <adacc/model/sequential.hpp>

#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../train/support.hpp"

namespace adapters_test {

using namespace adacc;

namespace {

/// A layer with the parameters of LoraLinear, without what it computes.
struct Adapted {
  std::size_t rank = 2;
  static constexpr const char* name = "adapted";
  static constexpr auto backward_reads = reads::input;
  constexpr std::array<ParameterSpec, 3> parameters(Shape in) const {
    ParameterSpec weight{"weight", Shape(in.cols(), in.cols())};
    weight.frozen = true;
    return {weight, ParameterSpec{"lora_a", Shape(rank, in.cols())},
            ParameterSpec{"lora_b", Shape(in.cols(), rank)}};
  }
  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>&) const {}
  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>&) const {}
};

Graph graph_of(std::size_t rank) {
  const auto graph = make_graph(
      Network{Sequential{layer(Adapted{rank}), layer(Adapted{rank})}, NoLoss{}}, Shape(3, 5));
  REQUIRE_MESSAGE(graph, std::string(graph.error.text()));
  return *graph;
}

struct Block {
  std::vector<float> values;
  explicit Block(const Graph& graph, float first) : values(graph.parameter_elems) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i) / 3;
  }
  View<float> view() { return {values.data(), Shape(values.size())}; }
  View<const float> view() const { return {values.data(), Shape(values.size())}; }
};

using train_test::Folder;

bool has(const std::string& text, const char* piece) {
  return text.find(piece) != std::string::npos;
}

}  // namespace

TEST_CASE("adapters that are written are read, and nothing else is touched") {
  const Folder folder;
  const std::string path = folder.path + "/a";
  const Graph graph = graph_of(2);
  const Block from(graph, 1);
  Block to(graph, 100);
  const Block before = to;
  REQUIRE_FALSE(write_adapters(path, graph, from.view(), {2, 0.1F}));
  const auto shape = read_adapter_shape(path);
  REQUIRE_MESSAGE(shape, std::string(shape.error.text()));
  CHECK(shape->rank == 2);
  CHECK(shape->alpha == 0.1F);  // every bit of it
  std::vector<std::string> problems;
  const Error why = read_adapters(path, graph, to.view(), &problems);
  CHECK_MESSAGE(!why, std::string(why.text()));
  CHECK(problems.empty());
  for (const Parameter& parameter : graph.parameters) {
    const Block& expected = is_of_adapter(parameter) ? from : before;
    CHECK(std::memcmp(to.values.data() + parameter.offset,
                      expected.values.data() + parameter.offset,
                      parameter.shape.elems() * sizeof(float)) == 0);
  }
  CHECK(without_adapters(graph).parameters.size() == 2);
}

TEST_CASE("adapters that do not fit are refused, and every problem is listed") {
  const Folder folder;
  const std::string path = folder.path + "/a";
  const Graph graph = graph_of(2), wider = graph_of(3);
  Block to(graph, 100);
  const Block before = to;
  std::vector<std::string> problems;
  const auto refusal = [&] {
    const Error why = read_adapters(path, graph, to.view(), &problems);
    CHECK(why);
    CHECK(to.values == before.values);
    return std::string(why.text());
  };

  const Block wide(wider, 1);
  REQUIRE_FALSE(write_adapters(path, wider, wide.view(), {3, 1}));
  std::string text = refusal();
  CHECK(has(text, "4 tensors are not"));
  CHECK(has(text, "\"adapted.lora_a\" is (3, 5), not (2, 5)"));
  CHECK(problems.size() == 4);

  std::vector<float> numbers(10);
  const View<const float> a(numbers.data(), Shape(2, 5)), b(numbers.data(), Shape(5, 2));
  REQUIRE_FALSE(write_safetensors(
      path,
      {{"adapted.lora_a", a}, {"adapted.lora_b", b}, {"adapted2.lora_a", a}, {"other.lora_b", b}}));
  text = refusal();
  CHECK(
      has(text, "\"adapted2.lora_b\" is missing; \"other.lora_b\" is no adapter of this network"));
  CHECK(problems.size() == 2);
  const auto shape = read_adapter_shape(path);
  CHECK(has(shape.error.text(), "no rank and alpha"));

  REQUIRE_FALSE(write_safetensors(path, {{"adapted.lora_a", a}}, {{"rank", "2x"}, {"alpha", "1"}}));
  CHECK_FALSE(read_adapter_shape(path));
  REQUIRE_FALSE(
      write_safetensors(path, {{"adapted.lora_a", a}}, {{"rank", "2"}, {"alpha", "inf"}}));
  CHECK_FALSE(read_adapter_shape(path));
  CHECK(has(read_adapter_shape(folder.path + "/none").error.text(), "No such file"));

  Block bad(graph, 1);
  bad.values[graph.parameters[1].offset + 3] = std::numeric_limits<float>::infinity();
  REQUIRE_FALSE(write_adapters(path, graph, View<const float>(bad.view()), {2, 1}));
  CHECK(has(read_adapters(path, graph, to.view()).text(), "\"adapted.lora_a\" has NaN"));
}

}  // namespace adapters_test
