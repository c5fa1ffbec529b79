// SPDX-License-Identifier: MIT
/// One plan for all ranks of a pipeline, from what each of them measured.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/ranks/pipeline/pipeline.hpp>
#include <adacc/ranks/pipeline/plan.hpp>
#include <adacc/ranks/thread_group.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "pipeline_network.hpp"

namespace plan_pipeline_test { namespace {

using namespace pipeline_network;

bool says(const Error& error, const char* words) {
  return std::strstr(error.text(), words) != nullptr;
}

/// Whether `a` is `b` but for rounding, however small both are.
bool close(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

/// Whenever it is asked, so many seconds have gone.
struct Ticks {
  double each = 1e-3, now = 0;
  double operator()() { return now += each; }
};

/// Rank 0 plans while the others wait, which takes seconds under a sanitizer.
constexpr double patience = 600;

using Planned = Result<PlannedPipeline>;

struct Setting {
  int layers = 4;
  std::vector<std::size_t> memory{};  ///< by rank; of others plenty
  std::vector<double> ticks{};        ///< of the ranks' clocks; 0: one that stands still
  double tolerance = 0;
  int odd_one = -1;  ///< the rank that has another tolerance
  ThreadGroup::Options group{};
};

template <class Body>
std::vector<Planned> on_all(ThreadGroup& group, const Setting& the, const Body& body) {
  const auto network = make_network(the.layers);
  const auto graph = make_graph(network, Shape(batch, time_steps));
  REQUIRE_MESSAGE(graph, graph.error.text());
  std::vector<Planned> all;
  for (int r = 0; r < group.size(); ++r) all.emplace_back(Error::say("nothing ran"));
  const Data data(0);
  run_ranks(group, [&](ThreadGroup::Member& member) {
    const auto me = static_cast<std::size_t>(member.rank());
    Ticks ticks;
    if (me < the.ticks.size()) ticks.each = the.ticks[me];
    PipelineRequest request;
    request.micro_batches = micro_batches;
    request.tolerance = member.rank() == the.odd_one ? 0.5 : the.tolerance;
    request.stages.resize(static_cast<std::size_t>(group.size()));
    request.stages[me].memory_bytes = me < the.memory.size() ? the.memory[me] : GiB;
    Planned& mine = all[me];
    mine = plan_pipeline(member, make_dispatch<float, Cpu>(network), *graph, request, Cpu{},
                         AdamWWith<Int8Moments>{}, {ticks, data(0), data(0)});
    if (mine) body(member, network, *graph, *mine);
  });
  return all;
}

std::vector<Planned> on_all(ThreadGroup& group, const Setting& the) {
  return on_all(group, the, [](auto&&...) {});
}

int nodes_of(const Planned& planned, std::size_t stage) {
  return planned->plan.stages[stage].last - planned->plan.stages[stage].first + 1;
}

TEST_CASE("costs that machines measured of parts of a network are one profile, and speeds") {
  const auto network = make_network(4);
  const auto graph = *make_graph(network, Shape(batch, time_steps));
  CostProfile truth = estimated_profile(graph);
  for (std::size_t k = 0; k < truth.nodes.size(); ++k)  // by layer
    truth.nodes[k].forward *= 3 + graph.nodes[k].layer;
  for (CodecCost& cost : truth.codec_costs) cost.encode *= 3;
  truth.loss *= 3;
  const int count = graph.node_count();
  const auto measured = [&](int first, int last, double takes) {
    MeasuredNodes nodes{first, last, truth};
    scale(nodes.costs, takes);
    return nodes;
  };
  // The first and the third have nothing in common but what the second has, too.
  Array<MeasuredNodes> all;
  all.push_back(measured(0, count / 2, 2));
  all.push_back(measured(count / 2 - 8, count - 3, 1));
  all.push_back(measured(count - 5, count - 1, 4));
  const CombinedCosts made = combine_costs(graph, all, estimated_profile(graph));
  CHECK(close(made.speeds[0], 0.5));
  CHECK(close(made.speeds[1], 1));
  CHECK(close(made.speeds[2], 0.25));
  for (int k = 0; k < count; ++k) {
    CAPTURE(k);
    CHECK(close(made.profile.node(k).forward, truth.node(k).forward));
    CHECK(close(made.profile.node(k).add_gradient, truth.node(k).add_gradient));
    for (int c = 0; c < static_cast<int>(truth.codecs.size()); ++c) {
      CHECK(close(made.profile.codec_cost(k, c).encode, truth.codec_cost(k, c).encode));
      CHECK(made.profile.codec_cost(k, c).error == truth.codec_cost(k, c).error);
    }
  }
  CHECK(close(made.profile.loss, truth.loss));
  // Copies of a block are equal to the bit, so that stages of them are planned once.
  int copies = 0;
  for (int k = 1; k < count; ++k)
    for (int l = 1; l < k; ++l)
      if (detail::cost_alike(graph.node(k), graph.node(l))) {
        CHECK(made.profile.node(k).backward == made.profile.node(l).backward);
        ++copies;
      }
  CHECK(copies > 20);

  // What nobody measured is estimated, as far as estimates are right elsewhere.
  all.clear();
  CostProfile slow = estimated_profile(graph);
  scale(slow, 5);
  all.push_back({0, 3, slow});
  all.push_back({});
  const CombinedCosts few = combine_costs(graph, all, estimated_profile(graph));
  CHECK(close(few.profile.node(count - 1).forward, slow.node(count - 1).forward));
  CHECK(close(few.profile.loss, slow.loss));
  CHECK(few.speeds[0] == few.speeds[1]);
}

TEST_CASE("all ranks have one plan, of what they measured: a slow one has fewer layers") {
  std::vector<int> nodes;
  for (const double slow : {1e-3, 3e-3}) {
    ThreadGroup group(2, {.limit_seconds = patience, .hostile = true});
    std::vector<std::size_t> held(2), promised(2);
    const auto all =
        on_all(group, {.ticks = {1e-3, slow}},
               [&](auto& member, const auto& network, const Graph& graph, const auto& planned) {
                 const auto me = static_cast<std::size_t>(member.rank());
                 const auto stage = Pipeline<float, Cpu, AdamWWith<Int8Moments>>::make(
                     network, graph, planned.plan, micro_batches, Cpu{}, member);
                 REQUIRE_MESSAGE(stage, stage.error.text());
                 held[me] = stage->memory_use().total();
                 promised[me] = planned.plan.stages[me].peak_bytes;
               });
    for (const Planned& planned : all) REQUIRE_MESSAGE(planned, planned.error.text());
    const auto graph = *make_graph(make_network(4), Shape(batch, time_steps));
    CHECK(pipeline_text(graph, all[0]->plan, micro_batches) ==
          pipeline_text(graph, all[1]->plan, micro_batches));
    CHECK(all[1]->plan.time.seconds == all[0]->plan.time.seconds);
    CHECK(held == promised);
    nodes.push_back(nodes_of(all[0], 0));
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK(all[r]->measured[0] > 0);
      CHECK(all[r]->measured[0] + all[r]->measured[1] == graph.node_count());
      CHECK(close(all[r]->machines[0].speed, 1));
      CHECK(close(all[r]->machines[1].speed, 1e-3 / slow));
      // A clock that ticks when it is asked: all messages take half a tick.
      CHECK(close(all[r]->machines[0].link_latency, 0.5e-3));
      CHECK(all[r]->seconds > 0);
    }
    // Every layer took a tick, whatever an estimate says.
    CHECK(all[0]->profile.node(1).forward == all[0]->profile.node(9).forward);
    CHECK(all[0]->plan.stages[0].time.update > 0);
  }
  CHECK(nodes[1] > nodes[0]);
}

TEST_CASE("ranks with little memory measure less, and have the plan all the same") {
  ThreadGroup plenty(2, {.limit_seconds = patience});
  const auto roomy = on_all(plenty, {});
  REQUIRE_MESSAGE(roomy[0], roomy[0].error.text());
  const StageOutcome& first = roomy[0]->plan.stages[0];
  // Less than keeping everything takes, and then the least that the planner knows.
  Setting tight;
  tight.memory = {first.peak_bytes * 2 / 3, GiB};
  ThreadGroup group(2, {.limit_seconds = patience});
  const auto all = on_all(group, tight);
  for (const Planned& planned : all) REQUIRE_MESSAGE(planned, planned.error.text());
  CHECK(all[1]->plan.stages[0].peak_bytes <= tight.memory[0]);
  CHECK(all[1]->machines[0].memory_bytes == tight.memory[0]);
  CHECK(all[0]->machines[1].memory_bytes == GiB);

  // Pieces get smaller until one has room; without any nothing is measured, and that is no error.
  const auto network = make_network(2);
  const auto graph = *make_graph(network, Shape(batch, time_steps));
  const Data data(0);
  Ticks ticks;
  const auto dispatch = make_dispatch<float, Cpu>(network);
  const auto measure_within = [&](int from, int to, std::size_t memory) {
    const auto made =
        measure_stage(Cpu{}, dispatch, graph, from, to, memory, AdamW{}, {ticks, data(0), data(0)});
    REQUIRE_MESSAGE(made, made.error.text());
    return made->nodes;
  };
  const int last = graph.node_count() - 1, middle = cuts_of(graph)[1];
  CHECK(measure_within(0, last, GiB).last == last);
  const MeasuredNodes half = measure_within(0, middle, 60 * KiB);
  CHECK(half.first == 0);
  CHECK(half.last < middle);
  CHECK(half.last >= 0);
  const MeasuredNodes end = measure_within(middle + 1, last, 60 * KiB);
  CHECK(end.first > middle + 1);
  CHECK(end.last == last);
  const MeasuredNodes none = measure_within(0, last, KiB);
  CHECK(none.last < none.first);
}

TEST_CASE("a stage that is measured takes its last activation for the gradient of that") {
  const auto network = make_network(2);
  const auto graph = *make_graph(network, Shape(batch, time_steps));
  const auto cut = *stage_of(graph, 0, cuts_of(graph)[1]);
  auto step = *Step<float, Cpu>::make(make_dispatch<float, Cpu>(network),
                                      *make_program(cut, retain_all(cut)));
  auto arena = *Block<std::byte>::make(step.arena_bytes(), "arena");
  auto params = *Block<float>::make(cut.parameter_elems, "parameters");
  auto gradients = *Block<float>::make(cut.gradient_elems, "gradients");
  Cpu cpu;
  initialize_parameters(cpu, cut.parameters, params.view(), 3);
  REQUIRE(!step.bind({arena.data(), Shape(arena.size())}, params.view(), gradients.view()));
  const Data data(0);
  const auto copies = [](View<const float> y, View<float> dy) {
    for (std::size_t i = 0; i < y.size(); ++i) dy[i] = y[i];
    return 0.0;
  };
  REQUIRE(step.run(cpu, data(0), copies));
  const std::vector<float> expected(gradients.view().begin(), gradients.view().end());
  cpu.fill(gradients.view(), 0.F);
  std::memset(arena.data(), 0xFF, arena.size());
  Ticks ticks;
  detail::InstructionTimes<Cpu> times;
  Array<double> seconds(step.instruction_count());
  REQUIRE(!times.make(seconds.size(), ticks));
  REQUIRE(!detail::timed_step(cpu, step, data(0), AnyView(), times, seconds));
  CHECK(std::memcmp(expected.data(), gradients.data(), expected.size() * sizeof(float)) == 0);
}

TEST_CASE("ranks that ask for different pipelines, or cannot measure, are errors on all of them") {
  const auto all_say = [](const std::vector<Planned>& all, const char* words) {
    for (const Planned& planned : all) {
      CAPTURE(planned.error.text());
      CHECK(says(planned.error, words));
    }
  };
  const ThreadGroup::Options patient{.limit_seconds = patience};
  ThreadGroup one(3, patient), two(3, patient), three(2, patient);
  all_say(on_all(one, {.odd_one = 2}),
          "the ranks disagree on the tolerance: rank 0 has 0, rank 2 0.5");
  all_say(on_all(two, {.ticks = {1e-3, 0, 1e-3}}), "stood still");
  all_say(on_all(three, {.memory = {GiB, KiB}}), "stage 1 of 2 does not fit");
  // At any time: while they agree, are sent the plan, have measured, or try their link.
  std::uint64_t begun = 0;
  ThreadGroup whole(2, patient);
  const auto fine = on_all(whole, {.layers = 2}, [&](const auto& member, auto&&...) {
    if (member.rank() == 0) begun = member.begun();
  });
  REQUIRE_MESSAGE(fine[0], fine[0].error.text());
  for (std::uint64_t message = 0; message + 1 < begun; message += 5)
    for (const int rank : {0, 1}) {
      CAPTURE(message);
      ThreadGroup group(2, {.limit_seconds = 0.3});
      const bool hangs = message == 20;
      group.set_fate(rank, hangs ? ThreadGroup::Fate::hangs : ThreadGroup::Fate::dies, message);
      all_say(on_all(group, {.layers = 2}), "rank");
    }
}

TEST_CASE("the plan of a pipeline is read back as it was, and for its network alone") {
  const auto graph = *make_graph(make_network(3), Shape(batch, time_steps));
  PipelineRequest request;
  request.micro_batches = micro_batches;
  for (int s = 0; s < 3; ++s) request.stages.push_back({400 * KiB, 1 + 0.1 * s, 1e9, 1e-6});
  const auto made = plan_pipeline(graph, estimated_profile(graph), request);
  REQUIRE_MESSAGE(made, made.error.text());
  const std::string text = pipeline_text(graph, *made, micro_batches);
  const auto read = parse_pipeline(text, graph);
  REQUIRE_MESSAGE(read, read.error.text());
  CHECK(pipeline_text(graph, *read, micro_batches) == text);
  CHECK(read->time.seconds == made->time.seconds);
  CHECK(read->time.bubble == made->time.bubble);
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(read->stages[s].peak_bytes == made->stages[s].peak_bytes);
    CHECK(read->stages[s].in_flight == made->stages[s].in_flight);
  }
  const auto other = *make_graph(make_network(2), Shape(batch, time_steps));
  CHECK(says(parse_pipeline(text, other).error, "was made for another graph"));
  // Whatever of it is missing.
  for (std::size_t at = 0; at < text.size(); at += 97)
    CHECK_MESSAGE(parse_pipeline(text.substr(0, at), graph).error, at);
  std::string wrong = text;
  wrong.replace(wrong.find(" retain\n"), 7, " retrain");
  CHECK(says(parse_pipeline(wrong, graph).error, "names the policy \"retrain\""));
  wrong = text;
  wrong.replace(wrong.find("\nstage 0"), 8, "\nstage x");
  CHECK(says(parse_pipeline(wrong, graph).error, "\"stage ...\" was expected"));
}

}}  // namespace plan_pipeline_test
