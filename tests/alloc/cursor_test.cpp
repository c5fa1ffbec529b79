// SPDX-License-Identifier: MIT
/// A step in slices allocates nothing after set-up; over a fixed program, set-up does not either.
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/relu.hpp>

#include <algorithm>

#include <support/count_allocations.hpp>

using namespace adacc;

namespace {

using Net = Network<Sequential<Layer<plain::Linear, Recompute>,
                               Layer<plain::Relu, Compress<Int8Outlier>>, Layer<plain::Linear>>,
                    plain::MeanSquaredError>;
constexpr Net net{{{plain::Linear{.out = 24}}, {}, {plain::Linear{.out = 3}}}, {}};
constexpr Shape shape(64, 8);
constexpr auto make = [] { return make_program(net, shape, {.parts = 5}); };
constinit FixedProgram<decltype(make)> fixed;
FixedDispatch<float, Cpu, fixed.layer_count> table;
alignas(64) std::byte memory[fixed.peak_bytes];
alignas(64) float params[fixed.parameter_elems], gradients[fixed.parameter_elems];
alignas(64) float x[shape.elems()], y[64 * 3];
std::int64_t times[fixed.instruction_count];

/// Two steps in slices; the parts that ran, 0 after an error.
std::size_t run(Cursor<>& cursor, Cpu& cpu) {
  std::size_t parts = 0;
  std::int64_t time = 0;
  const auto now = [&] { return ++time; };
  for (int i = 0; i < 2; ++i) {
    if (cursor.begin(View<const float>(x, shape), View<const float>(y, Shape(64, 3)))) return 0;
    for (int k = 0; cursor.active(); ++k) {
      const auto slice = k % 2 == 0 ? cursor.run(cpu, 2) : cursor.run_until(cpu, now, time + 5);
      if (!slice) return 0;
      parts += slice->parts;
    }
  }
  return parts;
}

}  // namespace

TEST_CASE("a cursor allocates nothing after set-up") {
  Cpu cpu;
  auto step = Step<>::make(net, *make());
  REQUIRE(step);
  REQUIRE_FALSE(step->bind(Bytes(memory, Shape(sizeof memory)),
                           View<const float>(params, Shape(fixed.parameter_elems)),
                           View<float>(gradients, Shape(fixed.parameter_elems))));
  auto cursor = Cursor<>::make(*step);
  REQUIRE(cursor);
  const long before = allocations;
  const std::size_t parts = run(*cursor, cpu);
  const long after = allocations;
  CHECK(parts > 50);
  CHECK(after == before);
  CHECK(before > 0);  // set-up did, so they are counted
}

TEST_CASE("with a fixed program and lent times, neither does set-up") {
  Cpu cpu;
  const long before = allocations;
  auto step = Step<>::make(table.make(net), fixed.program());
  const Error bound = step->bind(Bytes(memory, Shape(sizeof memory)),
                                 View<const float>(params, Shape(fixed.parameter_elems)),
                                 View<float>(gradients, Shape(fixed.parameter_elems)));
  auto cursor = Cursor<>::make(*step, Array<std::int64_t>::over(times, 0, std::size(times)));
  const std::size_t parts = run(*cursor, cpu);
  const long after = allocations;
  CHECK(step);
  CHECK_FALSE(bound);
  CHECK(cursor);
  CHECK(parts > 50);
  CHECK(after == before);
  CHECK(*std::max_element(std::begin(times), std::end(times)) > 0);
}
