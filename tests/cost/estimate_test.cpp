// SPDX-License-Identifier: MIT
#include "adacc/cost/estimate.hpp"

#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>
#include <adacc/model/stage.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/stash/estimate.hpp>

#include <string_view>

namespace estimate_test { namespace {

using namespace adacc;

/// Rates at which products, or bytes, take all the time.
constexpr EstimateRates slow_products{1e15, 1e9, 3e9}, slow_memory{1e6, 1e18, 1e18};

Graph gpt_graph(Dtype scalar) {
  return *gpt::graph<gpt::PlannedSet>(
      {.layers = 2, .heads = 2, .channels = 64, .context = 32, .tied_head = false}, 2, 32, 1, 1,
      {.scalar = scalar});
}

TEST_CASE("an estimate has the rate of the scalar type's products") {
  const Graph fp32 = gpt_graph(Dtype::f32), bf16 = gpt_graph(Dtype::bf16);
  const CostProfile slow = estimated_profile(fp32, slow_products);
  const CostProfile fast = estimated_profile(bf16, slow_products);
  int products = 0;
  for (int k = 0; k < fp32.node_count(); ++k) {
    if (fp32.node(k).operations == 0) continue;
    ++products;
    const NodeCost &a = slow.nodes[static_cast<std::size_t>(k)],
                   &b = fast.nodes[static_cast<std::size_t>(k)];
    CHECK(a.forward == doctest::Approx(3 * b.forward));
    CHECK(a.backward == doctest::Approx(3 * b.backward));
  }
  CHECK(products >= 8);
  CHECK(slow.loss == doctest::Approx(3 * fast.loss));
}

TEST_CASE("a graph of a device, and its stages, are estimated at a device's rates") {
  const auto same = [](const Graph& graph, const EstimateRates& rates) {
    const CostProfile a = estimated_profile(graph), b = estimated_profile(graph, rates);
    for (std::size_t k = 0; k < a.nodes.size(); ++k)
      if (a.nodes[k].forward != b.nodes[k].forward || a.nodes[k].backward != b.nodes[k].backward)
        return false;
    return a.loss == b.loss && a.rest == b.rest;
  };
  for (const Dtype scalar : {Dtype::f32, Dtype::bf16}) {
    Graph graph = gpt_graph(scalar);
    CHECK(same(graph, EstimateRates{}));
    graph.on_device = true;
    CHECK(same(graph, device_rates));
    const Result<Graph> stage = stage_of(graph, 0, cuts_of(graph)[0]);
    REQUIRE_MESSAGE(stage, stage.error.text());
    CHECK(same(*stage, device_rates));
  }
}

TEST_CASE("activations in bf16 move half the bytes, and take a codec as long as fp32's") {
  const Graph fp32 = gpt_graph(Dtype::f32), bf16 = gpt_graph(Dtype::bf16);
  const CostProfile whole = estimated_profile(fp32, slow_memory);
  const CostProfile half = estimated_profile(bf16, slow_memory);
  int encoded = 0;
  for (int k = 0; k < fp32.node_count(); ++k) {
    const auto at = static_cast<std::size_t>(k);
    CHECK(whole.nodes[at].add == doctest::Approx(2 * half.nodes[at].add));
    if (fp32.node(k).name == std::string_view("gelu"))
      CHECK(whole.nodes[at].forward == doctest::Approx(2 * half.nodes[at].forward));
    for (std::size_t a = 0; a < whole.codecs.size(); ++a)
      for (std::size_t b = 0; b < half.codecs.size(); ++b) {
        if (whole.codecs[a] != half.codecs[b]) continue;
        const CodecCost &x = whole.codec_cost(k, static_cast<int>(a)),
                        &y = half.codec_cost(k, static_cast<int>(b));
        CHECK(x.encode == doctest::Approx(y.encode));
        CHECK(x.decode == doctest::Approx(y.decode));
        ++encoded;
      }
  }
  CHECK(encoded >= 2 * fp32.node_count());
}

TEST_CASE("a stash's callables have the rate of its scalar type") {
  const auto seconds = [](auto zero) {
    using T = decltype(zero);
    StashModel<T> model;
    const int x = model.add("x", Shape(8, 8), {0});
    struct Twice {
      void operator()(const View<const T>*, View<T>) const {}
    };
    static const Twice twice;
    const int y = model.add("y", Shape(8, 8), {0});
    model.recompute(y, {x}, twice, {.operations = 1e6});
    const auto profile = estimated_profile(model, slow_products);
    REQUIRE_MESSAGE(profile, profile.error.text());
    return profile->nodes[static_cast<std::size_t>(y)].forward;
  };
  CHECK(seconds(0.0F) == doctest::Approx(3 * seconds(bfloat16{})));
}

}}  // namespace estimate_test
