// SPDX-License-Identifier: MIT
/// Gradients that go from stage to stage of a trainer's backward in the stash's arena: their bits are those of
/// a trainer without a stash, they take the bytes that were promised, and misuse is said in words. Random
/// trainers have some, too (random_trainer.hpp).
#include <doctest/doctest.h>

#include <adacc/core/guarded.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/estimate.hpp>
#include <adacc/stash/evolving_stash.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace carried_test {

using namespace adacc;
using testing::GuardedBlock;

namespace {

bool says(const Error& error, const char* what) {
  return std::string(error.text()).find(what) != std::string::npos;
}
void fine(const Error& error) { REQUIRE_MESSAGE(!error, std::string(error.text())); }

constexpr int layers = 6;
constexpr std::size_t size = 8 * 24;
using Values = std::vector<float>;

/// z = w h / (1 + |h|), h' = h + z^2 / 4.
struct MakeZ {
  const float* w;
  [[gnu::noinline]] void operator()(const View<const float>* h, View<float> z) const {
    for (std::size_t i = 0; i < size; ++i) z[i] = *w * h[0][i] / (1 + std::fabs(h[0][i]));
  }
};
struct MakeH {
  [[gnu::noinline]] void operator()(const View<const float>* from, View<float> h) const {
    for (std::size_t i = 0; i < size; ++i) h[i] = from[0][i] + from[1][i] * from[1][i] / 4;
  }
};
[[gnu::noinline]] void backward(const float* h, const float* z, float w, float* dz, float* dh,
                                float* dw) {
  for (std::size_t i = 0; i < size; ++i) {
    dz[i] = dh[i] * z[i] / 2;
    const float below = 1 + std::fabs(h[i]);
    *dw += dz[i] * h[i] / below;
    dh[i] += dz[i] * w / (below * below);
  }
}

/// All that a step needs is in the arena: values, gradients of a stage, and dh, which stages `layers` (the
/// loss) to 0 carry. Between stages 4 and 2 they carry a mask, as bytes.
struct Trainer {
  Values w, input = Values(size), dw = Values(layers), dx = Values(size);
  MakeZ make_z[layers];
  MakeH make_h;
  StashModel<> model;
  int h[layers + 1], z[layers], dh = -1, mask = -1;
  Cpu cpu;

  Trainer() {
    for (int l = 0; l < layers; ++l) w.push_back(0.7F + 0.1F * static_cast<float>(l));
    for (std::size_t i = 0; i < size; ++i) input[i] = std::sin(static_cast<float>(i));
    const Shape shape(8, 24);
    h[0] = model.kernel({.writes = {{"h", shape}}, .stage = 0, .hold = true});
    for (int l = 0; l < layers; ++l) {
      make_z[l].w = &w[static_cast<std::size_t>(l)];
      z[l] = model.kernel({.reads = {h[l]},
                           .writes = {{"z", shape}},
                           .backward_reads = {h[l], "z"},
                           .stage = l,
                           .backward_bytes = 4 * size,
                           .needs = {.operations = 1e5},
                           .hold = true},
                          make_z[l]);
      h[l + 1] = model.kernel({.reads = {h[l], z[l]},
                               .writes = {{"h", shape}},
                               .stage = l,
                               .needs = {.operations = 1e5},
                               .hold = true},
                              make_h);
    }
    model.kernel({.reads = {h[layers]}, .backward_reads = {h[layers]}, .stage = layers});
    dh = model.carry("dh", shape, layers, 0);
    mask = model.carry("mask", StashBytes{size + 1}, 4, 2);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  template <class AnyStash>
  Error step(AnyStash& stash) {
    dw.assign(layers, 0);
    if (const Error why = stash.begin(cpu)) return why;
    View<float> at = stash.place(h[0], {});
    std::memcpy(at.data(), input.data(), 4 * size);
    if (const Error why = stash.put(h[0], at)) return why;
    for (int l = 0; l < layers; ++l) {
      const View<float> made = stash.place(z[l], {});
      const View<const float> from[] = {at, made};
      make_z[l](from, made);
      if (const Error why = stash.put(z[l], made)) return why;
      const View<float> next = stash.place(h[l + 1], {});
      make_h(from, next);
      at = next;
      if (const Error why = stash.put(h[l + 1], at)) return why;
    }
    for (int stage = layers; stage >= 0; --stage) {
      if (const Error why = stash.enter(stage)) return why;
      const auto d = stash.carried(dh);
      if (!d) return d.error;
      if (stage == layers) {
        const auto last = stash.get(h[layers]);
        if (!last) return last.error;
        for (std::size_t i = 0; i < size; ++i) (*d)[i] = (*last)[i] - 1;
        continue;
      }
      const auto hs = stash.get(h[stage]), zs = stash.get(z[stage]);
      const auto memory = stash.backward_workspace();
      if (!hs || !zs || !memory) return hs ? zs.error : hs.error;
      if (stage == 4) {
        const auto bits = stash.carried_bytes(mask);
        if (!bits) return bits.error;
        for (std::size_t i = 0; i <= size; ++i) (*bits)[i] = std::byte(i % 3 == 0);
      }
      backward(hs->data(), zs->data(), w[static_cast<std::size_t>(stage)],
               reinterpret_cast<float*>(memory->data()), d->data(),
               &dw[static_cast<std::size_t>(stage)]);
      if (stage == 2) {
        const auto bits = stash.carried_bytes(mask);
        if (!bits) return bits.error;
        for (std::size_t i = 0; i < size; ++i)
          if ((*bits)[i] != std::byte{0}) (*d)[i] = 0;
      }
      if (stage == 0) std::memcpy(dx.data(), d->data(), 4 * size);
    }
    return stash.leave(0);
  }

  /// The same in memory of its own, without a stash.
  void step() {
    dw.assign(layers, 0);
    std::vector<Values> hs = {input}, zs;
    for (int l = 0; l < layers; ++l) {
      const auto k = static_cast<std::size_t>(l);
      zs.emplace_back(size), hs.emplace_back(size);
      const View<const float> from[] = {{hs[k].data(), Shape(8, 24)}, {zs[k].data(), Shape(8, 24)}};
      make_z[l](from, {zs[k].data(), Shape(8, 24)});
      make_h(from, {hs[k + 1].data(), Shape(8, 24)});
    }
    Values dz(size);
    for (std::size_t i = 0; i < size; ++i) dx[i] = hs[layers][i] - 1;
    for (std::size_t l = layers; l-- > 0;) {
      backward(hs[l].data(), zs[l].data(), w[l], dz.data(), dx.data(), &dw[l]);
      for (std::size_t i = 0; i < size && l == 2; i += 3) dx[i] = 0;
    }
  }
};

bool same(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

/// How many bytes of `arena` a step writes: up to the last that is not all as either pattern filled it.
template <class Step>
std::size_t used(GuardedBlock& arena, const Step& step) {
  std::size_t count = 0;
  for (const unsigned char pattern :
       {static_cast<unsigned char>(0x5A), static_cast<unsigned char>(0xA5)}) {
    arena.fill(pattern);
    step();
    for (std::size_t i = arena.size(); i-- > count;)
      if (arena.data()[i] != std::byte{pattern}) count = i + 1;
  }
  CHECK(arena.intact());
  return count;
}

}  // namespace

TEST_CASE(
    "under every budget gradients that are carried have the bits of a trainer without a stash") {
  Trainer trainer, plain;
  plain.step();
  const Graph graph = *trainer.model.graph();
  const auto profile = estimated_profile(trainer.model);
  REQUIRE_MESSAGE(profile, std::string(profile.error.text()));
  const std::size_t retain = peak_bytes(graph, retain_all(graph));
  auto stash = EvolvingStash<>::make(trainer.model, *profile, {.budget_bytes = retain}, make_plan);
  REQUIRE_MESSAGE(stash, std::string(stash.error.text()));
  GuardedBlock arena(retain);
  fine(stash->bind(arena.bytes()));
  std::size_t smallest = retain;
  int changes = 0;
  for (const std::size_t percent : {100U, 60U, 80U, 45U, 70U, 40U, 100U, 55U}) {
    CAPTURE(percent);
    if (const Error why = stash->set_budget(retain * percent / 100)) {
      CHECK(says(why, "no plan fits into a budget of"));
      continue;
    }
    changes += stash->boundary().update.changed;
    CHECK(stash->arena_bytes() <= retain * percent / 100);
    CHECK(used(arena, [&] { fine(trainer.step(*stash)); }) == stash->arena_bytes());
    CHECK(same(trainer.dx, plain.dx));
    CHECK(same(trainer.dw, plain.dw));
    if (stash->arena_bytes() < smallest) smallest = stash->arena_bytes();
  }
  CHECK(changes > 3);
  CHECK(smallest < retain * 2 / 3);
}

TEST_CASE("what is carried takes its bytes while it lives, and none before or behind") {
  constexpr auto peak = [](int first, int last, std::size_t bytes) {
    StashModel<> model;
    for (int i = 0; i < 6; ++i) model.add("h", Shape(16), {i});
    model.stage_bytes(2, 1024);
    model.stage_bytes(7, 512);
    if (bytes > 0) model.carry("dh", StashBytes{bytes}, first, last);
    const auto graph = model.graph();
    return make_program(*graph, retain_all(*graph))->peak_bytes();
  };
  // At stage 2 live three activations and the stage's own bytes; at stage 5, all activations.
  static_assert(peak(0, 0, 0) == 3 * 64 + 1024);
  static_assert(peak(5, 3, 448) == 3 * 64 + 1024);   // gone by then
  static_assert(peak(1, 0, 1088) == 3 * 64 + 1024);  // not there yet
  static_assert(peak(1, 0, 1152) == 2 * 64 + 1152);
  static_assert(peak(2, 2, 448) == 3 * 64 + 1024 + 448);
  static_assert(peak(5, 0, 448) == 3 * 64 + 1024 + 448);
  static_assert(peak(5, 4, 1024) == 6 * 64 + 1024);
  // Stages above 5 read nothing, and those that carry something are told from those that do not.
  static_assert(peak(9, 7, 1024) == 6 * 64 + 512 + 1024);
  static_assert(peak(9, 8, 1024) == 6 * 64 + 1024);
  static_assert(peak(6, 6, 1024) == 6 * 64 + 1024);
  static_assert(peak(9, 2, 1024) == 3 * 64 + 1024 + 1024);
}

TEST_CASE("other gradients that are carried make another graph, and plans of one fit no other") {
  const auto print = [](int first, int last, std::size_t bytes) {
    StashModel<> model;
    for (int i = 0; i < 6; ++i) model.add("h", Shape(16), {i});
    if (bytes > 0) model.carry("dh", StashBytes{bytes}, first, last);
    return model.graph()->fingerprint;
  };
  const Fingerprint one = print(4, 1, 64);
  CHECK(one == print(4, 1, 64));
  for (const Fingerprint& other :
       {print(0, 0, 0), print(4, 1, 65), print(5, 1, 64), print(4, 0, 64)})
    CHECK_FALSE(one == other);
}

TEST_CASE("a stash says when what is carried is there") {
  Trainer trainer;
  auto stash = Stash<>::make(trainer.model, retain_all(*trainer.model.graph()));
  REQUIRE(stash);
  GuardedBlock arena(stash->arena_bytes());
  fine(stash->bind(arena.bytes()));
  const auto refused = [&](int id, const char* what) {
    CHECK_MESSAGE(says(stash->carried(id).error, what), stash->carried(id).error.text());
    CHECK_MESSAGE(says(stash->carried_bytes(id).error, what), stash->carried(id).error.text());
  };
  const int dh = trainer.dh, mask = trainer.mask;
  refused(dh, "carried gradient 0 before begin()");
  fine(trainer.step(*stash));
  refused(dh, "carried gradient 0 (dh) is gone: backward stage 0, which is over, was the last");
  fine(stash->begin(trainer.cpu));
  refused(dh, "carried gradient 0 (dh) begins with backward stage 6, and none was entered");
  const Values zeros(size);
  for (int id = 0; id < trainer.model.activation_count(); ++id)
    fine(stash->put(id, {zeros.data(), Shape(8, 24)}));
  fine(stash->enter(6));
  refused(2, "there is no carried gradient 2: the model has 0 to 1");
  refused(-1, "no carried gradient -1");
  refused(
      mask,
      "carried gradient 1 (mask) begins with backward stage 4, and that is yet to come: enter(4)");
  const auto first = stash->carried(dh);
  REQUIRE(first);
  CHECK(first->shape() == Shape(8, 24));
  fine(stash->leave(6));
  CHECK(stash->carried(dh)->data() == first->data());  // between two stages, too
  fine(stash->enter(3));                               // stages may be left out
  CHECK(stash->carried(dh)->data() == first->data());
  CHECK(says(stash->carried(mask).error,
             "carried gradient 1 (mask) was registered as bytes: carried_bytes()"));
  REQUIRE(stash->carried_bytes(mask));
  CHECK(stash->carried_bytes(mask)->size() == size + 1);
  CHECK(stash->carried_bytes(dh)->size() == 4 * size);
  fine(stash->enter(2));
  fine(stash->leave(2));
  refused(mask, "carried gradient 1 (mask) is gone: backward stage 2");
  fine(stash->enter(1));
  refused(mask, "is gone");
  fine(stash->end());
  refused(dh, "before begin()");

  StashModel<> none;
  none.add("a", Shape(16), {0});
  auto other = Stash<>::make(none, retain_all(*none.graph()));
  fine(other->bind(arena.bytes()));
  fine(other->begin(trainer.cpu));
  CHECK(says(other->carried(0).error, "there is no carried gradient 0: the model has none"));
}

TEST_CASE("what is carried is filled when it is gone, if that is asked for") {
  for (const bool poison : {false, true})
    for (const bool leaves : {false, true}) {
      Trainer trainer;
      auto stash = Stash<>::make(trainer.model, retain_all(*trainer.model.graph()));
      REQUIRE(stash);
      stash->poison_dead(poison);
      GuardedBlock arena(stash->arena_bytes());
      fine(stash->bind(arena.bytes()));
      fine(stash->begin(trainer.cpu));
      const Values zeros(size);
      for (int id = 0; id < trainer.model.activation_count(); ++id)
        fine(stash->put(id, {zeros.data(), Shape(8, 24)}));
      fine(stash->enter(4));
      const Bytes mask = *stash->carried_bytes(trainer.mask),
                  dh = *stash->carried_bytes(trainer.dh);
      std::memset(mask.data(), 1, mask.size());
      std::memset(dh.data(), 2, dh.size());
      fine(stash->enter(2));
      CHECK(mask[size] == std::byte{1});
      if (leaves) fine(stash->leave(2));
      else fine(stash->enter(1));
      CHECK((mask[size] == std::byte{0xFF}) == poison);
      CHECK(dh[4 * size - 1] == std::byte{2});
      fine(stash->enter(0));
      CHECK(dh[4 * size - 1] == std::byte{2});
      if (leaves) fine(stash->leave(0));
      else fine(stash->end());
      CHECK((dh[4 * size - 1] == std::byte{0xFF}) == poison);
    }
}

TEST_CASE("gradients that cannot be carried are refused by the model") {
  const auto refused = [](auto&& carry, const char* what) {
    StashModel<> model;
    model.add("a", Shape(16), {0});
    carry(model);
    CHECK_MESSAGE(says(model.graph().error, what), model.graph().error.text());
  };
  using Model = StashModel<>;
  refused(
      [](Model& m) { m.carry("dh", Shape(4), 0, 3); },
      "the gradient that stages carry as dh goes from stage 0 to stage 3, and backward runs from "
      "the highest number to the lowest: its first stage is the higher one");
  refused([](Model& m) { m.carry("dh", Shape(4), 2, -1); }, "stage -1: one of them is negative");
  refused([](Model& m) { m.carry("dh", Shape(4), -2, -1); }, "stage -2 to");
  refused([](Model& m) { m.carry("dh", Shape(4), 1 << 20, 0); }, "a million and more");
  refused([](Model& m) { m.carry("dh", Shape(0, 4), 1, 0); }, "as dh has no elements");
  refused([](Model& m) { m.carry("dh", StashBytes{0}, 1, 0); }, "no elements");
  refused([](Model& m) { m.carry("dh", StashBytes{~std::size_t{0}}, 1, 0); },
          "too many to address");

  // Graphs that somebody else makes.
  Graph graph = *Trainer().model.graph();
  const int stage = graph.node_count() - 1;
  for (const auto& [begun, complete] :
       {std::pair{stage - 1, stage}, {0, 0}, {stage + 1, stage}, {stage, -1}}) {
    graph.gradients[0].begun = begun, graph.gradients[0].complete = complete;
    CHECK(says(examine(graph), "which have to be stages of backward"));
  }
}

}  // namespace carried_test
