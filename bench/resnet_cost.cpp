// SPDX-License-Identifier: MIT
/// A residual network on 32 x 32 pictures: what a budget costs, losslessly and with codecs.
///
/// Like policy_bench: every plan's step is timed in the same rounds as retain's, and what is reported is
/// the median of its ratios to retain's. Updates are left out. With one thread, times are those of the
/// processor, which a busy machine disturbs less than it does those of the clock.
#include <CLI/CLI.hpp>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/cost/estimate.hpp>
#include <adacc/cost/measure.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/models/resnet.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/train/make.hpp>
#include <support/draw/plan.hpp>
#include <support/processor_seconds.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace adacc;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int fail(const Error& why) {
  std::fprintf(stderr, "resnet_cost: %s\n", why.text());
  return 2;
}

struct Options {
  resnet::Config network;
  bool preactivated = false;
  std::size_t batch = 64, side = 32;
  int threads = 1, rounds = 15, parts = 1;
  double tolerance = 1e-2;
  std::vector<std::string> budgets{"60%", "50%", "45%", "30%", "smallest"};
  MeasureOptions measure;
};

struct Entry {
  std::string name;
  PlanOutcome outcome;
  bool planned = false;
  std::unique_ptr<Training<>> training;
  std::vector<double> ratios;
};

template <class Net>
class Race {
 public:
  Race(const Options& o, const Net& network, const Cpu& cpu)
      : seconds(o.threads == 1 ? support::processor_seconds : steady_seconds), o_(o),
        network_(network), cpu_(cpu), shape_(o.batch, o.side, o.side, std::size_t{3}),
        pixels_(shape_.elems()), classes_(o.batch) {
    for (std::size_t i = 0; i < pixels_.size(); ++i)
      pixels_[i] = 2 * unit_float(random_word({}, i)) - 1;
    for (std::size_t b = 0; b < classes_.size(); ++b)
      classes_[b] = static_cast<std::int32_t>(b % o.network.classes);
  }

  Result<Graph> graph() const {
    return make_graph(network_, shape_, {.workers = o_.threads, .parts = o_.parts});
  }
  View<const float> input() const { return {pixels_.data(), shape_}; }
  View<const std::int32_t> target() const { return {classes_.data(), Shape(o_.batch)}; }

  Error add(const std::string& name, Plan plan, const PlanOutcome* outcome = nullptr) {
    auto layout = graph();
    if (!layout) return layout.error;
    auto program = make_program(*layout, std::move(plan));
    if (!program) return program.error;
    auto dispatch = make_dispatch<float, Cpu>(network_);
    dispatch.template add_codec<Int8Outlier>();
    dispatch.template add_codec<Int4Outlier>();
    dispatch.template add_codec<Bf16>();
    auto made = Training<>::make(std::move(dispatch), std::move(*program), cpu_);
    if (!made) return made.error;
    Entry entry;
    entry.name = name;
    entry.training = std::make_unique<Training<>>(std::move(*made));
    if (outcome != nullptr) entry.outcome = *outcome, entry.planned = true;
    entries.push_back(std::move(entry));
    return {};
  }

  Result<CostProfile> measured(const Graph& of) {
    Training<>& t = *entries[0].training;
    return measure(t.context(), make_dispatch<float, Cpu>(network_), of, t.arena(), t.params(),
                   t.gradients(), input(), target(), seconds, o_.measure);
  }

  Error run() {
    for (int round = -1; round < o_.rounds; ++round) {
      double retain = 0;
      for (Entry& entry : entries) {
        const double start = seconds();
        const auto loss = entry.training->accumulate(input(), target());
        const double taken = seconds() - start;
        if (!loss) return loss.error;
        if (const auto updated = entry.training->update(1e-3); !updated) return updated.error;
        if (&entry == &entries[0]) retain = taken;
        if (round >= 0) entry.ratios.push_back(taken / retain);
      }
    }
    return {};
  }

  double (*const seconds)();
  std::vector<Entry> entries;

 private:
  Options o_;
  Net network_;
  Cpu cpu_;
  Shape shape_;
  std::vector<float> pixels_;
  std::vector<std::int32_t> classes_;
};

/// `planned` leaves all to a plan, `norms_again` fixes what is kept in its types.
template <class Planned, class NormsAgain>
int run(const Options& o, const Planned& planned, const NormsAgain& norms_again) {
  EigenPool pool(o.threads);
  Race race(o, planned, Cpu{ExecutorRef(pool)});
  auto graph = race.graph();
  if (!graph) return fail(graph.error);
  if (Error why = race.add("retain", retain_all(*graph))) return fail(why);
  const std::size_t retain_peak = race.entries[0].training->arena().size();
  auto profile = race.measured(*graph);
  if (!profile) return fail(profile.error);
  estimate_errors(*graph, *profile);
  auto typed = make_graph(norms_again, graph->input, {.workers = o.threads, .parts = o.parts});
  if (!typed) return fail(typed.error);
  if (Error why = race.add("norms again", plan_from_types(*typed))) return fail(why);
  for (const double tolerance : {0.0, o.tolerance}) {
    for (const std::string& text : o.budgets) {
      PlanRequest request;
      request.tolerance = tolerance;
      request.clock = steady_seconds;
      request.budget_bytes = retain_peak;
      if (text == "smallest") {
        const auto smallest = smallest_peak(*graph, *profile, request);
        if (!smallest) return fail(smallest.error);
        request.budget_bytes = *smallest;
      } else {
        const auto budget = parse_budget(text);
        if (!budget) return fail(budget.error);
        request.budget_bytes = budget->of(retain_peak);
      }
      auto outcome = make_plan(*graph, *profile, request);
      if (!outcome) {
        std::printf("%s%s: %s\n", tolerance == 0 ? "lossless " : "", text.c_str(),
                    outcome.error.text());
        continue;
      }
      if (Error why =
              race.add((tolerance == 0 ? "lossless " : "lossy ") + text, outcome->plan, &*outcome))
        return fail(why);
    }
  }
  if (Error why = race.run()) return fail(why);
  std::printf(
      "%d layers with weights, %zu channels, %zu pictures of %zu x %zu, %d threads, %d parts\n",
      6 * o.network.blocks + 2, o.network.channels, o.batch, o.side, o.side, o.threads, o.parts);
  std::printf("%-20s %10s %9s %9s %9s %8s  %s\n", "plan", "peak", "of retain", "time", "predicted",
              "error", "policies");
  for (const Entry& entry : race.entries) {
    const std::size_t peak = entry.training->compiled_step().arena_bytes();
    std::printf("%-20s %6.2f MiB %9.3f %9.3f", entry.name.c_str(), static_cast<double>(peak) / MiB,
                static_cast<double>(peak) / static_cast<double>(retain_peak), median(entry.ratios));
    if (entry.planned) {
      std::printf(" %9.3f %8.1e ", entry.outcome.seconds / entry.outcome.retain_seconds,
                  entry.outcome.error);
      for (const auto& [name, count] : draw::policy_counts(entry.outcome.plan))
        std::printf(" %s %d", name.c_str(), count);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"What a budget costs a residual network"};
  app.option_defaults()->always_capture_default();
  app.add_flag("--preactivated", o.preactivated, "norms and ReLUs stand before convolutions");
  app.add_option("--blocks", o.network.blocks, "of each of three stages")
      ->check(CLI::Range(2, 200));
  app.add_option("--channels", o.network.channels, "of the first stage")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", o.batch)->check(CLI::PositiveNumber);
  app.add_option("--side", o.side, "of the pictures, in pixels")->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 256));
  app.add_option("--parts", o.parts, "that layers are cut into, in loops over pictures")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--rounds", o.rounds)->check(CLI::Range(1, 100000));
  app.add_option("--budgets", o.budgets, "as 50% of retain's peak, as 96MiB, or: smallest");
  app.add_option("--tolerance", o.tolerance, "of plans that are not lossless")
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--measure-steps", o.measure.steps, "steps of each kind that are measured first");
  CLI11_PARSE(app, argc, argv);

  if (o.preactivated)
    return run(o, resnet::make_preactivated(o.network),
               resnet::make_preactivated<resnet::NormsAgainSet>(o.network));
  return run(o, resnet::make(o.network), resnet::make<resnet::NormsAgainSet>(o.network));
}
