// SPDX-License-Identifier: MIT
/// What watching costs a step: statistics read from every blob, judged, every 10 steps.
///
/// Watched and unwatched steps alternate, so that the machine's moods hit both. A look lengthens
/// the instructions that encode, and nothing else, so those alone are compared: medians of their
/// sums.
#include <CLI/CLI.hpp>
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/evolve/evolution.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

double median(std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Every tensor under the first codec that its readers tolerate: the most that can be watched.
adacc::Plan all_encoded(const adacc::Graph& graph) {
  adacc::Plan plan = adacc::retain_all(graph);
  for (int k = 0; k < graph.node_count(); ++k)
    if (const auto codecs = graph.candidates_of(graph.node(k)); codecs.count > 0)
      plan.policies[static_cast<std::size_t>(k)] = compress(codecs[0]);
  return plan;
}

/// A planner that has made up its mind: what is timed is watching.
adacc::Result<adacc::PlanOutcome> planner(const adacc::Graph& graph,
                                          const adacc::CostProfile& profile,
                                          const adacc::PlanRequest&) {
  adacc::PlanOutcome outcome;
  outcome.plan = all_encoded(graph);
  const adacc::PlanCost cost = adacc::evaluate(graph, profile, outcome.plan);
  outcome.seconds = cost.seconds;
  outcome.error = cost.error;
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace adacc;
  CLI::App app("The cost of watching codecs, as a share of a step");
  gpt::Config config{6, 6, 384, 256, 256};
  std::size_t batch = 4, pairs = 20, every = 10;
  int threads = 2;
  app.add_option("--layers", config.layers);
  app.add_option("--channels", config.channels);
  app.add_option("--batch", batch);
  app.add_option("--pairs", pairs, "watched and unwatched steps, of each");
  app.add_option("--every", every, "steps from one look to the next");
  app.add_option("--threads", threads);
  CLI11_PARSE(app, argc, argv);

  const auto network = gpt::make(config);
  EigenPool pool(threads);
  const Cpu cpu{ExecutorRef(pool)};
  const Shape shape(batch, config.context);
  const auto graph = make_graph(network, shape, {.workers = threads});
  if (!graph) return std::fprintf(stderr, "%s\n", graph.error.text()), 1;
  CostProfile profile = empty_profile(*graph);
  for (NodeCost& cost : profile.nodes) cost.forward = cost.backward = 1e-3;
  for (CodecCost& cost : profile.codec_costs) cost.error = cost.carried_error = 1e-4;
  auto evolution = Evolution::start(*graph, profile, {.budget_bytes = 1}, &planner);
  auto program = make_program(*graph, all_encoded(*graph));
  if (!evolution || !program) return 1;
  auto training = Training<>::make(network, std::move(*program), cpu);
  if (!training) return std::fprintf(stderr, "%s\n", training.error.text()), 1;
  std::vector<std::int32_t> tokens(shape.elems());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * i % 251);
  const View<const std::int32_t> batch_view(tokens.data(), shape);

  Step<>& compiled = training->compiled_step();
  std::vector<double> whole, plain, watched, judged;
  for (std::size_t i = 0; i < 2 * pairs + 4; ++i) {
    const bool watch = i % 2 == 1;
    if (!watch) compiled.stop_watching();
    else if (compiled.watch()) return 1;
    if (compiled.begin(batch_view, batch_view)) return 1;
    double encoding = 0;
    const double start = adacc::steady_seconds();
    for (Position at; at.instruction < compiled.instruction_count();) {
      const bool encodes =
          compiled.program().schedule.instructions[at.instruction].op == Op::encode;
      const double before = encodes ? adacc::steady_seconds() : 0;
      at = compiled.execute(training->context(), at);
      if (encodes) encoding += adacc::steady_seconds() - before;
    }
    const double middle = adacc::steady_seconds();
    if (watch) {
      for (int k = 0; k < graph->node_count(); ++k)
        if (evolution->plan()[k].codec() != nullptr)
          evolution->observe_statistics(k, compiled.statistics(k));
      evolution->advance(i);
    }
    const double end = adacc::steady_seconds();
    if (i < 4) continue;
    (watch ? watched : plain).push_back(encoding);
    if (watch) judged.push_back(end - middle);
    else whole.push_back(middle - start);
  }
  const double step = median(whole);
  const double looked = (median(watched) - median(plain)) / step, judging = median(judged) / step;
  std::printf(
      "forward and backward %.2f ms; a look takes %.4f %% of it to read and %.4f %% to "
      "judge; every %zu steps that is %.4f %%\n",
      1e3 * step, 100 * looked, 100 * judging, every,
      100 * (looked + judging) / static_cast<double>(every));
}
