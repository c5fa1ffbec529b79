/// How long planning takes, on one thread, and how good the plans provably are: GPT blocks, equal
/// or all a little different in cost, at several budgets.
///
///   plan_bench [--layers 12,96,1000] [--budgets 60,40,30,20] [--tolerance 0.01] [--gap 0.005]
///              [--repeat 5]
///
/// Times are medians in milliseconds of processor time. Gaps are fractions of the step, proven by
/// the planner itself.
#include <adacc/plan/chain/planner.hpp>

#include <CLI/CLI.hpp>

#include <adacc/cost/estimate.hpp>
#include <adacc/layer/gpt.hpp>
#include <support/shake.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

namespace {

namespace gpt = adacc::gpt;

/// Processor time: others on the machine do not count.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Options {
  std::vector<int> layers{6, 12, 96, 1000};
  std::vector<double> budgets{100, 80, 50, 30, 20, 15, 12};
  double tolerance = 1e-2;
  double gap = 5e-3;
  int repeat = 3;
};

void measure(const Options& options, int layers, double jitter) {
  const gpt::Config config{
      .layers = layers, .heads = 6, .channels = 384, .context = 256, .vocab = 256};
  const auto graph = gpt::graph<gpt::PlannedSet>(config, 4, 256, 1);
  if (!graph) return;
  adacc::CostProfile profile = adacc::estimated_profile(*graph);
  support::shake(profile, jitter);
  const std::size_t retain = adacc::peak_bytes(*graph, adacc::retain_all(*graph));
  for (const double budget : options.budgets) {
    adacc::PlanRequest request;
    request.budget_bytes = static_cast<std::size_t>(static_cast<double>(retain) * budget / 100);
    request.tolerance = options.tolerance;
    request.gap = options.gap;
    request.now = now;
    std::vector<double> times;
    adacc::Result<adacc::PlanOutcome> plan;
    for (int i = 0; i < options.repeat; ++i) {
      const double start = now();
      plan = adacc::plan_by_patterns(*graph, profile, request);
      times.push_back(1e3 * (now() - start));
    }
    std::sort(times.begin(), times.end());
    std::printf("%6d %6.0f%% %6.0f%% %10.1f ", layers, 100 * jitter, budget,
                times[times.size() / 2]);
    if (!plan) {
      std::printf("%s\n", plan.error.text());
      continue;
    }
    std::printf("%8.3f%% %8.2f%% %8.2f%% %9.5f%s\n", 100 * plan->gap,
                100 * (plan->seconds / plan->retain_seconds - 1),
                100 * static_cast<double>(plan->peak_bytes) / static_cast<double>(retain),
                plan->error, plan->timed_out ? " (timed out)" : "");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times and proven gaps of plans for GPT blocks.");
  Options options;
  app.add_option("--layers", options.layers, "Numbers of blocks")->delimiter(',');
  app.add_option("--budgets", options.budgets, "In per cent of retain's peak")->delimiter(',');
  app.add_option("--tolerance", options.tolerance, "Of the accumulated gradient error");
  app.add_option("--gap", options.gap, "At which a plan is good enough");
  app.add_option("--repeat", options.repeat, "Plans timed, of which the median is shown");
  CLI11_PARSE(app, argc, argv);
  std::printf("layers jitter budget    plan, ms      gap    slower     peak     error\n");
  for (const double jitter : {0.0, 0.1})
    for (const int layers : options.layers) measure(options, layers, jitter);
  return 0;
}
