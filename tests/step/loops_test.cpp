// SPDX-License-Identifier: MIT
// Loops over rows: no bit differs from running one instruction after the other, no peak is higher,
// and each is touched to its last byte.
#include <doctest/doctest.h>

#include <adacc/layer/dropout.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/rms_norm.hpp>

#include "../test_size.hpp"
#include "step_run.hpp"

namespace loops_test {

using namespace adacc;
using namespace step_run;

namespace {

/// The program of the same plan without loops.
Program straight(const Program& looped) {
  Program program = looped;
  program.schedule = make_straight_schedule(program.graph, program.plan, program.mode);
  program.layout = make_layout(program.schedule);
  return program;
}

/// Runs the step in slices of up to four parts.
struct Slices {
  std::mt19937& random;
  Result<double> operator()(Step<>& step, Cpu& cpu, View<const float> input,
                            View<const float> targets) const {
    auto cursor = Cursor<>::make(step);
    if (!cursor) return cursor.error;
    if (const Error why = cursor->begin(input, targets)) return why;
    while (cursor->active())
      if (const auto slice = cursor->run(cpu, random() % 5); !slice) return slice.error;
    return cursor->loss();
  }
};

/// Columns times 1 and a parameter that all such layers share: the sums of its gradient show in which order
/// they were made.
struct Shared {
  static constexpr const char* name = "shared";
  static constexpr auto split = Split::rows;
  static constexpr auto backward_reads = reads::input;
  static constexpr std::array<ParameterSpec, 1> parameters(Shape in) {
    return {{{"scale", Shape(in.cols()), Init::uniform(0.5F), true, "scale"}}};
  }
  template <class T>
  void forward(Cpu&, const ForwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.x.size(); ++i)
      call.y[i] = call.x[i] * (1 + call.params[0][i % call.x.cols()]);
  }
  template <class T>
  void backward(Cpu&, const BackwardCall<T>& call) const {
    for (std::size_t i = 0; i < call.dy.size(); ++i) {
      call.dparams[0][i % call.dy.cols()] += call.dy[i] * call.x[i];
      call.dx[i] = call.dy[i] * (1 + call.params[0][i % call.dy.cols()]);
    }
  }
};

/// What a plan's loops are worth.
struct Worth {
  int loops = 0, tiles = 0, packed = 0, lower = 0;
  double share = 0;  ///< of the peak without loops, of all plans together
};

template <class Net>
void check(const Net& network, const Program& program, std::mt19937& random, Worth& worth) {
  const Program plain = straight(program);
  const int workers = program.graph.workers;
  CHECK(program.peak_bytes() <= plain.peak_bytes());
  worth.loops += static_cast<int>(program.schedule.loops.size());
  for (const Buffer& buffer : program.schedule.buffers) {
    worth.tiles += buffer.part_buffer;
    worth.packed += buffer.kind == BufferKind::packed;
  }
  worth.lower += program.peak_bytes() < plain.peak_bytes();
  worth.share +=
      static_cast<double>(program.peak_bytes()) / static_cast<double>(plain.peak_bytes());

  const Outcome expected = run_program(network, plain, workers, 0x5A, whole);
  const Outcome a = run_program(network, program, workers, 0x5A, whole);
  const Outcome b = run_program(network, program, workers, 0xC3, whole);
  CHECK(same_bits(expected, a));
  CHECK(same_bits(expected, b));
  CHECK(a.guard_intact);
  CHECK(b.guard_intact);
  CHECK(std::max(a.used, b.used) == program.peak_bytes());
  CHECK(same_bits(expected, run_program(network, program, 1, 0x5A, Slices{random})));
}

}  // namespace

TEST_CASE("1000 random networks: loops change no bit, raise no peak, and touch what they promise") {
  Worth worth;
  for (unsigned seed = 7000; seed < 7000 + test_networks; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto network = random_model::draw(seed, seed % 3 == 0);
    const int parts = 2 + static_cast<int>(random() % 5);
    const auto rows = static_cast<std::size_t>(parts) * 16 * (1 + random() % 2) - random() % 16;
    const Shape shape(rows, 2 * (1 + random() % 7));
    const auto program =
        make_program(network, shape, {.workers = 1 + static_cast<int>(seed % 4), .parts = parts});
    REQUIRE_MESSAGE(program, program.error.text());
    check(network, *program, random, worth);
  }
  MESSAGE(worth.loops, " loops with ", worth.tiles, " buffers of one part; ", worth.lower, " of ",
          test_networks, " peaks lower, to ", worth.share / test_networks,
          " of what they were on average");
  CHECK(worth.loops > static_cast<int>(test_networks));
  CHECK(worth.lower > static_cast<int>(test_networks / 5));
}

TEST_CASE("layers that share a parameter add to its gradient in the order of straight steps") {
  const Network network{
      Sequential{layer<Retain>(random_model::Shift{}),
                 Residual{layer<Recompute>(Shared{}), layer<Recompute>(random_model::Noise{}),
                          layer<Recompute>(Shared{}), layer<Recompute>(Shared{})}},
      random_model::HalfSquare{}};
  const auto program = make_program(network, Shape(96, 16), {.parts = 3});
  REQUIRE_MESSAGE(program, program.error.text());
  std::mt19937 random(1);
  Worth worth;
  check(network, *program, random, worth);
  CHECK(worth.loops > 0);
}

TEST_CASE("two branches are one loop if what is between them is made again") {
  const auto branch = [](auto first, auto last) {
    return Residual{layer<Recompute>(LayerNorm{}), first, layer<Recompute>(Gelu{}),
                    layer<Recompute>(Dropout{0.3F}), last};
  };
  const auto wide = layer<Recompute>(Linear{.out = 64});
  const Network network{
      Sequential{layer<Retain>(Linear{.out = 16}),
                 branch(wide, layer<Recompute>(Linear{.out = 16})),
                 branch(wide, layer<Retain>(Linear{.out = 16})), layer<Retain>(Linear{.out = 16})},
      MeanSquaredError{}};
  const auto program = make_program(network, Shape(256, 16), {.parts = 4});
  REQUIRE_MESSAGE(program, program.error.text());
  constexpr int between = 5;
  REQUIRE(program->plan[between].recomputes());
  int loop = -1;
  for (const Instruction& inst : program->schedule.instructions)
    if (inst.again && inst.node == between) loop = inst.loop;
  REQUIRE(loop >= 0);
  int before = 0, behind = 0;  // backward steps of the two branches in it
  for (const Instruction& inst : program->schedule.instructions)
    if (inst.op == Op::backward && inst.loop == loop) ++(inst.node <= between ? before : behind);
  CHECK(before == 5);
  CHECK(behind == 5);
  std::mt19937 random(1);
  Worth worth;
  check(network, *program, random, worth);
}

/// A network whose layers and codecs are cut by rows, blocks of rows and spans of elements.
template <class A, class B, class C>
auto cut_network() {
  const Residual first{layer<B>(LayerNorm{}), layer<C>(Linear{.out = 256}), layer<A>(Gelu{}),
                       layer<B>(Linear{.out = 128})};
  const Residual second{layer<C>(RmsNorm{}), layer<B>(Linear{.out = 256}), layer<A>(Relu{}),
                        layer<B>(Dropout{.rate = 0.1F}), layer<A>(Linear{.out = 128})};
  return Network{Sequential{layer<A>(Linear{.out = 128}), first, layer<C>(Dropout{.rate = 0.25F}),
                            second, layer<A>(Linear{.out = 16})},
                 MeanSquaredError{}};
}

template <class A, class B, class C>
void check_codecs(Worth& worth) {
  std::mt19937 random(1);
  const auto network = cut_network<A, B, C>();
  for (const std::size_t rows : {512U, 500U})
    for (int workers = 1; workers <= 3; ++workers) {
      CAPTURE(rows);
      CAPTURE(workers);
      const auto program = make_program(network, Shape(rows, 64), {.workers = workers, .parts = 4});
      REQUIRE_MESSAGE(program, program.error.text());
      check(network, *program, random, worth);
    }
}

TEST_CASE("codecs and random numbers in loops know which rows they are at") {
  using Int8 = Compress<Int8Outlier>;
  using Noisy = Compress<Int8OutlierWith<Int8Options{.rounding = Rounding::stochastic}>>;
  Worth worth;
  check_codecs<Recompute, Compress<Bf16>, Noisy>(worth);
  if constexpr (!test_sanitized) {  // seconds each, and nothing that the last has not
    check_codecs<Compress<Bf16>, Recompute, Int8>(worth);
    check_codecs<Int8, Noisy, Recompute>(worth);
  }
  constexpr int graphs = test_sanitized ? 6 : 18;
  CHECK(worth.packed > 6 * graphs);
  CHECK(worth.lower == graphs);
  CHECK(worth.share < 0.9 * graphs);
}

}  // namespace loops_test
