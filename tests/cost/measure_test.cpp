// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/cost/evaluate.hpp>
#include <adacc/cost/measure.hpp>

#include <string>
#include <vector>

#include "../step/random_model.hpp"
#include "../step/small_gpt.hpp"

namespace measure_test {

using namespace adacc;
using small_gpt::copy;
using small_gpt::Run;
using small_gpt::same;

namespace {

/// A clock that advances by what each instruction is said to cost.
struct TickingClock {
  mutable double seconds = 0;
  mutable std::size_t calls = 0;
  double operator()() const {
    ++calls;
    return seconds += 1e-6 * static_cast<double>(1 + calls % 3);
  }
};

}  // namespace

TEST_CASE("checkpoint sites are what no residual sum reaches across") {
  const Run gpt;
  const Graph& graph = gpt.graph();
  const Array<int> sites = checkpoint_sites(graph);
  // Independent: k is a cut where no sum has its source before k and its end behind k.
  std::vector<int> expected;
  for (int k = 0; k < graph.node_count(); ++k) {
    bool cut = true;
    for (int end = k + 1; end < graph.node_count(); ++end)
      for (const int source : graph.adds(end)) cut = cut && source >= k;
    if (cut) expected.push_back(k);
  }
  CHECK(std::vector<int>(sites.begin(), sites.end()) == expected);
  CHECK(expected.size() == 2 + 2 * static_cast<std::size_t>(gpt.config.layers));
  const Plan small = smallest_sparse(graph, Kept::whole);
  CHECK_FALSE(examine(graph, small));
  CHECK(peak_bytes(graph, small) < peak_bytes(graph, retain_all(graph)) / 2);
  CHECK(peak_bytes(graph, smallest_sparse(graph, Kept::coarse)) < peak_bytes(graph, small));
}

TEST_CASE("every cost that a plan can have is measured, in each of the possible arenas") {
  Run run;
  const Graph& graph = run.graph();
  const std::size_t least = least_measuring_bytes(graph), most = measuring_bytes(graph);
  REQUIRE(least < most);
  for (const std::size_t bytes : {most, (least + most) / 2, least}) {
    CAPTURE(bytes);
    const auto plans = measuring_plans(graph, bytes);
    REQUIRE(plans);
    for (const Plan& plan : plans->plans) {
      CHECK_FALSE(examine(graph, plan));
      CHECK(peak_bytes(graph, plan) <= bytes);
    }
    auto arena = Block<std::byte>::make(bytes, "arena");
    const TickingClock clock;
    const auto profile =
        measure(run.training.context(), run.dispatch(), graph, {arena->data(), Shape(bytes)},
                run.training.params(), run.training.gradients(), run.view(), run.view(), clock);
    REQUIRE_MESSAGE(profile, profile.error.text());
    CHECK_FALSE(examine(graph, *profile));
    CHECK(profile->loss > 0);
    for (int k = 0; k < graph.node_count(); ++k) {
      CAPTURE(k);
      CHECK((profile->node(k).add > 0) == !graph.adds(k).empty());
      for (const CodecInfo* codec : profile->codecs) {
        if (!graph.candidates_of(graph.node(k)).contains(codec)) continue;
        CHECK(profile->codec_cost(k, profile->column(codec)).encode > 0);
        CHECK(profile->codec_cost(k, profile->column(codec)).decode > 0);
      }
    }
  }
  const auto none = measuring_plans(graph, least - 1);
  CHECK(std::string(none.error.text()).find("needs an arena of at least") != std::string::npos);
}

TEST_CASE("medians of a clock that knows the costs are the costs; copies share them") {
  const Run gpt;
  const Graph& graph = gpt.graph();
  const auto plans = measuring_plans(graph, measuring_bytes(graph));
  REQUIRE(plans);
  const auto seconds = [&](const Plan& plan, const Instruction& inst) {
    const int layer = graph.node(inst.node).layer;
    double cost = 1e-3 * (1 + layer) + 1e-4 * static_cast<int>(inst.op) + (inst.again ? 5e-2 : 0);
    if (inst.op == Op::encode || inst.op == Op::decode)
      cost +=
          1e-5 * static_cast<double>(plan[inst.node].codec()->encoded_bytes(64, 64, Dtype::f32));
    return cost;
  };
  CostSamples samples(graph);
  for (int round = 0; round < 5; ++round)
    for (const Plan& plan : plans->plans)
      for (const Instruction& inst : make_schedule(graph, plan).instructions)
        samples.add(plan, inst, round == 2 ? 1.0 : seconds(plan, inst));  // one outlier in five
  const CostProfile profile = samples.profile();
  CHECK_FALSE(examine(graph, profile));
  for (const Plan& plan : plans->plans)
    for (const Instruction& inst : make_schedule(graph, plan).instructions) {
      if (inst.again) continue;
      CAPTURE(inst.node);
      CAPTURE(name_of(inst.op));
      CHECK(seconds_of(profile, plan, inst) == doctest::Approx(seconds(plan, inst)));
    }
}

TEST_CASE("what a reader pays for a decoded activation is part of the decode") {
  const Run gpt;
  const Graph& graph = gpt.graph();
  const auto plans = measuring_plans(graph, measuring_bytes(graph));
  CostSamples samples(graph);
  for (int round = 0; round < 3; ++round)
    for (const Plan& plan : plans->plans)
      for (const Instruction& inst : make_schedule(graph, plan).instructions) {
        const bool dear = inst.op == Op::backward && inst.node > 0 &&
                          plan[inst.node - 1].codec() == &codec_info<Int8Outlier>;
        samples.add(plan, inst, dear ? 1.25 : 1.0);
      }
  const CostProfile profile = samples.profile();
  for (int k = 0; k < graph.node_count(); ++k) {
    CHECK(profile.node(k).backward == 1);
    for (const CodecInfo* codec : profile.codecs) {
      if (!graph.candidates_of(graph.node(k)).contains(codec)) continue;
      const bool dear = codec == &codec_info<Int8Outlier>;
      CHECK(profile.codec_cost(k, profile.column(codec)).encode == 1);
      CHECK(profile.codec_cost(k, profile.column(codec)).decode == (dear ? 1.25 : 1.0));
    }
  }
}

TEST_CASE("a difference that chance explains is not charged to a codec") {
  const Run gpt;
  const Graph& graph = gpt.graph();
  const auto plans = measuring_plans(graph, measuring_bytes(graph));
  CostSamples samples(graph);
  std::uint64_t drawn = 0;
  for (int round = 0; round < 5; ++round)
    for (const Plan& plan : plans->plans)
      for (const Instruction& inst : make_schedule(graph, plan).instructions)
        samples.add(
            plan, inst,
            inst.op == Op::backward ? 1.0 + unit_float(random_word({.seed = 1}, drawn++)) : 0.01);
  const CostProfile profile = samples.profile();
  for (int k = 0; k < graph.node_count(); ++k)
    for (const CodecInfo* codec : profile.codecs)
      if (graph.candidates_of(graph.node(k)).contains(codec))
        CHECK(profile.codec_cost(k, profile.column(codec)).decode == doctest::Approx(0.01));
}

TEST_CASE("measuring changes no bit of a training run") {
  Run plain, measured;
  CHECK(plain.step() == measured.step());
  const std::vector<float> params = copy(measured.training.params());
  const std::vector<float> moments = copy(measured.training.state(0));
  auto arena = Block<std::byte>::make(measuring_bytes(measured.graph()), "arena");
  Cpu& cpu = measured.training.context();
  cpu.key.activation = 77;
  cpu.training = false;
  const RandomKey key = cpu.key;
  const TickingClock ticking;
  const auto profile =
      measure(cpu, measured.dispatch(), measured.graph(), {arena->data(), Shape(arena->size())},
              measured.training.params(), measured.training.gradients(), measured.view(),
              measured.view(), ticking);
  REQUIRE_MESSAGE(profile, profile.error.text());
  CHECK(same(params, copy(measured.training.params())));
  CHECK(same(moments, copy(measured.training.state(0))));
  for (const float g : measured.training.gradients()) REQUIRE(g == 0);
  CHECK(cpu.key.activation == key.activation);
  CHECK(cpu.key.seed == key.seed);
  CHECK_FALSE(cpu.training);
  cpu.training = true;
  for (int i = 0; i < 3; ++i) CHECK(plain.step() == measured.step());
  CHECK(same(copy(plain.training.params()), copy(measured.training.params())));
}

TEST_CASE("bad clocks, options and arenas are refused") {
  Run run;
  auto arena = Block<std::byte>::make(measuring_bytes(run.graph()), "arena");
  const auto why = [&](std::size_t bytes, auto now, MeasureOptions options = {}) {
    return std::string(measure(run.training.context(), run.dispatch(), run.graph(),
                               {arena->data(), Shape(bytes)}, run.training.params(),
                               run.training.gradients(), run.view(), run.view(), now, options)
                           .error.text());
  };
  CHECK(why(arena->size(), [] { return 1.0; }).find("stood still") != std::string::npos);
  CHECK(why(arena->size(), [] { return __builtin_nan(""); }).find("stood still") !=
        std::string::npos);
  double down = 0;
  CHECK(why(arena->size(), [&] { return down -= 1; }).find("backwards") != std::string::npos);
  CHECK(why(arena->size(), TickingClock{}, {.warm_up = 1, .steps = 0}).find("at least 1 step") !=
        std::string::npos);
  CHECK(why(4096, TickingClock{}).find("needs an arena of at least") != std::string::npos);
  CHECK(why(arena->size(), TickingClock{}, {.warm_up = 0, .steps = 1}) == "");
}

TEST_CASE("random networks: the measuring plans run all that plans may use") {
  for (unsigned seed = 1; seed < 60; ++seed) {
    CAPTURE(seed);
    const auto network = random_model::draw(seed, true);
    const auto graph = make_graph(network, random_model::draw_shape(seed));
    REQUIRE(graph);
    CostSamples samples(*graph);
    const auto plans = measuring_plans(*graph, measuring_bytes(*graph));
    REQUIRE(plans);
    for (const Plan& plan : plans->plans) {
      const Error error = examine(*graph, plan);
      REQUIRE_MESSAGE(!error, error.text());
      for (const Instruction& inst : make_schedule(*graph, plan).instructions)
        samples.add(plan, inst, 1.0);
    }
    const CostProfile profile = samples.profile();
    const Error error = examine(*graph, profile);
    CHECK_MESSAGE(!error, error.text());
    // A codec on what only a recomputation reads is not timed there, but taken from elsewhere.
    const Plan plan = plan_from_types(*graph);
    for (const Instruction& inst : make_schedule(*graph, plan).instructions) {
      const bool codec = inst.op == Op::encode || inst.op == Op::decode;
      if (codec && !graph->node(inst.node).read_in_backward) continue;
      CHECK(seconds_of(profile, plan, inst) == 1);
    }
  }
}

}  // namespace measure_test
