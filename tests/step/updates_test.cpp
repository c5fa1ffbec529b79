// SPDX-License-Identifier: MIT
// Gradients are announced once, when nothing more is added to them and nobody reads the values of their
// parameters any more, in whole steps, slices and loops; live bytes and bits stay what they are.
#include <doctest/doctest.h>

#include <adacc/program/fixed_program.hpp>
#include <adacc/step/fixed_dispatch.hpp>

#include <limits>

#include "../test_size.hpp"
#include "step_run.hpp"

namespace updates_test {

using namespace adacc;
using step_run::Aligned;
using step_run::Backwards;

namespace {

/// Columns times 1 and a parameter, whose values backward reads, plus another one. Layers of one number
/// share the first.
template <int number>
struct Scale {
  static constexpr const char* name = "scale";
  static constexpr auto split = Split::rows;
  static constexpr auto backward_reads = reads::input;
  static constexpr std::array<ParameterSpec, 2> parameters(Shape in) {
    return {{{"scale", Shape(in.cols()), Init::uniform(0.5F), true,
              number == 0   ? nullptr
              : number == 1 ? "one"
                            : "two"},
             {"shift", Shape(in.cols())}}};
  }
  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] =
          call.x[i] * (1 + call.params[0][i % call.x.cols()]) + call.params[1][i % call.x.cols()];
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const T rate = call.dy[i];
      call.dparams[0][i % call.x.cols()] += rate * call.x[i];
      call.dparams[1][i % call.x.cols()] += rate;
      call.dx[i] = rate * (1 + call.params[0][i % call.x.cols()]);
    }
  }
};

/// The squares of what a parameter shared with layers leaves.
struct Loss {
  static constexpr auto split = Split::rows;
  static constexpr std::array<ParameterSpec, 1> parameters(Shape in) {
    return {{{"scale", Shape(in.cols()), Init::uniform(0.5F), true, "two"}}};
  }
  template <class T>
  double forward(Cpu&, const LossCall<T>& call) const {
    double sum = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const auto away =
          static_cast<double>(call.x[i] * call.params[0][i % call.x.cols()] - call.targets[i]);
      sum += 0.5 * away * away;
    }
    return sum;
  }
  template <class T>
  double forward_backward(Cpu& cpu, const LossCall<T>& call) const {
    const double sum = forward(cpu, call);
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const T away = call.x[i] * call.params[0][i % call.x.cols()] - call.targets[i];
      call.dx[i] = away * call.params[0][i % call.x.cols()];
      call.dparams[0][i % call.x.cols()] += away * call.x[i];
    }
    return sum;
  }
};

/// Layers by number, under policies by number; behind a 6 is added what was behind the last one, or at
/// the start.
struct Recipe {
  using last_layer = Scale<0>;
  std::vector<std::pair<int, int>> items;

  template <class Visitor>
  void visit(Visitor& v) const {
    int source = v.current();
    for (const auto& [kind, policy] : items) {
      switch (kind) {
        case 0:
        case 1: add<Scale<0>>(v, policy); break;
        case 2: add<Scale<1>>(v, policy); break;
        case 3: add<Scale<2>>(v, policy); break;
        case 4: add<random_model::Softsign>(v, policy); break;
        case 5: add<random_model::Bump>(v, policy); break;
        default:
          add<Scale<1>>(v, policy);
          v.add(source);
          source = v.current();
      }
    }
  }

 private:
  template <class Functor, class Visitor>
  static void add(Visitor& v, int policy) {
    static constexpr Functor functor{};
    switch (policy) {
      case 0: v.template layer<Retain>(functor); break;
      case 1: v.template layer<Compress<random_model::Verbatim>>(functor); break;
      default: v.template layer<Recompute>(functor); break;
    }
  }
};

struct Net {
  Recipe model;
  Loss loss;
};

Net draw(std::mt19937& random) {
  Net net;
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  for (int i = 2 + below(9); i > 0; --i) net.model.items.push_back({below(7), below(4)});
  return net;
}

/// Memory of a step, with parameters that may be changed.
struct Bound {
  Bound(const Net& net, const Program& program, int workers)
      : executor{workers}, cpu(ExecutorRef(executor)), made(Step<>::make(net, program)),
        arena(program.peak_bytes()), params(program.graph.parameter_elems * 4),
        gradients(params.size), shape(program.graph.input), input(shape.elems()),
        targets(shape.elems(), 0.3F) {
    REQUIRE_MESSAGE(made, made.error.text());
    cpu.key.seed = 7;
    std::memset(gradients.data, 0, gradients.size);
    for (std::size_t i = 0; i < program.graph.parameter_elems; ++i)
      values()[i] = 0.01F * static_cast<float>(i % 13) - 0.05F;
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
    const Error why = made->bind({arena.data, Shape(program.peak_bytes())},
                                 {values(), Shape(program.graph.parameter_elems)},
                                 {block(), Shape(program.graph.gradient_elems)});
    REQUIRE_MESSAGE(!why, why.text());
  }
  float* values() const { return reinterpret_cast<float*>(params.data); }
  float* block() const { return reinterpret_cast<float*>(gradients.data); }
  View<const float> x() const { return {input.data(), shape}; }
  View<const float> t() const { return {targets.data(), shape}; }
  Result<double> run() { return made->run(cpu, x(), t()); }

  Backwards executor;
  Cpu cpu;
  Result<Step<>> made;
  Aligned arena, params, gradients;
  Shape shape;
  std::vector<float> input, targets;
};

bool says(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("gradients are announced when they are complete and their parameters' values are free") {
  std::mt19937 random(29);
  std::size_t looped = 0, shared = 0;
  for (unsigned i = 0; i < test_networks / 3; ++i) {
    CAPTURE(i);
    const Net net = draw(random);
    const Shape shape(1 + random() % 40, 2 * (1 + random() % 12));
    const int workers = 1 + static_cast<int>(random() % 2);
    GraphOptions options{.workers = workers, .parts = 1 + static_cast<int>(random() % 5)};
    const auto separate = make_program(net, shape, options);
    REQUIRE_MESSAGE(separate, separate.error.text());
    CHECK(separate->graph.gradients.empty());
    options.updates = Updates::announced;
    const auto program = make_program(net, shape, options);
    CHECK(program->layout.live_bytes == separate->layout.live_bytes);
    const std::size_t told = program->graph.gradients.size();
    looped += !program->schedule.loops.empty();
    for (const LastingGradient& gradient : program->graph.gradients)
      shared += gradient.begun != gradient.complete;

    Bound plain(net, *separate, workers), announced(net, *program, workers);
    const auto loss = plain.run();
    std::vector<float> seen(program->graph.gradient_elems, -1);
    std::vector<int> times(told, 0);
    // Whoever reads parameters from here on finds NaN, and adds it to gradients.
    auto use = [&](Cpu&, const CompleteGradients<float>& complete) {
      const View<float> range = complete.range();
      const auto at = static_cast<std::size_t>(range.data() - announced.block());
      std::copy(range.begin(), range.end(), seen.begin() + static_cast<std::ptrdiff_t>(at));
      for (std::size_t k = 0; k < complete.size(); ++k) {
        ++times[complete.number(k)];
        const Parameter& parameter = complete.parameter(k);
        CHECK(complete.gradient(k).data() == announced.block() + parameter.offset);
        for (std::size_t e = 0; e < parameter.shape.elems(); ++e)
          announced.values()[parameter.offset + e] = std::numeric_limits<float>::quiet_NaN();
      }
    };
    REQUIRE_FALSE(announced.made->lend_updates(use));
    if (i % 2 == 0) {
      const auto same_loss = announced.run();
      REQUIRE(same_loss);
      CHECK(*same_loss == *loss);
    } else {
      auto cursor = Cursor<>::make(*announced.made);
      REQUIRE_FALSE(cursor->begin(announced.x(), announced.t()));
      while (cursor->active()) REQUIRE(cursor->run(announced.cpu, random() % 4));
      CHECK(cursor->loss() == *loss);
    }
    for (const int count : times) CHECK(count == 1);
    const std::size_t bytes = program->graph.gradient_elems * sizeof(float);
    CHECK(std::memcmp(announced.block(), plain.block(), bytes) == 0);
    CHECK(std::memcmp(seen.data(), plain.block(), bytes) == 0);
  }
  CHECK(looped > test_networks / 20);
  CHECK(shared > test_networks / 10);
}

TEST_CASE("gradients in the arena have the bits of those in a block, and the peak is exact") {
  std::mt19937 random(31);
  std::size_t smaller = 0;
  for (unsigned i = 0; i < test_networks / 3; ++i) {
    CAPTURE(i);
    const Net net = draw(random);
    const Shape shape(1 + random() % 40, 2 * (1 + random() % 12));
    const int workers = 1 + static_cast<int>(random() % 2);
    GraphOptions options{.workers = workers, .parts = 1 + static_cast<int>(random() % 5)};
    const auto separate = make_program(net, shape, options);
    options.updates = Updates::fused;
    const auto program = make_program(net, shape, options);
    REQUIRE_MESSAGE(program, program.error.text());
    const Graph& graph = program->graph;
    std::size_t room = 0;
    for (const LastingGradient& gradient : graph.gradients) room += align_up(gradient.bytes);
    CHECK(room == graph.gradient_elems * sizeof(float));
    CHECK(program->layout.live_bytes >= separate->layout.live_bytes);
    CHECK(program->layout.live_bytes <= separate->layout.live_bytes + room);
    smaller += program->layout.live_bytes < separate->layout.live_bytes + room;

    Bound plain(net, *separate, workers), fused(net, *program, workers);
    std::memset(fused.arena.data, 0x5A, fused.arena.size);
    const auto loss = plain.run();
    std::size_t told = 0;
    auto use = [&](Cpu&, const CompleteGradients<float>& complete) {
      CHECK(complete.range().size() == 0);
      for (std::size_t k = 0; k < complete.size(); ++k, ++told) {
        const Parameter& parameter = complete.parameter(k);
        const View<float> gradient = complete.gradient(k);
        CHECK(std::memcmp(gradient.data(), plain.block() + parameter.offset,
                          gradient.size() * sizeof(float)) == 0);
        for (std::size_t e = 0; e < gradient.size(); ++e) {
          gradient[e] = std::numeric_limits<float>::quiet_NaN();
          fused.values()[parameter.offset + e] = std::numeric_limits<float>::quiet_NaN();
        }
      }
    };
    REQUIRE_FALSE(fused.made->lend_updates(use));
    for (int step = 0; step < 2; ++step) {  // the second finds what the first has left
      told = 0;
      std::memcpy(fused.params.data, plain.params.data, plain.params.size);
      const auto same_loss = fused.run();
      REQUIRE(same_loss);
      CHECK(*same_loss == *loss);
      CHECK(told == graph.gradients.size());
    }
    std::size_t used = program->peak_bytes() + 1;
    while (used > 0 && fused.arena.data[used - 1] == std::byte{0x5A}) --used;
    CHECK(used == program->peak_bytes());
    CHECK(std::all_of(fused.block(), fused.block() + graph.gradient_elems,
                      [](float x) { return x == 0; }));
  }
  CHECK(smaller > test_networks / 5);
}

TEST_CASE("steps may write gradients where nobody has set zeros, with the bits of sums from zero") {
  std::mt19937 random(37);
  for (unsigned i = 0; i < test_networks / 10; ++i) {
    CAPTURE(i);
    const Net net = draw(random);
    const Shape shape(1 + random() % 40, 2 * (1 + random() % 12));
    const int workers = 1 + static_cast<int>(random() % 2);
    const auto program =
        make_program(net, shape, {.workers = workers, .parts = 1 + static_cast<int>(random() % 5)});
    REQUIRE_MESSAGE(program, program.error.text());
    Bound adds(net, *program, workers), writes(net, *program, workers);
    for (const Parameter& parameter : program->graph.parameters)
      std::fill_n(writes.block() + parameter.offset, parameter.shape.elems(),
                  std::numeric_limits<float>::quiet_NaN());
    writes.made->write_gradients(true);
    for (int batch = 0; batch < 2; ++batch) {  // the second one adds
      REQUIRE(adds.run());
      REQUIRE(writes.run());
      writes.made->write_gradients(false);
      CHECK(std::memcmp(writes.block(), adds.block(),
                        program->graph.gradient_elems * sizeof(float)) == 0);
    }
  }
}

namespace {

/// Wants to be told of all gradients, worth something or not; the second time it fails.
struct Waiting {
  static constexpr bool even_if_failed = true;
  int calls = 0;
  Error operator()(Cpu&, const CompleteGradients<float>&) {
    return ++calls == 2 ? Error::say("the other rank is gone") : Error();
  }
};

}  // namespace

TEST_CASE("nobody to tell is a mistake; what he reports is the step's error") {
  const Net net{{{{0, 0}, {2, 0}, {2, 0}}}, {}};
  const auto program = make_program(net, Shape(4, 8), {.updates = Updates::announced});
  Bound bound(net, *program, 1);
  const auto refused = bound.run();
  CHECK(says(refused.error, "nobody is there to be told"));

  int calls = 0;
  auto use = [&](Cpu&, const CompleteGradients<float>&) {
    return ++calls == 2 ? Error::say("the other rank is gone") : Error();
  };
  REQUIRE_FALSE(bound.made->lend_updates(use));
  const auto failed = bound.run();
  CHECK(says(failed.error, "the other rank is gone"));
  CHECK(calls == 2);  // what is computed behind an error is no news to anybody

  Waiting waiting;
  REQUIRE_FALSE(bound.made->lend_updates(waiting));
  CHECK(says(bound.run().error, "the other rank is gone"));
  CHECK(waiting.calls ==
        4);  // the loss shares nothing here; the tied pair tells in its first layer

  // Evaluation has no gradients.
  auto evaluate = make_program(net, Shape(4, 8), {.updates = Updates::announced}, Mode::evaluate);
  Bound evaluated(net, *evaluate, 1);
  CHECK(evaluated.run());
}

TEST_CASE("frozen parameters are announced to nobody") {
  const Net net{{{{0, 0}, {0, 0}}}, {}};
  TrainedSet trained;
  for (const bool one : {false, true, true, false, true}) trained.push_back(one);
  const auto program =
      make_program(net, Shape(4, 8), {.trained = &trained, .updates = Updates::announced});
  REQUIRE_MESSAGE(program, program.error.text());
  Bound bound(net, *program, 1);
  std::vector<std::size_t> told;
  auto use = [&](Cpu&, const CompleteGradients<float>& complete) {
    for (std::size_t k = 0; k < complete.size(); ++k) told.push_back(complete.parameter_number(k));
  };
  REQUIRE_FALSE(bound.made->lend_updates(use));
  REQUIRE(bound.run());
  CHECK(told == std::vector<std::size_t>{4, 2, 1});
}

namespace {
constexpr Network fixed_net{Sequential{layer(Scale<1>{}), layer(Scale<1>{})}, Loss{}};
constexpr auto make_fixed = [] {
  return make_program(fixed_net, Shape(4, 8), {.updates = Updates::announced});
};
constinit FixedProgram<decltype(make_fixed)> fixed;
}  // namespace

TEST_CASE("programs in static storage announce, too") {
  FixedDispatch<float, Cpu, fixed.layer_count> dispatch;
  auto step = Step<>::make(dispatch.make(fixed_net), fixed.program());
  REQUIRE(step);
  Aligned arena(fixed.peak_bytes), params(fixed.parameter_elems * 4), gradients(params.size);
  std::memset(params.data, 0, params.size);
  std::memset(gradients.data, 0, gradients.size);
  const auto block = [](Aligned& memory) {
    return View<float>(reinterpret_cast<float*>(memory.data), Shape(fixed.parameter_elems));
  };
  REQUIRE_FALSE(step->bind({arena.data, Shape(fixed.peak_bytes)}, block(params), block(gradients)));
  std::vector<std::size_t> told;
  auto use = [&](Cpu&, const CompleteGradients<float>& complete) {
    for (std::size_t k = 0; k < complete.size(); ++k) told.push_back(complete.parameter_number(k));
  };
  REQUIRE_FALSE(step->lend_updates(use));
  const std::vector<float> x(32, 0.5F);
  Cpu cpu;
  REQUIRE(step->run(cpu, View<const float>(x.data(), Shape(4, 8)),
                    View<const float>(x.data(), Shape(4, 8))));
  CHECK(told == std::vector<std::size_t>{4, 3, 0, 1});
}

}  // namespace updates_test
