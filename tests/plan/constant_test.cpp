// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/plan/constant.hpp>
#include <adacc/plan/exhaustive/planner.hpp>

#include <array>
#include <string>

#include "brute_force.hpp"

namespace constant_test {

using namespace adacc;

namespace {

template <std::size_t Out>
struct Dense {
  static constexpr const char* name = "dense";
  static constexpr auto backward_reads = reads::input;
  using input_codecs = CodecList<Int4Outlier, Int8Outlier>;
  static constexpr Shape output_shape(Shape in) { return in.with_cols(Out); }
  static constexpr std::array<ParameterSpec, 2> parameters(Shape in) {
    return {ParameterSpec{"weight", Shape(Out, in.cols()), Init::normal(0.1F), true},
            ParameterSpec{"bias", Shape(Out), {}, false}};
  }
};
struct Smooth {
  static constexpr const char* name = "smooth";
  static constexpr auto backward_reads = reads::input;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};
};
struct Loss {
  static constexpr const char* name = "loss";
  static constexpr LayerFacts facts{.dx_overwrites_x = true};
};

// Six layers with activations between: eleven open activations, three or four policies each.
using Mlp = Network<Sequential<Layer<Dense<256>>, Layer<Smooth>,
                               Residual<Layer<Dense<256>>, Layer<Smooth>, Layer<Dense<256>>>,
                               Layer<Smooth>, Layer<Dense<128>>, Layer<Smooth>, Layer<Dense<128>>,
                               Layer<Smooth>, Layer<Dense<32>>>,
                    Loss>;
constexpr Shape shape(128, 64);

constexpr std::size_t peak(const Plan& plan) {
  const Result<Graph> graph = make_graph(Mlp{}, shape);
  const Result<Program> program = make_program(*graph, plan);
  return program ? program->peak_bytes() : 0;
}

constexpr std::size_t retained = peak_bytes<Mlp>(shape);
constexpr auto half = plan<Mlp>(shape, retained / 2);
static_assert(half, "a plan fits into half of what retain needs");
static_assert(half.proven);
static_assert(half.size() == 11);
static_assert(peak(half) > 0 && peak(half) <= retained / 2);

constexpr auto all = plan<Mlp>(shape, retained);
static_assert(all && all[1].retains() && peak(all) == retained);

constexpr auto none = plan<Mlp>(shape, 64 * KiB);
static_assert(!none);

// Small enough for brute force: six activations, up to four policies each.
using Small =
    Network<Sequential<Layer<Dense<256>>, Layer<Smooth>,
                       Residual<Layer<Dense<256>, Retain>, Layer<Smooth>, Layer<Dense<256>>>,
                       Layer<Smooth>, Layer<Dense<32>>>,
            Loss>;
constexpr std::size_t budgets[] = {560 * KiB, 600 * KiB, 640 * KiB, 700 * KiB};
constexpr auto small_0 = plan<Small>(shape, budgets[0]);
constexpr auto small_1 = plan<Small>(shape, budgets[1]);
constexpr auto small_2 = plan<Small>(shape, budgets[2]);
constexpr auto small_3 = plan<Small>(shape, budgets[3]);
constexpr ConstantPlan<7> small[] = {small_0, small_1, small_2, small_3};

}  // namespace

TEST_CASE("the compiler's plan is the one that the planner finds at run time") {
  const auto graph = make_graph(Mlp{}, shape);
  REQUIRE(graph);
  PlanRequest request;
  request.budget_bytes = retained / 2;
  request.gap = 0;
  const auto outcome = plan_exhaustively(*graph, estimated_profile(*graph), request);
  REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
  CHECK(outcome->seconds == half.seconds);
  CHECK(outcome->peak_bytes == peak(half));
  for (int k = 0; k < graph->node_count(); ++k) CHECK(outcome->plan[k] == half[k]);
  CHECK(std::string(none.error.text()).find("no plan fits into a budget of 64.0 KiB") == 0);
}

TEST_CASE("what the compiler's search finds is checked before it is a plan") {
  const auto graph = make_graph(Mlp{}, shape);
  REQUIRE(graph);
  const CostProfile profile = estimated_profile(*graph);
  PlanRequest request;
  request.budget_bytes = retained;
  const auto checked = [&](const detail::SearchResult& found) {
    const auto plan = detail::constant_plan<11>(*graph, profile, request, found);
    if (!plan) CHECK(std::string(plan.error.text()).find("no plan fits into a budget of") == 0);
    return static_cast<bool>(plan);
  };
  detail::SearchResult found;
  found.found = true;
  found.plan = plan_from_types(*graph);
  found.arena_bytes = retained;
  CHECK(checked(found));
  // As if the search had counted wrongly: in laying out, in summing, in errors, in activations.
  found.arena_bytes = retained + 1;
  CHECK_FALSE(checked(found));
  found.arena_bytes = request.budget_bytes = retained / 2;
  CHECK_FALSE(checked(found));
  found.arena_bytes = request.budget_bytes = retained;
  found.plan.policies[1] = compress(&codec_info<Int4Outlier>);
  CHECK(checked(found));
  request.tolerance = 1e-12;
  CHECK_FALSE(checked(found));
  request.tolerance = 1e9;
  found.plan.policies.pop_back();
  CHECK_FALSE(checked(found));
}

TEST_CASE("the compiler's plan is as fast as the fastest of all plans") {
  const auto graph = make_graph(Small{}, shape);
  REQUIRE(graph);
  brute_force::AllPlans plans(*graph, estimated_profile(*graph));
  int found = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto* best = plans.best(budgets[i], 1e-2);
    CAPTURE(std::string(small[i].error.text()));
    REQUIRE(static_cast<bool>(small[i]) == (best != nullptr));
    if (best == nullptr) continue;
    ++found;
    CHECK(small[i].proven);
    CHECK(small[i].seconds == doctest::Approx(best->cost.seconds).epsilon(1e-12));
    const auto program = make_program(*graph, small[i]);
    REQUIRE(program);
    CHECK(program->peak_bytes() <= budgets[i]);
  }
  CHECK(found >= 3);
}

}  // namespace constant_test
