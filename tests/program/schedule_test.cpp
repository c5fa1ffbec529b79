// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "../step/random_model.hpp"

namespace schedule_test {

using namespace adacc;

namespace {

/// Replays a schedule symbolically: what does each buffer hold, and was it there when read?
/// Written from the rules in schedule.hpp, not from its code.
class Replay {
 public:
  explicit Replay(const Program& program)
      : graph_(program.graph), plan_(program.plan), schedule_(program.schedule),
        layout_(program.layout), held_(schedule_.buffers.size(), Held{}),
        recomputed_(graph_.nodes.size(), 0), decoded_(graph_.nodes.size(), 0),
        forwards_(graph_.nodes.size(), 0), backwards_(graph_.nodes.size(), 0) {}

  void run() {
    for (std::size_t i = 0; i < schedule_.instructions.size(); ++i) {
      now_ = static_cast<int>(i);
      step(schedule_.instructions[i]);
      one_copy_each();
      no_overlap();
    }
    for (int k = 0; k < graph_.node_count(); ++k) {
      const auto id = static_cast<std::size_t>(k);
      CHECK(forwards_[id] == 1);
      CHECK(backwards_[id] == 1);
      CHECK(recomputed_[id] <= 1);
      CHECK(decoded_[id] <= 1);
      if (!plan_[k].recomputes()) CHECK(recomputed_[id] == 0);
      if (plan_[k].codec() == nullptr) CHECK(decoded_[id] == 0);
    }
  }

 private:
  /// activation: how many of its sums are in already; gradient: which contributions.
  struct Held {
    enum What { nothing, value, gradient, blob, aux } what = nothing;
    int activation = -2;
    std::size_t sums = 0;
  };

  Held& at(int buffer) { return held_[static_cast<std::size_t>(buffer)]; }

  bool alive(int buffer) const {
    const Buffer& b = schedule_.buffer(buffer);
    return b.first <= now_ && now_ <= b.last;
  }

  /// The buffer holds the finished value of `activation` (all sums added).
  void reads_value(int buffer, int activation) {
    if (activation < 0) {
      CHECK(buffer == -1);
      return;
    }
    REQUIRE(buffer >= 0);
    CHECK(alive(buffer));
    CHECK(at(buffer).what == Held::value);
    CHECK(at(buffer).activation == activation);
    CHECK(at(buffer).sums == graph_.adds(activation).size());
  }

  std::size_t layers_reading(int activation) const {
    std::size_t layers = 0;
    for (int k = 0; k < graph_.node_count(); ++k)
      if (graph_.sources(k).contains(activation)) ++layers;
    return layers;
  }
  std::size_t gradient_parts(int activation) const {
    std::size_t parts = layers_reading(activation);
    if (activation + 1 == graph_.node_count()) ++parts;  // the loss
    for (int k = 0; k < graph_.node_count(); ++k)
      for (const int source : graph_.adds(k))
        if (source == activation) ++parts;
    return parts;
  }
  /// Whether the gradient of `other` is that of `activation`, too: that of the one sum that reads it, and
  /// so on.
  bool is_gradient_of(int other, int activation) const {
    if (other == activation) return true;
    if (layers_reading(activation) > 0) return false;
    for (int end = 0; end < graph_.node_count(); ++end)
      if (graph_.adds(end).contains(activation)) return is_gradient_of(other, end);
    return false;
  }
  /// The buffer holds all of the gradient of `activation`, or of the one sum that reads it.
  void reads_gradient(int buffer, int activation) {
    const Held& held = at(buffer);
    CHECK(held.what == Held::gradient);
    CHECK(is_gradient_of(held.activation, activation));
    CHECK(held.sums == gradient_parts(held.activation));
  }

  void step(const Instruction& inst) {
    const int k = inst.node;
    const Node& node = graph_.node(k);
    const auto id = static_cast<std::size_t>(k);
    switch (inst.op) {
      case Op::forward:
        reads_value(inst.x, graph_.input_of(k));
        ++(inst.again ? recomputed_ : forwards_)[id];
        at(inst.y) = {Held::value, k, 0};
        if (inst.adds) {
          reads_value(inst.added, graph_.adds(k)[0]);
          ++at(inst.y).sums;
        }
        if (node.aux_bytes > 0) at(inst.aux) = {Held::aux, k, 0};
        CHECK((inst.workspace >= 0) == (node.forward_workspace > 0));
        break;
      case Op::add: {
        CHECK(at(inst.y).what == Held::value);
        CHECK(at(inst.y).activation == k);
        reads_value(inst.x, graph_.adds(k)[at(inst.y).sums]);
        ++at(inst.y).sums;
        break;
      }
      case Op::encode:
        reads_value(inst.x, k);
        at(inst.blob) = {Held::blob, k, 0};
        break;
      case Op::decode:
        CHECK(at(inst.blob).what == Held::blob);
        CHECK(at(inst.blob).activation == k);
        ++decoded_[id];
        at(inst.y) = {Held::value, k, graph_.adds(k).size()};
        break;
      case Op::loss_gradient:
        reads_value(inst.x, graph_.node_count() - 1);
        at(inst.dx) = {Held::gradient, k, 1};
        break;
      case Op::backward: {
        ++backwards_[id];
        if (reads_input(node.reads)) reads_value(inst.x, graph_.input_of(k));
        if (reads_output(node.reads)) reads_value(inst.y, k);
        if (node.aux_bytes > 0) {
          CHECK(at(inst.aux).what == Held::aux);
          CHECK(at(inst.aux).activation == k);
        }
        reads_gradient(inst.dy, k);
        if (inst.dx == inst.dy) CHECK(node.dx_overwrites_dy);
        if (inst.dx >= 0) at(inst.dx) = {Held::gradient, graph_.input_of(k), 1};
        if (inst.adds) {
          CHECK(inst.added != inst.dx);
          const Held& end = at(inst.added);
          CHECK(end.what == Held::gradient);
          CHECK(end.sums == gradient_parts(end.activation));
          bool from_sum = false;
          for (int other = 0; other < graph_.node_count(); ++other)
            from_sum = from_sum || (graph_.adds(other).contains(graph_.input_of(k)) &&
                                    is_gradient_of(end.activation, other));
          CHECK(from_sum);
          ++at(inst.dx).sums;
        }
        break;
      }
      case Op::add_gradient: {
        CHECK(at(inst.dx).what == Held::gradient);
        CHECK(at(inst.dy).what == Held::gradient);
        if (at(inst.dx).activation == k &&
            at(inst.dy).activation == k) {  // of two layers that read k
          CHECK(at(inst.dy).sums == 1);
          ++at(inst.dx).sums;
          at(inst.dy) = {};
          break;
        }
        const bool along = at(inst.dy).activation == k;  // to what came along the sum
        const Held& end = along ? at(inst.dx) : at(inst.dy);
        bool from_sum = false;
        for (int other = 0; other < graph_.node_count(); ++other)
          from_sum =
              from_sum || (graph_.adds(other).contains(k) && is_gradient_of(end.activation, other));
        CHECK(from_sum);
        CHECK(end.sums == gradient_parts(end.activation));
        const Held& mine = along ? at(inst.dy) : at(inst.dx);
        CHECK(mine.activation == k);
        const std::size_t sums = mine.sums + 1;
        at(inst.dx) = {Held::gradient, k, sums};
        if (along) at(inst.dy) = {};
        break;
      }
      case Op::update: FAIL("nobody asked for updates"); break;
      case Op::hand_over: FAIL("the network has a loss"); break;
      case Op::write_begin:
      case Op::write_wait:
      case Op::read_begin:
      case Op::read_wait: FAIL("the plan offloads nothing"); break;
      case Op::loss: FAIL("a training schedule has loss_gradient"); break;
    }
  }

  void one_copy_each() {
    std::vector<int> values(graph_.nodes.size(), 0);
    for (std::size_t b = 0; b < held_.size(); ++b) {
      if (!alive(static_cast<int>(b))) held_[b] = {};
      if (held_[b].what != Held::value) continue;
      CHECK(++values[static_cast<std::size_t>(held_[b].activation)] == 1);
    }
  }

  void no_overlap() {
    for (std::size_t a = 0; a < held_.size(); ++a) {
      if (!alive(static_cast<int>(a))) continue;
      CHECK(layout_.offsets[a] % alignment == 0);
      CHECK(layout_.offsets[a] + schedule_.buffers[a].bytes <= layout_.arena_bytes);
      for (std::size_t b = a + 1; b < held_.size(); ++b) {
        if (!alive(static_cast<int>(b))) continue;
        const std::size_t a0 = layout_.offsets[a], a1 = a0 + schedule_.buffers[a].bytes;
        const std::size_t b0 = layout_.offsets[b], b1 = b0 + schedule_.buffers[b].bytes;
        if (a1 > b0 && b1 > a0) FAIL_CHECK("buffers " << a << " and " << b << " overlap");
      }
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  const Schedule& schedule_;
  const Layout& layout_;
  std::vector<Held> held_;
  std::vector<int> recomputed_, decoded_, forwards_, backwards_;
  int now_ = 0;
};

/// Three layers whose backward reads the input; the middle one under the policy in question.
template <class Policy>
using Three =
    Network<Sequential<Layer<random_model::Bump, Retain>, Layer<random_model::Bump, Policy>,
                       Layer<random_model::Bump, Retain>>,
            random_model::HalfSquare>;

template <class Policy>
std::vector<Op> ops() {
  const auto program = make_program(Three<Policy>{}, Shape(4, 4));
  REQUIRE(program);
  std::vector<Op> list;
  for (const Instruction& i : program->schedule.instructions) list.push_back(i.op);
  return list;
}

}  // namespace

TEST_CASE("a gradient that goes from sum to sum is nobody's to overwrite before the last has it") {
  // Softsign's gradient is that of the sum behind it, which has it from the last sum, which adds what
  // Bump made, too.
  using namespace random_model;
  using Inner = ProjectedResidual<Layer<Softsign>, Layer<Shift>>;
  using Model = Sequential<Layer<Bump>, adacc::Residual<ProjectedResidual<Inner, Layer<Shift>>>>;
  const auto program = make_program(adacc::Network<Model, HalfSquare>{}, Shape(4, 4));
  REQUIRE_MESSAGE(program, program.error.text());
  Replay(*program).run();
}

TEST_CASE("random chains: every value is there when read, once, and nothing overlaps") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto network = random_model::draw(seed, true);
    auto program = make_program(network, random_model::draw_shape(seed), {.workers = 2});
    REQUIRE_MESSAGE(program, program.error.text());
    Replay(*program).run();
  }
}

TEST_CASE(
    "random chains whose layers form residual sums: fewer instructions, and as many live bytes") {
  std::size_t fused = 0, forward = 0, backward = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto program = make_program(random_model::draw(seed, true),
                                      random_model::draw_shape(seed), {.workers = 2});
    REQUIRE(program);
    Graph graph = program->graph;
    for (Node& node : graph.nodes) node.adds_residual = node.adds_gradient = true;
    const auto sums = make_program(graph, program->plan);
    REQUIRE(sums);
    Replay(*sums).run();
    CHECK(live_bytes(sums->schedule) == live_bytes(program->schedule));
    const Array<Instruction>& all = sums->schedule.instructions;
    const std::size_t before = fused;
    for (const Instruction& inst : all) {
      fused += inst.adds ? 1 : 0;
      forward += inst.adds && inst.op == Op::forward ? 1 : 0;
      backward += inst.adds && inst.op == Op::backward ? 1 : 0;
    }
    CHECK(all.size() + fused - before == program->schedule.instructions.size());
  }
  CHECK(forward > 100);
  CHECK(backward > 100);
  CHECK(forward + backward == fused);
}

TEST_CASE("instructions of a chain, by policy") {
  using enum Op;
  CHECK(ops<Retain>() ==
        std::vector<Op>{forward, forward, forward, loss_gradient, backward, backward, backward});
  CHECK(ops<Recompute>() == std::vector<Op>{forward, forward, forward, loss_gradient, forward,
                                            backward, backward, backward});
  CHECK(ops<Compress<random_model::Verbatim>>() == std::vector<Op>{forward, forward, forward,
                                                                   encode, loss_gradient, decode,
                                                                   backward, backward, backward});
}

TEST_CASE("what only feeds outputs that nobody reads is not run again") {
  using random_model::Bump;
  using random_model::Shift;
  // The last layer of the block feeds only the block's output, which is retained.
  using Block = Sequential<Layer<Bump, Recompute>, Layer<Bump, Recompute>, Layer<Shift, Retain>>;
  using Net = Network<Sequential<Layer<Bump, Retain>, Repeat<Block>>, random_model::HalfSquare>;
  const auto program = make_program(Net{{{}, {3, {}}}, {}}, Shape(4, 4));
  REQUIRE(program);
  int again = 0;
  for (const Instruction& i : program->schedule.instructions) again += i.again ? 1 : 0;
  CHECK(again == 3);  // Shift reads nothing, so the second Bump's output is not wanted either
}

TEST_CASE("a long run of recomputation is produced once, not once per layer") {
  Array<Policy> policies;
  random_model::Model model;
  for (int i = 0; i < 200; ++i) model.before.push_back({random_model::Kind::bump, 1});
  const auto program = make_program(random_model::Network{model, {}}, Shape(2, 2));
  REQUIRE(program);
  int again = 0;
  for (const Instruction& i : program->schedule.instructions) again += i.again ? 1 : 0;
  CHECK(again == 199);  // the last one's output is read by the loss alone
}

TEST_CASE("evaluation runs forward only and holds no more than two activations of a chain") {
  const auto program = make_program(Three<Retain>{}, Shape(16, 16), {}, Mode::evaluate);
  REQUIRE(program);
  CHECK(program->schedule.instructions.size() == 4);
  const auto trained = make_program(Three<Retain>{}, Shape(16, 16));
  CHECK(program->peak_bytes() < trained->peak_bytes());
}

TEST_CASE("a plan for another graph is refused") {
  auto graph = make_graph(Three<Retain>{}, Shape(4, 4));
  REQUIRE(graph);
  Plan plan = retain_all(*graph);
  plan.policies.pop_back();
  const auto program = make_program(*graph, plan);
  CHECK_FALSE(program);
  CHECK(std::string(program.error.text()) ==
        "the plan has 2 policies, and the graph has 3 activations");
  plan.policies.push_back(Policy{});
  CHECK(std::string(make_program(*graph, plan).error.text()).find("leaves activation 2") !=
        std::string::npos);
}

}  // namespace schedule_test
