// SPDX-License-Identifier: MIT
/// What plan_gpt --total-picture draws: everything that a training of a GPT holds, by the ways to train
/// that there are, each on top of those before it where that makes sense.
#pragma once

#include <adacc/cost/estimate.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/train/total.hpp>
#include <support/draw/total.hpp>
#include <support/optimizer.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace plan_gpt {

namespace gpt = adacc::gpt;

/// A GPT on a batch, and the machine that it is planned for.
struct Model {
  gpt::Config network;
  std::size_t batch = 0, seq = 0;
  int threads = 1;
  adacc::EstimateRates rates;
  double tolerance = 1e-2;
};

/// A way to train it.
struct Way {
  std::string name, options;  ///< what asks for it on a command line
  double share = 1;  ///< of what retain needs, for the arena; 0: the smallest that there is
  std::string moments = "fp32", train{};
  std::size_t rank = 0;
  bool parts = false;  ///< as many as sequences
  bool fused = false;  ///< updates in the step
  bool forward_only = false;
  bool moments_store = false;  ///< behind a link of 1 GB/s, which activations may take as well
  bool bf16 = false;           ///< parameters
};

inline std::vector<Way> ways(const Model& model) {
  const std::string parts = "--parts " + std::to_string(model.batch);
  std::string upper;
  for (int i = model.network.layers / 2; i < model.network.layers; ++i)
    upper += "block." + std::to_string(i) + ",";
  upper += "layer_norm";
  const std::string rest = "smallest budget of `" + parts + " --moments int8",
                    fused = rest + " --fused";
  return {
      {"retain, AdamW in fp32", "`--budget 100%`", 1},
      {"planned at 30 %", "`--budget 30%`", 0.3},
      {"moments in 8 bits", "`--budget 30% --moments int8`", 0.3, "int8"},
      {"smallest plan, in loops", rest + "`", 0, "int8", {}, 0, true},
      {"updates in the step", fused + "`", 0, "int8", {}, 0, true, true},
      {"moments in a store",
       fused + " --moments-store --link 1`",
       0,
       "int8",
       {},
       0,
       true,
       true,
       false,
       true},
      {"parameters in bf16",
       fused + " --moments-store --link 1 --parameters bf16`",
       0,
       "int8",
       {},
       0,
       true,
       true,
       false,
       true,
       true},
      {"lower half frozen", fused + " --train '" + upper + "'`", 0, "int8", upper, 0, true, true},
      {"LoRA of rank 8", fused + " --lora 8`", 0, "int8", {}, 8, true, true},
      {"forward passes alone",
       "`train_gpt --forward-only " + parts + "`",
       0,
       {},
       {},
       0,
       true,
       false,
       true},
      {"forward passes, LoRA",
       "`train_gpt --forward-only " + parts + " --lora 8`",
       0,
       {},
       {},
       8,
       true,
       false,
       true},
  };
}

/// What `way` holds. Costs are estimated, so that the same plan comes out on every machine.
inline adacc::Result<draw::TotalBar> bar_of(const Model& model, const Way& way) {
  using namespace adacc;
  gpt::Tuning tuning{{way.rank, 2 * static_cast<float>(way.rank)}};
  const auto lower = [&](int parts) {
    return gpt::graph<gpt::PlannedSet>(model.network, model.batch, model.seq, model.threads, parts,
                                       tuning);
  };
  auto whole = lower(1);
  if (!whole) return whole.error;
  TrainedSet trained;
  if (!way.train.empty()) {
    auto named = trained_by_name(*whole, way.train);
    if (!named) return named.error;
    trained = std::move(*named);
    tuning.trained = &trained;
  }
  draw::TotalBar bar{way.name, {}, {}};
  const std::size_t parameters = whole->parameter_bytes();
  const std::size_t retain = peak_bytes(*whole, retain_all(*whole));
  auto graph = lower(way.parts ? static_cast<int>(model.batch) : 1);
  if (!graph) return graph.error;
  if (way.fused) set_updates(*graph, Updates::fused);
  if (way.bf16) set_parameters(*graph, ParameterForm::bf16);
  if (way.forward_only) {
    Plan nothing_kept = retain_all(*graph);
    const auto program = make_program(std::move(*graph), std::move(nothing_kept), Mode::evaluate);
    if (!program) return program.error;
    bar.use = {parameters, 0, 0, program->peak_bytes(), 0};
    bar.arena = draw::fullest(*program);
    return bar;
  }
  const auto optimizer = support::make_optimizer("adamw", way.moments, 0);
  if (!optimizer) return optimizer.error;
  const auto beside = way.moments_store ? memory_beside_arena(*graph, *optimizer, MomentWindow{})
                                        : memory_beside_arena(*graph, *optimizer);
  if (!beside) return beside.error;
  const CostProfile profile = estimated_profile(*graph, model.rates);
  PlanRequest request;
  request.tolerance = model.tolerance;
  if (way.moments_store) request.link.write_rate = request.link.read_rate = 1e9;
  request.budget_bytes = static_cast<std::size_t>(way.share * static_cast<double>(retain));
  if (way.share == 0) {
    request.budget_bytes = 1;
    const auto smallest = smallest_peak(*graph, profile, request);
    if (!smallest) return smallest.error;
    request.budget_bytes = *smallest;
  }
  auto found = make_plan(*graph, profile, request);
  if (!found) return found.error;
  const auto program = make_program(std::move(*graph), std::move(found->plan));
  if (!program) return program.error;
  bar.use = *beside;
  bar.use.arena = program->peak_bytes();
  bar.arena = draw::fullest(*program);
  return bar;
}

/// Draws all ways into the file at `path`, and prints them as a table (Markdown).
inline adacc::Error draw_totals(const Model& model, const std::string& path) {
  std::vector<draw::TotalBar> bars;
  std::printf(
      "| way | options | parameters | gradients | moments | arena | in all | of the first |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Way& way : ways(model)) {
    const auto bar = bar_of(model, way);
    if (!bar) return adacc::Error::say(way.name.c_str(), ": ", bar.error.text());
    bars.push_back(*bar);
    const adacc::TrainingMemoryUse& use = bar->use;
    const auto mebi = [](std::size_t bytes) { return static_cast<double>(bytes) / adacc::MiB; };
    std::printf("| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f MiB | %.3f |\n", way.name.c_str(),
                way.options.c_str(), mebi(use.parameters), mebi(use.gradients), mebi(use.moments),
                mebi(use.arena), mebi(use.total()),
                static_cast<double>(use.total()) / static_cast<double>(bars[0].use.total()));
    std::fflush(stdout);
  }
  const double height = 80 + 30 * static_cast<double>(bars.size());
  std::string svg = draw::open_svg(980, height);
  svg += draw::print(
      "<text x='20' y='24' font-size='14'>All that a training holds: a GPT of %d layers, %zu "
      "channels, vocabulary %zu, on %zu x %zu tokens</text>\n",
      model.network.layers, model.network.channels, model.network.vocab, model.batch, model.seq);
  svg += draw::total_legend(20, 38);
  svg += draw::total_bars(bars, {190, 66, 690, 30 * static_cast<double>(bars.size())});
  return adacc::write_file(path, svg + "</svg>\n");
}

}  // namespace plan_gpt
