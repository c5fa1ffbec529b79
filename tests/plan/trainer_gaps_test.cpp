// SPDX-License-Identifier: MIT
/// Plans of a transformer's trainer written by hand, as far as a kernel has a stage of its own: gaps where
/// little memory is left, and gradients that its stages carry.
#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>
#include <adacc/plan/chain/planner.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/model.hpp>

#include <algorithm>
#include <vector>

#include "../test_size.hpp"

namespace trainer_gaps_test {

using namespace adacc;

namespace {

const auto many = [](const View<const float>*, const View<float>*) {};
const auto one = [](const View<const float>*, View<float>) {};

struct Carried {
  std::size_t elems;
  int first, last;
};
enum class Carries { none, in_order, shuffled };

/// 12 layers of ten kernels, each with a backward stage of its own, and 12 gradients that these hand on.
Graph trainer_graph(Carries carries, bool codecs) {
  constexpr std::size_t rows = 256, channels = 192, heads = 4, context = 64;
  constexpr std::size_t stream = rows * channels, att = heads * rows * context;
  const Shape narrow(rows, channels), wide(rows, 4 * channels), row(rows);
  StashModel<> model;
  using Output = StashOutput<StashModel<>>;
  const auto output = [&](const char* name, Shape shape) {
    return codecs ? Output(name, shape, {stash_codec<Int8Outlier>(1e-4)}) : Output(name, shape);
  };
  const auto norm = [&](int x) {
    return model.kernel<3>({.reads = {x},
                            .writes = {output("n", narrow), {"mean", row}, {"rstd", row}},
                            .backward_reads = {x, "mean", "rstd"},
                            .hold = true},
                           many)[0];
  };
  const auto product = [&](int x, const Output& made) {
    return model.kernel({.reads = {x}, .writes = {made}, .backward_reads = {x}, .hold = true}, one);
  };
  const auto sum = [&](int x, int y) {
    return model.kernel({.reads = {x, y}, .writes = {output("sum", narrow)}, .hold = true}, one);
  };
  std::vector<Carried> carried;
  int h = model.kernel({.writes = {output("h", narrow)}, .hold = true}, one);
  for (int layer = 0; layer < 12; ++layer) {
    const int n = norm(h), s = model.stage_of(n);
    const int qkv = product(n, output("qkv", Shape(rows, 3 * channels)));
    const auto y = model.kernel<3>(
        {.reads = {qkv},
         .writes = {{"preatt", Shape(att)}, {"att", Shape(att)}, output("y", narrow)},
         .backward_reads = {qkv, "att"},
         .hold = true},
        many)[2];
    const int middle = sum(h, product(y, {"proj", narrow}));
    const int act = product(product(norm(middle), output("fc", wide)), output("act", wide));
    h = sum(middle, product(act, {"proj", narrow}));
    std::vector<Carried> mine = {
        {stream, s + 10, s + 9},    {stream, s + 9, s + 8},     {4 * stream, s + 8, s + 7},
        {4 * stream, s + 7, s + 6}, {stream, s + 6, s + 5},     {stream, s + 9, s + 4},
        {stream, s + 4, s + 3},     {stream, s + 3, s + 2},     {att, s + 2, s + 2},
        {att, s + 2, s + 2},        {3 * stream, s + 2, s + 1}, {stream, s + 1, s}};
    if (carries == Carries::shuffled) std::rotate(mine.begin(), mine.begin() + layer, mine.end());
    carried.insert(carried.end(), mine.begin(), mine.end());
  }
  const int logits = product(norm(h), {"logits", Shape(rows, 512)});
  model.kernel({.reads = {logits},
                .writes = {{"probs", Shape(rows, 512)}},
                .backward_reads = {"probs"},
                .hold = true},
               one);
  if (carries != Carries::none)
    for (const Carried& gradient : carried)
      model.carry("d", Shape(gradient.elems), gradient.first, gradient.last);
  const Result<Graph> graph = model.graph();
  REQUIRE_MESSAGE(graph, graph.error.text());
  return *graph;
}

CostProfile profile_of(const Graph& graph) {
  CostProfile profile = empty_profile(graph);
  for (std::size_t k = 0; k < profile.nodes.size(); ++k) {
    const Node& node = graph.nodes[k];
    if (node.recomputable && node.made_by < 0)
      profile.nodes[k].forward = 1e-9 * static_cast<double>(node.output_bytes);
    profile.rest += 3 * profile.nodes[k].forward;
  }
  for (CodecCost& cost : profile.codec_costs) cost = {2e-5, 2e-5, 1e-4, 1e-4};
  return profile;
}

}  // namespace

TEST_CASE(
    "patterns that differ are listed in full, though options of single activations are more") {
  const Graph graph = trainer_graph(Carries::none, true);
  const CostProfile profile = profile_of(graph);
  const detail::Segments segments(graph, profile, 16);
  std::size_t listed = 0, product = 0;
  for (const detail::Segment& segment : segments.all) {
    if (segment.structure != static_cast<int>(listed)) continue;
    const Graph& own = segments.structures[listed++];
    std::size_t combinations = 2;
    for (int k = 0; k < own.node_count(); ++k) combinations *= policies_of(own, k).size();
    product = std::max(product, combinations);
    const auto patterns =
        detail::PatternLister(graph, profile, segment, own, std::size_t{1} << 20).list();
    CHECK(patterns.complete);
    const std::size_t count = patterns.all.size();
    CHECK(detail::PatternLister(graph, profile, segment, own, count).list().all.size() == count);
  }
  CHECK(product > 6000);
}

TEST_CASE("what stages carry makes equal layers no different, in whatever order it was told") {
  const auto structures = [](Carries carries) {
    const Graph graph = trainer_graph(carries, true);
    return detail::Segments(graph, profile_of(graph), 16).structures.size();
  };
  CHECK(structures(Carries::shuffled) == structures(Carries::in_order));
  CHECK(structures(Carries::in_order) <= structures(Carries::none) + 2);
}

TEST_CASE(
    "a trainer's plans are proven to be within half a per cent, near the smallest budgets, too") {
  for (const Carries carries : {Carries::none, Carries::shuffled}) {
    const Graph graph = trainer_graph(carries, true);
    const CostProfile profile = profile_of(graph);
    const std::size_t most = peak_bytes(graph, retain_all(graph));
    for (const std::size_t percent : {70U, 50U, 35U, 25U}) {
      if (percent == 25 && test_sanitized) continue;
      CAPTURE(percent);
      PlanRequest request;
      request.budget_bytes = most / 100 * percent;
      request.tolerance = 1e-2;
      const auto plan = make_plan(graph, profile, request);
      REQUIRE_MESSAGE(plan, plan.error.text());
      CHECK(plan->peak_bytes <= request.budget_bytes);
      CHECK(plan->gap <= 0.005);
    }
  }
}

}  // namespace trainer_gaps_test
