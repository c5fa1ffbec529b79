// SPDX-License-Identifier: MIT
/// Trainings on the device whose plans change: by a new budget, by what codecs see, by the times of steps.
/// And gradient errors that are probed there, beside the CPU's.
#pragma once

#include <adacc/train.cuh>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#pragma nv_diagnostic pop

#include "device_checks.hpp"
#include "on_device.hpp"
#include "steps_cases.hpp"

namespace steps {

struct EvolvingChecks : DeviceChecks {
  using DeepTraining = Training<float, Cuda>;

  void all() const {
    sketches();
    errors();
    budget();
    resume();
    codecs();
    times();
    waits();
  }

 private:
  std::vector<float> list(View<float> from) const {
    std::vector<float> to(from.size());
    Cuda cuda(stream);
    fine(copy_to_host(cuda, from, View<float>(to.data(), from.shape())));
    return to;
  }

  /// int8 is fast and adds little, recomputing is slow, int4 adds too much.
  static CostProfile profile(const Graph& graph) {
    CostProfile made = empty_profile(graph);
    for (int k = 0; k < graph.node_count(); ++k) {
      made.nodes[static_cast<std::size_t>(k)] = {1e-2, 2e-2, 0, 0};
      for (std::size_t c = 0; c < made.codecs.size(); ++c)
        made.codec_cost(k, static_cast<int>(c)) = {2e-3, 2e-3, 1, 1};
      made.codec_cost(k, made.column(&codec_info<Int8Outlier>)) = {1e-4 * (k + 1), 1e-4, 1e-3, 1};
      made.codec_cost(k, made.column(&codec_info<Bf16>)) = {1e-3, 1e-3, 1e-6, 1};
    }
    return made;
  }

  static bool same(const Plan& a, const Plan& b) {
    bool all = a.policies.size() == b.policies.size();
    for (std::size_t i = 0; all && i < a.policies.size(); ++i) all = a.policies[i] == b.policies[i];
    return all;
  }

  struct Budgets {
    Graph graph;
    std::size_t whole = 0;  ///< that retaining everything needs
    std::size_t less = 0;   ///< that can be met without loss
  };
  static Budgets budgets(const Deep::Net& net) {
    Budgets made{*make_graph<Cuda>(net, Deep::shape())};
    made.whole = peak_bytes(made.graph, retain_all(made.graph));
    made.less = peak_bytes(made.graph, smallest_sparse(made.graph, Kept::whole));
    return made;
  }

  /// Batches in device memory, and a training.
  struct Rig {
    Result<DeepTraining> training;
    DeviceBlock<float> x, y;
    Cuda cuda;

    Result<TrainingOutcome> step(float growth = 1) {
      const auto number = static_cast<std::uint32_t>(training->updates());
      const auto input = Deep::inputs(number, growth), targets = Deep::targets(number);
      const Shape all(input.size());
      if (const Error why = copy_to_device(cuda, View<const float>(input.data(), all), x.view()))
        return why;
      if (const Error why = copy_to_device(cuda, View<const float>(targets.data(), all), y.view()))
        return why;
      return training->step(View<const float>(x.data(), Deep::shape()),
                            View<const float>(y.data(), Deep::shape()), 1e-3);
    }
  };
  Rig rig(const Deep::Net& net, DeepTraining::Options how) const {
    how.context = context();
    how.planning.planner = &plan_exhaustively;
    how.planning.profile = profile(*make_graph<Cuda>(net, Deep::shape()));
    const std::size_t elems = Deep::shape().elems();
    Rig made{DeepTraining::make(net, Deep::shape(), how), *DeviceBlock<float>::make(elems, "x"),
             *DeviceBlock<float>::make(elems, "y"), Cuda(stream)};
    fine(made.training.error);
    return made;
  }

  void sketches() const {
    const RandomKey key{.seed = 3, .step = 4};
    std::vector<float> gradient;
    for (std::size_t i = 0; i < 64 * 333 + 13; ++i)
      gradient.push_back(unit_float(random_word({.seed = 6}, i)) - 0.5F);
    auto block = DeviceBlock<float>::make(gradient.size(), "a gradient");
    auto scratch = DeviceBlock<std::byte>::make(16 * KiB, "memory to add up in");
    Cuda cuda(stream);
    fine(copy_to_device(cuda, View<const float>(gradient.data(), Shape(gradient.size())),
                        block->view()));
    const GradientSketch host = cpu_sketch(gradient, key);
    // In no more memory than that of two sketches, too.
    for (const std::size_t bytes : {16 * KiB, 2 * 257 * sizeof(double)}) {
      const auto made = sketch_in(Bytes(scratch->data(), Shape(bytes)), cuda, block->view(), key);
      if (!fine(made.error)) return;
      expect(std::fabs(made->squared_norm / host.squared_norm - 1) < 1e-12,
             "the norm of a sketched gradient");
      double worst = 0;
      for (std::size_t i = 0; i < GradientSketch::size; ++i)
        worst = std::fmax(worst, std::fabs(made->sums[i] - host.sums[i]));
      expect(worst < 1e-10, "a sketch has other sums than the CPU's");
    }
    const auto none = sketch_in(Bytes(scratch->data(), Shape(4000)), cuda, block->view(), key);
    expect(!none && std::strstr(none.error.text(), "4112 bytes are wanted") != nullptr,
           "a sketch in less memory than it takes");
  }

  void errors() const {
    const auto net = Deep::network();
    const Budgets bytes = budgets(net);
    Rig r = rig(
        net,
        {.budget_bytes = bytes.whole, .tolerance = 0, .arena_bytes = measuring_bytes(bytes.graph)});
    if (!r.training || !r.step()) return expect(false, "no training to probe");
    DeepTraining& training = *r.training;
    const auto input = Deep::inputs(0), targets = Deep::targets(0);
    fine(copy_to_device(r.cuda, View<const float>(input.data(), Shape(input.size())), r.x.view()));
    fine(copy_to_device(r.cuda, View<const float>(targets.data(), Shape(targets.size())),
                        r.y.view()));
    training.context().key = {.seed = seed};
    const std::vector<double> expected = cpu_errors(list(training.params()));
    const Array<ErrorClass> classes = error_classes(bytes.graph);
    expect(classes.size() > 3 && classes.size() == expected.size(), "other classes than the CPU's");
    GradientProbe probe(
        training.context(), training.compiled_step().dispatch(), bytes.graph, training.arena(),
        training.params(), training.gradients(), View<const float>(r.x.data(), Deep::shape()),
        View<const float>(r.y.data(), Deep::shape()), training.compiled_step().lent_loss());
    for (std::size_t i = 0; i < classes.size() && i < expected.size(); ++i) {
      GradientErrors probed;
      if (!fine(probe.probe(classes[i], probed))) return;
      const double error = probed.entry(classes[i]).error();
      expect(error > 0 && std::fabs(error / expected[i] - 1) < 0.02, classes[i].codec->name);
    }
  }

  /// Lossless plans: the bits must not notice.
  void budget() const {
    const auto net = Deep::network();
    const Budgets bytes = budgets(net);
    expect(bytes.less < bytes.whole, "a budget that changes nothing");
    Rig r = rig(net, {.budget_bytes = bytes.whole, .tolerance = 0});
    Rig plain =
        rig(net, {.budget_bytes = bytes.whole, .tolerance = 0, .planning = {.evolving = false}});
    if (!r.training || !plain.training) return;
    DeepTraining& training = *r.training;
    plain.training->context().capture_steps = false;
    expect(training.memory_use().watched > 0 && plain.training->memory_use().watched == 0,
           "memory to watch in is counted");
    // All that is held counts, and so there is less for the arena.
    const std::size_t total = plain.training->memory_use().total();
    const Rig held = rig(net, {.total_bytes = total, .tolerance = 0});
    expect(held.training && held.training->memory_use().watched > 0 &&
               held.training->memory_use().total() <= total,
           "memory to watch in passes the total");
    for (int i = 0; i < 12; ++i) {
      if (i == 3) fine(training.set_budget(bytes.less));
      if (i == 7) fine(training.set_budget(bytes.whole));
      if (i == 10) fine(training.set_budget(100));
      const std::uint64_t programs = training.compiled_step().programs();
      const auto outcome = r.step(), expected = plain.step();
      if (!fine(outcome.error) || !fine(expected.error)) return;
      expect(outcome->loss == expected->loss && outcome->grad_norm == expected->grad_norm,
             "a lossless plan has other bits than retain");
      const PlanBoundary& boundary = training.boundary();
      expect(boundary.update.changed == (i == 3 || i == 7), "the budget changed, or the plan");
      // What tells who captured a step that it is gone.
      expect((training.compiled_step().programs() != programs) == boundary.update.changed,
             "the number of programs");
      expect(training.arena().size() == training.peak_bytes() &&
                 training.arena().size() <= (i >= 3 && i < 7 ? bytes.less : bytes.whole),
             "the arena passes the budget");
      expect(static_cast<bool>(boundary.update.failed) == (i == 10),
             "a budget that no plan meets is refused");
    }
    // The first step of each program runs as it is, and so do those that are watched.
    expect((training.memory_use().captured > 0 || !on_executor()) &&
               plain.training->memory_use().captured == 0,
           "memory of a captured step is named");
    expect(training.captured_steps() >= 6 && plain.training->captured_steps() == 0,
           "steps of a plan that stands are launches of a graph");
    expect(list(training.params()) == list(plain.training->params()),
           "parameters after changes of the budget");
  }

  /// A checkpoint that was saved once the budget had changed the plan, in a training that begins with the first
  /// one's and is given the same budget: the same plan, and the same bits, which int8 makes others than the first
  /// plan's.
  void resume() const {
    const auto net = Deep::network();
    const Budgets bytes = budgets(net);
    const DeepTraining::Options how{.budget_bytes = bytes.whole, .tolerance = 1e-2};
    Rig goes_on = rig(net, how), resumes = rig(net, how);
    if (!goes_on.training || !resumes.training) return;
    const Plan first = goes_on.training->plan();
    for (int i = 0; i < 4; ++i) {
      if (i == 2) fine(goes_on.training->set_budget(bytes.less));
      if (!fine(goes_on.step().error)) return;
    }
    expect(!same(goes_on.training->plan(), first), "a smaller budget changes the plan");
    const std::string path =
        (std::filesystem::temp_directory_path() /
         ("adacc_evolving_checks_" + std::to_string(std::random_device{}()) + ".ckpt"))
            .string();
    const bool saved = fine(goes_on.training->save(path));
    fine(resumes.training->set_budget(
        bytes.less));  // the budget is the caller's, not the checkpoint's
    const auto loaded = resumes.training->load(path);
    std::filesystem::remove(path);
    if (!saved || !fine(loaded.error)) return;
    expect(same(resumes.training->plan(), goes_on.training->plan()) &&
               resumes.training->arena().size() <= bytes.less,
           "a training that resumes has another plan");
    for (int i = 0; i < 4; ++i) {
      // And from there back to the first budget, which both follow.
      if (i == 2)
        for (Rig* r : {&goes_on, &resumes}) fine(r->training->set_budget(bytes.whole));
      const auto outcome = resumes.step(), expected = goes_on.step();
      if (!fine(outcome.error) || !fine(expected.error)) return;
      expect(outcome->loss == expected->loss && outcome->grad_norm == expected->grad_norm,
             "a step that was resumed has other bits");
    }
    expect(same(resumes.training->plan(), goes_on.training->plan()) &&
               list(resumes.training->params()) == list(goes_on.training->params()),
           "parameters or plan of a training that was resumed");
  }

  void codecs() const {
    const auto net = Deep::network();
    const Budgets bytes = budgets(net);
    Rig r = rig(net, {.budget_bytes = bytes.less,
                      .tolerance = 1e-2,
                      .planning = {.evolution = {.check_every = 1}}});
    Rig plain =
        rig(net, {.budget_bytes = bytes.whole, .tolerance = 0, .planning = {.evolving = false}});
    if (!r.training || !plain.training) return;
    const auto uses_int8 = [&] {
      int count = 0;
      for (const Policy& policy : r.training->plan().policies)
        count += policy.codec() == &codec_info<Int8Outlier> ? 1 : 0;
      return count;
    };
    const int before = uses_int8();
    expect(before > 0, "the plan encodes nothing");
    constexpr int grows = 6;
    int left = 0;
    for (int i = 0; i < 12; ++i) {
      const float growth = i < grows ? 1.0F : 12.0F;
      const auto outcome = r.step(growth), exact = plain.step(growth);
      if (!fine(outcome.error) || !fine(exact.error)) return;
      expect(std::fabs(outcome->loss - exact->loss) < 2e-3 * exact->loss, "losses beside retain's");
      const EvolutionUpdate& update = r.training->boundary().update;
      expect(r.training->arena().size() <= bytes.less, "the plan passes the budget");
      if (!update.changed) continue;
      if (left == 0) left = i;
      bool failed = false;
      for (const PlanChange& change : update.changes)
        failed = failed || (change.reason == ChangeReason::codec_failed &&
                            change.from.codec() == &codec_info<Int8Outlier>);
      expect(failed || i != left, "the plan changed for another reason");
    }
    // Seen in two checks, at the ends of the steps 6 and 7.
    expect(left == grows + 2, "a codec that fails is left at once");
    expect(uses_int8() < before, "the codec is still there");
    expect(r.training->evolution()->observed_error() <= 1e-2, "the plan passes the tolerance");
  }

  struct Clock {
    double now = 0;
    double operator()() { return now += 1e-3; }
  };

  /// Steps are timed by events, which have a time of their own on the executor.
  void times() const {
    if (!on_executor()) return;
    const auto net = Deep::network();
    const Budgets bytes = budgets(net);
    Clock clock;
    double tick = 1e-3;
    ptxrun::tick_events(tick);
    Rig r = rig(net, {.budget_bytes = bytes.less,
                      .tolerance = 1e-2,
                      .clock = clock,
                      .planning = {.evolution = {.check_every = 1000, .timed_steps = 2}},
                      .arena_bytes = measuring_bytes(bytes.graph)});
    if (!r.training) return;
    int measured = 0;
    for (int i = 0; i < 14; ++i) {
      if (i == 4) ptxrun::tick_events(tick *= 3);
      // So that a measurement is less than a hundredth, which is seen behind a step that has taken as long.
      if (i == 10) clock.now += 1e6;
      if (i == 10) ptxrun::tick_events(1e5);
      if (i == 11) ptxrun::tick_events(tick);
      const bool wanted = r.training->evolution()->wants_profile();
      if (!fine(r.step().error)) return;
      if (i == 4) expect(!wanted, "times drifted before they changed");
      if (i == 9) expect(wanted, "times did not drift");
      if (r.training->boundary().looked) measured = i;
    }
    expect(measured == 11 && !r.training->evolution()->wants_profile(), "times are measured anew");
    expect(r.training->evolution()->profile().nodes[0].forward != 1e-2,
           "the times of the profile are those that were measured");
    ptxrun::tick_events(0);
  }

  /// A plan that evolves by a clock waits as often as one that stands by itself, also if times have drifted and a
  /// measurement would take more than a hundredth of the time.
  void waits() const {
    if (!on_executor()) return;
    const auto net = Deep::network();
    const Budgets bytes = budgets(net);
    StreamClock clock(stream);
    ptxrun::tick_events(1e-3);
    Rig timed = rig(net, {.budget_bytes = bytes.less,
                          .tolerance = 0,
                          .clock = clock,
                          .planning = {.evolution = {.timed_steps = 2}}});
    Rig plain =
        rig(net, {.budget_bytes = bytes.less, .tolerance = 0, .planning = {.evolving = false}});
    if (!timed.training || !plain.training) return;
    const auto waits_of = [&](Rig& r) {
      for (int i = 0; i < 3; ++i) fine(r.step().error);
      const std::uint64_t before = ptxrun::waits();
      for (int i = 0; i < 9; ++i) fine(r.step().error);  // one of them would watch codecs
      return ptxrun::waits() - before;
    };
    const std::uint64_t by_itself = waits_of(plain), by_clock = waits_of(timed);
    expect(by_itself > 0 && by_clock == by_itself, "steps within a budget wait for the clock");
    ptxrun::tick_events(3e-3);
    for (int i = 0; i < 8; ++i) fine(timed.step().error);
    expect(timed.training->evolution()->wants_profile(), "times did not drift");
    expect(waits_of(timed) == by_itself, "steps wait for the clock once times have drifted");
    ptxrun::tick_events(0);
  }
};

}  // namespace steps
