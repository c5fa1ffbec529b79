// SPDX-License-Identifier: MIT
// Which layers are frozen so that training fits: none that need not be, and the right ones.
#include <doctest/doctest.h>

#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/model/graph_builder.hpp>
#include <adacc/model/repeat.hpp>
#include <adacc/optimizer/adamw.hpp>
#include <adacc/step/dispatch.hpp>
#include <adacc/train/freeze_to_fit.hpp>
#include <adacc/train/initialize.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "support.hpp"

namespace freeze_to_fit_test {

using namespace adacc;
using train_test::says;

namespace {

constexpr plain::Linear linear(std::size_t out) { return {out}; }
/// Groups of unlike sizes: "plain_linear", "block.0", "block.1", "plain_linear2", "plain_linear3".
const Network net{
    Sequential{layer<Planned>(linear(24)), layer<Planned>(plain::Tanh{}),
               repeat(2, Sequential{layer<Planned>(linear(24)), layer<Planned>(plain::Tanh{})}),
               layer<Planned>(linear(60)), layer<Planned>(plain::Tanh{}),
               layer<Planned>(linear(3))},
    plain::MeanSquaredError{}};
const Shape in(20, 8), out(20, 3);

const auto make = [](const TrainedSet& trained) {
  return make_graph(net, in, {.trained = &trained});
};
Graph whole() { return *make_graph(net, in); }

/// The least of what `budget` is of, by hand.
std::size_t least_of(const std::vector<bool>& frozen, bool total) {
  const Graph graph = whole();
  const auto groups = layer_groups(graph);
  TrainedSet set(graph.parameters.size());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::size_t i : groups[g].parameters) set[i] = !frozen[g];
  const auto part = make(set);
  REQUIRE(part);
  const std::size_t arena = *smallest_peak(*part, estimated_profile(*part), {.budget_bytes = 1});
  return total ? memory_beside_arena(*part, AdamW{})->total() + arena : arena;
}

Result<FreezeOutcome> frozen_for(const FreezeBudget& budget, const std::vector<double>& norms) {
  return freeze_to_fit(whole(), make, norms, budget, AdamW{}, {});
}

double lost_of(const std::vector<bool>& frozen, const std::vector<double>& norms) {
  double lost = 0, all = 0;
  for (std::size_t g = 0; g < norms.size(); ++g) {
    lost += frozen[g] ? norms[g] : 0;
    all += norms[g];
  }
  return lost / all;
}

}  // namespace

TEST_CASE("freeze to fit: groups are blocks, and layers outside of them") {
  std::string names;
  std::size_t count = 0;
  for (const LayerGroup& group : layer_groups(whole())) {
    names += group.name + " ";
    count += group.parameters.size();
  }
  CHECK(names == "plain_linear block.0 block.1 plain_linear2 plain_linear3 ");
  CHECK(count == whole().parameters.size());
}

TEST_CASE("freeze to fit: what fits keeps all of it") {
  const std::vector<double> norms{1, 1, 1, 1, 1};
  for (const bool total : {true, false}) {
    const std::size_t least = least_of(std::vector<bool>(5), total);
    const auto outcome = frozen_for(
        total ? FreezeBudget{.total_bytes = least} : FreezeBudget{.budget_bytes = least}, norms);
    REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
    CHECK(outcome->frozen == std::vector<bool>(5));
    CHECK(outcome->lost == 0);
    CHECK(outcome->least_before == least);
    CHECK(outcome->least_after == least);
    for (const bool trained : outcome->trained) CHECK(trained);
  }
}

TEST_CASE("freeze to fit: below that, what is frozen fits, and no set that fits loses less") {
  const std::vector<double> all_norms[] = {
      {1, 1, 1, 1, 1}, {5, 0.5, 0.1, 3, 2}, {0.1, 0.2, 0.4, 0.8, 1.6}, {16, 8, 4, 2, 1}};
  for (const bool total : {true, false}) {
    std::vector<std::size_t> least(32);
    for (std::size_t set = 0; set + 1 < 32; ++set) {
      std::vector<bool> frozen;
      for (std::size_t g = 0; g < 5; ++g) frozen.push_back((set >> g & 1U) != 0);
      least[set] = least_of(frozen, total);
    }
    std::size_t impossible = least[0], checked = 0;
    for (std::size_t set = 0; set + 1 < 32; ++set)
      if (least[set] < impossible) impossible = least[set];
    for (const std::vector<double>& norms : all_norms)
      for (std::size_t step = 1; step <= 8; ++step) {
        const std::size_t limit = least[0] - (least[0] - impossible) * step / 8;
        FreezeBudget budget;
        (total ? budget.total_bytes : budget.budget_bytes) = limit;
        const auto outcome = frozen_for(budget, norms);
        REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
        CHECK(outcome->least_before == least[0]);
        CHECK(outcome->least_after <= limit);
        CHECK(outcome->least_after == least_of(outcome->frozen, total));
        CHECK(outcome->lost == doctest::Approx(lost_of(outcome->frozen, norms)));
        double best = 1;
        for (std::size_t set = 0; set + 1 < 32; ++set) {
          if (least[set] > limit) continue;
          std::vector<bool> frozen;
          for (std::size_t g = 0; g < 5; ++g) frozen.push_back((set >> g & 1U) != 0);
          best = std::min(best, lost_of(frozen, norms));
        }
        CAPTURE(total);
        CAPTURE(step);
        CHECK(outcome->lost == doctest::Approx(best));
        checked += outcome->lost > 0;
      }
    CHECK(checked >= 16);
    FreezeBudget budget;
    (total ? budget.total_bytes : budget.budget_bytes) = impossible - 1;
    const auto refused = frozen_for(budget, all_norms[0]);
    CHECK(says(refused.error.text(), "too small for any layer", "at least",
               (std::to_string(impossible) + " bytes").c_str()));
  }
}

TEST_CASE("freeze to fit: gradients are measured within a budget, in halves if need be") {
  Cpu cpu;
  std::vector<float> x(in.elems()), y(out.elems());
  const auto fill = [&](const Graph& graph, View<float> params) {
    Cpu here;
    initialize_parameters(here, graph.parameters, params, 7);
    return Error{};
  };
  const auto batch = [&](std::size_t i, AnyView& input, AnyView& targets) {
    for (std::size_t e = 0; e < x.size(); ++e) x[e] = unit_float(random_word({.seed = i + 1}, e));
    for (std::size_t e = 0; e < y.size(); ++e) y[e] = unit_float(random_word({.seed = i + 9}, e));
    input = View<const float>(x.data(), in);
    targets = View<const float>(y.data(), out);
    return Error{};
  };
  const auto probed = [&](const FreezeBudget& budget) {
    const auto norms = probe_gradient_norms<float>(cpu, make_dispatch<float, Cpu>(net), whole(),
                                                   make, {}, budget, 2, fill, batch);
    REQUIRE_MESSAGE(norms, std::string(norms.error.text()));
    return *norms;
  };
  // All at once, by hand.
  const Graph graph = whole();
  auto step = Step<>::make(net, *make_program(graph, retain_all(graph)));
  auto arena = Block<std::byte>::make(step->arena_bytes(), "arena");
  auto params = Block<float>::make(graph.parameter_elems, "parameters");
  auto gradients = Block<float>::make(graph.gradient_elems, "gradients");
  REQUIRE_FALSE(fill(graph, params->view()));
  REQUIRE_FALSE(step->bind(arena->view(), params->view(), gradients->view()));
  const auto groups = layer_groups(graph);
  std::vector<double> expected(groups.size());
  for (std::size_t b = 0; b < 2; ++b) {
    AnyView input, targets;
    REQUIRE_FALSE(batch(b, input, targets));
    cpu.fill(gradients->view(), 0.0F);
    REQUIRE(step->run(cpu, input, targets));
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const std::size_t i : groups[g].parameters)
        for (std::size_t e = 0; e < graph.parameters[i].shape.elems(); ++e) {
          const double value = (*gradients)[graph.parameters[i].offset + e];
          expected[g] += value * value / 2;
        }
  }
  const std::vector<double> whole_norms = probed({.total_bytes = std::size_t{1} << 30});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    CHECK(expected[g] > 0);
    CHECK(whole_norms[g] == doctest::Approx(expected[g]).epsilon(1e-9));
  }
  // What some of it takes: the same bits, and 0 of what does not fit alone.
  const std::size_t held = graph.parameter_elems * sizeof(float);
  const std::size_t all =
      held + graph.gradient_elems * sizeof(float) + least_of(std::vector<bool>(5), false);
  CHECK(probed({.total_bytes = all - 1}) == whole_norms);
  const std::vector<double> some =
      probed({.total_bytes = held + 60 * 4 * 4 + least_of({1, 1, 1, 1, 0}, false)});
  CHECK(some[3] == 0);
  CHECK(some[4] == whole_norms[4]);
  CHECK(probed({.total_bytes = held}) == std::vector<double>(5));
  CHECK(probed({.budget_bytes = least_of(std::vector<bool>(5), false) - 1}) == whole_norms);
}

TEST_CASE("freeze to fit: mistakes of the caller are errors") {
  const std::vector<double> norms{1, 1, 1, 1, 1};
  CHECK(says(frozen_for({.total_bytes = 1}, {1, 1}).error.text(), "5 groups", "norms of 2"));
  CHECK(says(frozen_for({}, norms).error.text(), "everything, or of the arena"));
  CHECK(says(frozen_for({.total_bytes = 1, .budget_bytes = 1}, norms).error.text(), "or of the"));
  CHECK(
      says(frozen_for({.total_bytes = 1}, {1, 1, -1, 1, 1}).error.text(), "finite, and 0 or more"));
}

TEST_CASE(
    "freeze to fit: of single tensors too, those that fit and lose least; the others stay "
    "trained") {
  const Graph graph = whole();
  std::vector<LayerGroup> groups = tensor_groups(graph);
  REQUIRE(groups.size() == graph.parameters.size());
  CHECK(groups[0].name == "plain_linear.weight");
  CHECK(groups[1].name == "plain_linear.bias");
  CHECK(groups[2].name == "block.0.plain_linear.weight");
  groups.resize(4);  // the last layers are trained whatever fits
  const std::vector<double> worth{1, 0.2, 3, 0.5};
  std::size_t least[16], bound = 0;
  for (std::size_t set = 0; set < 16; ++set) {
    TrainedSet trained(graph.parameters.size());
    for (bool& one : trained) one = true;
    for (std::size_t g = 0; g < 4; ++g) trained[groups[g].parameters[0]] = (set >> g & 1U) == 0;
    const auto part = make(trained);
    REQUIRE(part);
    least[set] = memory_beside_arena(*part, AdamW{})->total() +
                 *smallest_peak(*part, estimated_profile(*part), {.budget_bytes = 1});
  }
  for (const std::size_t frozen : {1U, 4U, 5U, 14U}) {
    bound = least[frozen];
    CAPTURE(bound);
    const auto outcome =
        freeze_to_fit(graph, groups, make, worth, {.total_bytes = bound}, AdamW{}, {});
    REQUIRE_MESSAGE(outcome, std::string(outcome.error.text()));
    CHECK(outcome->least_after <= bound);
    double best = 1;
    for (std::size_t set = 0; set < 16; ++set) {
      double lost = 0;
      for (std::size_t g = 0; g < 4; ++g) lost += (set >> g & 1U) != 0 ? worth[g] / 4.7 : 0;
      if (least[set] <= bound) best = std::min(best, lost);
    }
    CHECK(outcome->lost == doctest::Approx(best));
    for (std::size_t i = 4; i < outcome->trained.size(); ++i) CHECK(outcome->trained[i]);
  }
}

}  // namespace freeze_to_fit_test
