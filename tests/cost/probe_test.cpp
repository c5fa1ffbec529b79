// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/cost/probe.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "../step/small_gpt.hpp"
#include "../train/support.hpp"

namespace probe_test {

using namespace adacc;
using small_gpt::copy;
using small_gpt::Run;
using small_gpt::same;
using small_gpt::squared_distance;
using small_gpt::squared_norm;

namespace {

/// A run that has learned a little, with an arena for probes.
struct Probed : Run {
  explicit Probed(std::size_t arena_bytes = 0) {
    for (int i = 0; i < 20; ++i) step();
    auto made =
        Block<std::byte>::make(arena_bytes == 0 ? measuring_bytes(graph()) : arena_bytes, "arena");
    arena = std::move(*made);
    table = dispatch();
  }
  auto probe() {
    return GradientProbe(training.context(), table, graph(),
                         Bytes(arena.data(), Shape(arena.size())), training.params(),
                         training.gradients(), view(), view());
  }
  Block<std::byte> arena;
  Dispatch<float, Cpu> table;
};

std::vector<float> noise(std::size_t elems, std::uint64_t seed) {
  std::vector<float> x(elems);
  for (std::size_t i = 0; i < elems; ++i) {
    x[i] = unit_float(random_word({.seed = seed}, i)) - 0.5F;
    if (i % 64 == 7) x[i] *= 30;  // a column of a matrix that has most of the norm
  }
  return x;
}

}  // namespace

TEST_CASE("sketches tell norms and distances, on average exactly, whatever the threads") {
  const Shape shape(64 * 901 + 13);
  std::vector<float> a = noise(shape.elems(), 1), b = noise(shape.elems(), 2);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = a[i] + 0.01F * b[i];
  const double norm = squared_norm(a), distance = squared_distance(a, b);
  constexpr int keys = 200;
  double norms = 0, distances = 0, spread = 0;
  for (std::uint32_t k = 0; k < keys; ++k) {
    Cpu cpu;
    const RandomKey key{.seed = 5, .step = k};
    const GradientSketch of_a = sketch_of(cpu, View<const float>(a.data(), shape), key);
    const GradientSketch of_b = sketch_of(cpu, View<const float>(b.data(), shape), key);
    CHECK(of_a.squared_norm == doctest::Approx(norm).epsilon(1e-12));
    norms += squared_distance(of_a, GradientSketch{}) / norm / keys;
    const double ratio = squared_distance(of_a, of_b) / distance;
    distances += ratio / keys;
    spread += (ratio - 1) * (ratio - 1) / keys;
    if (k > 2) continue;
    train_test::Threads threads{3};
    Cpu parallel{ExecutorRef(threads)};
    const GradientSketch again = sketch_of(parallel, View<const float>(a.data(), shape), key);
    CHECK(std::memcmp(&again, &of_a, sizeof again) == 0);
  }
  // A standard deviation of sqrt(2 / 256), wherever in a row the norm is.
  const double deviation = std::sqrt(2.0 / 256);
  CHECK(std::abs(norms - 1) < 5 * deviation / std::sqrt(keys));
  CHECK(std::abs(distances - 1) < 5 * deviation / std::sqrt(keys));
  CHECK(std::sqrt(spread) == doctest::Approx(deviation).epsilon(0.2));
}

TEST_CASE("every class: what the probe says is what the full gradients say" *
          doctest::test_suite("one_thread")) {
  Probed run;
  const Graph& graph = run.graph();
  const Array<ErrorClass> classes = error_classes(graph);
  CHECK(classes.size() > 20);
  constexpr int keys = 12;
  std::vector<GradientErrors> errors(1);
  for (std::uint32_t k = 0; k < keys; ++k) {
    run.training.context().key.step = 1000 + k;  // other projections of the same gradients
    auto probe = run.probe();
    std::size_t pairs = 0;
    for (const ErrorClass& what : classes) {
      const Error why = probe.probe(what, errors[0]);
      REQUIRE_MESSAGE(!why, why.text());
      pairs += what.carried ? 2 : 1;
    }
    CHECK(static_cast<std::size_t>(probe.steps()) < pairs);  // some serve two classes
  }
  const std::vector<float> exact = run.gradient(retain_all(graph));
  int carried = 0;
  for (const ErrorClass& what : classes) {
    CAPTURE(what.layer);
    CAPTURE(std::string(what.codec->name));
    CAPTURE(what.carried);
    const auto pair = probing_plans(graph, what, run.arena.size());
    REQUIRE(pair);
    CHECK(pair->copies > 0);
    carried += what.carried ? 1 : 0;
    const std::vector<float> reference = run.gradient(pair->reference);
    CHECK(same(reference, exact) != what.carried);
    const double v = squared_distance(run.gradient(pair->lossy), reference) /
                     squared_norm(reference) / pair->copies;
    const GradientErrors::Entry entry = errors[0].entry(what);
    CHECK(entry.batches == keys);
    CHECK(entry.error() == doctest::Approx(v).epsilon(5 * 0.1 / std::sqrt(keys)));
    CHECK(v > 0);
  }
  CHECK(carried > 8);

  CostProfile profile = empty_profile(graph);
  errors[0].write(graph, profile);
  for (int k = 0; k < graph.node_count(); ++k)
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      const CodecCost& cost = profile.codec_cost(k, static_cast<int>(c));
      const int layer = graph.node(k).layer;
      CHECK(cost.error == errors[0].entry({layer, profile.codecs[c], false}).error());
      CHECK(cost.carried_error == errors[0].entry({layer, profile.codecs[c], true}).error());
      CHECK((cost.error > 0) == graph.candidates_of(graph.node(k)).contains(profile.codecs[c]));
    }
}

TEST_CASE("errors of classes add up to the error of a plan that compresses all of them" *
          doctest::test_suite("one_thread")) {
  Probed run;
  const Graph& graph = run.graph();
  for (const CodecInfo* codec : {&codec_info<Int8Outlier>, &codec_info<Int4Outlier>}) {
    CAPTURE(std::string(codec->name));
    const std::vector<float> exact = run.gradient(retain_all(graph));
    Plan all = retain_all(graph);
    double sum = 0;
    for (const ErrorClass& what : error_classes(graph)) {
      if (what.carried || what.codec != codec) continue;
      const auto pair = probing_plans(graph, what, run.arena.size());
      for (int k = 0; k < graph.node_count(); ++k)
        if (pair->lossy[k].codec() == codec)
          all.policies[static_cast<std::size_t>(k)] = pair->lossy[k];
      sum += squared_distance(run.gradient(pair->lossy), exact);
    }
    const double together = squared_distance(run.gradient(all), exact);
    INFO(std::string(codec->name), ": sum ", sum, ", together ", together);
    CHECK(sum == doctest::Approx(together).epsilon(0.1));
  }
}

TEST_CASE("the additive model predicts the error of plans that mix codecs and recomputation" *
          doctest::test_suite("one_thread")) {
  Probed run;
  const Graph& graph = run.graph();
  GradientErrors errors;
  for (std::uint32_t k = 0; k < 8; ++k) {
    run.training.context().key.step = 1000 + k;
    auto probe = run.probe();
    for (const ErrorClass& what : error_classes(graph)) {
      const Error why = probe.probe(what, errors);
      REQUIRE_MESSAGE(!why, why.text());
    }
  }
  CostProfile profile = empty_profile(graph);
  errors.write(graph, profile);
  const std::vector<float> exact = run.gradient(retain_all(graph));
  for (const char* set : {"int8", "int4", "tolerated", "mixed"}) {
    CAPTURE(std::string(set));
    Plan plan = gpt::named_plan(set, run.config, Run::batch, Run::time);
    // Codecs that layers do not tolerate are not probed.
    for (int k = 0; k < graph.node_count(); ++k)
      if (plan[k].codec() != nullptr && !may_use(graph, k, plan[k].codec()))
        plan.policies[static_cast<std::size_t>(k)] = retain();
    const double v = squared_distance(run.gradient(plan), exact) / squared_norm(exact);
    const double predicted = error_of(graph, profile, plan);
    INFO(std::string(set), ": ", v, ", predicted ", predicted);
    CHECK(predicted < 1.5 * v);
    CHECK(predicted > v / 1.5);
  }
  for (const CodecInfo* codec : {&codec_info<Int8Outlier>, &codec_info<Int4Outlier>}) {
    // Blocks made again from lossy inputs.
    Plan plan = gpt::named_plan("recompute", run.config, Run::batch, Run::time);
    for (int k = 0; k < graph.node_count(); ++k)
      if (plan[k].retains() && may_use(graph, k, codec))
        plan.policies[static_cast<std::size_t>(k)] = compress(codec);
    const double v = squared_distance(run.gradient(plan), exact) / squared_norm(exact);
    const double predicted = error_of(graph, profile, plan);
    INFO("recompute from ", std::string(codec->name), ": ", v, ", predicted ", predicted);
    CHECK(predicted < 2 * v);
    CHECK(predicted > v / 2);
  }
}

TEST_CASE("where retain does not fit, probes run around checkpoints, on some of the copies" *
          doctest::test_suite("one_thread")) {
  Probed run;
  const Graph& graph = run.graph();
  const std::vector<float> exact = run.gradient(retain_all(graph));
  const std::size_t retain = peak_bytes(graph, retain_all(graph));
  int fewer = 0, inexact = 0;
  for (const ErrorClass& what : error_classes(graph)) {
    CAPTURE(what.layer);
    CAPTURE(std::string(what.codec->name));
    CAPTURE(what.carried);
    const auto all = probing_plans(graph, what, 2 * retain);
    REQUIRE(all);
    CHECK(all->exact != what.carried);
    for (const std::size_t percent : {65U, 47U})
      for (int turn = 0; turn < 3; ++turn) {
        CAPTURE(percent);
        const std::size_t bytes = retain * percent / 100;
        const auto pair = probing_plans(graph, what, bytes, turn);
        if (percent < 50 && !pair) continue;  // a few need more
        REQUIRE_MESSAGE(pair, std::string(pair.error.text()));
        CHECK(pair->arena_bytes <= bytes);
        CHECK(pair->arena_bytes ==
              std::max(peak_bytes(graph, pair->reference), peak_bytes(graph, pair->lossy)));
        CHECK_FALSE(examine(graph, pair->lossy));
        CHECK_FALSE(examine(graph, pair->reference));
        CHECK(pair->copies > 0);
        fewer += pair->copies < all->copies ? 1 : 0;
        inexact += !what.carried && !pair->exact ? 1 : 0;
        if (what.carried || turn > 0) continue;
        // Exactly the chosen copies are lossy: the gradient is that of retain with them compressed.
        Plan chosen = retain_all(graph);
        int compressed = 0;
        for (int k = 0; k < graph.node_count(); ++k) {
          if (graph.node(k).layer != what.layer || pair->lossy[k].codec() == nullptr) continue;
          if (pair->lossy[k] == pair->reference[k]) continue;
          chosen.policies[static_cast<std::size_t>(k)] = pair->lossy[k];
          ++compressed;
        }
        CHECK(compressed == pair->copies);
        const std::vector<float> lossy = run.gradient(pair->lossy), g = run.gradient(chosen);
        const std::vector<float> reference = run.gradient(pair->reference);
        CHECK(same(reference, exact) == pair->exact);
        CHECK(same(lossy, g) == pair->exact);
        // The error of compressed checkpoints is in both gradients.
        const double ratio = squared_distance(lossy, reference) / squared_distance(g, exact);
        CHECK(ratio > 0.8);
        CHECK(ratio < 1.25);
      }
    const std::size_t least = least_probing_bytes(graph, what);
    CHECK(probing_plans(graph, what, least));
    CHECK(least < retain * 55 / 100);
    const auto none = probing_plans(graph, what, 4096);
    CHECK(std::string(none.error.text()).find("needs an arena of at least") != std::string::npos);
  }
  CHECK(fewer > 0);
  CHECK(inexact > 20);
}

TEST_CASE("probing changes no bit of a training run") {
  Probed plain, probed;
  Cpu& cpu = probed.training.context();
  const RandomKey key = cpu.key;
  const std::vector<float> params = copy(probed.training.params());
  GradientErrors errors;
  {
    auto probe = probed.probe();
    for (const ErrorClass& what : error_classes(probed.graph()))
      REQUIRE_FALSE(probe.probe(what, errors));
  }
  CHECK(same(params, copy(probed.training.params())));
  for (const float g : probed.training.gradients()) REQUIRE(g == 0);
  CHECK(cpu.key.step == key.step);
  CHECK(cpu.key.activation == key.activation);
  CHECK(cpu.training);
  for (int i = 0; i < 3; ++i) CHECK(plain.step() == probed.step());
  CHECK(same(copy(plain.training.params()), copy(probed.training.params())));
}

TEST_CASE("a gradient that is not finite is an error, not an error of zero") {
  Probed run;
  run.training.params()[0] = __builtin_nanf("");
  GradientErrors errors;
  auto probe = run.probe();
  const Error why = probe.probe(error_classes(run.graph())[0], errors);
  CHECK(std::string(why.text()) == "the gradient of the probed batch is not finite");
  CHECK(errors.entries().size() == 0);
}

}  // namespace probe_test
