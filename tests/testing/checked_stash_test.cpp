// SPDX-License-Identifier: MIT
/// A stash that looks at how it is used finds every way to use it wrongly, and nothing else.
#include <doctest/doctest.h>

#include <adacc/codec/bf16.hpp>
#include <adacc/stash/check.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../stash/residual_trainer.hpp"

namespace checked_stash_test {

using namespace adacc;
using testing::check_stash;
using testing::CheckedStash;

namespace {

bool says(const Error& error, const char* what) {
  return std::string(error.text()).find(what) != std::string::npos;
}

constexpr std::size_t size = 48;

/// What one of these trainers does wrong.
enum class Wrong {
  nothing,
  captures_scratch,  ///< reads the row that forward uses for every layer
  forgets_source,    ///< reads an activation through the place that forward was given
  adds_to_output,    ///< counts on zeros
  leaves_some,       ///< does not write the last element
  other_arithmetic,  ///< (x w) + b in another order
  writes_source,
  writes_beyond_output,
  writes_beyond_workspace,
  reads_workspace,
  updates_too_early,  ///< parameters of a layer, before the one below is made again
  writes_given,       ///< backward overwrites what it got
  writes_late,        ///< the same, a stage later
  reads_late,         ///< reads what an earlier stage got
  writes_beyond_place,
  writes_placed,  ///< the place of what was put
  random_step,    ///< gradients of another value every time
  never_begins,
  puts_half,    ///< of its activations
  no_backward,  ///< puts them all
  leaves_out_stage,
};

/// Layers h[l + 1] = tanh(w[l] h[l] + b[l]), element by element, on one row of memory.
struct Chain {
  static constexpr int layers = 4;
  struct Layer {
    Chain* chain = nullptr;
    int l = 0;
    void operator()(const View<const float>* x, View<float> y, Bytes workspace) const {
      chain->again(l, x[0], y, workspace);
    }
  };

  Wrong wrong;
  StashModel<> model;
  int ids[layers] = {};
  Layer callables[layers];
  alignas(64) float w[layers] = {}, b[layers] = {}, dw[layers] = {}, db[layers] = {};
  alignas(64) float input[size] = {}, rows[2][size] = {}, dy[size] = {};  ///< h[l] in rows[l % 2]
  const float* placed[layers] = {};
  int steps = 0;
  Cpu cpu;

  explicit Chain(Wrong what) : wrong(what) {
    for (int l = 0; l < layers; ++l) w[l] = 1.25F - 0.125F * static_cast<float>(l), b[l] = 0.3F;
    for (std::size_t i = 0; i < size; ++i) input[i] = 0.01F * static_cast<float>(i) - 0.2F;
    for (int l = 0; l < layers; ++l) {
      // h[l] is what layer l reads; the last layer's output goes to the loss alone.
      ids[l] = model.add("h", Shape(size), {l});
      callables[l] = {this, l};
      if (l > 0)
        model.recompute(ids[l], {ids[l - 1]}, callables[l],
                        {.workspace_bytes = size * sizeof(float)});
      model.allow<Bf16>(ids[l], 1e-6);
    }
  }

  [[gnu::noinline]] void forward(int l, const float* x, float* y) const {
    for (std::size_t i = 0; i < size; ++i) y[i] = std::tanh(w[l] * x[i] + b[l]);
  }

  void again(int l, View<const float> x, View<float> y, Bytes workspace) {
    const int layer = l - 1;
    auto* scratch = reinterpret_cast<float*>(workspace.data());
    switch (wrong) {
      case Wrong::captures_scratch: return forward(layer, rows[layer % 2], y.data());
      case Wrong::forgets_source: return forward(layer, placed[layer], y.data());
      case Wrong::adds_to_output:
        forward(layer, x.data(), scratch);
        for (std::size_t i = 0; i < size; ++i) y[i] += scratch[i];
        return;
      case Wrong::leaves_some:
        forward(layer, x.data(), scratch);
        std::memcpy(y.data(), scratch, (size - 1) * sizeof(float));
        return;
      case Wrong::other_arithmetic:
        for (std::size_t i = 0; i < size; ++i)
          y[i] = std::tanh((x[i] + b[layer] / w[layer]) * w[layer]);
        return;
      case Wrong::writes_source:
        forward(layer, x.data(), y.data());
        const_cast<float*>(x.data())[3] = 0;
        return;
      case Wrong::writes_beyond_output:
        forward(layer, x.data(), y.data());
        y.data()[size] = 0;
        return;
      case Wrong::writes_beyond_workspace:
        forward(layer, x.data(), y.data());
        workspace.data()[workspace.size()] = std::byte{0};
        return;
      case Wrong::reads_workspace:
        forward(layer, x.data(), y.data());
        if (workspace.data()[0] != std::byte{0xFF}) y[7] = 1;
        return;
      default: return forward(layer, x.data(), y.data());
    }
  }

  template <class AnyStash>
  Result<Array<View<const float>>> step(AnyStash& stash) {
    ++steps;
    if (wrong == Wrong::never_begins) return gradients();
    if (const Error why = stash.begin(cpu)) return why;
    const float kept_w[layers] = {w[0], w[1], w[2], w[3]};
    std::memset(dw, 0, sizeof dw), std::memset(db, 0, sizeof db);
    std::memcpy(rows[0], input, sizeof input);
    for (int l = 0; l < layers; ++l) {
      if (wrong == Wrong::puts_half && l == layers / 2) return gradients();
      float* h = rows[l % 2];
      const View<float> place = stash.place(ids[l], {h, Shape(size)});
      placed[l] = place.data();
      if (place.data() != h) std::memcpy(place.data(), h, sizeof input);
      if (wrong == Wrong::writes_beyond_place && l == 2) place.data()[size] = 1;
      if (const Error why = stash.put(ids[l], place)) return why;
      if (wrong == Wrong::writes_placed && l == 2) place.data()[0] = 1;
      forward(l, h, rows[1 - l % 2]);
    }
    for (std::size_t i = 0; i < size; ++i)
      dy[i] = rows[layers % 2][i] - 0.5F +
              (wrong == Wrong::random_step ? static_cast<float>(steps) : 0);
    const float* before = nullptr;
    if (wrong == Wrong::no_backward) return gradients();
    for (int l = layers - 1; l >= 0; --l) {
      if (wrong == Wrong::leaves_out_stage && l == 1) continue;
      if (const Error why = stash.enter(l)) return why;
      const Result<View<const float>> got = stash.get(ids[l]);
      if (!got) return got.error;
      const float* x = wrong == Wrong::reads_late && before != nullptr ? before : got->data();
      if (wrong == Wrong::writes_late && l == 1) const_cast<float*>(before)[2] = 1;
      before = got->data();
      for (std::size_t i = 0; i < size; ++i) {
        const float y = std::tanh(w[l] * x[i] + b[l]), dz = dy[i] * (1 - y * y);
        dw[l] += dz * x[i];
        db[l] += dz;
        dy[i] = dz * w[l];
      }
      if (wrong == Wrong::writes_given && l == 1) const_cast<float*>(got->data())[5] = 7;
      // Layer l - 1 made h[l]: what recomputes it needs w[l - 1] until stage l has begun.
      if (wrong == Wrong::updates_too_early && l > 1) w[l - 2] -= 0.1F;
    }
    std::memcpy(w, kept_w, sizeof w);
    return gradients();
  }

  Array<View<const float>> gradients() const {
    Array<View<const float>> all;
    all.push_back({dw, Shape(layers)});
    all.push_back({db, Shape(layers)});
    return all;
  }
};

Error checked(Wrong wrong) {
  Chain chain(wrong);
  return check_stash(chain.model, [&](auto& stash) { return chain.step(stash); });
}

}  // namespace

TEST_CASE("steps whose gradients alone are compared tell mistakes, and name the kernel") {
  const auto compared = [](Wrong wrong) {
    Chain chain(wrong);
    testing::GuardedBlock memory(4096);
    return testing::compare_steps(chain.model, chain.cpu, memory.bytes(),
                                  [&](Stash<>& stash) { return chain.step(stash); });
  };
  CHECK_MESSAGE(!compared(Wrong::nothing), std::string(compared(Wrong::nothing).text()));
  for (const Wrong wrong : {Wrong::adds_to_output, Wrong::leaves_some, Wrong::other_arithmetic})
    CHECK_MESSAGE(says(compared(wrong), "recomputing h ("), static_cast<int>(wrong));
  // Another order of operations may change no bit of the first layers.
  CHECK(says(compared(Wrong::leaves_some), "recomputing h (2 of 4) changes the gradients"));
  CHECK(says(compared(Wrong::reads_late), "depend on old contents of memory"));
  CHECK(says(compared(Wrong::random_step), "two steps under one plan"));
}

TEST_CASE("a trainer that does nothing wrong passes, whatever the plan") {
  CHECK_MESSAGE(!checked(Wrong::nothing), std::string(checked(Wrong::nothing).text()));
  residual_trainer::Trainer trainer(
      3, [](StashModel<>& model, int id) { model.allow<Int8Outlier>(id); });
  const auto step = [&](auto& stash) { return trainer.step(stash); };
  const Error why = check_stash(trainer.model, step);
  CHECK_MESSAGE(!why, std::string(why.text()));

  // Lossy plans, the gradients of the stash itself, and one step after the other.
  const Graph graph = *trainer.model.graph();
  Plan plan = retain_all(graph);
  for (int k = 0; k < trainer.model.activation_count(); ++k)
    plan.policies[static_cast<std::size_t>(k)] =
        k % 6 == 0 ? compress(&codec_info<Int8Outlier>) : recompute();
  auto stash = CheckedStash<>::make(trainer.model, plan);
  REQUIRE_MESSAGE(stash, stash.error.text());
  testing::GuardedBlock arena(stash->arena_bytes());
  REQUIRE_FALSE(stash->bind(arena.bytes()));
  const std::vector<float> expected = trainer.gradient(plan);
  for (int i = 0; i < 2; ++i) {
    const auto made = trainer.step(*stash);
    REQUIRE_MESSAGE(made, made.error.text());
    CHECK(std::memcmp((*made)[0].data(), expected.data(), 4 * (*made)[0].size()) == 0);
  }
  CHECK_FALSE(stash->end());
  CHECK(arena.intact());
}

TEST_CASE("whatever a trainer or a callable does wrong is said") {
  const auto finds = [](Wrong wrong, const char* what) {
    CAPTURE(std::string(what));
    const Error why = checked(wrong);
    CHECK_MESSAGE(says(why, what), std::string(why.text()));
  };
  finds(Wrong::captures_scratch, "h (4 of 4), once forward is over");
  finds(Wrong::forgets_source, "once forward is over");
  finds(Wrong::adds_to_output, "other bits than forward in byte 0 of h (2 of 4), right after");
  finds(Wrong::leaves_some, "in byte 188 of h (2 of 4), right after forward");
  finds(Wrong::other_arithmetic, "another arithmetic");
  finds(Wrong::writes_source, "recomputing h (2 of 4) writes to h (1 of 4)");
  finds(Wrong::writes_beyond_output, "writes beyond h (2 of 4), which has 192 bytes");
  finds(Wrong::writes_beyond_workspace, "beyond its workspace of 192 bytes");
  finds(Wrong::reads_workspace, "depends on what its memory held before");
  finds(Wrong::updates_too_early, "at the last stage that may want it");
  finds(Wrong::writes_given, "backward stage 1 wrote to h (2 of 4)");
  finds(Wrong::writes_late, "h (3 of 4) was written to after the stage");
  finds(Wrong::writes_beyond_place, "beyond the place of h (3 of 4)");
  finds(Wrong::writes_placed, "place of h (3 of 4) after it was put");
  finds(Wrong::random_step, "two steps under one plan");
  finds(Wrong::reads_late, "the gradients are not finite");
  finds(Wrong::never_begins, "never called begin()");
  finds(Wrong::puts_half, "never put h (3 of 4)");
  finds(Wrong::no_backward, "never entered backward stage 3, which reads h (4 of 4)");
  finds(Wrong::leaves_out_stage, "never entered backward stage 1, which reads h (2 of 4)");
}

namespace {

/// x, of which only y is made, and y, which stage 0 reads and needs 100 bytes for; both held.
struct Held {
  StashModel<> model;
  int x = model.add("x", Shape(16, 32), {}), y = model.add("y", Shape(16, 32), {0});
  Cpu cpu;

  Held() {
    model.hold(x), model.hold(y);
    model.made_from(y, {x});
    model.stage_bytes(0, 100);
    model.allow<Bf16>(y, 1e-6);
  }
  Plan plan() const {
    Plan plan = retain_all(*model.graph());
    plan.policies[static_cast<std::size_t>(y)] = compress(&codec_info<Bf16>);
    return plan;
  }
  /// Where x was, once y is made from it.
  template <class AnyStash>
  const float* forward(AnyStash& stash) {
    REQUIRE_FALSE(stash.begin(cpu));
    const View<float> at_x = stash.place(x, View<float>());
    REQUIRE(at_x.data() != nullptr);
    for (float& value : at_x) value = 1;
    REQUIRE_FALSE(stash.put(x, at_x));
    const View<float> at_y = stash.place(y, View<float>());
    REQUIRE(at_y.data() != nullptr);
    for (std::size_t i = 0; i < at_x.size(); ++i) at_y[i] = 2 * at_x[i];
    REQUIRE_FALSE(stash.put(y, at_y));
    return at_x.data();
  }
};

}  // namespace

TEST_CASE("what is held and what a stage has for itself are looked at, too") {
  Held held;
  auto stash = CheckedStash<>::make(held.model, held.plan());
  REQUIRE_MESSAGE(stash, std::string(stash.error.text()));
  testing::GuardedBlock arena(stash->arena_bytes());
  REQUIRE_FALSE(stash->bind(arena.bytes()));
  const float* x = held.forward(*stash);
  CHECK(std::isnan(x[0]));
  REQUIRE_FALSE(stash->enter(0));
  const Result<View<const float>> y = stash->get(held.y);
  REQUIRE(y);
  CHECK((*y)[7] == 2);
  const Result<Bytes> memory = stash->backward_workspace();
  REQUIRE(memory);
  REQUIRE(memory->size() == 100);
  std::memset(memory->data(), 1, 100);
  REQUIRE_FALSE(stash->leave(0));
  CHECK(std::isnan((*y)[7]));
  CHECK(memory->data()[5] == std::byte{0xFF});
  CHECK(says(stash->backward_workspace().error, "no backward stage is on"));

  held.forward(*stash);
  REQUIRE_FALSE(stash->enter(0));
  stash->backward_workspace()->data()[100] = std::byte{1};
  CHECK(says(stash->leave(0), "beyond the memory that it was said to need"));
}

TEST_CASE("what stages carry is looked at from the first of them to the last") {
  StashModel<> model;
  const int x = model.add("x", Shape(16), {3, 2, 1, 0});
  const int d = model.carry("d", Shape(5), 2, 1), bits = model.carry("bits", StashBytes{7}, 3, 0);
  auto stash = CheckedStash<>::make(model, retain_all(*model.graph()));
  REQUIRE_MESSAGE(stash, std::string(stash.error.text()));
  testing::GuardedBlock arena(stash->arena_bytes());
  REQUIRE_FALSE(stash->bind(arena.bytes()));
  const std::vector<float> ones(16, 1.0F);
  Cpu cpu;
  const auto forward = [&] {
    const Error why = stash->begin(cpu);
    REQUIRE_MESSAGE(!why, std::string(why.text()));
    REQUIRE_FALSE(stash->put(x, {ones.data(), Shape(16)}));
  };
  // As it should be used.
  forward();
  REQUIRE_FALSE(stash->enter(3));
  CHECK(says(stash->carried(d).error, "enter(2) is the first"));
  const Result<Bytes> seen = stash->carried_bytes(bits);
  REQUIRE(seen);
  CHECK(seen->size() == 7);
  CHECK(seen->data()[6] == std::byte{0xFF});  // nobody wrote to it yet
  std::memset(seen->data(), 3, 7);
  REQUIRE_FALSE(stash->enter(2));
  const Result<View<float>> at = stash->carried(d);
  REQUIRE(at);
  CHECK(std::isnan((*at)[4]));
  for (float& value : *at) value = 2;
  REQUIRE_FALSE(stash->leave(2));
  REQUIRE_FALSE(stash->enter(1));
  CHECK(stash->carried(d)->data() == at->data());
  CHECK((*at)[4] == 2);
  REQUIRE_FALSE(stash->enter(0));
  CHECK(std::isnan((*at)[4]));
  CHECK(says(stash->carried(d).error, "is gone"));
  CHECK(seen->data()[6] == std::byte{3});
  REQUIRE_FALSE(stash->leave(0));
  CHECK(seen->data()[6] == std::byte{0xFF});

  // As it should not.
  const auto to_stage = [&](int last) {
    forward();
    for (int stage = 3; stage >= last; --stage) {
      REQUIRE_FALSE(stash->enter(stage));
      if (stage == 2) REQUIRE(stash->carried(d));
    }
  };
  to_stage(0);
  at->data()[0] = 1;
  CHECK(says(stash->leave(0),
             "d, which backward stages 2 to 1 carry, was written to after the last"));
  forward();
  at->data()[4] = 1;  // where it was in the step before
  CHECK(says(stash->enter(3),
             "d, which backward stages 2 to 1 carry, was written to after the last"));
  to_stage(2);
  stash->carried(d)->data()[5] = 1;
  CHECK(says(stash->enter(1),
             "backward wrote beyond d, which its stages 2 to 1 carry, and which has 20"));
  to_stage(0);
  CHECK_FALSE(stash->end());
}

TEST_CASE("a stash fills what has died if it is asked to") {
  for (const bool poison : {false, true}) {
    Held held;
    auto stash = Stash<>::make(held.model, held.plan());
    REQUIRE(stash);
    stash->poison_dead(poison);
    testing::GuardedBlock arena(stash->arena_bytes());
    REQUIRE_FALSE(stash->bind(arena.bytes()));
    const float* x = held.forward(*stash);
    CHECK((std::isnan(x[0]) || std::isnan(x[511])) == poison);  // a blob may be in one place
    REQUIRE_FALSE(stash->enter(0));
    const Result<View<const float>> y = stash->get(held.y);
    REQUIRE(y);
    CHECK((*y)[0] == 2);
    const Result<Bytes> memory = stash->backward_workspace();
    REQUIRE(memory);
    std::memset(memory->data(), 1, memory->size());
    CHECK((*y)[0] == 2);
    CHECK(says(stash->leave(1), "stage 0 is on"));
    REQUIRE_FALSE(stash->leave(0));
    CHECK(std::isnan((*y)[0]) == poison);
    CHECK((memory->data()[99] == std::byte{0xFF}) == poison);
    CHECK(says(stash->get(held.y).error, "none of the backward stages that are left"));
    CHECK(says(stash->enter(0), "over already"));
    CHECK(arena.intact());
  }
}

TEST_CASE("what a stage got turns to NaN when the next begins") {
  Chain chain(Wrong::reads_late);
  auto stash = CheckedStash<>::make(chain.model, retain_all(*chain.model.graph()));
  REQUIRE(stash);
  testing::GuardedBlock arena(stash->arena_bytes());
  REQUIRE_FALSE(stash->bind(arena.bytes()));
  const auto made = chain.step(*stash);
  REQUIRE_MESSAGE(made, made.error.text());
  CHECK(std::isfinite((*made)[0][3]));
  for (std::size_t l = 0; l < 3; ++l) CHECK(std::isnan((*made)[0][l]));
}

TEST_CASE("uses out of order are said as by the stash itself") {
  Chain chain(Wrong::nothing);
  auto stash = CheckedStash<>::make(chain.model, retain_all(*chain.model.graph()));
  REQUIRE(stash);
  CHECK(says(stash->begin(chain.cpu), "bind()"));
  testing::GuardedBlock arena(stash->arena_bytes());
  CHECK(says(stash->bind({arena.data(), Shape(8)}), "needs an arena"));
  REQUIRE_FALSE(stash->bind(arena.bytes()));
  REQUIRE_FALSE(stash->begin(chain.cpu));
  const View<const float> x(chain.input, Shape(size));
  CHECK(says(stash->put(1, x), "before h (1 of 4)"));
  CHECK(says(stash->put(9, x), "activations 0 to 3"));
  CHECK(says(stash->enter(3), "forward is not over"));
  CHECK(says(stash->get(0).error, "no backward stage is on"));
  CHECK(says(CheckedStash<>::make(chain.model, Plan{}).error, "0 policies"));
}

}  // namespace checked_stash_test
