// SPDX-License-Identifier: MIT
/// What do loops over rows cost and save? One plan for each budget, run with loops, with its layers in
/// parts one after the other, and with whole layers; times over those of retaining all of whole ones.
///
/// All are timed in the same rounds, and what is reported is the median of the ratios, because
/// machines are shared and drift. Updates are left out.
#include <CLI/CLI.hpp>

#include <adacc/cost/estimate.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/plan/make_plan.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contestant.hpp"

namespace {

namespace gpt = adacc::gpt;
using contest::Contestant;

struct Options : contest::Setting {
  int rounds = 15;
  std::vector<std::string> budgets{"100%", "30%", "15%", "12%", "10%", "smallest"};
  double tolerance = 1e-2;
};

/// One way to run a plan.
struct Runner {
  std::unique_ptr<Contestant> contestant;
  std::vector<double> ratios;  ///< time over that of retaining, by round

  std::size_t peak() const { return contestant->step().arena_bytes(); }
};

/// One budget.
struct Entry {
  std::string name;
  Runner loops, straight, whole;
};

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "loop_cost: %s\n", why.text());
  return 2;
}

Runner make_runner(contest::Setting setting, int parts, bool loops, const adacc::Plan& plan,
                   const adacc::Cpu& cpu) {
  setting.parts = parts;
  setting.loops = loops;
  return {std::make_unique<Contestant>(setting, plan, cpu), {}};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  o.parts = 4;
  CLI::App app("Times planned steps with loops over rows, and without.", "loop_cost");
  app.option_defaults()->always_capture_default();
  contest::add_options(app, o);
  app.add_option("--parts", o.parts)->check(CLI::Range(2, 1 << 16));
  app.add_option("--rounds", o.rounds)->check(CLI::Range(1, 100000));
  app.add_option("--budgets", o.budgets,
                 "as 50% of the peak of retaining whole layers, or: smallest");
  app.add_flag("--processor-time", o.processor_time,
               "of all threads, instead of time by the clock: on machines that do other work, too");
  app.add_option("--tolerance", o.tolerance)->check(CLI::Range(0.0, 1e3));
  CLI11_PARSE(app, argc, argv);
  o.network.context = o.seq;

  using namespace adacc;
  EigenPool pool(o.threads);
  const Cpu cpu{ExecutorRef(pool)};
  const Runner retain = make_runner(o, 1, true, contest::named_plan("retain", o), cpu);
  if (retain.contestant->error()) return fail(retain.contestant->error());
  auto graph = gpt::graph<gpt::PlannedSet>(o.network, o.batch, o.seq, o.threads, o.parts);
  if (!graph) return fail(graph.error);
  auto profile = retain.contestant->measure(*graph, {});
  if (!profile) return fail(profile.error);
  estimate_errors(*graph, *profile);

  PlanRequest request;
  request.tolerance = o.tolerance;
  request.budget_bytes = retain.peak();
  const auto smallest = smallest_peak(*graph, *profile, request);
  if (!smallest) return fail(smallest.error);
  std::vector<Entry> entries;
  for (const std::string& text : o.budgets) {
    request.budget_bytes = *smallest;
    if (text != "smallest") {
      const auto budget = parse_budget(text);
      if (!budget) return fail(budget.error);
      request.budget_bytes = budget->of(retain.peak());
    }
    const auto outcome = make_plan(*graph, *profile, request);
    if (!outcome) return fail(outcome.error);
    Entry entry{text, make_runner(o, o.parts, true, outcome->plan, cpu),
                make_runner(o, o.parts, false, outcome->plan, cpu),
                make_runner(o, 1, false, outcome->plan, cpu)};
    for (const Runner* runner : {&entry.loops, &entry.straight, &entry.whole})
      if (runner->contestant->error()) return fail(runner->contestant->error());
    entries.push_back(std::move(entry));
  }

  for (int round = -2; round < o.rounds; ++round) {  // two rounds warm up
    double update = 0;
    const double least = retain.contestant->run(update) - update;
    for (Entry& entry : entries)
      for (Runner* runner : {&entry.loops, &entry.straight, &entry.whole}) {
        const double ms = runner->contestant->run(update) - update;
        if (round >= 0) runner->ratios.push_back(ms / least);
      }
  }

  std::printf("%d layers, %zu heads, %zu channels, T %zu, B %zu, %d threads, %d parts, %d rounds\n",
              o.network.layers, o.network.heads, o.network.channels, o.seq, o.batch, o.threads,
              o.parts, o.rounds);
  std::printf("%-10s %28s %28s %28s\n", "budget", "loops: peak, time", "parts alone", "whole");
  for (const Entry& entry : entries) {
    std::printf("%-10s", entry.name.c_str());
    for (const Runner* runner : {&entry.loops, &entry.straight, &entry.whole})
      std::printf("  %8.1f MiB %5.1f %% %7.3f",
                  static_cast<double>(runner->peak()) / static_cast<double>(MiB),
                  100 * static_cast<double>(runner->peak()) / static_cast<double>(retain.peak()),
                  contest::median(runner->ratios));
    std::printf("\n");
  }
  return 0;
}
