// SPDX-License-Identifier: MIT
/// How long planning takes, on one thread, and how good the plans provably are: GPT blocks, equal
/// or all a little different in cost, at several budgets.
///
///   plan_bench [--layers 12,96,1000] [--budgets 60,40,30,20] [--tolerance 0.01] [--gap 0.005]
///              [--repeat 5] [--solver auto] [--ablate]
///
/// --ablate plans once with each mechanism of the planner switched off instead, and shows what that
/// does to gaps and times.
///
/// Times are medians in milliseconds of processor time. Gaps are fractions of the step, proven by
/// the planner itself.
#include <adacc/plan/chain/planner.hpp>

#include <CLI/CLI.hpp>

#include <adacc/cost/estimate.hpp>
#include <adacc/models/gpt.hpp>
#include <support/shake.hpp>
#include <support/solver.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <string>
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
  std::string solver = "auto";
  bool ablate = false;
};

/// A planner without one of its mechanisms.
struct Ablation {
  const char* name;
  void (*change)(adacc::ChainTuning& tuning);
};

using Tuning = adacc::ChainTuning;
constexpr Ablation ablations[] = {
    {"all", [](Tuning&) {}},
    {"equal segments share patterns", [](Tuning& t) { t.classes_compared = 0; }},
    {"prices tuned by many paths", [](Tuning& t) { t.most_paths = 2; }},
    {"the best row is priced", [](Tuning& t) { t.rows_tried = 1; }},
    {"bounds at several prices", [](Tuning& t) { t.factor_count = 1; }},
    {"far arcs are left out",
     [](Tuning& t) {
       for (Tuning::Effort& effort : t.efforts) effort.arcs = 100000;
     }},
    {"wider searches",
     [](Tuning& t) {
       for (Tuning::Effort& effort : t.efforts) effort = t.efforts[0];
     }},
    {"several plans per range",
     [](Tuning& t) {
       for (Tuning::Effort& effort : t.efforts) effort.labels = 1;
     }},
    {"several layouts tried", [](Tuning& t) { t.layouts = 1; }},
};

/// Sums over all budgets: gaps in per cent, and budgets that no plan was found for.
struct Measured {
  double ms = 0, gap = 0;
  int refused = 0;
};

Measured measure(const Options& options, int layers, double jitter, const Tuning& tuning) {
  Measured sum;
  const gpt::Config config{
      .layers = layers, .heads = 6, .channels = 384, .context = 256, .vocab = 256};
  const auto graph = gpt::graph<gpt::PlannedSet>(config, 4, 256, 1);
  if (!graph) return sum;
  adacc::CostProfile profile = adacc::estimated_profile(*graph);
  support::shake(profile, jitter);
  const std::size_t retain = adacc::peak_bytes(*graph, adacc::retain_all(*graph));
  for (const double budget : options.budgets) {
    adacc::PlanRequest request;
    request.budget_bytes = static_cast<std::size_t>(static_cast<double>(retain) * budget / 100);
    request.tolerance = options.tolerance;
    request.gap = options.gap;
    request.clock = now;
    request.prices = support::planner_of(options.solver).prices();
    std::vector<double> times;
    adacc::Result<adacc::PlanOutcome> plan;
    for (int i = 0; i < options.repeat; ++i) {
      const double start = now();
      plan = adacc::plan_chain(*graph, profile, request, tuning);
      times.push_back(1e3 * (now() - start));
    }
    std::sort(times.begin(), times.end());
    sum.ms += times[times.size() / 2];
    if (plan) sum.gap += 100 * plan->gap;
    else ++sum.refused;
    if (options.ablate) continue;
    std::printf("%6d %6.0f%% %6.0f%% %10.1f ", layers, 100 * jitter, budget,
                times[times.size() / 2]);
    if (!plan) {
      std::printf("%s\n", plan.error.text());
      continue;
    }
    std::printf("%8.3f%% %8.2f%% %8.2f%% %9.5f%s", 100 * plan->gap,
                100 * (plan->seconds / plan->retain_seconds - 1),
                100 * static_cast<double>(plan->peak_bytes) / static_cast<double>(retain),
                plan->error, plan->timed_out ? " (timed out)" : "");
    std::printf("    by %s, proven by %s\n", plan->solver, plan->bound_by);
    std::fflush(stdout);
  }
  return sum;
}

void ablate(const Options& options) {
  std::printf("%-36s %6s %6s %10s %8s %8s\n", "without", "layers", "jitter", "plans, ms",
              "mean gap", "refused");
  for (const int layers : options.layers)
    for (const double jitter : {0.0, 0.1})
      for (const Ablation& ablation : ablations) {
        Tuning tuning;
        ablation.change(tuning);
        const Measured sum = measure(options, layers, jitter, tuning);
        const auto plans = static_cast<double>(options.budgets.size()) - sum.refused;
        std::printf("%-36s %6d %5.0f%% %10.1f %7.3f%% %8d\n", ablation.name, layers, 100 * jitter,
                    sum.ms, sum.gap / (plans > 0 ? plans : 1), sum.refused);
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
  app.add_option("--solver", options.solver, "auto, search or lp_solve")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(support::solver_names),
                                                     std::end(support::solver_names))));
  app.add_flag("--ablate", options.ablate, "Switch mechanisms off, one by one");
  CLI11_PARSE(app, argc, argv);
  if (options.ablate) return ablate(options), 0;
  std::printf("layers jitter budget    plan, ms      gap    slower     peak     error\n");
  for (const double jitter : {0.0, 0.1})
    for (const int layers : options.layers) static_cast<void>(measure(options, layers, jitter, {}));
  return 0;
}
