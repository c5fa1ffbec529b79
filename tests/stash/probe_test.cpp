// SPDX-License-Identifier: MIT
/// The gradient errors of a trainer written by hand: probed, and predicted for whole plans.
#include <doctest/doctest.h>

#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/cost/evaluate.hpp>
#include <adacc/stash/estimate.hpp>
#include <adacc/stash/probe.hpp>

#include <string>
#include <vector>

#include "residual_trainer.hpp"

namespace stash_probe_test {

using namespace adacc;
using residual_trainer::error_of;
using residual_trainer::Line;
using residual_trainer::Trainer;

namespace {

bool says(const Error& error, const char* what) {
  return std::string(error.text()).find(what) != std::string::npos;
}

void allow_both(StashModel<>& model, int id) {
  model.allow<Int8Outlier>(id);
  model.allow<Int4Outlier>(id);
}

struct Probed {
  Trainer trainer;
  Graph graph;
  CostProfile estimated, profile;
  GradientErrors errors;
  std::vector<Line> arena;
  int steps = 0;

  explicit Probed(int blocks, void (*allow)(StashModel<>&, int) = &allow_both)
      : trainer(blocks, allow), graph(*trainer.model.graph()),
        estimated(*estimated_profile(trainer.model)), profile(estimated),
        arena(stash_probing_bytes(trainer.model) / 64 + 1) {}
  Bytes memory() { return {arena[0].bytes, Shape(stash_probing_bytes(trainer.model))}; }
  Error probe(Bytes memory, const Plan& base = {}) {
    const auto step = [&](Stash<>& stash) {
      ++steps;
      return trainer.step(stash);
    };
    return probe_stash(trainer.model, trainer.cpu, memory, step, errors, profile, base);
  }

  /// Policies by place in a block: r, norm, mean, rstd, fc, act.
  template <class Choose>
  Plan plan(const Choose& choose) const {
    Plan plan = retain_all(graph);
    for (int k = 0; k < trainer.model.activation_count(); ++k)
      plan.policies[static_cast<std::size_t>(k)] = choose(k / 6, k % 6);
    return plan;
  }
};

}  // namespace

TEST_CASE("every class: what the driver probes is what whole gradients say") {
  Probed run(2);
  constexpr int keys = 8;
  for (std::uint32_t key = 0; key < keys; ++key) {
    run.trainer.cpu.key.step = key;
    const Error why = run.probe(run.memory());
    REQUIRE_MESSAGE(!why, why.text());
  }
  CHECK(run.steps % keys == 0);
  const std::vector<float> exact = run.trainer.gradient(retain_all(run.graph));
  int direct = 0, carried = 0;
  std::size_t pairs = 0;
  for (const ErrorClass& what : error_classes(run.graph)) {
    CAPTURE(what.layer);
    CAPTURE(what.carried);
    CAPTURE(std::string(what.codec->name));
    const auto pair = probing_plans_around(run.graph, retain_all(run.graph), what, 1 * GiB);
    REQUIRE(pair);
    REQUIRE(pair->copies > 0);
    ++(what.carried ? carried : direct);
    pairs += what.carried ? 2 : 1;
    const std::vector<float> reference = run.trainer.gradient(pair->reference);
    const double v = error_of(run.trainer.gradient(pair->lossy), reference) / pair->copies;
    CHECK((error_of(reference, exact) > 0) == what.carried);
    const GradientErrors::Entry entry = run.errors.entry(what);
    CHECK(entry.batches == keys);
    CHECK(entry.error() == doctest::Approx(v).epsilon(5 * 0.1 / std::sqrt(keys)));
    // All activations of the class have it.
    for (int k = 0; k < run.graph.node_count(); ++k) {
      if (run.graph.node(k).layer != what.layer) continue;
      const CodecCost& cost = run.profile.codec_cost(k, run.profile.column(what.codec));
      CHECK((what.carried ? cost.carried_error : cost.error) == entry.error());
    }
  }
  CHECK(direct == 10);   // two codecs: r of the first block, of the others, norm, fc and act
  CHECK(carried == 12);  // r of the others, norm, mean, rstd, fc, act
  CHECK(static_cast<std::size_t>(run.steps / keys) < pairs);  // some serve two classes
  CHECK_FALSE(examine(run.graph, run.profile));
}

TEST_CASE("predicted errors of plans hold, however deep the trainer is") {
  for (const int blocks : {4, 12}) {
    CAPTURE(blocks);
    Probed run(blocks);
    const Error why = run.probe(run.memory());
    REQUIRE_MESSAGE(!why, why.text());
    CostProfile followed = run.profile;  // carried errors as they follow from the codecs' own
    estimate_carried_errors(run.graph, followed);
    const std::vector<float> exact = run.trainer.gradient(retain_all(run.graph));
    for (const CodecInfo* codec : {&codec_info<Int8Outlier>, &codec_info<Int4Outlier>}) {
      CAPTURE(std::string(codec->name));
      const Policy lossy = compress(codec);
      const Plan plans[] = {
          run.plan([&](int, int place) { return place == 0 ? lossy : recompute(); }),
          run.plan([&](int, int place) { return place % 4 < 2 || place == 4 ? lossy : retain(); }),
          run.plan([&](int block, int place) {
            return place == 0 && block % 4 == 0 ? lossy : recompute();
          }),
          run.plan(
              [&](int block, int place) { return block == 0 && place == 0 ? lossy : recompute(); }),
          run.plan([&](int, int place) { return place % 4 == 0 ? lossy : recompute(); })};
      for (const Plan& plan : plans) {
        const double measured = error_of(run.trainer.gradient(plan), exact);
        const auto ratio = [&](const CostProfile& profile) {
          return adacc::error_of(run.graph, profile, plan) / measured;
        };
        CAPTURE(&plan - plans);
        CHECK(ratio(run.profile) > 0.5);
        CHECK(ratio(run.profile) < 2);
        CHECK(ratio(followed) > 1.0 / 3);
        CHECK(ratio(followed) < 3);
        CHECK(ratio(run.estimated) > 1);  // before anything is probed: on the safe side
        CHECK(ratio(run.estimated) < 20);
      }
    }
  }
}

TEST_CASE("around a plan that loses nothing, in less memory") {
  Probed small(4);
  const Plan base = small.plan([](int, int place) { return place == 0 ? retain() : recompute(); });
  // As few bytes as it says.
  const Error refused = small.probe({small.arena[0].bytes, Shape(4096)}, base);
  const std::string text = refused.text();
  REQUIRE(text.find("needs an arena of at least") != std::string::npos);
  std::size_t bytes = 0;
  for (std::size_t have = 4096; bytes == 0; have += 1024)
    if (!small.probe({small.arena[0].bytes, Shape(have)}, base)) bytes = have;
  CHECK(bytes < small.memory().size() * 6 / 10);
  // Of fewer copies, so not the same numbers, but of the same size.
  const std::vector<float> exact = small.trainer.gradient(retain_all(small.graph));
  for (const CodecInfo* codec : small.profile.codecs) {
    const Plan plan =
        small.plan([&](int, int place) { return place % 4 == 0 ? compress(codec) : recompute(); });
    const double measured = error_of(small.trainer.gradient(plan), exact);
    const double ratio = adacc::error_of(small.graph, small.profile, plan) / measured;
    CHECK(ratio > 0.2);
    CHECK(ratio < 5);
  }
}

TEST_CASE("numbers that allow() was given stay, and steps that cannot tell are refused") {
  Probed known(2, [](StashModel<>& model, int id) {
    if (id % 6 == 4) model.allow<Int8Outlier>(id, 0.125);
    else model.allow<Int8Outlier>(id);
  });
  REQUIRE_FALSE(known.probe(known.memory()));
  CHECK(known.profile.codec_cost(4, 0).error == 0.125);
  CHECK(known.profile.codec_cost(5, 0).error < 0.01);
  CHECK(known.profile.codec_cost(5, 0).carried_error < 0.01);  // probed: no number says that

  Probed run(2);
  Cpu& cpu = run.trainer.cpu;
  const auto refused = [&](const auto& step, const Plan& base, const char* what) {
    const Error why =
        probe_stash(run.trainer.model, cpu, run.memory(), step, run.errors, run.profile, base);
    CHECK_MESSAGE(says(why, what), why.text());
  };
  const auto step = [&](Stash<>& stash) { return run.trainer.step(stash); };
  const auto learns = [&](Stash<>& stash) {
    run.trainer.w1[0] += 0.1F;
    return run.trainer.step(stash);
  };
  refused(learns, {}, "updates nothing");
  const auto nothing = [&](Stash<>&) -> Result<Array<View<const float>>> {
    return Array<View<const float>>();
  };
  refused(nothing, {}, "is zero");
  const auto fails = [&](Stash<>&) -> Result<Array<View<const float>>> {
    return Error::say("no data");
  };
  refused(fails, {}, "no data");
  refused(step, run.plan([](int, int place) {
    return place == 0 ? compress(&codec_info<Int8Outlier>) : retain();
  }),
          "lose nothing");
  Plan other;
  other.policies.push_back(retain());
  refused(step, other, "1 policies");
  CHECK(run.errors.entries().empty());
}

}  // namespace stash_probe_test
