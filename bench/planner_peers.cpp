// SPDX-License-Identifier: MIT
/// The planner's side of a comparison with other planners (bench/peers/planner_peers.py has theirs):
/// a GPT of equal blocks, in which every activation may be retained or recomputed and nothing else,
/// because others know no more, at estimated costs.
///
///   planner_peers [--layers 12] [--budgets 50,30,20,15] [--repeat 3] >chain.json
///   planner_peers [--layers 12] --evaluate plans.json >costs.json
///
/// The first prints the graph as a chain of segments, with each segment's options (seconds beyond
/// retaining, bytes stored and needed, and the activations recomputed), and the planner's own plans,
/// also those of the same network in four parts, with loops over rows.
/// The second reads plans, each the list of activations that are recomputed, and prints what they
/// cost: seconds, live bytes, and the arena once laid out.
#include <adacc/plan/chain/planner.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <adacc/cost/estimate.hpp>
#include <adacc/models/gpt.hpp>
#include <support/solver.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace adacc;
using nlohmann::json;

/// Processor time: others on the machine do not count.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Options {
  int layers = 12;
  std::vector<double> budgets{50, 30, 20, 15};
  int repeat = 3;
  std::string plans;
};

Result<Graph> lossless_graph(int layers, int parts) {
  const gpt::Config config{
      .layers = layers, .heads = 6, .channels = 384, .context = 256, .vocab = 256};
  auto graph = gpt::graph<gpt::PlannedSet>(config, 4, 256, 1, parts);
  if (!graph) return graph.error;
  for (Node& node : graph->nodes) node.candidates.count = 0;
  return graph;
}

std::size_t bytes_of_node(const Graph& graph, int id) {
  return align_up(graph.node(id).output_bytes);
}

/// The options of one segment between activations that are at hand on both of its sides, without
/// those that others beat in everything.
class SegmentOptions {
 public:
  SegmentOptions(const Graph& graph, const CostProfile& profile, const detail::Segment& segment,
                 const detail::Patterns& patterns, const detail::ArcSet& arcs)
      : graph_(graph), profile_(profile), segment_(segment), patterns_(patterns), arcs_(arcs) {}

  json text() const {
    json out = {{"first", segment_.first},
                {"last", segment_.last},
                {"input_bytes", segment_.has_input ? bytes_of_node(graph_, segment_.first - 1) : 0},
                {"forward_seconds", forward_seconds()},
                {"forward_bytes", forward_bytes()},
                {"options", json::array()}};
    for (const detail::Arc& arc : arcs_.between(0, 0)) {
      const detail::Pattern& pattern = patterns_.all[static_cast<std::size_t>(arc.pattern)];
      json recomputed = json::array();
      for (int k = segment_.first; k <= segment_.last; ++k) {
        const auto local = static_cast<std::size_t>(k - segment_.original(0));
        const detail::Choice& choice = patterns_.choice(pattern, local);
        if (choice.needed && patterns_.options[local][choice.option].recomputes())
          recomputed.push_back(k);
      }
      out["options"].push_back({{"seconds", arc.seconds},
                                {"stored", arc.bytes.stored},
                                {"need", arc.bytes.need},
                                {"forward_need", forward_need(recomputed)},
                                {"recomputed", recomputed}});
    }
    return out;
  }

 private:
  double forward_seconds() const {
    double sum = 0;
    for (int k = segment_.first; k <= segment_.last; ++k)
      sum += profile_.node(k).forward +
             profile_.node(k).add * static_cast<double>(graph_.node(k).adds.count);
    return sum;
  }

  /// Of a forward that keeps nothing but what it hands on, beyond what comes in and goes out.
  std::int64_t forward_bytes() const {
    json all = json::array();
    for (int k = segment_.first; k <= segment_.last; ++k) all.push_back(k);
    std::size_t sides = segment_.has_input ? bytes_of_node(graph_, segment_.first - 1) : 0;
    if (segment_.has_output) sides += bytes_of_node(graph_, segment_.last);
    return forward_need(all) - static_cast<std::int64_t>(sides);
  }

  /// The most that lives in a forward that keeps all but what is `recomputed`.
  std::int64_t forward_need(const json& recomputed) const {
    const Graph form = detail::graph_of(graph_, segment_);
    Plan plan = retain_all(form);
    for (const json& id : recomputed) {
      const auto k = static_cast<std::size_t>(id.get<int>() - segment_.original(0));
      if (form.nodes[k].recomputable && form.nodes[k].policy.planned())
        plan.policies[k] = recompute();
    }
    const Schedule schedule = make_schedule(form, plan);
    const LiveBytes live = live_bytes_of(schedule);
    std::size_t most = 0;
    for (std::size_t i = 0; i < live.size() && !ends_forward(schedule.instructions[i].op); ++i)
      most = std::max(most, live[i]);
    return static_cast<std::int64_t>(most);
  }

  static bool ends_forward(Op op) {
    return op == Op::loss || op == Op::loss_gradient || op == Op::hand_over;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const detail::Segment& segment_;
  const detail::Patterns& patterns_;
  const detail::ArcSet& arcs_;
};

json segments_of(const Graph& graph, const CostProfile& profile) {
  const ChainTuning tuning;
  const detail::Segments segments(graph, profile, tuning.classes_compared);
  detail::ArcMaker maker(graph, profile);
  json out = json::array();
  for (const detail::Segment& segment : segments.all) {
    const detail::Patterns patterns =
        detail::PatternLister(graph, profile, segment, detail::graph_of(graph, segment),
                              tuning.most_patterns)
            .list();
    const detail::ArcSet arcs = maker.make(patterns, segment);
    out.push_back(SegmentOptions(graph, profile, segment, patterns, arcs).text());
  }
  return out;
}

json activations_of(const Graph& graph, const CostProfile& profile) {
  json out = json::array();
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    out.push_back({{"bytes", bytes_of_node(graph, k)},
                   {"seconds", seconds_of(graph, profile, k, recompute())},
                   {"read", node.read_in_backward},
                   {"open", node.recomputable && node.policy.planned()}});
  }
  return out;
}

json own_plans(const Graph& graph, const CostProfile& profile, const Options& options,
               std::size_t retain) {
  json out = json::array();
  for (const double budget : options.budgets) {
    PlanRequest request;
    request.budget_bytes = static_cast<std::size_t>(static_cast<double>(retain) * budget / 100);
    request.tolerance = 0;
    request.most_runs = most_runs;
    request.clock = now;
    request.prices = support::planner_of("auto").prices();
    std::vector<double> times;
    Result<PlanOutcome> plan;
    for (int i = 0; i < options.repeat; ++i) {
      const double start = now();
      plan = plan_chain(graph, profile, request);
      times.push_back(now() - start);
    }
    std::sort(times.begin(), times.end());
    json line = {{"budget", request.budget_bytes}, {"plan_seconds", times[times.size() / 2]}};
    if (plan) {
      line["seconds"] = plan->seconds;
      line["peak_bytes"] = plan->peak_bytes;
      line["gap"] = plan->gap;
      line["nested"] = is_nested(plan->plan);
    } else {
      line["error"] = plan.error.text();
    }
    out.push_back(line);
  }
  return out;
}

/// Prints what each of the plans in the file costs.
int evaluate_plans(const Graph& graph, const CostProfile& profile, const std::string& path) {
  std::ifstream file(path);
  const json plans = json::parse(file, nullptr, false);
  if (!plans.is_array()) return std::fprintf(stderr, "%s: no list of plans\n", path.c_str()), 2;
  json out = json::array();
  for (const json& recomputed : plans) {
    Plan plan = retain_all(graph);
    for (const json& id : recomputed) {
      const auto k = id.is_number_unsigned() ? id.get<std::size_t>() : graph.nodes.size();
      if (k >= graph.nodes.size())
        return std::fprintf(stderr, "%s: %s is no activation\n", path.c_str(), id.dump().c_str()),
               2;
      plan.policies[k] = recompute();
    }
    if (const Error why = examine(graph, plan)) return std::fprintf(stderr, "%s\n", why.text()), 2;
    const PlanCost cost = evaluate(graph, profile, plan);
    out.push_back({{"seconds", cost.seconds},
                   {"live_bytes", cost.live_bytes},
                   {"peak_bytes", peak_bytes(graph, plan)}});
  }
  std::cout << out.dump(1) << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Segments and plans of a lossless GPT, for a comparison with other planners.");
  Options options;
  app.add_option("--layers", options.layers, "Number of blocks")->check(CLI::Range(1, 2000));
  app.add_option("--budgets", options.budgets, "In per cent of retain's peak")->delimiter(',');
  app.add_option("--repeat", options.repeat, "Plans timed, of which the median is printed")
      ->check(CLI::Range(1, 100));
  app.add_option("--evaluate", options.plans, "Prints what the plans of this file cost")
      ->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  const auto graph = lossless_graph(options.layers, 1);
  const auto cut = lossless_graph(options.layers, 4);
  if (!graph || !cut) return std::fprintf(stderr, "%s\n", graph.error.text()), 2;
  const CostProfile profile = estimated_profile(*graph);
  if (!options.plans.empty()) return evaluate_plans(*graph, profile, options.plans);
  const Plan all = retain_all(*graph);
  const std::size_t retain = peak_bytes(*graph, all);
  const json out = {
      {"layers", options.layers},
      {"retain_seconds", evaluate(*graph, profile, all).seconds},
      {"retain_bytes", retain},
      {"activations", activations_of(*graph, profile)},
      {"segments", segments_of(*graph, profile)},
      {"plans", own_plans(*graph, profile, options, retain)},
      {"plans_with_loops", own_plans(*cut, estimated_profile(*cut), options, retain)}};
  std::cout << out.dump(1) << '\n';
  return 0;
}
