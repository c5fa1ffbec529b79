// SPDX-License-Identifier: MIT
// A plan, or a profile, that was made for another graph is refused wherever one is taken, also
// where it has as many entries as the graph has activations.
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/evolve/evolution.hpp>
#include <adacc/plan/constant.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/stash.hpp>

#include <string>

namespace another_graph_test {

using namespace adacc;

namespace {

constexpr const char* other = "was made for another graph";

template <Reads what, class Codec>
struct Double {
  static constexpr const char* name = "double";
  static constexpr auto backward_reads = what;
  using input_codecs = CodecList<Codec>;
  using output_codecs = CodecList<Codec>;
};
struct Nothing {
  static constexpr const char* name = "nothing";
};

template <class Functor>
using Two = Network<Sequential<Layer<Functor>, Layer<Functor>, Layer<Functor>>, Nothing>;
using Plain = Two<Double<Reads::input, Bf16>>;

std::string refusal(const Graph& graph, const Plan& plan) {
  const auto program = make_program(graph, plan);
  CHECK(std::string(examine(graph, plan).text()) == program.error.text());
  return program.error.text();
}
bool says(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

constexpr auto constant = plan<Plain>(Shape(64, 8), 64 * KiB);
static_assert(constant, "all fits");

}  // namespace

TEST_CASE("a plan is refused by a graph that differs in what plans depend on, and by no other") {
  const Graph graph = *make_graph(Plain{}, Shape(64, 8));
  const Plan plan = plan_from_types(graph);
  CHECK(refusal(graph, plan) == "");
  CHECK(refusal(*make_graph(Plain{}, Shape(64, 8), {.workers = 3, .parts = 4}), plan) ==
        "");  // cut, threads

  CHECK(refusal(*make_graph(Plain{}, Shape(65, 8)), plan) ==
        "the plan was made for another graph: its activations take 6.0 KiB (6144 bytes), and this "
        "graph's 6.0 KiB (6240 bytes)");
  CHECK(refusal(*make_graph(Plain{}, Shape(64, 8), {.scalar = Dtype::f64}), plan).find(other) !=
        std::string::npos);
  const std::string alike =
      "the plan was made for another graph, whose activations take 6.0 KiB (6144 bytes) as this "
      "one's do, but differ in shapes, readers, the codecs that those tolerate, or trained "
      "parameters";
  CHECK(refusal(*make_graph(Plain{}, Shape(32, 16)), plan) == alike);
  CHECK(refusal(*make_graph(Two<Double<Reads::output, Bf16>>{}, Shape(64, 8)), plan) == alike);
  CHECK(refusal(*make_graph(Two<Double<Reads::input, Int8Outlier>>{}, Shape(64, 8)), plan) ==
        alike);
  using Leaf = Layer<Double<Reads::input, Bf16>>;
  const Network<Sequential<Leaf, Residual<Leaf, Leaf>>, Nothing> sum;
  CHECK(refusal(*make_graph(sum, Shape(64, 8)), plan) == alike);

  Plan by_hand;  // nobody can tell
  for (const Policy& policy : plan.policies) by_hand.policies.push_back(policy);
  CHECK(refusal(*make_graph(Plain{}, Shape(32, 16)), by_hand) == "");
}

TEST_CASE("whoever makes a plan says for which graph") {
  const Graph graph = *make_graph(Plain{}, Shape(64, 8));
  const Graph wider = *make_graph(Plain{}, Shape(64, 16));
  CHECK(refusal(graph, constant) == "");
  CHECK(refusal(wider, constant).find(other) != std::string::npos);
  CHECK(refusal(wider, retain_all(graph)).find(other) != std::string::npos);
  const CostProfile profile = estimated_profile(graph);
  for (const Planner planner :
       {Planner{make_plan}, Planner{plan_exhaustively}, Planner{plan_chain}})
    for (const std::size_t percent : {100U, 80U}) {
      PlanRequest request;
      const std::size_t retained = make_program(graph, retain_all(graph))->peak_bytes();
      request.budget_bytes = retained * percent / 100;
      const auto made = planner(graph, profile, request);
      REQUIRE_MESSAGE(made, made.error.text());
      CHECK(made->plan.made_for == graph.fingerprint);
      CHECK(refusal(wider, made->plan).find(other) != std::string::npos);
    }
}

TEST_CASE("a profile of another graph is refused by planners and by evolution") {
  const Graph graph = *make_graph(Plain{}, Shape(64, 8));
  const CostProfile strange = estimated_profile(*make_graph(Plain{}, Shape(32, 16)));
  PlanRequest request;
  request.budget_bytes = 64 * KiB;
  const std::string why = make_plan(graph, strange, request).error.text();
  CHECK(why.find("the profile was made for another graph") == 0);
  CHECK(says(Evolution::start(graph, strange, request, make_plan).error, other));
  auto evolution = Evolution::start(graph, estimated_profile(graph), request, make_plan);
  REQUIRE_MESSAGE(evolution, evolution.error.text());
  CHECK(says(evolution->observe_profile(strange), other));
  CHECK_FALSE(evolution->observe_profile(estimated_profile(graph)));
  CHECK(evolution->plan().made_for == graph.fingerprint);
}

TEST_CASE("a plan of another stash is refused") {
  const auto model = [](std::size_t rows, int reader) {
    StashModel<> made;
    made.add("a", Shape(rows, 16), {0});
    made.add("b", Shape(16, 16), {reader});
    return made;
  };
  const StashModel<> first = model(16, 1), larger = model(32, 1), otherwise = model(16, 0);
  const Plan plan = plan_from_types(*first.graph());
  CHECK(Stash<>::make(first, plan));
  CHECK(says(Stash<>::make(larger, plan).error, other));
  // Stage 1 is there but in the first; a stage has an entry in the plan.
  CHECK_FALSE(Stash<>::make(otherwise, plan));
}

}  // namespace another_graph_test
