// SPDX-License-Identifier: MIT
/// Steps under plans that recompute activations more than once: bits and bytes of random networks.
#include <doctest/doctest.h>

#include <adacc/program/plan.hpp>

#include <algorithm>
#include <random>

#include "step_run.hpp"

namespace step_nested_test {

using namespace adacc;
using namespace step_run;

TEST_CASE("activations recomputed several times: bits of Retain, in the bytes predicted") {
  int nested = 0, thrice = 0;
  for (unsigned seed = 0; seed < 250; ++seed) {
    CAPTURE(seed);
    auto network = random_model::draw(seed, false);
    network.model.copies += 4;  // long enough for several runs
    const Shape shape = random_model::draw_shape(seed);
    auto graph = make_graph(network, shape, {.workers = 2});
    REQUIRE_MESSAGE(graph, graph.error.text());
    std::mt19937 random(seed);
    Plan plan = plan_from_types(*graph);
    for (std::size_t k = 0; k < graph->nodes.size(); ++k)
      if (graph->nodes[k].recomputable && !plan.policies[k].encodes() && random() % 8 != 0)
        plan.policies[k] = recompute(1 + static_cast<int>(random() % 4));
    const auto program = make_program(*graph, plan);
    REQUIRE_MESSAGE(program, program.error.text());
    std::vector<int> runs(graph->nodes.size());
    for (const Instruction& inst : program->schedule.instructions)
      if (inst.op == Op::forward && inst.again)
        thrice += ++runs[static_cast<std::size_t>(inst.node)] == 3;
    const Outcome a = run_program(network, *program, 2, 0x5A, whole);
    const Outcome b = run_program(network, *program, 2, 0xC3, whole);
    CHECK(a.guard_intact);
    CHECK(b.guard_intact);
    CHECK(std::max(a.used, b.used) == program->peak_bytes());
    CHECK(same_bits(a, b));
    network.model.retain_everything = true;
    CHECK(same_bits(a, run_step(network, shape, 2, 1, 0x5A)));
    nested += is_nested(plan);
  }
  CHECK(nested > 200);
  CHECK(thrice > 100);
}

}  // namespace step_nested_test
