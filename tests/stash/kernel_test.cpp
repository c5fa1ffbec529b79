// SPDX-License-Identifier: MIT
/// Kernels described call by call give the model that single registrations give: graph, costs, plans
/// and bits; and a description that makes no sense is refused in words.
#include <doctest/doctest.h>

#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/estimate.hpp>
#include <adacc/stash/measure.hpp>
#include <adacc/stash/probe.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "random_trainer.hpp"
#include "residual_trainer.hpp"

namespace stash_kernel_test {

using namespace adacc;
using residual_trainer::channels, residual_trainer::hidden, residual_trainer::rows,
    residual_trainer::Trainer;
using Model = StashModel<>;

namespace {

bool says(const Error& error, const char* what) {
  return std::string(error.text()).find(what) != std::string::npos;
}

template <class List>
std::vector<int> numbers(const List& list) {
  return {list.begin(), list.end()};
}

/// All that follows from what was registered.
void check_same(const Graph& a, const Graph& b) {
  REQUIRE(a.node_count() == b.node_count());
  CHECK(a.fingerprint == b.fingerprint);
  REQUIRE(a.candidates.size() == b.candidates.size());
  for (int k = 0; k < a.node_count(); ++k) {
    const Node &x = a.node(k), &y = b.node(k);
    CHECK(std::string(x.name) == y.name);
    CHECK(x.layer == y.layer);
    CHECK(x.copy == y.copy);
    CHECK(x.output == y.output);
    CHECK(x.output_bytes == y.output_bytes);
    CHECK(x.recomputable == y.recomputable);
    CHECK(x.made_by == y.made_by);
    CHECK(x.forward_workspace == y.forward_workspace);
    CHECK(x.backward_workspace == y.backward_workspace);
    CHECK(x.value_outside == y.value_outside);
    CHECK(x.candidates.count == y.candidates.count);
    CHECK(numbers(a.sources(k)) == numbers(b.sources(k)));
    CHECK(numbers(a.backward_reads(k)) == numbers(b.backward_reads(k)));
  }
  for (std::size_t i = 0; i < a.candidates.size(); ++i) CHECK(a.candidates[i] == b.candidates[i]);
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) CHECK(a.gradients[i] == b.gradients[i]);
}

/// The model of `trainer`, by descriptions of its kernels, with the callables that it has.
Model by_kernels(Trainer& trainer) {
  Model model;
  const StashListOf<StashCodec<Model>> lossy = {stash_codec<Int8Outlier>(1e-4)};
  const Shape narrow(rows, channels), wide(rows, hidden), each(rows);
  const double product = 2 * rows * channels * hidden;
  int r = model.kernel({.writes = {{"r", narrow, lossy}}, .stage = 0});
  for (int l = 0; l < trainer.blocks; ++l) {
    const auto k = static_cast<std::size_t>(l);
    const auto [norm, mean, rstd] =
        model.kernel<3>({.reads = {r},
                         .writes = {{"norm", narrow, lossy}, {"mean", each}, {"rstd", each}},
                         .backward_reads = {r, "mean", "rstd"},
                         .stage = l,
                         .needs = {.operations = 8 * rows * channels}},
                        trainer.normalize);
    const int fc = model.kernel({.reads = {norm},
                                 .writes = {{"fc", wide, lossy}},
                                 .backward_reads = {norm},
                                 .stage = l,
                                 .needs = {.operations = product}},
                                trainer.widen[k]);
    const int act = model.kernel({.reads = {fc},
                                  .writes = {{"act", wide, lossy}},
                                  .backward_reads = {fc},
                                  .stage = l,
                                  .needs = {.operations = 20 * rows * hidden}},
                                 trainer.activate);
    if (l + 1 == trainer.blocks)
      model.kernel({.reads = {r, act}, .backward_reads = {act}, .stage = l});
    else
      r = model.kernel({.reads = {r, act},
                        .writes = {{"r", narrow, lossy}},
                        .backward_reads = {act},
                        .stage = l,
                        .needs = {.operations = product}},
                       trainer.sum[k]);
  }
  return model;
}

const auto allow_int8 = [](Model& model, int id) { model.allow<Int8Outlier>(id, 1e-4); };

}  // namespace

TEST_CASE("a trainer described by its kernels has plans and bits of one described by activations") {
  Trainer trainer(5, allow_int8);
  const Model old = trainer.model;
  const Graph graph = *old.graph();
  const auto profile = estimated_profile(old);
  REQUIRE_MESSAGE(profile, profile.error.text());
  const Model described = by_kernels(trainer);
  REQUIRE_MESSAGE(described.graph(), described.graph().error.text());
  check_same(*described.graph(), graph);
  const auto again = estimated_profile(described);
  REQUIRE_MESSAGE(again, again.error.text());
  const std::size_t whole = peak_bytes(graph, retain_all(graph));
  int changed = 0;
  for (const std::size_t percent : {70U, 45U, 35U})
    for (const double tolerance : {0.0, 1e-2}) {
      const PlanRequest request{.budget_bytes = whole / 100 * percent, .tolerance = tolerance};
      const auto one = make_plan(graph, *profile, request);
      const auto other = make_plan(*described.graph(), *again, request);
      REQUIRE_MESSAGE(one, one.error.text());
      REQUIRE_MESSAGE(other, other.error.text());
      REQUIRE(one->plan.policies.size() == other->plan.policies.size());
      for (std::size_t i = 0; i < one->plan.policies.size(); ++i) {
        CHECK(one->plan.policies[i] == other->plan.policies[i]);
        changed += one->plan.policies[i] == retain() ? 0 : 1;
      }
      trainer.model = old;
      const std::vector<float> expected = trainer.gradient(one->plan);
      trainer.model = described;
      const std::vector<float> got = trainer.gradient(other->plan);
      REQUIRE(got.size() == expected.size());
      CHECK(std::memcmp(got.data(), expected.data(), 4 * got.size()) == 0);
    }
  CHECK(changed > 0);
}

TEST_CASE("trainers drawn at random are the same by kernels as by activations") {
  using namespace random_trainer;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Drawn drawn;
    draw(seed, drawn);
    const Graph expected = *drawn.model.graph();
    const int count = drawn.model.activation_count(), stages = expected.node_count() - count;
    if (stages == 0) continue;  // a kernel always has one
    Model model;
    for (int id = 0, next = 0; id < count; id = next) {
      const auto k = static_cast<std::size_t>(id);
      StashKernel<Model> call{.stage = 0};
      for (const int source : drawn.sources[k])
        if (drawn.again[k] || seed % 3 == 2) call.reads.push_back(source);
      for (next = id; next < count && expected.maker_of(next) == id; ++next)
        call.writes.push_back({"a",
                               drawn.shapes[static_cast<std::size_t>(next)],
                               {stash_codec<Upper>(), stash_codec<Truncate>(1e-3)}});
      const StashRecompute<float> how =
          drawn.again[k] ? drawn.model.recompute_of(id) : StashRecompute<float>{};
      if (drawn.again[k]) call.needs = drawn.model.needs_of(id);
      CHECK(model.kernel_by(call, how) == id);
      for (int made = id; made < next; ++made)
        if (drawn.held[static_cast<std::size_t>(made)]) model.hold(made);
    }
    // Their stages read what they like: each is the backward of something that makes nothing.
    StashList all;
    for (int id = 0; id < count; ++id) all.push_back(id);
    model.kernel({.reads = all, .stage = stages - 1});
    for (int stage = 0; stage < drawn.stage_count; ++stage) {
      StashKernel<Model> call{.stage = stage};
      for (int id = 0; id < count; ++id)
        for (const int reader : drawn.stages[static_cast<std::size_t>(id)])
          if (reader == stage) call.backward_reads.push_back(id);
      if (static_cast<std::size_t>(stage) < drawn.stage_bytes.size())
        call.backward_bytes = drawn.stage_bytes[static_cast<std::size_t>(stage)];
      if (!call.backward_reads.empty() || call.backward_bytes > 0) model.kernel(call);
    }
    for (const Carried& one : drawn.carried) carry(model, one);
    CAPTURE(seed);
    REQUIRE_MESSAGE(model.graph(), model.graph().error.text());
    check_same(*model.graph(), expected);
  }
}

TEST_CASE("copies of a layer's kernels share what is measured and probed") {
  Trainer trainer(4, [](Model& model, int id) { model.allow<Int8Outlier>(id); });
  Model model;
  const StashListOf<StashCodec<Model>> probed = {stash_codec<Int8Outlier>()};
  int x = model.kernel({.writes = {{"x", Shape(rows, hidden), probed}}});
  for (int l = 0; l < 4; ++l)
    x = model.kernel(
        {.reads = {x}, .writes = {{"x", Shape(rows, hidden), probed}}, .backward_reads = {x}},
        trainer.activate);
  model.kernel({.reads = {x}, .backward_reads = {x}});
  const Graph graph = *model.graph();
  // The first has no callable, and the others are one kind.
  CHECK(graph.node(1).layer == 1);
  for (int id = 2; id <= 4; ++id) CHECK(graph.node(id).layer == graph.node(1).layer);
  CHECK(graph.node(4).copy == 3);
  for (int id = 1; id <= 4; ++id) CHECK(model.error_of(id, &codec_info<Int8Outlier>) < 0);
  // Each kernel has a stage of its own, and what it reads is read there.
  for (int id = 0; id <= 4; ++id) {
    CHECK(model.stage_of(id) == id);
    CHECK(numbers(graph.backward_reads(5 + id + 1)) == std::vector<int>{id});
  }
  CHECK(model.stage_of(-1) == -1);
  CHECK(model.stage_of(5) == -1);
}

TEST_CASE("bytes of a stage's kernels are added up, and outputs may be bytes and held") {
  const auto pair = [](const View<const float>*, const View<float>*, Bytes) {};
  Model model;
  const int x = model.kernel({.writes = {{"x", Shape(8, 8)}}, .stage = 1});
  const auto [y, mask] = model.kernel<2>({.reads = {x},
                                          .writes = {{"y", Shape(8, 8)}, {"mask", StashBytes{9}}},
                                          .backward_reads = {"mask"},
                                          .stage = 2,
                                          .backward_bytes = 100,
                                          .needs = {.workspace_bytes = 64},
                                          .hold = true},
                                         pair);
  model.kernel({.reads = {y}, .backward_reads = {y, y}, .stage = 2, .backward_bytes = 28});
  const auto made = model.graph();
  REQUIRE_MESSAGE(made, made.error.text());
  CHECK(model.is_raw(mask));
  CHECK(made->node(mask).output_bytes == 9);
  CHECK_FALSE(made->node(y).value_outside);
  CHECK(made->node(x).value_outside);
  CHECK(made->node(y).forward_workspace == 64);
  CHECK(made->node_count() == 3 + 3);
  CHECK(made->node(3 + 2).backward_workspace == 128);
  CHECK(made->node(3 + 1).backward_workspace == 0);
  CHECK(numbers(made->backward_reads(3 + 2)) == std::vector<int>{y, mask});
}

TEST_CASE("descriptions of kernels that make no sense are refused") {
  const auto f = [](const View<const float>*, View<float>) {};
  const auto pair = [](const View<const float>*, const View<float>*) {};
  const Shape shape(4, 4);
  const auto mistake = [&](auto&& describe, const char* what) {
    Model model;
    CHECK(model.kernel({.writes = {{"x", shape}}}) == 0);
    CHECK(model.kernel({.reads = {0}, .writes = {{"y", shape}}, .backward_reads = {0}, .stage = 3},
                       f) == 1);
    CHECK(model.kernel({.reads = {1}}) == -1);
    REQUIRE_FALSE(model.error());
    describe(model);
    CHECK_MESSAGE(says(model.graph().error, what), model.graph().error.text());
  };
  mistake(
      [&](Model& m) {
        m.kernel({.reads = {2}, .writes = {{"z", shape}}}, f);
      },
      "kernel 3 (z) reads activation 2, which no kernel before it makes: they made 2");
  mistake(
      [&](Model& m) {
        m.kernel({.reads = {-1}, .writes = {{"z", shape}}});
      },
      "reads activation -1,");
  mistake([&](Model& m) { m.kernel({.reads = {1}, .backward_reads = {2}}); },
          "kernel 3 reads activation 2 in its backward, which no kernel before it makes");
  mistake(
      [&](Model& m) {
        m.kernel({.writes = {{"z", shape}}, .backward_reads = {2}});
      },
      "its own outputs have no ids yet");
  mistake(
      [&](Model& m) {
        m.kernel({.writes = {{"z", shape}}, .backward_reads = {-1}});
      },
      "reads activation -1 in its backward");
  mistake(
      [&](Model& m) {
        m.kernel({.writes = {{"z", shape}}, .backward_reads = {"y"}});
      },
      "kernel 3 (z) has no output called y");
  mistake(
      [&](Model& m) {
        m.kernel<2>({.writes = {{"z", shape}, {"z", shape}}, .backward_reads = {"z"}}, pair);
      },
      "several outputs called z");
  mistake(
      [&](Model& m) {
        m.kernel({.writes = {{"z", shape}}, .backward_reads = {StashRead::nth_output(1)}});
      },
      "has no output 1: it writes 1");
  mistake(
      [&](Model& m) {
        m.kernel({.reads = {1}, .writes = {{"z", shape}}, .stage = 2}, f);
      },
      "has its backward in stage 2, and that of what it reads, activation 1 (y), is in stage 3");
  mistake([&](Model& m) { m.kernel({.reads = {1}, .stage = -2}); },
          "stage whose number is negative");
  mistake([&](Model& m) { m.kernel({.reads = {1}, .stage = 1 << 20}); }, "a million and more");
  mistake(
      [&](Model& m) {
        m.kernel({.reads = {1}, .writes = {{"z", shape}}}, f);
      },
      "activation 2 (z) is read by no kernel and by the backward of none");
  mistake([&](Model& m) { m.kernel({}); }, "reads and writes nothing");
  mistake([&](Model& m) { m.kernel<0>({.reads = {1}}, pair); }, "writes nothing");
  mistake(
      [&](Model& m) {
        m.kernel<2>({.writes = {{"z", shape}}}, pair);
      },
      "kernel 3 (z) writes 1 activations, and kernel<2> is to return the ids of 2");
  mistake(
      [&](Model& m) {
        m.kernel({.writes = {{"z", shape}, {"a", shape}}}, f);
      },
      "writes 2 activations, and kernel<1>");
  mistake([&](Model& m) { m.kernel({.writes = {{"z", Shape(0, 4)}}}); }, "no elements");
  mistake([&](Model& m) { m.kernel({.writes = {{"z", StashBytes{}}}}); }, "no elements");
  mistake(
      [&](Model& m) {
        m.kernel({.writes = {{"z", Shape(64, 64), {stash_codec<Int8Outlier>(-2.0)}}}});
      },
      "gradient error is negative");
  mistake(
      [&](Model& m) { m.kernel({.reads = {1}, .backward_bytes = static_cast<std::size_t>(-1)}); },
      "more bytes for itself than can be addressed");
  mistake(
      [&](Model& m) {
        for (int i = 0; i < 2; ++i)
          m.kernel({.reads = {1},
                    .stage = 4,
                    .backward_bytes = i == 0 ? std::size_t{64} : static_cast<std::size_t>(-8)});
      },
      "more bytes for itself than can be addressed");
  mistake(
      [&](Model& m) {
        m.kernel(
            {.writes = {{"z", shape}}, .backward_reads = {"z"}, .needs = {.workspace_bytes = 8}},
            f);
      },
      "takes none");
  // What is held is read by forward itself, so it needs no other reader.
  Model model;
  model.kernel({.writes = {{"losses", shape}}, .hold = true});
  CHECK_MESSAGE(model.graph(), model.graph().error.text());
}

TEST_CASE("a model of kernels is a constant expression") {
  constexpr auto peak = [](bool small) {
    StashModel<> model;
    constexpr auto nothing = [](const View<const float>*, View<float>) {};
    int h = model.kernel({.writes = {{"h", Shape(8, 64)}}});
    for (int i = 0; i < 4; ++i)
      h = model.kernel({.reads = {h}, .writes = {{"h", Shape(8, 64)}}, .backward_reads = {h, "h"}},
                       nothing);
    const auto graph = model.graph();
    Plan plan = retain_all(*graph);
    if (small) plan.policies[4] = recompute();
    return make_program(*graph, plan)->peak_bytes();
  };
  static_assert(peak(false) == std::size_t{5} * 8 * 64 * 4);
  static_assert(peak(true) == std::size_t{5} * 8 * 64 * 4);
}

}  // namespace stash_kernel_test
