// SPDX-License-Identifier: MIT
/// plan_gpt --stages: a training step on many ranks that this machine has not got, planned and timed.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <adacc/core/steady_clock.hpp>
#include <adacc/cost/estimate.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/models/llama.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <support/command_line.hpp>
#include <support/draw/plan.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace plan_gpt {

struct PipelineOptions {
  int stages = 0;  ///< 0: there is no pipeline
  int micro = 8;
  int ranks = 0;  ///< 0: those of one pipeline
  int tensor = 1;
  std::string model, precision, memory_text = "80GiB";
  adacc::Budget memory{80.0 * adacc::GiB};
  double tflops = 150, gbps = 1500, link_gbps = 25, latency_us = 10;
  bool shard = false;
};

inline void add_options(CLI::App& app, PipelineOptions& options) {
  const CLI::Range size(1, 1 << 20);
  auto* stages =
      app.add_option("--stages", options.stages,
                     "plan a pipeline of so many stages: cuts, and a plan for each stage")
          ->check(CLI::Range(1, 4096))
          ->default_str("");
  const auto add = [&](CLI::Option* option) { return option->needs(stages); };
  add(app.add_option("--micro", options.micro,
                     "micro-batches, of --batch sequences each, of a step of a pipeline"))
      ->check(CLI::Range(1, 65535));
  add(app.add_option("--ranks", options.ranks,
                     "in all; those that --stages times --tensor leave over train other batches"))
      ->check(size)
      ->default_str("of one pipeline");
  add(app.add_option("--tensor", options.tensor,
                     "ranks that a stage's tensors are divided among: a plain divisor"))
      ->check(CLI::Range(1, 1024));
  add(app.add_option("--model", options.model, "instead of --layers, --channels and so on"))
      ->check(CLI::IsMember({"gpt3-175b", "llama-70b"}))
      ->default_str("");
  app.add_option("--precision", options.precision,
                 "of activations and their gradients: fp32 or bf16; with --stages of parameters as "
                 "well, and bf16 if it is not given")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->default_str("fp32");
  add(support::add_bytes(app, "--memory", options.memory, "of a rank, for everything that it holds",
                         "80GiB", &options.memory_text));
  add(app.add_option("--flops", options.tflops,
                     "TFLOP/s of a rank in products of matrices, as they are reached"))
      ->check(support::between(1e-6, 1e9));
  add(app.add_option("--memory-gbps", options.gbps, "GB/s of a rank's memory"))
      ->check(support::between(1e-3, 1e9));
  add(app.add_option("--latency", options.latency_us, "microseconds of a message"))
      ->check(support::between(0, 1e9));
  add(app.add_flag("--shard", options.shard,
                   "the optimizer's state is divided among the ranks that have the same stage"));
}

/// One way to run the model, or why it cannot.
struct Row {
  const char* name;
  adacc::Result<adacc::PipelineOutcome> found;
};

inline const char* const left_out[] = {
    ("what --tensor ranks send one another: they are one rank with so many times the memory, the "
     "rates and the links"),
    ("kernels: a layer takes its products over --flops or its bytes over --memory-gbps, whichever "
     "is longer, alike for all sizes"),
    ("overlap of the gradients' all-reduce, which follows the last backward here, and congestion "
     "of links"),
    "that ranks differ, wait for data, or write checkpoints",
};

class Pipelines {
 public:
  Pipelines(const PipelineOptions& options, adacc::Graph graph, std::size_t batch, std::size_t seq,
            double tolerance, double gap)
      : options_(options), graph_(std::move(graph)), batch_(batch), seq_(seq) {
    using namespace adacc;
    const double group = options.tensor;
    profile_ =
        estimated_profile(graph_, {.bytes_per_second = 1e9 * options.gbps * group,
                                   .operations_per_second = 1e12 * options.tflops * group,
                                   .bf16_operations_per_second = 1e12 * options.tflops * group});
    replicas_ = options.ranks == 0 ? 1 : options.ranks / (options.stages * options.tensor);
    const double scalar = static_cast<double>(bytes_of(graph_.scalar));
    // AdamW keeps two moments, and beside parameters in bf16 a copy in fp32.
    const double kept = options.precision == "bf16" ? 12 : 8;
    request_.bytes_per_trained = 2 * scalar + kept / (options.shard ? replicas_ : 1);
    request_.bytes_per_frozen = scalar;
    request_.seconds_per_trained = profile_.rest / static_cast<double>(graph_.gradient_elems);
    if (replicas_ > 1 &&
        options.link_gbps > 0)  // a ring: each byte is sent and received twice but once
      request_.seconds_per_trained +=
          2 * scalar * (replicas_ - 1) / replicas_ / (1e9 * options.link_gbps * group);
    request_.micro_batches = options.micro;
    request_.tolerance = tolerance;
    request_.gap = gap;
    request_.clock = steady_seconds;
    const StageMachine machine{static_cast<std::size_t>(options.memory.bytes * group), 1,
                               1e9 * options.link_gbps * group, 1e-6 * options.latency_us};
    for (int s = 0; s < options.stages; ++s) request_.stages.push_back(machine);
  }

  int run(bool json) {
    using namespace adacc;
    const Row planned{"planned", plan(request_)};
    PipelineRequest exact = request_;
    exact.tolerance = 0;
    std::vector<Row> rows = {planned};
    if (request_.tolerance > 0) rows.push_back({"planned, exact", plan(exact)});
    const Row full{"full recomputation", plan(with(Recomputation::full))};
    rows.push_back(full);
    rows.push_back({"selective recomputation", plan(with(Recomputation::selective))});
    if (full.found) {
      PipelineRequest same = request_;
      for (StageMachine& machine : same.stages) machine.memory_bytes = largest_peak(*full.found);
      rows.push_back({"planned, in full's largest", plan(same)});
      for (std::size_t s = 0; s < same.stages.size(); ++s)
        same.stages[s].memory_bytes = full.found->stages[s].peak_bytes;
      rows.push_back({"planned, in full's peaks", plan(same)});
    }
    if (!planned.found) {
      std::fprintf(stderr, "plan_gpt: %s%s\n", planned.found.error.text(), of_group());
      return 2;
    }
    if (json) print_json(rows);
    else print(rows);
    return 0;
  }

 private:
  adacc::Result<adacc::PipelineOutcome> plan(const adacc::PipelineRequest& request) const {
    return adacc::plan_pipeline(graph_, profile_, request);
  }
  adacc::PipelineRequest with(adacc::Recomputation what) const {
    adacc::PipelineRequest request = request_;
    request.recomputation = what;
    return request;
  }

  /// Errors speak of what the planner knows as one machine.
  const char* of_group() const {
    return options_.tensor > 1 ? " (all --tensor ranks of the stage together)" : "";
  }
  double tokens() const { return static_cast<double>(batch_ * seq_) * options_.micro * replicas_; }
  double gibi(std::size_t bytes) const {  // of a rank
    return static_cast<double>(bytes) / options_.tensor / static_cast<double>(adacc::GiB);
  }
  static std::size_t largest_peak(const adacc::PipelineOutcome& found) {
    std::size_t peak = 0;
    for (const adacc::StageOutcome& stage : found.stages) peak = std::max(peak, stage.peak_bytes);
    return peak;
  }
  /// Repeated blocks of nodes first..last, halves as halves.
  double blocks(int first, int last) const {
    int block = 0, all = 0;
    for (int k = 0; k < graph_.node_count(); ++k)
      if (graph_.node(k).repeated && graph_.node(k).copy == 0) ++block;
    for (int k = first; k <= last; ++k) all += graph_.node(k).repeated ? 1 : 0;
    return block == 0 ? 0 : static_cast<double>(all) / block;
  }

  void print(const std::vector<Row>& rows) const {
    const auto& best = *rows[0].found;
    std::size_t elems = graph_.parameter_elems;
    std::printf(
        "%.1f billion parameters, %zu x %zu tokens a micro-batch, %d micro-batches, in %s\n",
        static_cast<double>(elems) / 1e9, batch_, seq_, options_.micro, options_.precision.c_str());
    std::printf(
        "%d ranks: %d stages x %d ranks for each stage's tensors x %d pipelines; %s each\n\n",
        options_.stages * options_.tensor * replicas_, options_.stages, options_.tensor, replicas_,
        options_.memory_text.c_str());
    std::printf("%-26s %10s %12s %8s %12s %10s\n", "", "step", "tokens/s", "bubble", "largest peak",
                "planned in");
    for (const Row& row : rows) {
      if (!row.found) {
        std::printf("%-26s %s%s\n", row.name, row.found.error.text(), of_group());
        continue;
      }
      std::printf("%-26s %8.3f s %12.0f %6.1f %% %8.2f GiB %8.2f s\n", row.name,
                  row.found->time.seconds, tokens() / row.found->time.seconds,
                  100 * row.found->time.bubble, gibi(largest_peak(*row.found)),
                  row.found->solve_seconds);
    }
    std::printf("\n%5s %8s %10s %10s %10s %10s %10s %12s %9s  %s\n", "stage", "blocks", "in flight",
                "peak GiB", "state", "held each", "working", "forward ms", "backward", "policies");
    for (std::size_t s = 0; s < best.stages.size(); ++s) {
      const adacc::StageOutcome& stage = best.stages[s];
      const bool apart = stage.step_bytes.apart(stage.in_flight);
      std::printf("%5zu %8.1f %10d %10.2f %10.2f %10.3f %10.3f %12.2f %9.2f ", s,
                  blocks(stage.first, stage.last), stage.in_flight, gibi(stage.peak_bytes),
                  gibi(stage.state_bytes),
                  gibi(apart ? stage.step_bytes.held : stage.step_bytes.whole),
                  gibi(apart ? stage.step_bytes.working : 0), 1e3 * stage.time.forward,
                  1e3 * stage.time.backward);
      for (const auto& [name, number] : draw::policy_counts(stage.plan))
        std::printf(" %s %d", name.c_str(), number);
      std::printf("\n");
    }
    if (best.timed_out) std::printf("note: planning was stopped by its deadline\n");
    std::printf("\nThe model leaves out\n");
    for (const char* what : left_out) std::printf("- %s\n", what);
  }

  void print_json(const std::vector<Row>& rows) const {
    nlohmann::ordered_json out = {{"parameters", graph_.parameter_elems},
                                  {"tokens_a_step", tokens()},
                                  {"ranks", options_.stages * options_.tensor * replicas_}};
    for (const Row& row : rows) {
      nlohmann::ordered_json one;
      if (!row.found) one["error"] = row.found.error.text();
      else {
        one = {{"step_seconds", row.found->time.seconds},
               {"tokens_a_second", tokens() / row.found->time.seconds},
               {"bubble", row.found->time.bubble},
               {"solve_seconds", row.found->solve_seconds},
               {"plans", row.found->plans}};
        for (const adacc::StageOutcome& stage : row.found->stages)
          one["stages"].push_back({{"first", stage.first},
                                   {"last", stage.last},
                                   {"in_flight", stage.in_flight},
                                   {"peak_bytes", stage.peak_bytes},
                                   {"state_bytes", stage.state_bytes},
                                   {"boundary_bytes", stage.boundary_bytes},
                                   {"arena_bytes", stage.arena_bytes()},
                                   {"forward_ms", 1e3 * stage.time.forward},
                                   {"backward_ms", 1e3 * stage.time.backward},
                                   {"policies", draw::policy_counts(stage.plan)}});
      }
      out[row.name] = std::move(one);
    }
    for (const char* what : left_out) out["left_out"].push_back(what);
    std::printf("%s\n", out.dump(2).c_str());
  }

  const PipelineOptions& options_;
  adacc::Graph graph_;
  std::size_t batch_, seq_;
  int replicas_ = 1;
  adacc::CostProfile profile_;
  adacc::PipelineRequest request_;
};

/// Plans a pipeline for the GPT of `config`, or that of --model, on `batch` x `seq` tokens.
inline int run_pipeline(const PipelineOptions& options, adacc::gpt::Config config,
                        std::size_t batch, std::size_t seq, bool seq_given, double tolerance,
                        double gap, bool json) {
  using namespace adacc;
  const auto fail = [](const Error& why) {
    std::fprintf(stderr, "plan_gpt: %s\n", why.text());
    return 2;
  };
  const int group = options.stages * options.tensor;
  if (options.ranks != 0 && options.ranks % group != 0)
    return fail(Error::say("--ranks ", options.ranks, " is no multiple of --stages ",
                           options.stages, " times --tensor ", options.tensor));
  if (!(options.memory.bytes > 0))
    return fail(Error::say("--memory is a number of bytes, such as 80GiB"));
  const GraphOptions how{.scalar = options.precision == "bf16" ? Dtype::bf16 : Dtype::f32};
  Result<Graph> graph;
  if (options.model == "llama-70b") {
    if (!seq_given) seq = 4096;
    const llama::Config llama{.layers = 80,
                              .heads = 64,
                              .kv_heads = 8,
                              .channels = 8192,
                              .hidden = 28672,
                              .context = seq,
                              .vocab = 32000};
    graph = make_graph(llama::make<Planned>(llama), Shape(batch, seq), how);
  } else {
    if (options.model == "gpt3-175b") {
      if (!seq_given) seq = 2048;
      config = {96, 96, 12288, seq, 50257};
    }
    config.context = seq;
    config.tied_head = options.stages == 1;  // a table in two stages would be two tables
    graph = make_graph(gpt::make<gpt::PlannedSet>(config), Shape(batch, seq), how);
  }
  if (!graph) return fail(graph.error);
  return Pipelines(options, std::move(*graph), batch, seq, tolerance, gap).run(json);
}

}  // namespace plan_gpt
