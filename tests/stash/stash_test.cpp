#include <doctest/doctest.h>

#include <adacc/codec/bf16.hpp>
#include <adacc/plan/exhaustive/planner.hpp>
#include <adacc/stash/measure.hpp>

#include <chrono>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "../plan/brute_force.hpp"
#include "../step/random_model.hpp"

namespace stash_test {

using namespace adacc;
using random_model::Truncate;

namespace {

/// Three bytes of each float: without loss for the tests' values, which have no more.
struct Upper {
  static constexpr const char* name = "upper";
  static constexpr bool lossless = true;
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype) {
    return rows * cols * 3;
  }
  template <class T>
  static Error encode(Cpu&, View<const T> x, Bytes blob) {
    for (std::size_t i = 0; i < x.size(); ++i)
      std::memcpy(blob.data() + 3 * i, reinterpret_cast<const std::byte*>(&x[i]) + 1, 3);
    return {};
  }
  template <class T>
  static Error decode(Cpu&, ConstBytes blob, View<T> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&x[i]) + 1, blob.data() + 3 * i, 3);
    }
    return {};
  }
};

using Values = std::vector<float>;

/// The upper `bytes` of a float.
float rounded(double x, int bytes = 3) {
  const auto value = static_cast<float>(x);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  bits &= ~0U << 8 * (4 - bytes);
  float back = 0;
  std::memcpy(&back, &bits, 4);
  return back;
}

/// y[i] from a few values of every source, never twice the same by accident.
struct Mix {
  int id = 0;
  std::vector<std::size_t> sizes;  ///< of the sources
  mutable int calls = 0;
  void operator()(const View<const float>* x, View<float> y) const {
    ++calls;
    for (std::size_t i = 0; i < y.size(); ++i) {
      double sum = 0.37 * id + 0.011 * static_cast<double>(i);
      for (std::size_t s = 0; s < sizes.size(); ++s) {
        REQUIRE(x[s].size() == sizes[s]);
        sum = 0.8 * sum + static_cast<double>(x[s][i % sizes[s]]);
      }
      y[i] = rounded(sum / (1 + sum * sum));
    }
  }
};

struct alignas(64) Line {
  std::byte bytes[64];
};

/// A trainer drawn at random: activations with random sources, stages and codecs.
struct Drawn {
  StashModel<> model;
  std::deque<Mix> functions;
  std::vector<std::vector<int>> sources, stages;
  std::vector<Shape> shapes;
  std::vector<bool> again;
  int stage_count = 0;
};

void draw(unsigned seed, Drawn& drawn, unsigned most = 12) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  const int count = 1 + below(most);
  drawn.stage_count = 1 + below(10);
  for (int id = 0; id < count; ++id) {
    std::vector<int> stages, sources;
    for (int i = below(4); i > 0; --i)
      stages.push_back(below(static_cast<unsigned>(drawn.stage_count)));
    for (int i = below(4); i > 0 && id > 0; --i)
      sources.push_back(below(static_cast<unsigned>(id)));
    const Shape shape(1 + random() % 5, 8 + random() % 40);
    const int got = drawn.model.add("a", shape, {stages.data(), stages.size()});
    REQUIRE(got == id);
    Mix& function = drawn.functions.emplace_back();
    function.id = id;
    for (const int source : sources)
      function.sizes.push_back(drawn.shapes[static_cast<std::size_t>(source)].elems());
    drawn.again.push_back(below(4) != 0);
    if (drawn.again.back()) drawn.model.recompute(id, {sources.data(), sources.size()}, function);
    drawn.model.allow<Upper>(id);
    drawn.model.allow<Truncate>(id, 1e-3);
    drawn.shapes.push_back(shape);
    drawn.sources.push_back(sources);
    drawn.stages.push_back(stages);
  }
}

Plan draw_plan(std::mt19937& random, const Graph& graph) {
  Plan plan = plan_from_types(graph);
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
    const Node& node = graph.nodes[k];
    if (node.output_bytes == 0) continue;
    const auto drawn = static_cast<std::size_t>(random() % 4);
    if (drawn == 3 && node.recomputable) plan.policies[k] = recompute();
    else if (drawn > 0 && drawn <= node.candidate_count)
      plan.policies[k] = compress(graph.candidates_of(node)[drawn - 1]);
  }
  return plan;
}

bool lists(const std::vector<int>& list, int value) {
  for (const int entry : list)
    if (entry == value) return true;
  return false;
}

/// One step; checks every value that a stage gets. Forward lives in memory of its own, which is
/// overwritten as soon as the stash has it.
void train(const Drawn& drawn, Stash<>& stash, bool place) {
  const std::size_t count = drawn.shapes.size();
  std::vector<Values> forward(count), backward(count);
  Cpu cpu;
  REQUIRE_FALSE(stash.begin(cpu));
  for (std::size_t id = 0; id < count; ++id) {
    std::vector<View<const float>> x;
    for (const int source : drawn.sources[id]) {
      const auto s = static_cast<std::size_t>(source);
      x.push_back({forward[s].data(), drawn.shapes[s]});
    }
    forward[id].resize(drawn.shapes[id].elems());
    drawn.functions[id](x.data(), View<float>(forward[id].data(), drawn.shapes[id]));
    std::vector<Line> scratch(forward[id].size() / 16 + 1);
    View<float> y(reinterpret_cast<float*>(scratch.data()), drawn.shapes[id]);
    if (place) y = stash.place(static_cast<int>(id), y);
    std::memcpy(y.data(), forward[id].data(), 4 * y.size());
    const Error why = stash.put(static_cast<int>(id), y);
    REQUIRE_MESSAGE(!why, why.text());
    // What backward is to see.
    const Policy& policy = stash.plan()[static_cast<int>(id)];
    backward[id] = forward[id];
    if (policy.recomputes()) {
      std::vector<View<const float>> seen;
      for (const int source : drawn.sources[id]) {
        const auto s = static_cast<std::size_t>(source);
        seen.push_back({backward[s].data(), drawn.shapes[s]});
      }
      drawn.functions[id](seen.data(), View<float>(backward[id].data(), drawn.shapes[id]));
    } else if (policy.codec() == &codec_info<Truncate>) {
      for (float& value : backward[id]) value = rounded(static_cast<double>(value), 2);
    }
  }
  for (Mix& function : const_cast<Drawn&>(drawn).functions) function.calls = 0;
  for (int stage = drawn.stage_count - 1; stage >= 0; --stage)
    for (int round = 0; round < 2; ++round)  // twice: a stage may ask again
      for (std::size_t id = 0; id < count; ++id) {
        if (!lists(drawn.stages[id], stage)) continue;
        const Result<View<const float>> got = stash.get(static_cast<int>(id));
        REQUIRE_MESSAGE(got, got.error.text());
        CHECK(got->shape() == drawn.shapes[id]);
        CHECK(std::memcmp(got->data(), backward[id].data(), 4 * backward[id].size()) == 0);
      }
  for (const Mix& function : drawn.functions) CHECK(function.calls <= 1);
}

std::string text(const Error& error) { return error.text(); }
bool says(const Error& error, const char* what) {
  return text(error).find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("random trainers get what they put, under every policy, inside the predicted bytes") {
  std::size_t smaller = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Drawn drawn;
    draw(seed, drawn);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::mt19937 random(seed + 1000);
    auto retained = Stash<>::make(drawn.model, retain_all(*graph));
    REQUIRE_MESSAGE(retained, retained.error.text());
    for (int trial = 0; trial < 4; ++trial) {
      auto stash = Stash<>::make(drawn.model, draw_plan(random, *graph));
      REQUIRE_MESSAGE(stash, stash.error.text());
      const std::size_t bytes = stash->arena_bytes();
      if (bytes < retained->arena_bytes()) ++smaller;
      CHECK(stash->program().layout.live_bytes <= align_up(bytes));
      // Used: whatever differs from one of two patterns. The last byte does, the guard does not.
      std::size_t used = 0;
      for (const int pattern : {0x5a, 0xa5}) {
        std::vector<Line> arena(bytes / 64 + 3);
        std::byte* memory = arena[0].bytes;
        std::memset(memory, pattern, 64 * arena.size());
        REQUIRE_FALSE(stash->bind({memory, Shape(bytes)}));
        train(drawn, *stash, trial % 2 == 0);
        for (std::size_t i = 64 * arena.size(); i-- > used;)
          if (memory[i] != static_cast<std::byte>(pattern)) used = i + 1;
        train(drawn, *stash, false);  // a second step in the same arena
      }
      CHECK(used == bytes);
    }
  }
  CHECK(smaller > 300);
}

TEST_CASE("the exact planner finds the best plan of a stash, as brute force does") {
  std::size_t found = 0, squeezed = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Drawn drawn;
    draw(seed, drawn, 6);
    const Result<Graph> graph = drawn.model.graph();
    REQUIRE(graph);
    std::mt19937 random(seed);
    const auto unit = [&] { return static_cast<double>(random() % 1000 + 1) / 1000; };
    CostProfile profile = empty_profile(*graph);
    for (NodeCost& cost : profile.nodes) cost.forward = unit(), cost.backward = unit();
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
  CHECK(found > 1000);
  CHECK(squeezed > 100);
}

TEST_CASE("the profile has times for all that a plan may run, and errors where sources are lossy") {
  Drawn drawn;
  draw(7, drawn);
  const Result<Graph> graph = drawn.model.graph();
  REQUIRE(graph);
  std::vector<Line> scratch(stash_measure_bytes(*graph) / 64 + 1);
  Cpu cpu;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  const Bytes memory(scratch[0].bytes, Shape(64 * scratch.size()));
  const auto profile = measure_stash(drawn.model, cpu, memory, {.now = now});
  REQUIRE_MESSAGE(profile, profile.error.text());
  CHECK_FALSE(check(*graph, *profile));
  std::mt19937 random(1);
  const Plan plan = draw_plan(random, *graph);
  const PlanCost cost = evaluate(*graph, *profile, plan);
  CHECK(cost.seconds > 0);
  CHECK(cost.live_bytes == make_layout(make_schedule(*graph, plan)).live_bytes);
  CHECK_FALSE(measure_stash(drawn.model, cpu, Bytes{}, {.now = now}));
  CHECK_FALSE(measure_stash(drawn.model, cpu, memory, {}));
}

TEST_CASE("a plan's error counts what is recomputed from lossy sources") {
  StashModel<> model;
  const auto copy = [](const View<const float>* x, View<float> y) {
    std::memcpy(y.data(), x[0].data(), 4 * y.size());
  };
  const int a = model.add("a", Shape(4, 32), {1});
  const int b = model.add("b", Shape(4, 32), {2});
  model.recompute(b, {a}, copy);
  model.allow<Truncate>(a, 0.25);
  const auto graph = model.graph();
  REQUIRE(graph);
  std::vector<Line> scratch(64);
  Cpu cpu;
  const auto profile = measure_stash(model, cpu, {scratch[0].bytes, Shape(64 * scratch.size())},
                                     {.now = [] { return 0.0; }, .repeats = 1});
  REQUIRE_MESSAGE(profile, profile.error.text());
  Plan plan = retain_all(*graph);
  CHECK(evaluate(*graph, *profile, plan).error == 0);
  plan.policies[0] = compress(&codec_info<Truncate>);
  CHECK(evaluate(*graph, *profile, plan).error == 0.25);
  plan.policies[1] = recompute();
  CHECK(evaluate(*graph, *profile, plan).error == 0.5);
  CHECK_FALSE(exact_in_backward(*graph, plan)[1]);
}

TEST_CASE("uses out of order are errors that change nothing") {
  StashModel<> model;
  const int a = model.add("a", Shape(2, 32), {0, 1});
  const int mask = model.add_bytes("mask", 10, {1});
  const int b = model.add("b", Shape(2, 32), {1});
  const int unread = model.add("unread", Shape(3, 4), {});
  model.allow<Bf16>(b, 1e-5);
  const auto graph = model.graph();
  REQUIRE(graph);
  Plan plan = retain_all(*graph);
  plan.policies[static_cast<std::size_t>(b)] = compress(&codec_info<Bf16>);
  auto stash = Stash<>::make(model, plan);
  REQUIRE_MESSAGE(stash, stash.error.text());
  Cpu cpu;
  std::vector<Line> arena(64), values(8);
  float* data = reinterpret_cast<float*>(values.data());
  for (int i = 0; i < 128; ++i) data[i] = static_cast<float>(i);
  const View<const float> x(data, Shape(2, 32));
  const ConstBytes raw(values[0].bytes, Shape(10));

  CHECK(says(stash->begin(cpu), "bind()"));
  CHECK(says(stash->bind({arena[0].bytes, Shape(64)}), "needs an arena of"));
  CHECK(says(stash->bind({arena[0].bytes + 4, Shape(4000)}), "aligned"));
  REQUIRE_FALSE(stash->bind({arena[0].bytes, Shape(64 * arena.size())}));
  CHECK(says(stash->put(a, x), "before begin()"));
  CHECK(says(stash->get(a).error, "before begin()"));
  REQUIRE_FALSE(stash->begin(cpu));
  CHECK(says(stash->put(7, x), "activations 0 to 3"));
  CHECK(says(stash->put(-1, x), "activations 0 to 3"));
  CHECK(says(stash->put(b, x), "before a"));
  CHECK(says(stash->put(a, View<const float>(data, Shape(32, 2))), "registered as f32 (2, 32)"));
  CHECK(says(stash->get(a).error, "a was not put"));
  CHECK_FALSE(stash->put(a, x));
  CHECK(says(stash->put(a, x), "put already"));
  CHECK(says(stash->put(mask, x), "registered as bytes"));
  CHECK_FALSE(stash->put_bytes(mask, raw));
  CHECK(says(stash->put(b, View<const float>(data + 1, Shape(2, 32))), "multiple of"));
  CHECK_FALSE(stash->put(b, x));  // the failed one changed nothing
  CHECK(says(stash->get(b).error, "unread was not put"));
  CHECK_FALSE(stash->put(unread, View<const float>(data, Shape(3, 4))));
  CHECK(says(stash->get(unread).error, "none was registered to read it"));
  CHECK(says(stash->get(9).error, "activations 0 to 3"));
  const auto first = stash->get(b);
  REQUIRE(first);
  CHECK((*first)[63] == 63.0F);
  const auto bytes = stash->get_bytes(mask);
  REQUIRE(bytes);
  CHECK(std::memcmp(bytes->data(), data, 10) == 0);
  REQUIRE(stash->get(a));
  CHECK_FALSE(stash->begin(cpu));  // a step may be given up
  CHECK_FALSE(stash->put(a, x));
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
  {
    StashModel<> model;
    model.allow<Truncate>(model.add("a", Shape(4, 4), {0}));
    CHECK(says(model.graph().error, "what gradient error"));
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
