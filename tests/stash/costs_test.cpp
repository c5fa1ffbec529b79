// SPDX-License-Identifier: MIT
/// What profiles of stashes say: times of kinds, gradient errors, and what they carry.
#include <doctest/doctest.h>

#include <adacc/codec/bf16.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/cost/evaluate.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/stash/estimate.hpp>
#include <adacc/stash/measure.hpp>
#include <adacc/stash/stash.hpp>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace stash_costs_test {

using namespace adacc;

namespace {

bool says(const Error& error, const char* what) {
  return std::string(error.text()).find(what) != std::string::npos;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

/// Seconds that callables say they took.
struct Hours {
  mutable double now = 0;
  double operator()() { return now; }
};

/// A callable that takes `seconds`.
struct Kernel {
  const Hours* hours = nullptr;
  double seconds = 0;
  mutable int calls = 0;
  void operator()(const View<const float>*, View<float>) const {
    ++calls;
    hours->now += seconds;
  }
};
struct Pair {
  const Hours* hours = nullptr;
  std::size_t workspace_bytes = 0;
  void operator()(const View<const float>* x, const View<float>* y, Bytes workspace) const {
    REQUIRE(workspace.size() == workspace_bytes);
    std::memset(workspace.data(), 1, workspace.size());
    std::memset(y[0].data(), 1, 4 * y[0].size());
    std::memset(y[1].data(), 1, 4 * y[1].size());
    CHECK(x[0].size() == 128);
    hours->now += 64;
  }
};

/// Layers of z, made by a kernel, and of h and its statistics, made together.
struct Layers {
  Hours hours;
  StashModel<> model;
  std::deque<Kernel> kernels;
  Pair pair{&hours, 1000};
  std::vector<Line> memory = std::vector<Line>(200);
  Cpu cpu;

  explicit Layers(int count, double operations = 0) {
    for (int l = 0; l < count; ++l) {
      kernels.push_back({&hours, 1.0 + l});
      const int z = model.add("z", Shape(4, 32), {l});
      const std::vector<int> from = l > 0 ? std::vector<int>{z - 2} : std::vector<int>{};
      model.recompute(z, {from.data(), from.size()}, kernels.back(), {.operations = operations});
      const int h = model.add("h", Shape(4, 32), {l + 1});
      model.add("mean", Shape(4), {l});
      model.recompute_together({h, h + 1}, {z}, pair,
                               {.workspace_bytes = 1000, .operations = 4 * operations});
      model.allow<Bf16>(z, 1e-6);
      model.allow<Bf16>(h);
    }
  }
  Bytes scratch() { return {memory[0].bytes, Shape(stash_measure_bytes(*model.graph()))}; }
  Result<CostProfile> measured(double step_seconds = 0) {
    return measure_stash(model, cpu, scratch(), {.clock = hours, .step_seconds = step_seconds});
  }
};

}  // namespace

TEST_CASE("what is registered alike is one layer, copied") {
  Layers layers(4);
  const auto graph = layers.model.graph();
  REQUIRE_MESSAGE(graph, graph.error.text());
  for (int l = 0; l < 4; ++l) {
    CHECK(graph->node(3 * l).layer == (l == 0 ? 0 : 3));  // the first has other sources
    CHECK(graph->node(3 * l).copy == (l == 0 ? 0 : l - 1));
    CHECK(graph->node(3 * l + 1).layer == 1);
    CHECK(graph->node(3 * l + 2).layer == 2);
    CHECK(graph->node(3 * l + 2).copy == l);
  }
  for (int stage = 0; stage < 5; ++stage) CHECK(graph->node(12 + stage).layer == 4 + stage);

  // Anything that is said differently tells two apart.
  const auto f = [](const View<const float>*, View<float>) {};
  const auto g = [](const View<const float>*, View<float>) {};
  const auto kinds = [&](auto&& second) {
    StashModel<> model;
    for (int i = 0; i < 2; ++i) model.add("s", Shape(4, 32), {0});
    const int a = model.add("a", Shape(4, 32), {0}), b = second(model);
    model.recompute(a, {0}, f, {.operations = 1});
    model.allow<Bf16>(a, 0.5);
    const auto made = model.graph();
    REQUIRE_MESSAGE(made, made.error.text());
    return made->node(a).layer == made->node(b).layer ? 1 : 2;
  };
  using Model = StashModel<>;
  const auto with = [&](Model& model, int id, const auto& function, double operations, double error,
                        int source) {
    model.recompute(id, {source}, function, {.operations = operations});
    model.allow<Bf16>(id, error);
    return id;
  };
  const Shape shape(4, 32);
  CHECK(kinds([&](Model& m) { return with(m, m.add("a", shape, {1}), f, 1, 0.5, 1); }) == 1);
  CHECK(kinds([&](Model& m) { return with(m, m.add("b", shape, {1}), f, 1, 0.5, 1); }) == 2);
  CHECK(kinds([&](Model& m) { return with(m, m.add("a", Shape(32, 4), {1}), f, 1, 0.5, 1); }) == 2);
  CHECK(kinds([&](Model& m) { return with(m, m.add("a", shape, {1}), g, 1, 0.5, 1); }) == 2);
  CHECK(kinds([&](Model& m) { return with(m, m.add("a", shape, {1}), f, 2, 0.5, 1); }) == 2);
  CHECK(kinds([&](Model& m) { return with(m, m.add("a", shape, {1}), f, 1, 0.4, 1); }) == 2);
  CHECK(kinds([&](Model& m) { return m.add_bytes("a", 128, {1}); }) == 2);
}

TEST_CASE("copies share the median of their times, and the step that they are part of") {
  Layers layers(8);
  const auto graph = layers.model.graph();
  const auto profile = layers.measured(5000);
  REQUIRE_MESSAGE(profile, profile.error.text());
  CHECK_FALSE(examine(*graph, *profile));
  CHECK(profile->nodes[0].forward == 1);
  double forward = 1;
  for (int l = 0; l < 8; ++l) {
    if (l > 0) CHECK(profile->nodes[static_cast<std::size_t>(3 * l)].forward == 5);  // of 2 to 8
    if (l > 0) forward += 5;
    CHECK(profile->nodes[static_cast<std::size_t>(3 * l + 1)].forward == 64);
    CHECK(profile->nodes[static_cast<std::size_t>(3 * l + 2)].forward == 0);
    forward += 64;
  }
  for (std::size_t l = 1; l < 8; ++l) CHECK(layers.kernels[l].calls >= 1);
  // A step in which all is retained takes what the trainer's own takes: forward is part of it.
  CHECK(evaluate(*graph, *profile, retain_all(*graph)).seconds == doctest::Approx(5000));
  const auto unknown = layers.measured();
  REQUIRE(unknown);
  CHECK(evaluate(*graph, *unknown, retain_all(*graph)).seconds == doctest::Approx(3 * forward));
  // Both of a pair, made again, run its callable once.
  Plan plan = retain_all(*graph);
  plan.policies[1] = recompute();
  const double one = evaluate(*graph, *profile, plan).seconds;
  CHECK(one == doctest::Approx(5064));
  plan.policies[2] = recompute();
  CHECK(evaluate(*graph, *profile, plan).seconds == one);
  plan.policies[1] = retain();
  CHECK(evaluate(*graph, *profile, plan).seconds == one);
}

TEST_CASE("measuring says what it needs, and runs on the machine's clock") {
  Layers layers(2);
  const Bytes scratch = layers.scratch();
  const auto refused = [&](Bytes memory, const StashMeasurement& how, const char* what) {
    const auto profile = measure_stash(layers.model, layers.cpu, memory, how);
    CHECK_MESSAGE(says(profile.error, what), profile.error.text());
  };
  const StashMeasurement how{.clock = steady_seconds};
  refused(scratch, {}, "a clock");
  refused(scratch, {.clock = steady_seconds, .repeats = 0}, "at least 1 repeat");
  refused({scratch.data(), Shape(scratch.size() - 1)}, how, "of scratch, and got");
  refused({nullptr, scratch.shape()}, how, "no address");
  refused({scratch.data() + 8, scratch.shape()}, how, "aligned");
  const auto profile = measure_stash(layers.model, layers.cpu, scratch, how);
  REQUIRE_MESSAGE(profile, profile.error.text());
  CHECK_FALSE(examine(*layers.model.graph(), *profile));
  for (int id = 0; id < 6; ++id)
    for (std::size_t c = 0; c < profile->codecs.size(); ++c) {
      const CodecCost& cost = profile->codec_cost(id, static_cast<int>(c));
      CHECK((cost.encode > 0) == (id % 3 != 2));
      CHECK((cost.decode > 0) == (id % 3 != 2));
    }
}

TEST_CASE("an estimate asks callables what they cost, and keeps the errors that were given") {
  const Layers silent(2);
  CHECK(says(estimated_profile(silent.model).error, "recompute z (1 of 2) needs"));
  const Layers layers(2, 1e9);
  const auto graph = layers.model.graph();
  const auto profile = estimated_profile(layers.model, {.operations_per_second = 1e9});
  REQUIRE_MESSAGE(profile, profile.error.text());
  CHECK_FALSE(examine(*graph, *profile));
  CHECK(profile->nodes[0].forward == doctest::Approx(1).epsilon(1e-3));
  CHECK(profile->nodes[1].forward == doctest::Approx(4).epsilon(1e-3));
  CHECK(profile->nodes[2].forward == 0);
  CHECK(evaluate(*graph, *profile, retain_all(*graph)).seconds ==
        doctest::Approx(30).epsilon(1e-3));
  const int column = profile->column(&codec_info<Bf16>);
  CHECK(profile->codec_cost(0, column).error == 1e-6);
  CHECK(profile->codec_cost(1, column).error ==
        estimated_error(codec_info<Bf16>, Shape(4, 32), Dtype::f32) / 2);  // two layers
  // The graph alone knows nothing of its callables: no plan is made from a guess.
  const auto guess = estimated_profile(*graph);
  const auto planned = plan_exhaustively(*graph, guess, {.budget_bytes = 1 * MiB});
  CHECK(says(planned.error, "it was not measured"));
}

TEST_CASE("a plan's error counts what is recomputed from lossy sources") {
  StashModel<> model;
  const auto copy = [](const View<const float>* x, View<float> y) {
    std::memcpy(y.data(), x[0].data(), 4 * y.size());
  };
  const int a = model.add("a", Shape(4, 32), {1});
  const int b = model.add("b", Shape(4, 32), {2});
  model.recompute(b, {a}, copy, {.operations = 1});
  model.allow<Bf16>(a, 0.25);
  const auto graph = model.graph();
  const auto profile = estimated_profile(model);
  REQUIRE(graph);
  REQUIRE_MESSAGE(profile, profile.error.text());
  Plan plan = retain_all(*graph);
  CHECK(evaluate(*graph, *profile, plan).error == 0);
  plan.policies[0] = compress(&codec_info<Bf16>);
  CHECK(evaluate(*graph, *profile, plan).error == 0.25);
  plan.policies[1] = recompute();
  CHECK(evaluate(*graph, *profile, plan).error == 0.5);
  CHECK_FALSE(exact_in_backward(*graph, plan)[1]);
}

TEST_CASE("carried errors are those of the nearest, however deep the stash is") {
  // Residual blocks: r += f(r), f of three activations; the stream and the middle may be encoded.
  const auto f = [](const View<const float>*, View<float>) {};
  constexpr int blocks = 40;
  StashModel<> model;
  int stream = model.add("r", Shape(4, 32), {0});
  model.allow<Bf16>(stream, 1);
  for (int l = 0; l < blocks; ++l) {
    const int norm = model.add("norm", Shape(4, 32), {l});
    model.recompute(norm, {stream}, f, {.operations = 1});
    const int middle = model.add("middle", Shape(4, 32), {l});
    model.recompute(middle, {norm}, f, {.operations = 1});
    model.allow<Bf16>(middle, 10);
    const int out = model.add("out", Shape(4, 32), {l});
    model.recompute(out, {middle}, f, {.operations = 1});
    const int next = model.add("r", Shape(4, 32), {l + 1});
    model.recompute(next, {stream, out}, f, {.operations = 1});
    model.allow<Bf16>(next, 1);
    stream = next;
  }
  const auto graph = model.graph();
  const auto profile = estimated_profile(model);
  REQUIRE_MESSAGE(profile, profile.error.text());
  for (int l = 0; l < blocks; ++l) {
    const auto carried = [&](int k) { return profile->codec_cost(4 * l + k, 0).carried_error; };
    CHECK(carried(1) == 1);   // norm, of the stream
    CHECK(carried(2) == 1);   // middle, of the stream, through norm
    CHECK(carried(3) == 10);  // out, of the middle
    CHECK(carried(4) == 11);  // the stream, of itself and, through out, of the middle
  }
  Plan plan = retain_all(*graph);
  for (int k = 0; k < model.activation_count(); ++k)
    plan.policies[static_cast<std::size_t>(k)] =
        k % 4 == 0 ? compress(&codec_info<Bf16>) : recompute();
  CHECK(evaluate(*graph, *profile, plan).error == (blocks + 1) + blocks * (1 + 1 + 10));
}

}  // namespace stash_costs_test
