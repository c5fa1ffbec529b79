// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/codec/bf16.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/block.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/stash/measure.hpp>
#include <adacc/store/memory_store.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "../plan/brute_force.hpp"
#include "../rough_codec.hpp"
#include "../test_size.hpp"
#include "random_trainer.hpp"

namespace stash_test {

using namespace adacc;
using namespace random_trainer;
using rough::Fine;
using rough::Picky;

namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

Plan draw_plan(std::mt19937& random, const Graph& graph) {
  Plan plan = plan_from_types(graph);
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
    const Node& node = graph.nodes[k];
    if (node.output_bytes == 0) continue;
    const auto drawn = static_cast<std::size_t>(random() % 4);
    if (drawn == 3 && node.recomputable) plan.policies[k] = recompute();
    else if (drawn > 0 && drawn <= node.candidates.count)
      plan.policies[k] = compress(graph.candidates_of(node)[drawn - 1]);
  }
  return plan;
}

/// Whatever `plan` recomputes may be recomputed up to three times.
Plan nested(std::mt19937& random, Plan plan) {
  for (Policy& policy : plan.policies)
    if (policy.recomputes()) policy = recompute(1 + static_cast<int>(random() % 3));
  return plan;
}

bool lists(const std::vector<int>& list, int value) {
  for (const int entry : list)
    if (entry == value) return true;
  return false;
}

/// The gradients that stages carry, and what they are in a trainer without a stash.
class CarriedGradients {
 public:
  explicit CarriedGradients(const Drawn& drawn)
      : drawn_(drawn), places_(drawn.carried.size()), expected_(drawn.carried.size()) {}

  /// Where gradient i is to be by now, if it is there at all: at one place, with the bytes that it had.
  void look(Stash<>& stash, int stage, bool left) {
    for (std::size_t i = 0; i < drawn_.carried.size(); ++i) {
      const Carried& one = drawn_.carried[i];
      const int id = static_cast<int>(i);
      const Result<Bytes> there = stash.carried_bytes(id);
      const Result<View<float>> floats = stash.carried(id);
      const bool lives = one.lives_in(stage) && !(left && stage == one.last);
      CHECK(static_cast<bool>(there) == lives);
      CHECK(static_cast<bool>(floats) == (lives && !one.raw));
      if (!lives || !there) continue;
      CHECK(there->size() == one.bytes);
      if (floats) CHECK(static_cast<void*>(floats->data()) == there->data());
      if (stage == one.first && !left) {
        places_[i] = there->data();
        expected_[i].assign(one.bytes, static_cast<unsigned char>(17 * i + 1));
        std::memset(places_[i], static_cast<int>(17 * i + 1), one.bytes);
      }
      CHECK(there->data() == places_[i]);
      CHECK(std::memcmp(places_[i], expected_[i].data(), one.bytes) == 0);
    }
  }

  /// What a stage adds: to those that live in it, of `got` and of `expected`, what that is to be.
  void add(int stage, const float* got, const float* expected, std::size_t count) {
    for (std::size_t i = 0; i < drawn_.carried.size(); ++i) {
      if (!drawn_.carried[i].lives_in(stage)) continue;
      grow(reinterpret_cast<unsigned char*>(places_[i]), got, stage, drawn_.carried[i].bytes,
           count);
      grow(expected_[i].data(), expected, stage, drawn_.carried[i].bytes, count);
    }
  }

 private:
  static void grow(unsigned char* to, const float* from, int stage, std::size_t bytes,
                   std::size_t count) {
    const auto* seen = reinterpret_cast<const unsigned char*>(from);
    for (std::size_t b = 0; b < bytes; ++b)
      to[b] = static_cast<unsigned char>(3 * to[b] + seen[b % (4 * count)] + stage);
  }

  const Drawn& drawn_;
  std::vector<std::byte*> places_;
  std::vector<std::vector<unsigned char>> expected_;
};

/// What `Codec` makes of values.
template <class Codec>
void through(Values& values, Shape shape) {
  Cpu cpu;
  const Shape matrix(shape.rows(), shape.cols());
  std::vector<Line> blob(Codec::encoded_bytes(shape.rows(), shape.cols(), Dtype::f32) / 64 + 1);
  const Bytes bytes(blob[0].bytes, Shape(64 * blob.size()));
  REQUIRE_FALSE(Codec::encode(cpu, View<const float>(values.data(), matrix), bytes));
  REQUIRE_FALSE(Codec::decode(cpu, ConstBytes(bytes), View<float>(values.data(), matrix)));
}

/// One step; checks every value that a stage gets. Forward lives in memory of its own, which is
/// overwritten as soon as the stash has it.
enum class Place { no, next, ahead };
void train(const Drawn& drawn, Stash<>& stash, Place place) {
  const std::size_t count = drawn.shapes.size();
  std::vector<Values> forward(count), backward(count);
  std::vector<View<float>> values(count);
  std::deque<std::vector<Line>> scratch;
  Cpu cpu;
  REQUIRE_FALSE(stash.begin(cpu));
  const auto put = [&](std::size_t id) {
    const Error why = stash.put(static_cast<int>(id), values[id]);
    REQUIRE_MESSAGE(!why, why.text());
  };
  const auto make = [&](std::size_t id) {
    std::vector<View<const float>> x;
    for (const int source : drawn.sources[id]) {
      const auto s = static_cast<std::size_t>(source);
      x.push_back({forward[s].data(), drawn.shapes[s]});
    }
    forward[id].resize(drawn.shapes[id].elems());
    drawn.functions[id](x.data(), View<float>(forward[id].data(), drawn.shapes[id]));
    scratch.emplace_back(forward[id].size() / 16 + 1);
    values[id] = {reinterpret_cast<float*>(scratch.back().data()), drawn.shapes[id]};
    const float* const outside = values[id].data();
    if (place != Place::no) values[id] = stash.place(static_cast<int>(id), values[id]);
    if (place == Place::next && drawn.held[id]) CHECK(values[id].data() != outside);
    const Bytes workspace = stash.workspace(static_cast<int>(id));
    if (!workspace.empty()) std::memset(workspace.data(), 0x11, workspace.size());
    std::memcpy(values[id].data(), forward[id].data(), 4 * values[id].size());
  };
  // What backward is to see.
  const auto expect = [&](std::size_t id) {
    const Policy& policy = stash.plan()[static_cast<int>(id)];
    backward[id] = forward[id];
    if (policy.recomputes()) {
      std::vector<View<const float>> seen;
      for (const int source : drawn.sources[id]) {
        const auto s = static_cast<std::size_t>(source);
        seen.push_back({backward[s].data(), drawn.shapes[s]});
      }
      drawn.functions[id](seen.data(), View<float>(backward[id].data(), drawn.shapes[id]));
      return;
    }
    const Declined now = stash.declined(static_cast<int>(id));
    const CodecInfo* const by = now.otherwise() ? now.codec : policy.codec();
    if (by == &codec_info<Truncate>)
      for (float& value : backward[id]) value = rounded(static_cast<double>(value), 2);
    if (by == &codec_info<Picky>) through<Picky>(backward[id], drawn.shapes[id]);
    if (by == &codec_info<Fine>) through<Fine>(backward[id], drawn.shapes[id]);
  };
  for (std::size_t id = 0; id < count; ++id) {
    const int maker = stash.graph().maker_of(static_cast<int>(id));
    for (std::size_t j = id; static_cast<int>(id) == maker && j < count; ++j)
      if (stash.graph().maker_of(static_cast<int>(j)) == maker) make(j);
    if (place == Place::ahead) continue;
    // Until then what is held is there, with all that is made from it.
    for (const int source : drawn.sources[id]) {
      const auto s = static_cast<std::size_t>(source);
      CHECK(std::memcmp(values[s].data(), forward[s].data(), 4 * forward[s].size()) == 0);
    }
    put(id);
  }
  if (place == Place::ahead)
    for (std::size_t id = 0; id < count; ++id) put(id);
  for (std::size_t id = 0; id < count; ++id) expect(id);
  for (const Mix& function : drawn.functions) function.calls = 0;
  for (const MixTogether& function : drawn.together) function.calls = 0;
  CarriedGradients carried(drawn);
  carried.look(stash, drawn.stage_count, true);
  for (int stage = stash.graph().node_count() - static_cast<int>(count); stage-- > 0;) {
    const Error why = stash.enter(stage);
    REQUIRE_MESSAGE(!why, why.text());
    carried.look(stash, stage, false);
    std::vector<View<const float>> all;
    for (std::size_t id = 0; id < count; ++id) {
      if (!lists(drawn.stages[id], stage)) continue;
      const Result<View<const float>> got = stash.get(static_cast<int>(id));
      REQUIRE_MESSAGE(got, got.error.text());
      CHECK(got->shape() == drawn.shapes[id]);
      all.push_back(*got);
    }
    REQUIRE_FALSE(stash.enter(stage));
    const auto s = static_cast<std::size_t>(stage);
    const std::size_t own = s < drawn.stage_bytes.size() ? drawn.stage_bytes[s] : 0;
    const Result<Bytes> memory = stash.backward_workspace();
    REQUIRE(memory);
    CHECK(memory->size() == own);
    if (own > 0) std::memset(memory->data(), 0x33, own);
    // All of them are there until the next stage begins, however many others were asked for.
    std::size_t i = 0;
    for (std::size_t id = 0; id < count; ++id)
      if (lists(drawn.stages[id], stage)) {
        CHECK(std::memcmp(all[i].data(), backward[id].data(), 4 * backward[id].size()) == 0);
        carried.add(stage, all[i++].data(), backward[id].data(), backward[id].size());
      }
    if (stage % 2 != 0) continue;
    REQUIRE_FALSE(stash.leave(stage));
    carried.look(stash, stage, true);
  }
  if (is_nested(stash.plan())) return;
  for (const Mix& function : drawn.functions) CHECK(function.calls <= 1);
  for (const MixTogether& function : drawn.together) CHECK(function.calls <= 1);
}

/// Whatever lives before an activation is retained shares no byte with it: it can be placed ahead,
/// unless values of forward come and go in the arena.
void check_places(const Program& program) {
  for (const Node& node : program.graph.nodes)
    if (!node.value_outside) return;
  const Array<Buffer>& buffers = program.schedule.buffers;
  const auto end = [&](std::size_t b) { return program.layout.offsets[b] + buffers[b].bytes; };
  for (const Instruction& inst : program.schedule.instructions) {
    if (inst.op == Op::backward) break;
    if (inst.op != Op::forward || inst.again || inst.y < 0) continue;
    const auto y = static_cast<std::size_t>(inst.y);
    for (std::size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b].first >= 0 && buffers[b].first < buffers[y].first)
        CHECK((end(b) <= program.layout.offsets[y] || end(y) <= program.layout.offsets[b]));
  }
}

std::string text(const Error& error) { return error.text(); }
bool says(const Error& error, const char* what) {
  return text(error).find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("random trainers get what they put, under every policy, inside the predicted bytes") {
  std::size_t smaller = 0, several = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Drawn drawn;
    draw(seed, drawn);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::mt19937 random(seed + 1000);
    auto retained = Stash<>::make(drawn.model, retain_all(*graph));
    REQUIRE_MESSAGE(retained, retained.error.text());
    for (int trial = 0; trial < 6; ++trial) {
      Plan plan = draw_plan(random, *graph);
      if (trial >= 4) plan = nested(random, plan);
      several += is_nested(plan);
      auto stash = Stash<>::make(drawn.model, plan);
      REQUIRE_MESSAGE(stash, stash.error.text());
      const std::size_t bytes = stash->arena_bytes();
      if (bytes < retained->arena_bytes()) ++smaller;
      CHECK(stash->program().layout.live_bytes <= align_up(bytes));
      check_places(stash->program());
      // Used: whatever differs from one of two patterns. The last byte does, the guard does not.
      std::size_t used = 0;
      for (const int pattern : {0x5a, 0xa5}) {
        std::vector<Line> arena(bytes / 64 + 3);
        std::byte* memory = arena[0].bytes;
        std::memset(memory, pattern, 64 * arena.size());
        REQUIRE_FALSE(stash->bind({memory, Shape(bytes)}));
        train(drawn, *stash, static_cast<Place>(trial % 3));
        for (std::size_t i = 64 * arena.size(); i-- > used;)
          if (memory[i] != static_cast<std::byte>(pattern)) used = i + 1;
        train(drawn, *stash, Place::no);  // a second step in the same arena
      }
      CHECK(used == bytes);
    }
  }
  CHECK(smaller > 200);
  CHECK(several > 200);
}

namespace {

/// Some of what `plan` keeps may leave; with room for as little as there can be, or for more.
Plan sent_away(std::mt19937& random, const Graph& graph, Plan plan) {
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
    Policy& policy = plan.policies[k];
    if (graph.nodes[k].output_bytes > 0 && policy.keeps() && random() % 4 != 0)
      policy = keep(Form{policy.codec(), adacc::Place::store});
  }
  const std::size_t least = make_program(graph, plan)->layout.live_bytes;
  const std::size_t most = live_bytes(make_schedule(graph, plan));
  if (most <= least || random() % 3 == 0) return plan;
  plan.room_bytes = (least + random() % (most - least)) / 64 * 64 + 64;
  if (!make_program(graph, plan)) plan.room_bytes = 0;
  return plan;
}

/// Memory where transfers may begin, as long as a stash needs and a guard longer.
struct Pages {
  static constexpr std::size_t guard = 4096;
  explicit Pages(std::size_t size)
      : bytes(size), block(*Block<std::byte>::make(size + guard, "pages", transfer_alignment)) {}
  Bytes memory() { return {block.data(), Shape(bytes)}; }
  std::size_t bytes;
  Block<std::byte> block;
};

}  // namespace

TEST_CASE("what could not be declined, as a milder codec failed, may be put again") {
  const Shape shape(16, 32);
  std::vector<float> x(shape.elems());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  bool failed = false;
  for (std::size_t spare = 0; spare < 4096 && !failed; spare += 256) {
    StashModel<> model;
    for (int id = 0; id < 2; ++id) {
      model.add("x", shape, {id});
      model.allow<Picky>(id, 1e-4);
      model.allow<rough::Failing>(id, 1e-6);
    }
    model.stage_bytes(0, spare);
    Plan plan = retain_all(*model.graph());
    plan.policies[0] = compress(&codec_info<Picky>);
    auto stash = Stash<>::make(model, plan);
    REQUIRE_MESSAGE(stash, stash.error.text());
    std::vector<Line> arena(stash->arena_bytes() / 64 + 1);
    REQUIRE_FALSE(stash->bind({arena[0].bytes, Shape(stash->arena_bytes())}));
    Cpu cpu;
    REQUIRE_FALSE(stash->begin(cpu));
    rough::Failing::fails = true;
    const Error why = stash->put(0, View<const float>(x.data(), shape));
    rough::Failing::fails = false;
    if (!why) continue;
    failed = true;
    CHECK(says(why, "told to fail"));
    REQUIRE_FALSE(stash->put(0, View<const float>(x.data(), shape)));
    CHECK(stash->declined(0).errors.rows == 16);
    CHECK(stash->declined(0).codec == &codec_info<rough::Failing>);
  }
  CHECK(failed);
}

TEST_CASE(
    "unlike rows are held by the same codec with scales along rows, in the bytes of the plan") {
  const Shape shape(64, 64);
  std::vector<float> x(shape.elems());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<float>(i)) * (i / 64 % 20 == 3 ? 0.01F : 1.0F);
  StashModel<> model;
  for (int id = 0; id < 4; ++id) {
    model.add("x", shape, {id});
    model.allow<Int8Outlier>(id, 1e-6);
  }
  Plan plan = retain_all(*model.graph());
  for (std::size_t id = 0; id < 4; ++id) plan.policies[id] = compress(&codec_info<Int8Outlier>);
  auto stash = Stash<>::make(model, plan);
  REQUIRE_MESSAGE(stash, std::string(stash.error.text()));
  std::vector<Line> arena(stash->arena_bytes() / 64 + 1);
  REQUIRE_FALSE(stash->bind({arena[0].bytes, Shape(stash->arena_bytes())}));
  Cpu cpu;
  REQUIRE_FALSE(stash->watch());
  REQUIRE_FALSE(stash->begin(cpu));
  for (int id = 0; id < 4; ++id) REQUIRE_FALSE(stash->put(id, View<const float>(x.data(), shape)));
  std::size_t by_rows = 0;
  for (int id = 3; id >= 0; --id) {
    const Declined now = stash->declined(id);
    CHECK(now.errors.over == 4);
    CHECK(now.otherwise());
    by_rows += now.codec == codec_info<Int8Outlier>.for_unlike_rows ? 1U : 0U;
    CHECK(stash->statistics(id).misfit() == (now.codec == nullptr));
    REQUIRE_FALSE(stash->enter(id));
    const View<const float> y = *stash->get(id);
    for (std::size_t r = 0; r < 64; ++r) {
      double error = 0, square = 0;
      for (std::size_t i = r * 64; i < (r + 1) * 64; ++i) {
        error += (double{y[i]} - x[i]) * (double{y[i]} - x[i]);
        square += double{x[i]} * x[i];
      }
      CHECK(error < 1e-3 * square);
    }
    REQUIRE_FALSE(stash->leave(id));
  }
  CHECK(by_rows > 0);
}

TEST_CASE(
    "what a codec declines is kept otherwise where there is room, and no byte beyond it is used") {
  DeclinedCounts all;
  std::size_t sent = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Drawn drawn;
    draw(seed, drawn);
    for (int id = 0; id < drawn.model.activation_count(); ++id)
      if (!drawn.model.is_raw(id)) {
        drawn.model.allow<Picky>(id, 1e-4);
        drawn.model.allow<Fine>(id, 1e-6);
      }
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::mt19937 random(seed + 5000);
    for (int trial = 0; trial < 4; ++trial) {
      Plan plan = draw_plan(random, *graph);
      for (std::size_t k = 0; k < graph->nodes.size(); ++k)
        if (graph->candidates_of(static_cast<int>(k)).contains(&codec_info<Picky>) &&
            random() % 3 != 0)
          plan.policies[k] = compress(&codec_info<Picky>);
      auto stash = Stash<>::make(drawn.model, trial < 2 ? plan : sent_away(random, *graph, plan));
      REQUIRE_MESSAGE(stash, stash.error.text());
      stash->poison_dead(trial % 2 == 0);
      Pages arena(stash->arena_bytes()), room(stash->store_bytes());
      MemoryStore store(room.memory());
      store.hostile = true;
      std::size_t used = 0;
      for (const int pattern : {0x5a, 0xa5}) {
        std::memset(arena.block.data(), pattern, arena.block.size());
        REQUIRE_FALSE(stash->bind(arena.memory(), store));
        train(drawn, *stash, static_cast<Place>(trial % 3));
        all = all + stash->declined_counts();
        for (std::size_t i = arena.block.size(); i-- > used;)
          if (arena.block.data()[i] != static_cast<std::byte>(pattern)) used = i + 1;
        Stash<> moved = std::move(*stash);  // between two steps
        train(drawn, moved, Place::no);
        *stash = std::move(moved);
        for (const Declinable& one : stash->program().declinables)
          sent += one.blob < 0 && one.now.otherwise() ? 1U : 0U;
      }
      CHECK(used <= arena.bytes);
      if (trial < 2) CHECK(used == arena.bytes);
    }
  }
  CHECK(all.exactly > 100);
  CHECK(all.milder > 100);
  CHECK(all.over_bound > 100);
  CHECK(sent > 20);
}

TEST_CASE("with a store that does all as late as it may, trainers get what they put, too") {
  std::size_t transfers = 0, encoded = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Drawn drawn;
    draw(seed, drawn);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE(graph);
    std::mt19937 random(seed + 2000);
    for (int trial = 0; trial < 4; ++trial) {
      auto stash = Stash<>::make(drawn.model, sent_away(random, *graph, draw_plan(random, *graph)));
      REQUIRE_MESSAGE(stash, stash.error.text());
      Pages arena(stash->arena_bytes()), room(stash->store_bytes());
      MemoryStore store(room.memory());
      store.hostile = true;
      for (const int pattern : {0x5a, 0xa5}) {
        std::memset(arena.block.data(), pattern, arena.block.size());
        REQUIRE_FALSE(stash->bind(arena.memory(), store));
        train(drawn, *stash, static_cast<Place>(trial % 3));
        for (std::size_t i = arena.bytes; i < arena.block.size(); ++i)
          REQUIRE(arena.block.data()[i] == static_cast<std::byte>(pattern));
        Stash<> moved = std::move(*stash);  // between two steps
        train(drawn, moved, Place::no);
        *stash = std::move(moved);
      }
      CHECK(store.begun() == 8 * stash->program().schedule.transfers.size());
      for (const Transfer& transfer : stash->program().schedule.transfers) {
        ++transfers;
        encoded += stash->plan()[transfer.activation].codec() != nullptr;
      }
    }
  }
  CHECK(transfers > 500);
  CHECK(encoded > 100);
}

namespace {

/// Activations that leave, but for those that there is room for.
struct Leaving {
  StashModel<> model;
  std::vector<Line> values = std::vector<Line>(1024);
  float* data = reinterpret_cast<float*>(values.data());
  View<const float> x{data, Shape(64, 64)};
  Cpu cpu;
  Stash<> stash;
  static constexpr int count = 10;

  Leaving() {
    for (int i = 0; i < count; ++i) model.add("a", Shape(64, 64), {i});
    Plan plan = plan_from_types(*model.graph());
    for (int i = 0; i < count; ++i) plan.policies[static_cast<std::size_t>(i)] = offload();
    plan.room_bytes = 5 * 4 * x.size();
    stash = *Stash<>::make(model, plan);
    for (std::size_t i = 0; i < x.size(); ++i) data[i] = static_cast<float>(i);
  }
  Error put_all() {
    for (int i = 0; i < count; ++i)
      if (const Error why = stash.put(i, x)) return why;
    return {};
  }
};

}  // namespace

TEST_CASE("a step that is given up leaves nothing under way") {
  struct Counting : MemoryStore {
    using MemoryStore::MemoryStore;
    int open = 0;
    void begin(int ticket, const StoreTransfer& what) {
      ++open;
      MemoryStore::begin(ticket, what);
    }
    Error wait(int ticket) {
      --open;
      return MemoryStore::wait(ticket);
    }
  };
  for (int how = 0; how < 4; ++how) {
    CAPTURE(how);
    Leaving one;
    REQUIRE(one.stash.program().schedule.transfers.size() >= 4);
    Pages arena(one.stash.arena_bytes()), room(one.stash.store_bytes());
    Counting store(room.memory());
    REQUIRE_FALSE(one.stash.bind(arena.memory(), store));
    REQUIRE_FALSE(one.stash.begin(one.cpu));
    REQUIRE_FALSE(one.put_all());
    REQUIRE_FALSE(one.stash.enter(Leaving::count - 1));
    REQUIRE_FALSE(one.stash.enter(Leaving::count - 2));  // what stage 9 had makes room for a read
    REQUIRE(store.open > 0);
    if (how == 0) REQUIRE_FALSE(one.stash.begin(one.cpu));
    if (how == 1) REQUIRE_FALSE(one.stash.bind(arena.memory(), store));
    if (how == 2) one.stash = Stash<>();
    if (how == 3) const Stash<> gone = std::move(one.stash);
    CHECK(store.open == 0);
  }
}

TEST_CASE("a transfer that fails is the step's error; the next step is as good as new") {
  Leaving one;
  const std::size_t transfers = one.stash.program().schedule.transfers.size();
  Pages arena(one.stash.arena_bytes()), room(one.stash.store_bytes());
  MemoryStore store(room.memory());
  store.hostile = true;
  REQUIRE_FALSE(one.stash.bind(arena.memory(), store));
  const auto step = [&] {
    if (const Error why = one.stash.begin(one.cpu)) return why;
    if (const Error why = one.put_all()) {
      CHECK(says(one.stash.put(0, one.x), "the link broke"));
      return why;
    }
    for (int stage = Leaving::count; stage-- > 0;) {
      if (const Error why = one.stash.enter(stage)) {
        CHECK(says(one.stash.enter(stage), "the link broke"));  // not once more, and then fine
        CHECK(says(one.stash.get(stage).error, "the link broke"));
        return why;
      }
      const auto got = one.stash.get(stage);
      REQUIRE(got);
      CHECK(std::memcmp(got->data(), one.data, 4 * one.x.size()) == 0);
    }
    return Error();
  };
  for (std::size_t at = 0; at < 2 * transfers; ++at) {
    CAPTURE(at);
    store.failure = Error::say("the link broke");
    store.fail_from = store.begun() + at;
    CHECK(says(step(), "offloading a ("));
    store.failure = {};
    CHECK_FALSE(step());
  }
}

TEST_CASE("what a stash asks of a store") {
  Leaving one;
  Pages arena(one.stash.arena_bytes()), room(one.stash.store_bytes());
  MemoryStore store(room.memory()), small(Bytes(room.block.data(), Shape(4096)));
  CHECK(says(one.stash.bind(arena.memory()), "bind() must lend one with room for"));
  CHECK(says(one.stash.bind(arena.memory(), small), "which has room for 4.0 KiB"));
  CHECK(says(one.stash.bind({arena.block.data() + 64, Shape(arena.bytes)}, store), "4096-byte"));
  REQUIRE_FALSE(one.stash.bind(arena.memory(), store));
  REQUIRE_FALSE(one.stash.begin(one.cpu));
  // What leaves is put from scratch: its memory is another's before forward is over.
  CHECK(one.stash.place(0, {one.data, Shape(64, 64)}).data() == one.data);
}

TEST_CASE("the exhaustive planner finds the best plan of a stash, as brute force does") {
  std::size_t found = 0, squeezed = 0;
  for (unsigned seed = 0; seed < test_graphs / 2; ++seed) {
    CAPTURE(seed);
    Drawn drawn;
    draw(seed, drawn, 6);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE(graph);
    std::mt19937 random(seed);
    const auto unit = [&] { return static_cast<double>(random() % 1000 + 1) / 1000; };
    CostProfile profile = empty_profile(*graph);
    for (NodeCost& cost : profile.nodes) cost.forward = unit(), cost.backward = unit();
    for (std::size_t k = 0; k < profile.nodes.size(); ++k)
      if (graph->nodes[k].made_by >= 0) profile.nodes[k].forward = 0;
    for (CodecCost& cost : profile.codec_costs)
      cost = {unit() / 4, unit() / 4, unit() / 100, unit() / 30};
    brute_force::AllPlans all(*graph, profile);
    REQUIRE(all.size() > 0);
    for (int i = 0; i < 6; ++i) {
      PlanRequest request;
      request.gap = 0;
      request.tolerance = i % 2 == 0 ? 1e9 : all[random() % all.size()].cost.error;
      const std::size_t smallest = all.smallest(request.tolerance);
      const std::size_t most = evaluate(*graph, profile, retain_all(*graph)).live_bytes;
      request.budget_bytes = smallest + random() % (most + 65 - smallest);
      if (i == 1) request.budget_bytes = smallest;
      if (request.budget_bytes == 0) continue;  // nothing is read in backward
      const auto outcome = plan_exhaustively(*graph, profile, request);
      REQUIRE_MESSAGE(outcome, outcome.error.text());
      CHECK(outcome->seconds ==
            doctest::Approx(all.best(request.budget_bytes, request.tolerance)->cost.seconds));
      CHECK(outcome->peak_bytes <= request.budget_bytes);
      CHECK(outcome->gap <= 1e-12);
      const auto stash = Stash<>::make(drawn.model, outcome->plan);
      REQUIRE(stash);
      CHECK(stash->arena_bytes() == outcome->peak_bytes);
      ++found;
      if (outcome->seconds > outcome->retain_seconds) ++squeezed;
      if (smallest < 2) continue;
      request.budget_bytes = smallest - 1;
      CHECK_FALSE(plan_exhaustively(*graph, profile, request));
    }
  }
  CHECK(found > 5 * test_graphs / 3);
  CHECK(squeezed > test_graphs / 6);
}

/// Three activations, of which the last may be kept by Bf16, and one that nothing reads.
namespace {

struct Few {
  StashModel<> model;
  int a = model.add("a", Shape(2, 32), {0, 1});
  int mask = model.add_bytes("mask", 10, {1});
  int b = model.add("a", Shape(2, 32), {1});
  int unread = model.add("unread", Shape(3, 4), {});
  std::vector<Line> arena = std::vector<Line>(64), values = std::vector<Line>(8);
  float* data = reinterpret_cast<float*>(values.data());
  View<const float> x{data, Shape(2, 32)};
  ConstBytes raw{values[0].bytes, Shape(10)};
  Cpu cpu;

  Few() {
    model.allow<Bf16>(b, 1e-5);
    for (int i = 0; i < 128; ++i) data[i] = static_cast<float>(i);
  }
  Bytes memory() { return {arena[0].bytes, Shape(64 * arena.size())}; }
  Stash<> stash() const {
    Plan plan = retain_all(*model.graph());
    plan.policies[static_cast<std::size_t>(b)] = compress(&codec_info<Bf16>);
    return *Stash<>::make(model, plan);
  }
  void forward(Stash<>& stash) {
    REQUIRE_FALSE(stash.begin(cpu));
    REQUIRE_FALSE(stash.put(a, x));
    REQUIRE_FALSE(stash.put_bytes(mask, raw));
    REQUIRE_FALSE(stash.put(b, x));
    REQUIRE_FALSE(stash.put(unread, View<const float>(data, Shape(3, 4))));
  }
};

}  // namespace

TEST_CASE("uses out of order are errors that change nothing") {
  Few few;
  const auto [a, mask, b, unread] = std::array{few.a, few.mask, few.b, few.unread};
  Stash<> stash = few.stash();
  CHECK(says(stash.begin(few.cpu), "bind()"));
  CHECK(says(stash.bind({few.arena[0].bytes, Shape(64)}), "needs an arena of"));
  REQUIRE_FALSE(stash.bind(few.memory()));
  CHECK(says(stash.put(a, few.x), "before begin()"));
  CHECK(says(stash.get(a).error, "before begin()"));
  CHECK(says(stash.enter(0), "before begin()"));
  REQUIRE_FALSE(stash.begin(few.cpu));
  CHECK(says(stash.put(7, few.x), "activations 0 to 3"));
  CHECK(says(stash.put(-1, few.x), "activations 0 to 3"));
  CHECK(says(stash.put(b, few.x), "a (2 of 2) before a (1 of 2)"));
  CHECK(says(stash.put(a, View<const float>(few.data, Shape(32, 2))), "registered as f32 (2, 32)"));
  CHECK(says(stash.enter(1), "a (1 of 2) was not put"));
  CHECK(says(stash.get(a).error, "no backward stage is on; enter(1)"));
  CHECK_FALSE(stash.put(a, few.x));
  CHECK(says(stash.put(a, few.x), "put already"));
  CHECK(says(stash.put(mask, few.x), "mask: it was registered as bytes"));
  CHECK_FALSE(stash.put_bytes(mask, few.raw));
  CHECK_FALSE(stash.put(b, few.x));
  CHECK(says(stash.enter(0), "unread was not put"));
  CHECK_FALSE(stash.put(unread, View<const float>(few.data, Shape(3, 4))));
  CHECK(says(stash.enter(2), "0 to 1"));
  CHECK(says(stash.enter(-1), "0 to 1"));
  REQUIRE_FALSE(stash.enter(1));
  CHECK(says(stash.get(unread).error, "none of the backward stages that are left"));
  CHECK(says(stash.get(9).error, "activations 0 to 3"));
  CHECK(says(stash.get(mask).error, "registered as bytes"));
  const auto first = stash.get(b);
  REQUIRE(first);
  CHECK((*first)[63] == 63.0F);
  const auto bytes = stash.get_bytes(mask);
  REQUIRE(bytes);
  CHECK(std::memcmp(bytes->data(), few.data, 10) == 0);
  REQUIRE_FALSE(stash.enter(0));
  CHECK(says(stash.enter(1), "stage 1 comes before backward stage 0"));
  CHECK(says(stash.get(b).error, "none of the backward stages that are left"));
  CHECK(stash.get(a));
  CHECK_FALSE(stash.begin(few.cpu));  // a step may be given up
  CHECK_FALSE(stash.put(a, few.x));
}

TEST_CASE("memory that is missing, askew or shared is refused, and by name") {
  Few few;
  Stash<> stash = few.stash();
  CHECK(says(stash.bind({nullptr, Shape(4096)}), "the bytes of the arena have no address"));
  CHECK(says(stash.bind({few.arena[0].bytes + 4, Shape(4000)}), "aligned"));
  REQUIRE_FALSE(stash.bind(few.memory()));
  REQUIRE_FALSE(stash.begin(few.cpu));
  CHECK(says(stash.put(few.a, View<const float>(nullptr, Shape(2, 32))),
             "put of a (1 of 2): the values have no address"));
  const auto at = [&](std::byte* from) {
    return View<const float>(static_cast<const float*>(static_cast<void*>(from)), Shape(2, 32));
  };
  CHECK(says(stash.put(few.a, at(few.values[0].bytes + 2)), "4-byte aligned"));
  // From its place on nobody else has the arena, to the byte, and it is not retained's business.
  std::byte* begin = few.arena[0].bytes;
  std::vector<Line> before(8);
  const View<float> place = stash.place(few.a, {few.data, Shape(2, 32)});
  CHECK(says(stash.put(few.a, at(reinterpret_cast<std::byte*>(place.data()) + 4)), "overlap by"));
  CHECK_FALSE(stash.put(few.a, place));
  CHECK(says(stash.put_bytes(few.mask, {nullptr, Shape(10)}), "no address"));
  CHECK(says(stash.put_bytes(few.mask, {begin + stash.arena_bytes() - 1, Shape(10)}),
             "overlap by 1 bytes"));
  CHECK_FALSE(stash.put_bytes(few.mask, {begin + stash.arena_bytes(), Shape(10)}));
  CHECK(
      says(stash.put(few.b, at(begin)), "put of a (2 of 2): the values (256 bytes) and the bytes"));
  CHECK_FALSE(stash.put(few.b, few.x));
}

TEST_CASE("whatever is retained and yet to be put has its place, and nothing else") {
  Few few;
  Stash<> stash = few.stash();
  const View<float> scratch(few.data, Shape(2, 32));
  std::byte bytes[10];
  const Bytes raw(bytes, Shape(10));
  CHECK(stash.place(few.a, scratch).data() == few.data);
  REQUIRE_FALSE(stash.bind(few.memory()));
  CHECK(stash.place(few.a, scratch).data() == few.data);  // no step is under way
  REQUIRE_FALSE(stash.begin(few.cpu));
  const Bytes mask = stash.place_bytes(few.mask, raw);  // ahead of a
  CHECK(mask.data() != bytes);
  CHECK(mask.size() == 10);
  std::memcpy(mask.data(), few.raw.data(), 10);
  const View<float> a = stash.place(few.a, scratch);
  CHECK(a.data() != few.data);
  CHECK(a.shape() == Shape(2, 32));
  CHECK(stash.place(few.mask, scratch).data() == few.data);  // of another kind
  CHECK(stash.place_bytes(few.a, raw).data() == bytes);
  CHECK(stash.place(few.b, scratch).data() == few.data);       // compressed
  CHECK(stash.place(few.unread, scratch).data() == few.data);  // dropped
  CHECK(stash.place(-1, scratch).data() == few.data);
  CHECK(stash.place(4, scratch).data() == few.data);
  std::memcpy(a.data(), few.data, 256);
  REQUIRE_FALSE(stash.put(few.a, a));
  CHECK(stash.place(few.a, scratch).data() == few.data);  // it was put
  REQUIRE_FALSE(stash.put_bytes(few.mask, mask));
  REQUIRE_FALSE(stash.put(few.b, few.x));
  REQUIRE_FALSE(stash.put(few.unread, View<const float>(few.data, Shape(3, 4))));
  REQUIRE_FALSE(stash.enter(1));
  CHECK(std::memcmp(stash.get(few.a)->data(), few.data, 256) == 0);
  CHECK(std::memcmp(stash.get_bytes(few.mask)->data(), few.data, 10) == 0);
}

TEST_CASE("what is encoded may lie anywhere that its elements may") {
  Few few;
  Stash<> stash = few.stash();
  REQUIRE_FALSE(stash.bind(few.memory()));
  for (std::size_t skew = 0; skew < 16; ++skew) {
    std::vector<Line> shifted(6);
    float* data = reinterpret_cast<float*>(shifted.data()) + skew;
    std::memcpy(data, few.data, 256);
    REQUIRE_FALSE(stash.begin(few.cpu));
    REQUIRE_FALSE(stash.put(few.a, few.x));
    REQUIRE_FALSE(stash.put_bytes(few.mask, few.raw));
    const Error why = stash.put(few.b, {data, Shape(2, 32)});
    REQUIRE_MESSAGE(!why, why.text());
    REQUIRE_FALSE(stash.put(few.unread, View<const float>(few.data, Shape(3, 4))));
    REQUIRE_FALSE(stash.enter(1));
    CHECK(std::memcmp(stash.get(few.b)->data(), few.data, 256) == 0);
  }
}

TEST_CASE("two activations of the same values are rounded by numbers of their own") {
  using Noisy = Int8OutlierWith<Int8Options{.rounding = Rounding::stochastic}>;
  StashModel<> model;
  const int ids[] = {model.add("a", Shape(64, 64), {0}), model.add("b", Shape(64, 64), {0})};
  for (const int id : ids) model.allow<Noisy>(id, 1e-4);
  Plan plan = retain_all(*model.graph());
  for (const int id : ids)
    plan.policies[static_cast<std::size_t>(id)] = compress(&codec_info<Noisy>);
  auto stash = Stash<>::make(model, plan);
  REQUIRE_MESSAGE(stash, std::string(stash.error.text()));
  std::vector<Line> arena(stash->arena_bytes() / sizeof(Line) + 1);
  REQUIRE_FALSE(stash->bind({arena[0].bytes, Shape(sizeof(Line) * arena.size())}));
  std::vector<float> values(64 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  Cpu cpu;
  REQUIRE_FALSE(stash->begin(cpu));
  for (const int id : ids)
    REQUIRE_FALSE(stash->put(id, View<const float>(values.data(), Shape(64, 64))));
  REQUIRE_FALSE(stash->enter(0));
  const auto a = stash->get(ids[0]), b = stash->get(ids[1]);
  REQUIRE(a);
  REQUIRE(b);
  CHECK(std::memcmp(a->data(), b->data(), 4 * values.size()) != 0);
}

TEST_CASE("a trainer whose stages are kernels cannot take all pointers of a layer at its top") {
  // In llm.c's order of code: with pointers taken before its first kernel, one that a later get
  // had decoded into the same memory was read.
  StashModel<> model;
  const int x = model.add("x", Shape(8, 64), {0}), y = model.add("y", Shape(8, 64), {1});
  for (const int id : {x, y}) model.allow<Bf16>(id, 1e-5);
  Plan plan = retain_all(*model.graph());
  for (Policy& policy : plan.policies)
    if (&policy < plan.policies.data() + 2) policy = compress(&codec_info<Bf16>);
  auto stash = Stash<>::make(model, plan);
  REQUIRE(stash);
  std::vector<Line> arena(stash->arena_bytes() / 64 + 1);
  REQUIRE_FALSE(stash->bind({arena[0].bytes, Shape(64 * arena.size())}));
  std::vector<float> values(512, 1.0F);
  Cpu cpu;
  REQUIRE_FALSE(stash->begin(cpu));
  for (const int id : {x, y}) {
    for (float& value : values) value += 1;
    REQUIRE_FALSE(stash->put(id, {values.data(), Shape(8, 64)}));
  }
  REQUIRE_FALSE(stash->enter(1));
  const auto dy = stash->get(y);
  REQUIRE(dy);
  CHECK(says(stash->get(x).error, "enter(0) begins the next that was"));
  CHECK((*dy)[0] == 3.0F);
  REQUIRE_FALSE(stash->enter(0));
  CHECK((*stash->get(x))[0] == 2.0F);
  CHECK(says(stash->get(y).error, "none of the backward stages that are left"));
}

TEST_CASE("a stash that was moved from is bound to nothing") {
  Few few;
  Stash<> first = few.stash();
  REQUIRE_FALSE(first.bind(few.memory()));
  few.forward(first);
  Stash<> second = static_cast<Stash<>&&>(first);
  CHECK(says(first.put(0, few.x), "before begin()"));
  CHECK(says(first.begin(few.cpu), "bind()"));
  CHECK(says(Stash<>().begin(few.cpu), "bind()"));
  REQUIRE_FALSE(second.enter(1));
  CHECK((*second.get(few.b))[63] == 63.0F);
  second = few.stash();
  CHECK(says(second.get(few.b).error, "before begin()"));
}

TEST_CASE("registrations and plans that make no sense are refused") {
  const auto f = [](const View<const float>*, View<float>) {};
  {
    StashModel<> model;
    CHECK(says(model.graph().error, "no activations"));
    const int a = model.add("a", Shape(4, 4), {0});
    model.recompute(a, {a}, f);
    CHECK(says(model.graph().error, "registered before it"));
  }
  const auto together = [](const View<const float>*, const View<float>*) {};
  const auto mistake = [&](auto&& register_more, const char* what) {
    StashModel<> model;
    for (int i = 0; i < 4; ++i) model.add("a", Shape(4, 4), {0});
    register_more(model);
    CHECK_MESSAGE(says(model.graph().error, what), model.graph().error.text());
  };
  using Model = StashModel<>;
  mistake([&](Model& m) { m.recompute_together({1, 3}, {0}, together); }, "right before");
  mistake([&](Model& m) { m.recompute_together({}, {0}, together); }, "none is named");
  mistake([&](Model& m) { m.recompute_together({2, 3}, {2}, together); }, "registered before it");
  mistake([&](Model& m) { m.recompute_together({3, 4}, {0}, together); }, "no activation 4");
  mistake(
      [&](Model& m) {
        m.recompute(1, {0}, f), m.recompute_together({1, 2}, {0}, together);
      },
      "recomputed twice");
  mistake(
      [&](Model& m) {
        m.recompute_together({1, 2}, {0}, together), m.recompute(2, {0}, f);
      },
      "recomputed twice");
  mistake([&](Model& m) { m.recompute(1, {0}, f, {.workspace_bytes = 8}); }, "takes none");
  mistake([&](Model& m) { m.recompute(1, {0}, f, {.operations = -1}); }, "negative");
  mistake([&](Model& m) { m.allow<Truncate>(1, -1); }, "negative");
  {
    StashModel<> model;
    model.allow<Truncate>(model.add("a", Shape(4, 4), {0}), 0);
    CHECK(says(model.graph().error, "without a gradient error"));
  }
  {
    StashModel<> model;
    model.add("a", Shape(4, 4), {-1});
    CHECK(says(model.graph().error, "stage"));
  }
  {
    StashModel<> model;
    model.add("a", Shape(0, 4), {0});
    CHECK(says(model.graph().error, "no elements"));
  }
  {
    StashModel<> model;
    model.allow<Truncate>(3, 1);
    CHECK(says(model.graph().error, "no activation 3"));
  }
  {
    StashModel<> model;
    model.add("a", Shape(4, 4), {0});
    const auto graph = model.graph();
    REQUIRE(graph);
    Plan plan = retain_all(*graph);
    plan.policies[0] = recompute();
    CHECK(says(Stash<>::make(model, plan).error, "nothing says how"));
    plan.policies[0] = compress(&codec_info<Bf16>);
    CHECK(says(Stash<>::make(model, plan).error, "which no activation of the stash allows"));
    CHECK(says(Stash<>::make(model, Plan{}).error, "0 policies"));
  }
}

TEST_CASE("a stash's peak is a constant expression") {
  constexpr auto peak = [](bool small) {
    StashModel<> model;
    constexpr auto nothing = [](const View<const float>*, View<float>) {};
    for (int i = 0; i < 10; ++i) {
      const int id = model.add("h", Shape(8, 64), {i});
      if (i > 0) model.recompute(id, {id - 1}, nothing);
    }
    const auto graph = model.graph();
    Plan plan = retain_all(*graph);
    for (std::size_t i = 1; i < 10 && small; ++i) plan.policies[i] = recompute();
    return make_program(*graph, plan)->peak_bytes();
  };
  static_assert(peak(false) == std::size_t{10} * 8 * 64 * 4);
  // The whole run is made again before its first reader.
  static_assert(peak(true) == std::size_t{10} * 8 * 64 * 4);
}

}  // namespace stash_test
