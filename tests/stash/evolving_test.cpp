// SPDX-License-Identifier: MIT
/// Stashes whose plan changes between steps: by budgets, by times, by what codecs saw, by a link's speed.
#include <doctest/doctest.h>

#include <adacc/codec/bf16.hpp>
#include <adacc/core/block.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/estimate.hpp>
#include <adacc/stash/evolving_stash.hpp>
#include <adacc/store/memory_store.hpp>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../rough_codec.hpp"
#include "residual_trainer.hpp"
#include "timed_trainer.hpp"

namespace evolving_stash_test {

using namespace adacc;
using sample::MadeUpClock;
using timed_trainer::Upper;
using Timed = timed_trainer::Trainer;

namespace {

bool says(const Error& error, const std::string& what) {
  return std::string(error.text()).find(what) != std::string::npos;
}
void fine(const Error& error) { REQUIRE_MESSAGE(!error, std::string(error.text())); }

/// Memory of an arena, with a guard behind it.
struct Memory {
  explicit Memory(std::size_t size)
      : bytes(size), block(*Block<std::byte>::make(size + 4096, "memory", transfer_alignment)) {}
  Bytes view() { return {block.data(), Shape(bytes)}; }
  void fill(int pattern) { std::memset(block.data(), pattern, block.size()); }
  /// How many bytes, from the first one on, are not all as they were filled.
  std::size_t used(int pattern) const {
    std::size_t i = block.size();
    while (i > 0 && block.data()[i - 1] == static_cast<std::byte>(pattern)) --i;
    return i;
  }
  std::size_t bytes;
  Block<std::byte> block;
};

std::size_t retained_bytes(const StashModel<>& model) {
  const Graph graph = *model.graph();
  return peak_bytes(graph, retain_all(graph));
}

EvolvingStash<> evolving(const Timed& trainer, std::size_t percent,
                         const EvolvingStashOptions& options, const LinkCost& link = {},
                         double tolerance = 0) {
  PlanRequest request{.budget_bytes = retained_bytes(trainer.model) * percent / 100,
                      .tolerance = tolerance};
  request.link = link;
  auto made = EvolvingStash<>::make(trainer.model, trainer.profile(), request, make_plan, options);
  REQUIRE_MESSAGE(made, std::string(made.error.text()));
  return std::move(*made);
}

/// A trainer without a plan that changes: what bits ought to be.
struct Retained {
  Timed trainer{CodecList<>()};
  Memory arena{retained_bytes(trainer.model)};
  Stash<> stash = *Stash<>::make(trainer.model, retain_all(*trainer.model.graph()));
  Retained() { fine(stash.bind(arena.view())); }
  const std::vector<float>& step() {
    fine(trainer.step(stash));
    return trainer.w;
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool same(const Plan& a, const Plan& b) {
  for (std::size_t k = 0; k < a.policies.size(); ++k)
    if (!(a.policies[k] == b.policies[k])) return false;
  return a.policies.size() == b.policies.size();
}

/// How many activations named `name` are computed again.
int recomputed(const EvolvingStash<>& stash, const char* name) {
  int count = 0;
  for (int k = 0; k < stash.graph().node_count(); ++k)
    count += std::string(stash.graph().node(k).name) == name && stash.plan()[k].recomputes();
  return count;
}

}  // namespace

TEST_CASE("budgets that change between steps lose no bit, and take the bytes that were promised") {
  residual_trainer::Trainer with(4, [](auto&, int) {}), without(4, [](auto&, int) {});
  const std::size_t retain = retained_bytes(with.model);
  const auto profile = estimated_profile(with.model);
  REQUIRE(profile);
  auto stash = EvolvingStash<>::make(with.model, *profile, {.budget_bytes = retain}, make_plan);
  REQUIRE_MESSAGE(stash, std::string(stash.error.text()));
  auto plain = Stash<>::make(without.model, retain_all(*without.model.graph()));
  Memory arena(retain), other(retain);
  fine(stash->bind(arena.view()));
  fine(plain->bind(other.view()));
  const Error least = stash->set_budget(1);
  CHECK(says(least, "no plan fits into a budget of 1 bytes: the smallest"));
  std::mt19937 random(7);
  std::size_t changes = 0, smallest = retain;
  for (int i = 0; i < 24; ++i) {
    CAPTURE(i);
    const std::size_t before = stash->arena_bytes(), budget = retain * (30 + random() % 71) / 100;
    const Error why = stash->set_budget(budget);
    if (why) {  // too little: all is as it was
      CHECK(says(why, Error::say(shown(budget)).text()));
      CHECK(stash->arena_bytes() == before);
      CHECK_FALSE(stash->boundary().update.changed);
    } else {
      CHECK(stash->arena_bytes() <= budget);
      CHECK(stash->budget_bytes() == budget);
      CHECK(stash->boundary().update.changed == (stash->boundary().update.changes.size() > 0));
      for (const PlanChange& change : stash->boundary().update.changes)
        CHECK(change.reason == ChangeReason::budget_changed);
      changes += stash->boundary().update.changed;
    }
    if (stash->arena_bytes() < smallest) smallest = stash->arena_bytes();
    const bool changed = stash->boundary().update.changed;
    arena.fill(0x5A);
    const auto gradients = with.step(*stash), expected = without.step(*plain);
    REQUIRE_MESSAGE(gradients, std::string(gradients.error.text()));
    REQUIRE(expected);
    CHECK(stash->boundary().update.changed == changed);  // still what happened before this step
    if (i % 2 == 0) fine(stash->leave(0));
    else fine(stash->end());
    CHECK(arena.used(0x5A) == stash->arena_bytes());
    for (std::size_t g = 0; g < 2; ++g)
      REQUIRE(std::memcmp((*gradients)[g].data(), (*expected)[g].data(),
                          (*expected)[g].size() * sizeof(float)) == 0);
    for (auto* of : {&with, &without}) {
      for (std::size_t k = 0; k < of->w1.size(); ++k) of->w1[k] -= 1e-3F * of->dw1[k];
      for (std::size_t k = 0; k < of->w2.size(); ++k) of->w2[k] -= 1e-3F * of->dw2[k];
    }
  }
  CHECK(changes > 8);
  CHECK(smallest < retain / 2);
}

TEST_CASE("a budget is refused in words inside of a step, and beyond the memory that is bound") {
  Timed trainer{CodecList<>()};
  EvolvingStash<> stash = evolving(trainer, 100, {});
  const std::size_t retain = stash.arena_bytes();
  fine(stash.set_budget(retain * 90 / 100));  // nothing is bound yet
  const std::size_t less = stash.arena_bytes();
  CHECK(less <= retain * 90 / 100);
  Memory arena(retain);
  CHECK(says(stash.begin(trainer.cpu), "bind() must lend"));
  CHECK(says(stash.bind({arena.block.data(), Shape(less - 1)}), "needs an arena of"));
  fine(stash.bind({arena.block.data(), Shape(less)}));
  CHECK(stash.budget_bytes() == less);  // what is bound is all there is
  CHECK(says(stash.set_budget(retain), "the arena that is bound has"));
  CHECK(stash.arena_bytes() == less);
  fine(stash.bind(arena.view()));
  CHECK(stash.budget_bytes() == less);

  const auto refused = [&] {
    CHECK(says(stash.set_budget(retain), "set_budget() inside of a step"));
    CHECK(stash.arena_bytes() == less);
  };
  fine(trainer.step(stash, refused));
  CHECK(stash.arena_bytes() == less);
  fine(stash.set_budget(retain));  // leave(0) ended the step
  CHECK(stash.arena_bytes() == retain);
  CHECK(recomputed(stash, "a") + recomputed(stash, "b") == 0);
  fine(stash.begin(trainer.cpu));
  CHECK(says(stash.set_budget(less), "end()"));
  fine(stash.end());
  fine(stash.set_budget(less));
  CHECK(says(stash.put(0, {trainer.input.data(), Shape(timed_trainer::rows, 64)}), "no step"));
  fine(trainer.step(stash));
}

TEST_CASE("a kernel that gets slower than others is computed again no longer") {
  Timed trainer{CodecList<>()};
  Retained expected;
  EvolvingStash<> stash = evolving(trainer, 78, {.clock = trainer.clock});
  Memory arena(retained_bytes(trainer.model));
  fine(stash.bind(arena.view()));
  REQUIRE(recomputed(stash, "a") > 3);
  REQUIRE(recomputed(stash, "b") == 0);
  int changed = -1, looked = -1;
  double seconds = 0;
  for (int i = 0; i < 260; ++i) {
    CAPTURE(i);
    if (i == 100) trainer.a_seconds = 8e-3;
    const double before = trainer.clock.time;
    fine(trainer.step(stash));
    seconds = trainer.clock.time - before;
    REQUIRE(same(trainer.w, expected.step()));
    const PlanBoundary& boundary = stash.boundary();
    REQUIRE_FALSE(boundary.update.failed);
    REQUIRE(stash.arena_bytes() <= stash.budget_bytes());
    if (boundary.looked) {
      CHECK(looked == -1);
      looked = i;
    }
    if (!boundary.update.changed) continue;
    CHECK(changed == -1);
    changed = i;
    for (const PlanChange& change : boundary.update.changes)
      CHECK(change.reason == ChangeReason::times_drifted);
  }
  // Two medians of 16 steps that are off, after 100 steps that were not.
  CHECK(looked > 100 + 16);
  CHECK(looked < 100 + 100);
  CHECK(changed == looked);
  CHECK(recomputed(stash, "a") == 0);
  CHECK(recomputed(stash, "b") > 3);
  CHECK(seconds == doctest::Approx(Timed::layers * 10e-3 + recomputed(stash, "b") * 2e-3));
}

TEST_CASE("work is watched kind by kind; a callable that makes several activations is one kind") {
  const residual_trainer::Trainer trainer(3, [](auto&, int) {});
  Plan plan = retain_all(*trainer.model.graph());
  for (int k = 0; k < trainer.model.activation_count(); ++k)
    if (trainer.model.recompute_of(k).call != nullptr)
      plan.policies[static_cast<std::size_t>(k)] = recompute();
  const Program program = *make_program(*trainer.model.graph(), plan);
  const CostProfile profile = *estimated_profile(trainer.model);
  const EvolutionOptions options{.timed_steps = 1};
  // Whether norms that take so many times what they took, and all else so many times, are seen.
  const auto drifts = [&](double norm, double rest) {
    WorkWatch watch;
    for (int i = 0; i < 8; ++i) {
      Array<double> seconds;
      for (const Instruction& inst : program.schedule.instructions) {
        const int maker = program.graph.maker_of(inst.node);
        const bool again = inst.op == Op::forward && inst.again;
        const bool norms = std::string(program.graph.node(maker).name) == "norm";
        const double times = i < 2 ? 1 : norms ? norm : rest;
        // The last of what is made together takes the time of all.
        const bool last = again && !program.graph.made_with_next(inst.node);
        seconds.push_back(last ? times * profile.node(maker).forward : again ? 0 : -1);
      }
      watch.observe(program, profile, seconds, options);
    }
    return watch.drifted();
  };
  CHECK_FALSE(drifts(1, 1));
  CHECK_FALSE(drifts(1.2, 0.85));
  CHECK(drifts(2, 1));  // little of all that is done
  CHECK(drifts(1, 2));
  CHECK(drifts(0.5, 1));
}

TEST_CASE("a machine that gets slower as a whole keeps its plan; measuring takes a hundredth") {
  Timed trainer{CodecList<>()};
  EvolvingStash<> stash =
      evolving(trainer, 78, {.clock = trainer.clock, .evolution = {.timed_steps = 4}});
  Memory arena(retained_bytes(trainer.model));
  fine(stash.bind(arena.view()));
  const Plan plan = stash.plan();
  int looked = 0;
  for (int i = 0; i < 150; ++i) {
    if (i == 20) trainer.a_seconds *= 3, trainer.b_seconds *= 3;
    fine(trainer.step(stash));
    looked += stash.boundary().looked;
    // 8 times a and b, of 100 times as much.
    if (stash.boundary().looked) CHECK(trainer.clock.time > 100 * 8 * 3e-3);
    CHECK_FALSE(stash.boundary().update.changed);
  }
  CHECK(looked == 1);
  CHECK(same(stash.plan(), plan));
  CHECK(stash.evolution().profile().node(trainer.ids[0].a).forward == doctest::Approx(3e-3));
}

TEST_CASE("without a clock, or told not to, nothing but a budget changes a plan") {
  for (const bool clock : {false, true}) {
    Timed trainer{CodecList<>()};
    EvolvingStashOptions options{.evolving = !clock};
    if (clock) options.clock = trainer.clock;
    EvolvingStash<> stash = evolving(trainer, 78, options);
    Memory arena(retained_bytes(trainer.model));
    fine(stash.bind(arena.view()));
    for (int i = 0; i < 150; ++i) {
      if (i == 20) trainer.a_seconds = 9e-3;
      fine(trainer.step(stash));
      CHECK_FALSE(stash.boundary().looked);
      CHECK_FALSE(stash.boundary().update.changed);
    }
    fine(stash.set_budget(stash.budget_bytes() * 9 / 10));
    CHECK(stash.boundary().update.changed);
  }
}

TEST_CASE("an arena that is too small to measure in is said, and the plan stays") {
  Timed trainer{CodecList<>()};
  trainer.add_unread();
  EvolvingStash<> stash = evolving(trainer, 78, {.clock = trainer.clock});
  Memory arena(stash.arena_bytes());
  fine(stash.bind(arena.view()));
  REQUIRE(stash_measure_bytes(stash.graph()) > arena.bytes);
  const Plan plan = stash.plan();
  int said = 0;
  for (int i = 0; i < 150; ++i) {
    if (i == 20) trainer.a_seconds = 8e-3;
    fine(trainer.step(stash));
    CHECK_FALSE(stash.boundary().looked);
    if (!stash.boundary().update.failed) continue;
    CHECK(
        says(stash.boundary().update.failed, "times have drifted, and measuring them anew takes"));
    ++said;
  }
  CHECK(said > 0);
  CHECK(said < 4);  // not at every step from then on
  CHECK(same(stash.plan(), plan));
}

TEST_CASE("a codec whose noise grows is left, and comes back when it is probed to be better") {
  Upper::seen_noise = 1e-4;
  Timed trainer{CodecList<Upper>(), 1e-4};
  EvolvingStash<> stash = evolving(trainer, 78, {}, {}, 1e-2);
  Memory arena(retained_bytes(trainer.model));
  fine(stash.bind(arena.view()));
  const auto encoded = [&] {
    int count = 0;
    for (int k = 0; k < stash.graph().node_count(); ++k)
      count += stash.plan()[k].codec() == &codec_info<Upper>;
    return count;
  };
  const int at_first = encoded();
  REQUIRE(at_first > 6);
  int changed = -1;
  for (int i = 0; i < 170; ++i) {
    CAPTURE(i);
    if (i == 45) Upper::seen_noise = 1e-3;
    fine(trainer.step(stash));
    const EvolutionUpdate& update = stash.boundary().update;
    REQUIRE_FALSE(update.failed);
    REQUIRE(stash.arena_bytes() <= stash.budget_bytes());
    if (!update.changed || changed >= 0) continue;
    changed = i;
    for (const PlanChange& change : update.changes)
      CHECK((change.reason == ChangeReason::codec_failed ||
             change.reason == ChangeReason::made_room));
    CHECK(encoded() < at_first);
  }
  CHECK(changed == 61);  // behind steps 50 and 60, which are watched
  CHECK(stash.evolution().observed_error() < 1e-2);
  const int left = encoded();

  GradientErrors errors;
  const Graph graph = *trainer.model.graph();
  for (const int k : {trainer.ids[0].a, trainer.ids[0].b})
    errors.add({graph.node(k).layer, &codec_info<Upper>, false}, 1e-6, 1);
  stash.observe_errors(errors);
  Upper::seen_noise = 1e-6;
  fine(trainer.step(stash));  // the tensors that changed may change again
  for (const PlanChange& change : stash.boundary().update.changes)
    CHECK(change.reason == ChangeReason::error_fell);
  CHECK(encoded() > left);
}

TEST_CASE(
    "a codec that goes on losing rows is left, and until then the stash says what became of them") {
  constexpr int count = 6;
  const Shape shape(16, 32);
  StashModel<> model;
  for (int id = 0; id < count; ++id) {
    model.add("x", shape, {id});
    if (id < 3) model.allow<rough::Rough>(id, 1e-4);
    model.allow<Bf16>(id, 1e-6);
  }
  auto made = EvolvingStash<>::make(
      model, *estimated_profile(model),
      {.budget_bytes = retained_bytes(model) * 7 / 10, .tolerance = 1e-2}, make_plan);
  REQUIRE_MESSAGE(made, std::string(made.error.text()));
  EvolvingStash<>& stash = *made;
  Memory arena(retained_bytes(model));
  fine(stash.bind(arena.view()));
  const auto roughly_kept = [&] {
    int kept = 0;
    for (int k = 0; k < count; ++k) kept += stash.plan()[k].codec() == &codec_info<rough::Rough>;
    return kept;
  };
  const int at_first = roughly_kept();
  REQUIRE(at_first > 0);
  std::vector<float> x(shape.elems());
  Cpu cpu;
  int changed = -1;
  for (int i = 0; i < 80; ++i) {
    CAPTURE(i);
    for (std::size_t e = 0; e < x.size(); ++e)
      x[e] =
          (0.1F * static_cast<float>(e % 17) - 0.7F) * (i >= 45 && e / 32 % 2 == 1 ? 1e-3F : 1.0F);
    fine(stash.begin(cpu));
    for (int k = 0; k < count; ++k) fine(stash.put(k, View<const float>(x.data(), shape)));
    for (int k = count; k-- > 0;) {
      fine(stash.enter(k));
      if (stash.declined(k).kept == KeptAs::exactly)
        CHECK(std::memcmp(stash.get(k)->data(), x.data(), 4 * x.size()) == 0);
      fine(stash.leave(k));
    }
    if (stash.boundary().update.changed) changed = i;
    if (changed < 0 && i >= 45)
      CHECK(stash.declined_counts().total() == static_cast<std::size_t>(at_first));
    else CHECK(stash.declined_counts().total() == 0);
  }
  CHECK(changed == 61);  // behind steps 50 and 60, which are watched
  CHECK(roughly_kept() == 0);
}

namespace {

constexpr double fast = 2e7, slow = 1e6;  ///< bytes a second

struct Away {
  Memory memory{1 << 20};
  MemoryStore store{memory.view()};
  Away() { store.hostile = true; }
  void set_rate(MadeUpClock& clock, double rate) {
    store.speed = {clock, &MadeUpClock::pass, &clock, rate, rate, 1e-6};
  }
  static LinkCost link(double rate) {
    LinkCost made;
    made.write_rate = made.read_rate = rate;
    made.latency = 1e-6;
    return made;
  }
};

}  // namespace

TEST_CASE("with a store, budgets change between steps and no bit does") {
  Timed trainer{CodecList<>()};
  trainer.a_seconds = trainer.b_seconds = 1;  // nobody would compute anything again
  Retained expected;
  EvolvingStash<> stash = evolving(trainer, 100, {}, Away::link(fast));
  const std::size_t retain = stash.arena_bytes();
  Memory arena(retain);
  Away away;
  CHECK(says(stash.bind(arena.view()), "bind() must lend one"));
  CHECK(says(stash.bind({arena.block.data() + 64, Shape(retain)}, away.store), "4096-byte"));
  fine(stash.bind(arena.view(), away.store));
  std::size_t sent = 0;
  for (const int percent : {100, 60, 40, 80, 30, 100, 35}) {
    CAPTURE(percent);
    const std::size_t budget = retain / 100 * static_cast<std::size_t>(percent);
    fine(stash.set_budget(budget));
    sent += stash.store_bytes() > 0;
    for (int i = 0; i < 2; ++i) {
      arena.fill(0x5A);
      fine(trainer.step(stash));
      REQUIRE(same(trainer.w, expected.step()));
      CHECK(arena.used(0x5A) <= budget);
    }
  }
  CHECK(sent >= 4);

  // A store that has no room for the plan leaves all as it was, and bound as it was.
  MemoryStore small(Bytes(away.memory.block.data(), Shape(stash.store_bytes())));
  fine(stash.bind(arena.view(), small));
  const Plan plan = stash.plan();
  const Error why = stash.set_budget(retain * 25 / 100);
  CHECK_MESSAGE(says(why, "which has room for"), std::string(why.text()));
  CHECK(same(stash.plan(), plan));
  CHECK(stash.budget_bytes() == retain / 100 * 35);
  fine(trainer.step(stash));
  REQUIRE(same(trainer.w, expected.step()));
}

TEST_CASE("a link that gets slower is planned for again") {
  Timed trainer{CodecList<>()};
  Retained expected;
  EvolvingStash<> stash = evolving(trainer, 60, {.clock = trainer.clock}, Away::link(fast));
  Memory arena(retained_bytes(trainer.model));
  Away away;
  away.set_rate(trainer.clock, fast);
  fine(stash.bind(arena.view(), away.store));
  const std::size_t before = stash.outcome().written_bytes;
  REQUIRE(before > 0);
  int drifted = -1;
  for (int i = 0; i < 120; ++i) {
    CAPTURE(i);
    if (i == 40) away.set_rate(trainer.clock, slow);
    fine(trainer.step(stash));
    REQUIRE(same(trainer.w, expected.step()));
    const EvolutionUpdate& update = stash.boundary().update;
    REQUIRE_MESSAGE(!update.failed, std::string(update.failed.text()));
    if (update.link_drifted) {
      CHECK(drifted == -1);
      drifted = i;
    }
    for (const PlanChange& change : update.changes)
      CHECK(change.reason == ChangeReason::link_drifted);
  }
  CHECK(drifted > 40 + 16);
  CHECK(drifted < 40 + 60);
  CHECK(stash.outcome().written_bytes < before);
  CHECK(stash.evolution().request().link.write_rate == doctest::Approx(slow).epsilon(0.2));
}

TEST_CASE("steps that are given up, and a stash that moves between two steps, change nothing") {
  Timed trainer{CodecList<>()};
  Retained expected;
  EvolvingStash<> stash = evolving(trainer, 78, {.clock = trainer.clock});
  Memory arena(retained_bytes(trainer.model));
  fine(stash.bind(arena.view()));
  for (int i = 0; i < 40; ++i) {
    fine(stash.begin(trainer.cpu));
    fine(stash.put(0, {trainer.input.data(), Shape(timed_trainer::rows, 64)}));
    EvolvingStash<> moved = std::move(stash);
    fine(trainer.step(moved));
    REQUIRE(same(trainer.w, expected.step()));
    stash = std::move(moved);
  }
}

}  // namespace evolving_stash_test
