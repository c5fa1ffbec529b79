// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/model/graph_builder.hpp>
#include <adacc/model/layer.hpp>
#include <adacc/model/network.hpp>
#include <adacc/model/sequential.hpp>
#include <adacc/policy/compress.hpp>
#include <adacc/policy/recompute.hpp>
#include <adacc/policy/retain.hpp>
#include <adacc/testing/archetypes.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cstring>
#include <type_traits>
#include <vector>

namespace archetypes_test {

using namespace adacc;
using namespace adacc::testing;

TEST_CASE("archetypes: a functor needs two members and what its backward reads") {
  static_assert(!std::is_default_constructible_v<LayerArchetype<double>>);
  static_assert(!std::is_copy_assignable_v<LayerArchetype<double>>);
  using Traits = layer_traits<LayerArchetype<float>>;
  const LayerArchetype<float> functor(2);
  static_assert(Traits::backward_reads() == Reads::none);
  static_assert(!Traits::takes_tokens && !Traits::facts().dx_overwrites_dy &&
                !Traits::has_reads_when);
  CHECK(std::strcmp(Traits::name(), "layer") == 0);
  CHECK(Traits::output_shape(functor, Shape{2, 3}) == Shape{2, 3});
  CHECK(Traits::needs(functor, Shape{2, 3}, {Dtype::f32}).aux == 0);
  CHECK(Traits::needs(functor, Shape{2, 3}, {Dtype::f32, 2, Pass::backward}).workspace == 0);
  CHECK(!Traits::needs(functor, Shape{2, 3}, {}).error);
  int parameters = 0;
  Traits::parameters(functor, Shape{2, 3}, [&](const ParameterSpec&) { ++parameters; });
  CHECK(parameters == 0);
  const auto result = gradient_check(LayerArchetype<double>(3), Shape{4, 5});
  CHECK_MESSAGE(result.passed, result.text());
  CHECK(result.compared == 20);
}

TEST_CASE("archetypes: every policy wraps the smallest functor, and a graph is made of it") {
  const LayerArchetype<float> functor(2);
  const Sequential model(layer<Retain>(functor), layer<Recompute>(functor),
                         layer<Compress<CodecArchetype>>(functor), layer(functor));
  const Network network{model, LossArchetype<float>(1)};
  const auto graph = make_graph(network, Shape{4, 8});
  REQUIRE_MESSAGE(graph, graph.error.text());
  REQUIRE(graph->node_count() == 4);
  CHECK(std::strcmp(name_of(graph->node(0).policy), "retain") == 0);
  CHECK(std::strcmp(name_of(graph->node(1).policy), "recompute") == 0);
  CHECK(std::strcmp(name_of(graph->node(2).policy), "archetype") == 0);
  CHECK(std::strcmp(name_of(graph->node(3).policy), "planned") == 0);
  CHECK(graph->output() == Shape{4, 8});
  CHECK(graph->node(3).output_bytes == 128);
  CHECK(graph->parameter_elems == 0);
}

TEST_CASE("archetypes: a loss needs its two members") {
  const std::vector<double> targets = {1, -1, 0.5, 2, 0, -3};
  const auto result = gradient_check_loss(LossArchetype<double>(2), Shape{2, 3},
                                          View<const double>(targets.data(), Shape{2, 3}));
  CHECK_MESSAGE(result.passed, result.text());
  CHECK(result.compared == 6);
}

TEST_CASE("archetypes: a codec is a type with a name, a size, encode and decode") {
  static_assert(!std::is_default_constructible_v<CodecArchetype>);
  const float x[] = {1, 2, 3, 4, 5, 6};
  float back[6] = {};
  std::byte blob[24] = {};
  REQUIRE(codec_info<CodecArchetype>.encoded_bytes(2, 3, Dtype::f32) == sizeof blob);
  Cpu cpu;
  CHECK_FALSE(codec_kernel<CodecArchetype, Cpu>::encode(cpu, View<const float>(x, Shape{2, 3}),
                                                        Bytes(blob, Shape(sizeof blob))));
  CHECK_FALSE(codec_kernel<CodecArchetype, Cpu>::decode(cpu, ConstBytes(blob, Shape(sizeof blob)),
                                                        View<float>(back, Shape{2, 3})));
  CHECK(std::memcmp(x, back, sizeof x) == 0);
}

TEST_CASE("archetypes: an executor needs workers and run, and may be neither copied nor const") {
  static_assert(!std::is_copy_constructible_v<ExecutorArchetype>);
  for (const int workers : {1, 2, 5}) {
    ExecutorArchetype executor(workers);
    const Cpu cpu{ExecutorRef(executor)};
    CHECK(cpu.workers() == workers);
    std::vector<int> calls(11);
    bool in_range = true;
    cpu.parallel(calls.size(), [&](std::size_t tile, int worker) {
      ++calls[tile];
      in_range &= worker >= 0 && worker < workers;
    });
    CHECK(calls == std::vector<int>(11, 1));
    CHECK(in_range);
  }
}

TEST_CASE("archetypes: the traits of contexts are what they declare") {
  const auto has_none = []<class Context>() {
    using Traits = context_traits<Context>;
    return !Traits::own_memory && !Traits::returns_errors && !Traits::loss_may_fail &&
           !Traits::looks_at_memory && !Traits::has_stream && !Traits::gathers &&
           !Traits::template widens<float>;
  };
  static_assert(has_none.operator()<ContextArchetype>());
  static_assert(has_none.operator()<Cpu>());
  using Traits = context_traits<DeviceArchetype>;
  static_assert(Traits::own_memory && Traits::returns_errors && Traits::loss_may_fail);
  static_assert(Traits::looks_at_memory && Traits::has_stream && Traits::gathers);
  static_assert(Traits::widens<float>);
  const std::byte from[] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  std::byte to[4] = {};
  DeviceArchetype().gather(from, {0, 2, 3, 2}, to);
  CHECK((to[0] == from[0] && to[1] == from[1] && to[2] == from[3] && to[3] == from[4]));
}

}  // namespace archetypes_test
