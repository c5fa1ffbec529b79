// SPDX-License-Identifier: MIT
// A probe finds what a codec does to the gradient, and not what steps make of it that decline its blobs.
#include <doctest/doctest.h>

#include <adacc/cost/probe.hpp>
#include <adacc/train/make.hpp>

#include <vector>

#include "../train/uneven_net.hpp"

namespace declined_probe_test {

using namespace adacc;
using namespace uneven_net;

namespace {

/// Takes more of the arena than all that comes behind it.
struct Roomy : random_model::Shift {
  static constexpr LayerNeeds needs(Shape in, NeedsQuery query) {
    return {.workspace = query.pass == Pass::forward ? 40 * in.elems() : 0};
  }
};

}  // namespace

TEST_CASE("errors are those of the codec, whose blobs steps would decline") {
  uneven_from = 0;
  const Network<Sequential<Layer<Roomy>, Layer<Uneven, Planned>, Layer<Tolerant>, Layer<Tolerant>>,
                random_model::HalfSquare>
      roomy{};
  const Graph graph = *make_graph(roomy, shape);
  std::vector<float> x(shape.elems());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i % 17) - 0.7F;
  const View<const float> batch(x.data(), shape);
  Plan plan = retain_all(graph);
  plan.policies[1] = compress(&codec_info<Rough>);
  auto training = Training<>::make(roomy, *make_program(graph, plan));
  REQUIRE_MESSAGE(training, training.error.text());
  REQUIRE(training->accumulate(batch, batch));
  CHECK(training->compiled_step().declined(1).kept == KeptAs::exactly);
  auto arena = Block<std::byte>::make(measuring_bytes(graph), "arena");
  const auto table = make_dispatch<float, Cpu>(roomy);
  GradientErrors errors;
  GradientProbe probe(training->context(), table, graph, arena->view(), training->params(),
                      training->gradients(), batch, batch);
  const Error why = probe.probe({graph.node(1).layer, &codec_info<Rough>, false}, errors);
  REQUIRE_MESSAGE(!why, why.text());
  REQUIRE(errors.entries().size() == 1);
  CHECK(errors.entries()[0].error() > 0);
}

}  // namespace declined_probe_test
