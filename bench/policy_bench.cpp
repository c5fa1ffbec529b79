// SPDX-License-Identifier: MIT
/// What does a budget cost? Throughput against the peak of a step: planned, planned without loss (with
/// a store as well, if there is one), and under policies that are the same for every block.
///
/// Every plan's step is timed in the same rounds as retain's, and what is reported is the median of
/// its ratios to retain's, because machines are shared and drift. Updates are left out of the
/// times: they do not depend on the plan.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <adacc/core/read_number.hpp>
#include <adacc/cost/estimate.hpp>
#include <adacc/cost/measure_drag.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/io/file.hpp>
#include <adacc/plan/make_plan.hpp>
#include <support/draw/curve.hpp>
#include <support/draw/plan.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contestant.hpp"

namespace {

namespace gpt = adacc::gpt;

using contest::Contestant;
using contest::median;

constexpr const char* uniform_policies[] = {"retain", "recompute", "int8",
                                            "int4",   "tolerated", "mixed"};

struct Options : contest::Setting {
  int rounds = 15;
  std::vector<std::string> budgets{"50%", "30%", "recompute", "20%", "smallest"};
  double tolerance = 1e-2;
  adacc::MeasureOptions measure;
  std::string json, svg;
};

double now() { return 1e-3 * contest::now_ms(); }

/// Lines of the picture: the same policy everywhere, planned, planned with tolerance 0, and both with
/// a store.
enum class Series { uniform, planned, lossless, stored_lossless, stored };
constexpr const char* series_names[] = {"", "auto", "lossless", "lossless, store", "auto, store"};
constexpr bool uses_store(Series series) { return series >= Series::stored_lossless; }
constexpr bool loses_nothing(Series series) {
  return series == Series::lossless || series == Series::stored_lossless;
}

/// One plan in the race.
struct Entry {
  std::string name;
  adacc::PlanOutcome outcome;  ///< of a planned one
  std::size_t budget = 0;      ///< 0: uniform
  Series series = Series::uniform;
  std::unique_ptr<Contestant> contestant;
  std::vector<double> ratios;  ///< time over retain's, by round
  std::size_t peak() const { return contestant->step().arena_bytes(); }
  double throughput() const { return 1 / median(ratios); }
};

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "policy_bench: %s\n", why.text());
  return 2;
}

/// The fastest uniform policy that fits `bytes`; retain where none does.
const Entry& best_uniform(const std::vector<Entry>& entries, std::size_t bytes) {
  const Entry* best = nullptr;
  for (const Entry& entry : entries)
    if (entry.budget == 0 && entry.peak() <= bytes &&
        (best == nullptr || entry.throughput() > best->throughput()))
      best = &entry;
  return best == nullptr ? entries[0] : *best;
}

/// What a store of `bytes` bytes costs, at the sizes of the activations of `graph`.
adacc::Result<adacc::LinkCost> measure_store(const Options& o, adacc::Cpu cpu, std::size_t bytes,
                                             const adacc::Graph& graph) {
  using namespace adacc;
  const LinkMeasurement how{.clock = now};
  contest::Away away;
  if (const Error why = away.make(o, bytes)) return why;
  auto memory = Block<std::byte>::make(link_memory_bytes(away.store, graph, how),
                                       "measuring the store", huge_page);
  if (!memory) return memory.error;
  return measure_link(cpu, away.store, memory->view(), graph, how);
}

/// `350,320`: megabytes a second to and from a store.
std::string parse_throttle(const std::string& text, contest::Throttle& throttle) {
  double write = 0, read = 0;
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos || !adacc::read_number(text.substr(0, comma), write) ||
      !adacc::read_number(text.substr(comma + 1), read) || !(write > 0) || !(read > 0) ||
      write > 1e9 || read > 1e9)
    return "\"" + text +
           "\" is not two rates above 0 in MB/s, such as 350,320: of writing and of reading";
  throttle = {1e6 * write, 1e6 * read};
  return {};
}

std::string picture(const std::vector<Entry>& entries) {
  const auto retain = static_cast<double>(entries[0].peak());
  draw::Curve planned[] = {{},
                           {series_names[1], "#e15759", {}, false, {}},
                           {series_names[2], "#59a14f", {}, false, {}},
                           {series_names[3], "#b07aa1", {}, false, {}},
                           {series_names[4], "#9c755f", {}, false, {}}};
  draw::Curve others{"the same policy in every block", "#4e79a7", {}, true, {}};
  for (const Entry& entry : entries) {
    const double x = 100 * static_cast<double>(entry.peak()) / retain, y = entry.throughput();
    const auto series = static_cast<std::size_t>(entry.series);
    (entry.budget == 0 ? others : planned[series]).points.push_back({x, y});
    if (entry.budget == 0) others.names.push_back(entry.name);
  }
  std::vector<draw::Curve> curves, dots;
  for (draw::Curve& curve : planned) {
    if (curve.points.empty()) continue;
    std::sort(curve.points.begin(), curve.points.end());
    curves.push_back(curve);
    dots.push_back(curve);
    dots.back().dots = true;
    dots.back().label.clear();
  }
  curves.push_back(others);
  curves.insert(curves.end(), dots.begin(), dots.end());
  std::string svg = draw::open_svg(760, 400);
  svg += "<text x='60' y='22' font-size='14'>Throughput over retain's, against the peak</text>\n";
  svg += draw::curves(curves, {60, 56, 660, 280}, "peak, % of retain's");
  return svg + "</svg>\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Times planned steps at several budgets, and uniform policies, beside retain's.",
               "policy_bench");
  app.option_defaults()->always_capture_default();
  contest::add_options(app, o);
  app.add_option("--parts", o.parts,
                 "that layers are cut into for planned steps, so that these have loops over rows")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--rounds", o.rounds, "in which every plan runs one step")
      ->check(CLI::Range(1, 100000));
  app.add_option(
      "--budgets", o.budgets,
      "as 50% of retain's peak, as 96MiB, or: recompute (its peak), smallest; what a kind of "
      "plan cannot meet is left out");
  CLI::Option* const folder =
      app.add_option("--store", o.store,
                     "folder of a disk: plans that may offload are timed, too, without loss and "
                     "within the tolerance");
  std::string throttle;
  app.add_option("--throttle", throttle,
                 "MB/s of writing and of reading, as 350,320: the same with memory that is as slow "
                 "as that, instead of a disk")
      ->excludes(folder);
  app.add_option("--tolerance", o.tolerance, "largest relative squared error of the gradient")
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--measure-steps", o.measure.steps, "steps of each kind that are measured first");
  app.add_option("--json", o.json, "write the figures to this file as well");
  app.add_option("--svg", o.svg, "draw them into this file");
  CLI11_PARSE(app, argc, argv);
  o.network.context = o.seq;
  if (!throttle.empty())
    if (const std::string why = parse_throttle(throttle, o.throttle); !why.empty())
      return fail(adacc::Error::say("--throttle: ", why.c_str()));

  using namespace adacc;
  EigenPool pool(o.threads);
  const Cpu cpu{ExecutorRef(pool)};
  std::vector<Entry> entries;
  for (const char* name : uniform_policies) {
    Entry entry;
    entry.name = name;
    contest::Setting whole = o;
    whole.parts = 1;
    entry.contestant = std::make_unique<Contestant>(whole, contest::named_plan(name, o), cpu);
    if (entry.contestant->error()) return fail(entry.contestant->error());
    entries.push_back(std::move(entry));
  }
  if (o.parts > 1) {
    Entry entry;
    entry.name = "retain, cut";
    entry.contestant = std::make_unique<Contestant>(o, contest::named_plan("retain", o), cpu);
    if (entry.contestant->error()) return fail(entry.contestant->error());
    entries.push_back(std::move(entry));
  }
  auto graph = gpt::graph<gpt::PlannedSet>(o.network, o.batch, o.seq, o.threads, o.parts);
  if (!graph) return fail(graph.error);
  auto profile = entries[0].contestant->measure(*graph, o.measure);
  if (!profile) return fail(profile.error);
  estimate_errors(*graph, *profile);

  PlanRequest request;
  request.clock = now;
  for (const Series series :
       {Series::planned, Series::lossless, Series::stored_lossless, Series::stored}) {
    if (uses_store(series) && o.store.empty() && !o.throttle) continue;
    request.tolerance = loses_nothing(series) ? 0 : o.tolerance;
    request.budget_bytes = entries[0].peak();
    if (uses_store(series) && !request.link.exists()) {
      const auto link = measure_store(o, cpu, entries[0].peak(), *graph);
      if (!link) return fail(link.error);
      request.link = *link;
    }
    const auto smallest = smallest_peak(*graph, *profile, request);
    if (!smallest) return fail(smallest.error);
    for (const std::string& text : o.budgets) {
      if (text == "recompute") {
        request.budget_bytes = entries[1].peak();
      } else if (text == "smallest") {
        request.budget_bytes = *smallest;
      } else {
        const auto budget = parse_budget(text);
        if (!budget) return fail(budget.error);
        request.budget_bytes = budget->of(entries[0].peak());
      }
      if (request.budget_bytes < *smallest) continue;
      auto outcome = make_plan(*graph, *profile, request);
      if (!outcome) return fail(outcome.error);
      Entry entry;
      entry.name = std::string(series_names[static_cast<std::size_t>(series)]) + " " + text;
      entry.budget = request.budget_bytes;
      entry.series = series;
      entry.contestant = std::make_unique<Contestant>(o, outcome->plan, cpu);
      if (entry.contestant->error()) return fail(entry.contestant->error());
      entry.outcome = std::move(*outcome);
      entries.push_back(std::move(entry));
    }
  }

  for (int round = -2; round < o.rounds; ++round) {  // two rounds warm up
    double retain = 0;
    for (Entry& entry : entries) {
      double update = 0;
      const double ms = entry.contestant->run(update) - update;
      if (&entry == &entries[0]) retain = ms;
      if (round >= 0) entry.ratios.push_back(ms / retain);
    }
  }

  std::printf("%d layers, %zu heads, %zu channels, T %zu, B %zu, %d threads, %d rounds\n",
              o.network.layers, o.network.heads, o.network.channels, o.seq, o.batch, o.threads,
              o.rounds);
  if (request.link.exists())
    std::printf("store: writes %.2f GB/s, reads %.2f GB/s\n", 1e-9 * request.link.write_rate,
                1e-9 * request.link.read_rate);
  std::printf("%-25s %10s %8s %11s %10s %8s  %s\n", "policy", "peak", "of retain", "throughput",
              "predicted", "gap", "best uniform that fits");
  nlohmann::ordered_json figures = nlohmann::ordered_json::array();
  const auto retain_peak = static_cast<double>(entries[0].peak());
  for (const Entry& entry : entries) {
    const double share = static_cast<double>(entry.peak()) / retain_peak;
    std::printf("%-25s %6.1f MiB %8.3f %11.3f", entry.name.c_str(),
                static_cast<double>(entry.peak()) / MiB, share, entry.throughput());
    nlohmann::ordered_json line = {
        {"policy", entry.name}, {"peak_bytes", entry.peak()}, {"throughput", entry.throughput()}};
    if (entry.budget > 0) {
      const double predicted = entry.outcome.retain_seconds / entry.outcome.seconds;
      const Entry& other = best_uniform(entries, entry.budget);
      const bool fits = other.peak() <= entry.budget;
      std::printf(" %10.3f %6.2f %%  %s %.3f", predicted, 100 * entry.outcome.gap,
                  fits ? other.name.c_str() : "none", fits ? other.throughput() : 0.0);
      line["budget_bytes"] = entry.budget;
      line["predicted_throughput"] = predicted;
      line["gap"] = entry.outcome.gap;
      line["error"] = entry.outcome.error;
      line["written_bytes"] = entry.outcome.written_bytes;
    }
    std::printf("\n");
    figures.push_back(line);
  }
  for (const Entry& entry : entries) {
    if (entry.budget == 0) continue;
    std::printf("%-25s", entry.name.c_str());
    for (const auto& [name, count] : draw::policy_counts(entry.outcome.plan))
      std::printf("  %s %d", name.c_str(), count);
    std::printf("\n");
  }
  if (!o.json.empty())
    if (Error why = write_file(o.json, figures.dump(2) + "\n")) return fail(why);
  if (!o.svg.empty())
    if (Error why = write_file(o.svg, picture(entries))) return fail(why);
  return 0;
}
