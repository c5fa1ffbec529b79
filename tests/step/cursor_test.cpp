// SPDX-License-Identifier: MIT
// A step in slices has the bits of a whole one, and the cursor keeps to the time it is given.
#include <doctest/doctest.h>

#include <cmath>

#include "step_run.hpp"

namespace cursor_test {

using namespace adacc;
using namespace step_run;

namespace {

std::size_t total_parts(const Step<>& step) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < step.instruction_count(); ++i) sum += step.parts(i);
  return sum;
}

/// Runs the step in slices of `count` parts, as draw() says each time.
template <class Draw>
auto in_slices(const Draw& draw) {
  return [&draw](Step<>& step, Cpu& cpu, View<const float> input,
                 View<const float> targets) -> Result<double> {
    auto cursor = Cursor<>::make(step);
    if (!cursor) return cursor.error;
    if (const Error why = cursor->begin(input, targets)) return why;
    std::size_t parts = 0;
    for (;;) {
      const auto slice = cursor->run(cpu, draw());
      if (!slice) return slice.error;
      parts += slice->parts;
      CHECK(slice->ended == !cursor->active());
      if (slice->ended) break;
    }
    CHECK(parts == total_parts(step));
    return cursor->loss();
  };
}

/// A clock that goes on by what each part is said to take, and by nothing else.
struct Clock {
  std::int64_t time = 0;
  std::int64_t per_part = 0;
  bool started = false;
  std::int64_t operator()() {
    if (started) time += per_part;
    started = true;
    return time;
  }
  /// The next slice: the time between is not ours.
  void pause(std::int64_t until) {
    started = false;
    time = until;
  }
};

/// A bound step of a small network with eight parts for each of its layers.
struct Bound {
  using Net = Network<Sequential<Layer<random_model::Shift>, Layer<random_model::Bump>,
                                 Layer<random_model::Softsign>>,
                      random_model::HalfSquare>;
  Net net;
  Step<> step;
  Aligned arena{1 << 20}, params{1 << 16}, gradients{1 << 16}, x{1 << 16}, y{1 << 16};
  Cpu cpu;

  Bound() {
    auto program = make_program(net, Shape(64, 16), {.parts = 8});
    REQUIRE_MESSAGE(program, program.error.text());
    auto made = Step<>::make(net, *program);
    REQUIRE_MESSAGE(made, made.error.text());
    step = std::move(*made);
    for (Aligned* block : {&arena, &params, &gradients, &x, &y})
      std::memset(block->data, 0, block->size);
    for (std::size_t i = 0; i < 1024; ++i) floats(x)[i] = 0.001F * static_cast<float>(i);
    REQUIRE_FALSE(bind());
  }
  static float* floats(Aligned& block) { return reinterpret_cast<float*>(block.data); }
  Error bind() {
    const Shape elems(step.graph().parameter_elems);
    return step.bind({arena.data, Shape(step.arena_bytes())}, {floats(params), elems},
                     {floats(gradients), elems});
  }
  View<const float> input() { return {floats(x), Shape(64, 16)}; }
  View<const float> targets() { return {floats(y), Shape(64, 16)}; }
};

bool says(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("random networks in slices, however cut, give the bits of the whole step") {
  std::size_t cut = 0;
  for (unsigned seed = 3000; seed < 3120; ++seed) {
    CAPTURE(seed);
    const auto network = random_model::draw(seed, seed % 3 == 0);
    const Shape shape(5 + seed % 60, 2 * (1 + seed % 7));
    const int workers = 1 + static_cast<int>(seed % 2), parts = 1 + static_cast<int>(seed % 7);
    const Outcome whole = run_step(network, shape, workers, parts, 0x5A);
    std::mt19937 random(seed);
    const auto some = [&] { return std::size_t{random() % 5}; };  // a slice may be empty
    const auto one = [] { return std::size_t{1}; };
    CHECK(same_bits(whole, run_step(network, shape, workers, parts, 0x5A, in_slices(some))));
    CHECK(same_bits(whole, run_step(network, shape, workers, parts, 0x5A, in_slices(one))));

    // The layers are cut right: they add up to what they give uncut, but for rounding.
    const Outcome uncut = run_step(network, shape, workers, 1, 0x5A);
    CHECK(whole.loss == doctest::Approx(uncut.loss).epsilon(1e-5));
    double scale = 1e-3, worst = 0;
    for (std::size_t i = 0; i < uncut.gradients.size(); ++i) {
      scale = std::fmax(scale, std::fabs(static_cast<double>(uncut.gradients[i])));
      worst =
          std::fmax(worst, std::fabs(static_cast<double>(whole.gradients[i] - uncut.gradients[i])));
    }
    CHECK(worst <= 1e-4 * scale);
    const auto program = make_program(network, shape, {.workers = workers, .parts = parts});
    for (const Instruction& inst : program->schedule.instructions) cut += inst.parts > 1;
  }
  CHECK(cut > 500);
}

TEST_CASE("the cut follows from the shapes: equal parts, aligned, as many as wanted at most") {
  const Bound bound;
  for (std::size_t i = 0; i < bound.step.instruction_count(); ++i) CHECK(bound.step.parts(i) == 8);
  for (const std::size_t items : std::vector<std::size_t>{1, 2, 9, 63, 64, 1000})
    for (const std::size_t parts : std::vector<std::size_t>{1, 2, 3, 10, 64})
      for (const std::size_t bytes : std::vector<std::size_t>{4, 12, 64, 100, 256}) {
        const Cut cut = make_cut(Split::rows, items, parts, bytes, 64);
        CHECK(cut.parts() <= parts);
        std::size_t covered = 0;
        for (std::size_t p = 0; p < cut.parts(); ++p) {
          CHECK(cut.first(p) == covered);
          CHECK(cut.first(p) * bytes % alignment == 0);
          CHECK(cut.count(p) > 0);
          covered += cut.count(p);
        }
        CHECK(covered == items);
        if (bytes != 64 || items < parts) continue;
        const std::size_t equal = div_up(items, parts);
        const bool together = parts > 1 && items / parts >= summed_rows;
        CHECK(cut.part_items == (together ? div_up(equal, summed_rows) * summed_rows : equal));
      }
}

TEST_CASE("a slice starts no part whose longest time would pass the deadline") {
  Bound bound;
  auto made = Cursor<>::make(bound.step);
  REQUIRE(made);
  Cursor<>& cursor = *made;
  REQUIRE_FALSE(cursor.begin(bound.input(), bound.targets()));
  Clock clock;
  clock.per_part = 100;
  // Unknown parts start whenever there is time left: 250 ticks hold three, and a third overruns.
  auto slice = cursor.run_until(bound.cpu, clock, 250);
  REQUIRE(slice);
  CHECK(slice->parts == 2);  // the second and third part are of a known instruction
  CHECK(slice->longest == 100);
  CHECK(clock.time == 200);
  // Known parts only, from here to the end of the instruction: no slice passes its deadline.
  std::size_t parts = 2;
  const std::size_t total = total_parts(bound.step);
  std::int64_t now = 1000, overrun = 0;
  for (int i = 0; i < 200 && cursor.active(); ++i, now += 1000) {
    clock.pause(now);
    const std::size_t before = cursor.instruction();
    const bool known = cursor.longest(before) != 0;
    slice = cursor.run_until(bound.cpu, clock, now + 330);
    REQUIRE(slice);
    parts += slice->parts;
    if (clock.time > now + 330) ++overrun;
    if (known) CHECK(slice->parts >= 1);
  }
  CHECK(parts == total);
  // Only a part that never ran may overrun, and each instruction has one such.
  CHECK(overrun <= static_cast<std::int64_t>(bound.step.instruction_count()));

  // In the second step all times are known.
  REQUIRE_FALSE(cursor.begin(bound.input(), bound.targets()));
  std::size_t slices = 0;
  for (; cursor.active(); now += 1000, ++slices) {
    clock.pause(now);
    slice = cursor.run_until(bound.cpu, clock, now + 330);
    REQUIRE(slice);
    CHECK(clock.time <= now + 330);
    CHECK((slice->parts == 3 || slice->ended));
  }
  CHECK(slices == (total + 2) / 3);
}

TEST_CASE("a part that once took too long stalls the slice until it is forgotten or given time") {
  Bound bound;
  auto cursor = Cursor<>::make(bound.step);
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  Clock clock;
  clock.per_part = 5000;  // the system was busy
  auto slice = cursor->run_until(bound.cpu, clock, 10);
  CHECK(slice->parts == 1);
  CHECK_FALSE(slice->stalled);
  clock.per_part = 1;
  clock.pause(6000);
  slice = cursor->run_until(bound.cpu, clock, 7000);
  CHECK(slice->parts == 0);
  CHECK(slice->stalled);
  CHECK(slice->longest == 5000);
  clock.pause(6000);
  slice = cursor->run_until(bound.cpu, clock, 6000);
  CHECK(slice->parts == 0);
  CHECK_FALSE(slice->stalled);  // no time at all is no stall
  clock.pause(6000);
  slice = cursor->run_until(bound.cpu, clock, 6000 + 6000);
  CHECK(slice->ended);  // enough for it, and the others are short
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  clock.pause(0);
  CHECK(cursor->run_until(bound.cpu, clock, 1000)->stalled);
  cursor->forget();
  clock.pause(0);
  CHECK(cursor->run_until(bound.cpu, clock, 1000)->ended);
}

TEST_CASE("a cursor that was held up once recovers by itself") {
  Bound bound;
  auto cursor = Cursor<>::make(bound.step);
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  Clock clock;
  clock.per_part = 100;
  REQUIRE(cursor->run_until(bound.cpu, clock, 1000000)->ended);
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  std::int64_t now = clock.time + 1000, held_up = 0;
  const auto slice = [&](std::int64_t ticks) {
    const std::int64_t begun = now;
    clock.pause(now);
    const auto ran = cursor->run_until(bound.cpu, clock, now + ticks);
    REQUIRE(ran);
    now = clock.time + 1000;
    if (clock.time > begun + ticks) ++held_up;
    return *ran;
  };
  clock.per_part = 10000;  // ten slices: the system was busy
  CHECK(slice(1000).parts == 1);
  clock.per_part = 100;
  int stalls = 0;
  for (std::int64_t known = 10000; stalls < 100 && slice(1000).stalled; ++stalls) {
    CHECK(cursor->longest(0) < known);
    known = cursor->longest(0);
  }
  CHECK(stalls >= 60);
  CHECK(stalls <= 73);
  REQUIRE(cursor->longest(0) <= 1000);
  while (cursor->active()) CHECK_FALSE(slice(1000).stalled);
  // Steps later all is as if nothing had been: each slice has as many parts as there is time for.
  for (int step = 0; step < 12; ++step) {
    REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
    while (cursor->active()) CHECK(slice(1000).parts > 0);
  }
  CHECK(cursor->longest(0) == 100);
  CHECK(held_up == 1);
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  while (cursor->active()) {
    const Slice ran = slice(1000);
    CHECK((ran.parts == 10 || ran.ended));
  }
}

TEST_CASE("a part that is longer than its slices passes a deadline seldom, and the step goes on") {
  Bound bound;
  auto cursor = Cursor<>::make(bound.step);
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  Clock clock;
  clock.per_part = 2000;
  int slices = 0, ran = 0, said = 0;
  for (std::int64_t now = 0; cursor->active() && slices < 5000; now += 10000, ++slices) {
    clock.pause(now);
    const auto slice = cursor->run_until(bound.cpu, clock, now + 1000);
    REQUIRE(slice);
    CHECK(slice->parts <= 1);
    ran += static_cast<int>(slice->parts);
    said += slice->stalled;
  }
  CHECK_FALSE(cursor->active());
  CHECK(ran == static_cast<int>(total_parts(bound.step)));
  CHECK(said + ran == slices);  // a slice that runs nothing says so
  CHECK(slices >= 19 * (ran - static_cast<int>(bound.step.instruction_count())));
}

TEST_CASE("a cursor used at the wrong time says what it needs") {
  Bound bound;
  const auto now = [] { return std::int64_t{0}; };
  Cursor<> none;
  CHECK(says(none.begin(bound.input(), bound.targets()), "no step"));
  CHECK(says(none.run(bound.cpu, 1).error, "no step"));
  Step<> empty;
  CHECK(says(Cursor<>::make(empty).error, "no instructions"));

  auto cursor = Cursor<>::make(bound.step), other = Cursor<>::make(bound.step);
  REQUIRE(cursor);
  REQUIRE(other);
  CHECK(says(cursor->run(bound.cpu, 1).error, "has not begun"));
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  REQUIRE(cursor->run(bound.cpu, 3));
  // While it is under way, nobody else begins on the step, and its memory stays.
  CHECK(says(other->begin(bound.input(), bound.targets()), "under way"));
  CHECK(says(other->run(bound.cpu, 1).error, "has not begun"));
  CHECK(says(cursor->begin(bound.input(), bound.targets()), "under way"));
  CHECK(says(bound.step.run(bound.cpu, bound.input(), bound.targets()).error, "under way"));
  CHECK(says(bound.bind(), "under way"));
  REQUIRE(cursor->run(bound.cpu, 100000)->ended);
  CHECK(says(cursor->run(bound.cpu, 1).error, "has ended"));
  CHECK(says(cursor->run_until(bound.cpu, now, 1).error, "has ended"));
  // Another begins: the first is told apart from it.
  REQUIRE_FALSE(other->begin(bound.input(), bound.targets()));
  CHECK_FALSE(cursor->active());
  CHECK(says(cursor->run(bound.cpu, 1).error, "another step has begun"));
  bound.step.abandon();
  CHECK(says(other->run(bound.cpu, 1).error, "has ended"));
  CHECK(bound.step.run(bound.cpu, bound.input(), bound.targets()));
}

TEST_CASE("two steps on one arena at once are refused, one after the other are not") {
  Bound first, second;
  SharedArena arena(Bytes(first.arena.data, Shape(first.arena.size)));
  const Shape elems(first.step.graph().parameter_elems);
  const auto bind = [&](Bound& bound) {
    return bound.step.bind(arena, View<const float>(Bound::floats(bound.params), elems),
                           View<float>(Bound::floats(bound.gradients), elems));
  };
  REQUIRE_FALSE(bind(first));
  REQUIRE_FALSE(bind(second));
  auto a = Cursor<>::make(first.step), b = Cursor<>::make(second.step);
  REQUIRE_FALSE(a->begin(first.input(), first.targets()));
  CHECK(arena.busy());
  CHECK(says(b->begin(second.input(), second.targets()), "another step is under way in the arena"));
  CHECK(says(second.step.run(second.cpu, second.input(), second.targets()).error, "under way"));
  CHECK_FALSE(second.step.active());
  REQUIRE(a->run(first.cpu, 100000)->ended);
  CHECK_FALSE(arena.busy());
  REQUIRE_FALSE(b->begin(second.input(), second.targets()));
  second.step.abandon();
  CHECK_FALSE(arena.busy());
  REQUIRE(first.step.run(first.cpu, first.input(), first.targets()));
  CHECK_FALSE(arena.busy());
}

TEST_CASE(
    "a step that is moved takes its arena along, and leaves a step that is bound to nothing") {
  Bound bound;
  SharedArena arena(Bytes(bound.arena.data, Shape(bound.arena.size)));
  const Shape elems(bound.step.graph().parameter_elems);
  REQUIRE_FALSE(bound.step.bind(arena, View<const float>(Bound::floats(bound.params), elems),
                                View<float>(Bound::floats(bound.gradients), elems)));
  REQUIRE_FALSE(bound.step.begin(bound.input(), bound.targets()));
  Step<> moved = std::move(bound.step);
  CHECK(moved.active());
  CHECK_FALSE(bound.step.active());
  bound.step.abandon();  // nothing to give up: the arena is not its own any more
  CHECK(arena.busy());
  CHECK(says(bound.step.begin(bound.input(), bound.targets()), "bind() must"));
  for (Position at; at.instruction < moved.instruction_count();) at = moved.execute(bound.cpu, at);
  CHECK_FALSE(arena.busy());
  REQUIRE_FALSE(moved.begin(bound.input(), bound.targets()));
  { const Step<> gone = std::move(moved); }
  CHECK_FALSE(arena.busy());  // who goes while a step is under way gives the arena back
}

TEST_CASE("a cursor follows a step to another program") {
  Bound bound;
  auto cursor = Cursor<>::make(bound.step);
  REQUIRE(cursor);
  const std::size_t before = bound.step.instruction_count();
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  std::int64_t ticks = 0;
  const auto now = [&] { return ++ticks; };
  REQUIRE(cursor->run_until(bound.cpu, now, 1000)->ended);
  CHECK(cursor->longest(0) == 1);
  // As Training::switch_to does, in the middle of a step.
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  REQUIRE(cursor->run(bound.cpu, 2));
  const auto graph = make_graph(bound.net, Shape(64, 16), {.parts = 8});
  Plan plan = retain_all(*graph);
  plan.policies[0] = recompute();
  plan.policies[1] = compress(&codec_info<random_model::Verbatim>);
  auto dispatch = make_dispatch<float, Cpu>(bound.net);
  dispatch.add_codec<random_model::Verbatim>();
  bound.step = *Step<>::make(dispatch, *make_program(*graph, plan));
  REQUIRE(bound.step.instruction_count() > before);
  CHECK(says(cursor->run(bound.cpu, 1).error, "another step has begun"));
  CHECK(says(cursor->run_until(bound.cpu, now, 1000).error, "another step has begun"));
  REQUIRE_FALSE(bound.bind());
  REQUIRE_FALSE(cursor->begin(bound.input(), bound.targets()));
  CHECK(cursor->longest(0) == 0);
  REQUIRE(cursor->run_until(bound.cpu, now, 1000)->ended);
  CHECK(cursor->longest(bound.step.instruction_count() - 1) == 1);
  CHECK(cursor->longest(bound.step.instruction_count()) == 0);
}

TEST_CASE("a cursor without a step does nothing") {
  Cursor<> none;
  none.forget();
  none.forget_all();
  CHECK(none.longest(0) == 0);
  CHECK_FALSE(none.active());
  Cpu cpu;
  CHECK(says(none.run(cpu, 1).error, "has no step"));
}

}  // namespace cursor_test
