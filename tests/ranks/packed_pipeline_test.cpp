// SPDX-License-Identifier: MIT
/// Packed documents in a pipeline, whose micro-batches in flight have positions of their own.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/io/packing.hpp>
#include <adacc/models/llama.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/ranks/pipeline/pipeline.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/train/make.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace packed_pipeline_test { namespace {

using namespace adacc;

constexpr std::size_t time = 48, vocab = 40;
constexpr int micro = 4;
const Shape shape(1, time);

/// Documents of `length` tokens, as many as fit.
PackedBatch packed(std::size_t length) {
  PackedBatch batch(shape);
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i <= length; ++i)
    tokens.push_back(static_cast<std::int32_t>(random_word({.seed = length}, i) % vocab));
  while (*batch.add({tokens.data(), Shape(tokens.size())})) {}
  return batch;
}

TEST_CASE("micro-batches in flight keep the positions that they began with") {
  const auto net = llama::make({.layers = 4,
                                .heads = 2,
                                .kv_heads = 2,
                                .channels = 32,
                                .hidden = 48,
                                .context = time,
                                .vocab = vocab});
  std::vector<PackedBatch> batches;
  for (const std::size_t length : {std::size_t{5}, std::size_t{11}, std::size_t{23}, time})
    batches.push_back(packed(length));
  auto training = *Training<>::make(net, shape, {.seed = 3});
  for (const PackedBatch& batch : batches) {
    training.context().positions = batch.positions();
    REQUIRE(training.accumulate(batch.tokens(), batch.targets()));
  }
  const TrainingOutcome expected = *training.update(1e-2);

  const auto graph = make_graph(net, shape);
  REQUIRE(graph);
  constexpr int ranks = 2;
  std::vector<TrainingOutcome> outcomes(ranks);
  std::vector<Error> errors(ranks);
  ThreadGroup group(ranks);
  run_ranks(group, [&](ThreadGroup::Member& member) {
    const auto rank = static_cast<std::size_t>(member.rank());
    PipelineRequest request;
    request.micro_batches = micro;
    request.tolerance = 0;
    for (int s = 0; s < ranks; ++s) request.stages.push_back({std::size_t{1} << 30});
    const auto plan = plan_pipeline(*graph, estimated_profile(*graph), request);
    if (errors[rank] = plan.error; !plan) return;
    Cpu cpu;
    cpu.key.seed = 3;
    auto stage = Pipeline<>::make(net, *graph, *plan, micro, cpu, member);
    if (errors[rank] = stage.error; !stage) return;
    for (const PackedBatch& batch : batches) {
      stage->context().positions = batch.positions();
      if (const Error why = stage->accumulate(batch.tokens(), batch.targets()).error)
        errors[rank] = why;
      CHECK(stage->context().positions.data() == batch.positions().data());
    }
    const auto outcome = stage->update(1e-2);
    if (outcome) outcomes[rank] = *outcome;
    else errors[rank] = outcome.error;
  });
  for (const Error& why : errors) REQUIRE_MESSAGE(!why, std::string(why.text()));
  for (const TrainingOutcome& outcome : outcomes) {
    CHECK(std::fabs(outcome.loss - expected.loss) < 1e-9);
    CHECK(std::fabs(outcome.grad_norm - expected.grad_norm) < 1e-6);
  }
}

}}  // namespace packed_pipeline_test
