// SPDX-License-Identifier: MIT
// The input of a norm whose rows differ in scale: held by a codec with a scale per row, in the bytes that were planned.
#include <doctest/doctest.h>

#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/rms_norm.hpp>

#include <cmath>
#include <vector>

#include "../train/uneven_net.hpp"
#include "step_run.hpp"

namespace unlike_rows_test {

using namespace adacc;
using namespace step_run;
using random_model::HalfSquare;
using random_model::Shift;
using uneven_net::Uneven;

namespace {

/// Loses small rows beside large ones, and so does what it names for them, in its own opinion.
struct Unsure : rough::Rough {
  static constexpr const char* name = "unsure";
  using for_unlike_rows = rough::Doubtful;
};

/// A norm whose backward tolerates `Codecs` on its input.
template <class Norm, class... Codecs>
struct Reading : Norm {
  using input_codecs = CodecList<Codecs...>;
};
/// The same, and it does not say that it normalizes rows.
template <class Norm, class... Codecs>
struct Silent : Reading<Norm, Codecs...> {
  static constexpr LayerFacts facts = [] {
    LayerFacts said = Norm::facts;
    said.normalizes_rows = false;
    return said;
  }();
};

/// Every other row of what `Reader` reads is a thousand times smaller than the one before it.
template <class Codec, class Reader>
const Network<Sequential<Layer<Shift>, Layer<Uneven, Compress<Codec>>, Layer<Reader>, Layer<Shift>>,
              HalfSquare>
    net{};
constexpr int uneven = 1;
const Shape shape(130, 128);

struct Ran : Outcome {
  Declined declined;
  CodecStatistics seen;
};

template <class Net>
Ran run(const Net& of, const Program& program, int workers = 1, bool judges = true) {
  uneven_net::uneven_from = 0;
  Ran ran;
  static_cast<Outcome&>(ran) = run_program(
      of, program, workers, 0x5A,
      [&](Step<>& step, Cpu& cpu, View<const float> x, View<const float> y) -> Result<double> {
        step.judge_encodes(judges);
        if (const Error why = step.watch()) return why;
        const Result<double> loss = step.run(cpu, x, y);
        ran.declined = step.declined(uneven);
        ran.seen = step.statistics(uneven);
        return loss;
      });
  CHECK(ran.guard_intact);
  return ran;
}

double error_of(const Outcome& a, const Outcome& exact) {
  double error = 0, square = 0;
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    const double off = double{a.gradients[i]} - exact.gradients[i];
    error += off * off;
    square += double{exact.gradients[i]} * exact.gradients[i];
  }
  return error / square;
}

template <class Codec, class Norm>
void check_held(double most) {
  const auto& of = net<Codec, Norm>;
  const Program program = *make_program(of, shape);
  Plan plan = program.plan;
  plan.policies[uneven] = retain();
  const Ran exact = run(of, *make_program(program.graph, plan));
  const Ran ran = run(of, program), blind = run(of, program, 1, false);
  using ByRows = typename Codec::for_unlike_rows;
  CHECK(ran.declined.kept == KeptAs::milder);
  CHECK(ran.declined.codec == &codec_info<ByRows>);
  CHECK(ran.declined.errors.over == 65);
  // So a plan that evolves may stay as it is.
  CHECK_FALSE(ran.seen.misfit());
  CHECK(ran.seen.elements == shape.elems());
  // As if the plan had that codec, in the arena of the plan that there is.
  plan.policies[uneven] = compress(&codec_info<ByRows>);
  const Program by_rows = *make_program(program.graph, plan);
  CHECK(same_bits(ran, run(of, by_rows)));
  CHECK(by_rows.peak_bytes() <= program.peak_bytes());
  CHECK(ran.used <= program.peak_bytes());
  for (const int workers : {2, 3}) CHECK(same_bits(ran, run(of, program, workers)));
  CHECK(error_of(blind, exact) > 10 * most);
  CHECK(error_of(ran, exact) < most);
}

}  // namespace

TEST_CASE_TEMPLATE("unlike rows of a norm's input have scales of their own", Norm, LayerNorm,
                   RmsNorm) {
  check_held<Int4Outlier, Norm>(0.02);
  check_held<Int8Outlier, Norm>(1e-4);
}

TEST_CASE("what does not hold them either leaves the blob that was planned") {
  const auto& of = net<Unsure, Reading<LayerNorm, Unsure>>;
  const Program program = *make_program(of, shape);
  const Ran ran = run(of, program);
  CHECK(ran.declined.kept == KeptAs::over_bound);
  CHECK(ran.seen.misfit());
  CHECK(same_bits(ran, run(of, program, 1, false)));
  const auto& milder = net<Unsure, Reading<LayerNorm, Unsure, Int8Outlier>>;
  CHECK(run(milder, *make_program(milder, shape)).declined.kept == KeptAs::over_bound);
}

TEST_CASE("steps of layers that do not normalize rows have no code for it") {
  const auto& of = net<Int4Outlier, Silent<LayerNorm, Int4Outlier>>;
  CHECK(run(of, *make_program(of, shape)).declined.kept == KeptAs::over_bound);
  const auto table = make_dispatch<float, Cpu>(of);
  const CodecInfo* const by_rows = codec_info<Int4Outlier>.for_unlike_rows;
  CHECK(table.find(by_rows) == nullptr);
  CHECK(make_dispatch<float, Cpu>(net<Int4Outlier, LayerNorm>).find(by_rows) != nullptr);
}

}  // namespace unlike_rows_test
