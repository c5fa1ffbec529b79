// SPDX-License-Identifier: MIT
/// How well does a measured profile predict the time of a step, under plans it was not measured on?
///
/// A profile is measured as training would. Then steps under plans for budgets from what retain
/// needs to the smallest, each right after one of retain: on a machine with other work both suffer
/// alike, so the ratio of the pair is what is compared, in medians over rounds. The profile is
/// measured once more in the end: by how much retain's prediction moved, the machine did. What is
/// predicted is evaluate()'s sum over the schedule. --cpu-time with one thread counts only the time
/// in which the step itself ran.
#include <CLI/CLI.hpp>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/cost/estimate.hpp>
#include <adacc/cost/evaluate.hpp>
#include <adacc/cost/measure.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/train/training.hpp>

#include <time.h>

#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace gpt = adacc::gpt;

bool cpu_time = false;

double now() {
  if (cpu_time) {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return adacc::steady_seconds();
}

struct Candidate {
  std::string name;
  adacc::Plan plan;
};

adacc::Plan random_plan(const adacc::Graph& graph, std::uint64_t seed) {
  using namespace adacc;
  Plan plan = retain_all(graph);
  for (int k = 0; k < graph.node_count(); ++k) {
    const auto codecs = graph.candidates_of(graph.node(k));
    const std::uint32_t drawn = random_word({.seed = seed}, static_cast<std::uint64_t>(k)) %
                                static_cast<std::uint32_t>(2 + codecs.count);
    Policy& policy = plan.policies[static_cast<std::size_t>(k)];
    if (drawn == 1) policy = recompute();
    if (drawn > 1) policy = compress(codecs[drawn - 2]);
  }
  return plan;
}

/// The plans to predict: retain, `planned` for budgets evenly down to the smallest, random ones.
adacc::Result<std::vector<Candidate>> candidates(const adacc::Graph& graph,
                                                 const adacc::CostProfile& profile, int planned,
                                                 int random) {
  using namespace adacc;
  std::vector<Candidate> all{{"retain", retain_all(graph)}};
  PlanRequest request;
  const std::size_t most = peak_bytes(graph, all[0].plan);
  request.budget_bytes = most;
  const Result<std::size_t> least = smallest_peak(graph, profile, request);
  if (!least) return least.error;
  for (int i = 1; i <= planned; ++i) {
    request.budget_bytes =
        most - (most - *least) / static_cast<std::size_t>(planned) * static_cast<std::size_t>(i);
    Result<PlanOutcome> outcome = make_plan(graph, profile, request);
    if (!outcome) return outcome.error;
    char name[32];
    std::snprintf(name, sizeof name, "auto %.1f %%",
                  100.0 * static_cast<double>(request.budget_bytes) / static_cast<double>(most));
    all.push_back({name, std::move(outcome->plan)});
  }
  for (int i = 1; i <= random; ++i)
    all.push_back({"random " + std::to_string(i), random_plan(graph, static_cast<unsigned>(i))});
  return all;
}

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "predicted_time: %s\n", why.text());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  gpt::Config config{6, 6, 384, 256, 256};
  std::size_t batch = 4, seq = 256;
  int threads = 2, rounds = 7, planned = 8, random = 0;
  adacc::MeasureOptions options;
  bool details = false;
  CLI::App app("Compares predicted and measured times of steps.", "predicted_time");
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", config.layers)->check(CLI::Range(1, 4096));
  app.add_option("--heads", config.heads)->check(CLI::PositiveNumber);
  app.add_option("--channels", config.channels)->check(CLI::PositiveNumber);
  app.add_option("--seq", seq)->check(CLI::PositiveNumber);
  app.add_option("--batch", batch)->check(CLI::PositiveNumber);
  app.add_option("--threads", threads)->check(CLI::Range(1, 256));
  app.add_option("--steps", options.steps, "steps under each measuring plan");
  app.add_option("--rounds", rounds, "pairs of a step under each plan and one under retain");
  app.add_option("--plans", planned, "budgets below what retain needs")->check(CLI::Range(0, 99));
  app.add_option("--random", random, "random plans as well")->check(CLI::Range(0, 99));
  app.add_flag("--cpu-time", cpu_time, "time the calling thread, not the wall; for --threads 1");
  app.add_flag("--details", details, "print the profile of the layers as well");
  CLI11_PARSE(app, argc, argv);
  config.context = seq;
  if (cpu_time && threads != 1) return fail(adacc::Error::say("--cpu-time needs --threads 1"));

  using namespace adacc;
  EigenPool pool(threads);
  const auto network = gpt::make(config);
  const Shape shape(batch, seq);
  const auto planned_graph = gpt::graph<gpt::PlannedSet>(config, batch, seq, threads);
  if (!planned_graph) return fail(planned_graph.error);
  const Graph& graph = *planned_graph;
  auto program = make_program(graph, retain_all(graph));
  if (!program) return fail(program.error);
  const auto dispatch = make_dispatch<float, Cpu>(network);
  auto training =
      Training<>::make(dispatch, *program, Cpu{ExecutorRef(pool)}, measuring_bytes(graph));
  if (!training) return fail(training.error);
  std::vector<std::int32_t> tokens(shape.elems());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        static_cast<std::int32_t>(random_word({.purpose = Purpose::data}, i) % config.vocab);
  const View<const std::int32_t> view(tokens.data(), shape);

  const auto measure_now = [&] {
    return measure(training->context(), dispatch, graph, training->arena(), training->params(),
                   training->gradients(), view, view, now, options);
  };
  const double start = now();
  auto profile = measure_now();
  if (!profile) return fail(profile.error);
  estimate_errors(graph, *profile);
  std::printf("%s; B %zu, T %zu, %d threads; measured in %.1f s\n", gpt::describe(config).c_str(),
              batch, seq, threads, now() - start);
  if (details)
    for (int k = 0; k < graph.node_count() && k < 12; ++k) {
      std::printf("  %2d %-17s forward %7.2f backward %7.2f add %5.2f %5.2f ms", k,
                  graph.node(k).name, 1e3 * profile->node(k).forward,
                  1e3 * profile->node(k).backward, 1e3 * profile->node(k).add,
                  1e3 * profile->node(k).add_gradient);
      for (std::size_t c = 0; c < profile->codecs.size(); ++c)
        std::printf("  %s %.2f %.2f", profile->codecs[c]->name,
                    1e3 * profile->codec_cost(k, static_cast<int>(c)).encode,
                    1e3 * profile->codec_cost(k, static_cast<int>(c)).decode);
      std::printf("\n");
    }

  const auto plans = candidates(graph, *profile, planned, random);
  if (!plans) return fail(plans.error);
  std::vector<Step<>> steps;
  for (const Candidate& candidate : *plans) {
    auto made = make_program(graph, candidate.plan);
    if (!made) return fail(made.error);
    auto step = Step<>::make(dispatch, std::move(*made));
    if (!step) return fail(step.error);
    steps.push_back(std::move(*step));
  }
  Error failed;
  const auto seconds = [&](Step<>& step) {
    if (Error why = step.bind(training->arena(), training->params(), training->gradients()))
      failed = why;
    const double before = now();
    if (const auto loss = step.run(training->context(), view, view); !loss) failed = loss.error;
    return now() - before;
  };
  std::vector<Array<double>> times(steps.size()), ratios(steps.size());
  for (int round = -1; round < rounds && !failed; ++round)
    for (std::size_t i = 0; i < steps.size() && !failed; ++i) {
      const double retain = seconds(steps[0]), mine = seconds(steps[i]);
      if (round < 0) continue;
      times[0].push_back(retain);
      if (i > 0) times[i].push_back(mine);
      ratios[i].push_back(mine / retain);
    }
  if (failed) return fail(failed);

  const auto predict = [&](const CostProfile& by, std::size_t i) {
    return evaluate(graph, by, (*plans)[i].plan).seconds;
  };
  const double retain = predict(*profile, 0);
  std::printf("%-12s%10s%14s%14s%10s%23s%15s\n", "plan", "MiB", "predicted ms", "measured ms",
              "error %", "over retain: p, m", "error %");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double predicted = predict(*profile, i), measured = detail::median(times[i]);
    const double p = predicted / retain, m = detail::median(ratios[i]);
    std::printf("%-12s%10.1f%14.1f%14.1f%10.1f%14.3f%9.3f%15.1f\n", (*plans)[i].name.c_str(),
                static_cast<double>(steps[i].arena_bytes()) / MiB, 1e3 * predicted, 1e3 * measured,
                100 * (predicted / measured - 1), p, m, 100 * (p / m - 1));
  }
  const auto again = measure_now();
  if (!again) return fail(again.error);
  std::printf("retain predicted by a profile measured now: %.1f ms\n", 1e3 * predict(*again, 0));
}
