// SPDX-License-Identifier: MIT
/// --may-freeze: if nothing else meets the budget, which layers are left as they are.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/io/tokens.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/freeze_to_fit.hpp>
#include <adacc/train/initialize.hpp>
#include <support/optimizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "model_file.hpp"
#include "options.hpp"
#include "report.hpp"

/// Chooses what --train would have to say for the budget to be met, and says it; `said` are lines about
/// what is frozen and why. The gradients of a few batches are measured for it, within the budget.
inline adacc::Error choose_frozen(Options& options, const adacc::Tokens& data,
                                  std::vector<std::string>& said) {
  using namespace adacc;
  constexpr std::size_t batches = 4;
  const int workers = options.workers();
  const auto make = [&](const TrainedSet& trained) {
    return gpt::graph<gpt::PlannedSet>(options.network, options.batch, options.seq, workers,
                                       options.parts, {{}, &trained});
  };
  const auto whole = gpt::graph<gpt::PlannedSet>(options.network, options.batch, options.seq,
                                                 workers, options.parts);
  const auto plain = plain_graph(options);
  if (!whole || !plain) return whole ? plain.error : whole.error;
  const std::size_t retain = peak_bytes(*plain, retain_all(*plain));
  const auto optimizer =
      support::make_optimizer(options.optimizer, options.moments, options.weight_decay);
  if (!optimizer) return optimizer.error;
  const auto held = memory_beside_arena(*whole, *optimizer);
  const auto fp32 = memory_beside_arena(*whole, AdamW{});
  if (!held || !fp32) return held ? fp32.error : held.error;

  // A share is one of what training all of it takes, whatever is frozen then.
  FreezeBudget budget;
  const bool total = !options.total_text.empty();
  if (total) {
    const auto evaluation = make_program(*plain, retain_all(*plain), Mode::evaluate);
    if (!evaluation) return evaluation.error;
    budget.total_bytes = options.total.of(fp32->total() + retain);
    budget.arena_bytes = evaluation->peak_bytes();
  } else {
    budget.budget_bytes = options.budget.of(retain);
  }
  const std::size_t limit = total ? budget.total_bytes : budget.budget_bytes;
  (total ? options.total : options.budget) = {static_cast<double>(limit), 0};
  (total ? options.total_text : options.budget_text) = std::to_string(limit) + "B";
  PlanRequest request;
  request.tolerance = options.tolerance;
  request.most_runs = options.most_runs;
  request.budget_bytes = 1;
  const auto smallest = smallest_peak(*whole, estimated_profile(*whole), request);
  if (!smallest) return smallest.error;
  const std::size_t least = (total ? held->total() : 0) + std::max(*smallest, budget.arena_bytes);
  if (least <= limit) {
    said.push_back("nothing: training all of it takes at least " + mebibytes(least) + " of " +
                   mebibytes(limit));
    return {};
  }

  const auto network = gpt::make(options.network);
  auto dispatch = make_dispatch<float, Cpu>(network);
  dispatch.add_codec<Int8Outlier>();
  dispatch.add_codec<Int4Outlier>();
  EigenPool pool(options.threads);
  Cpu cpu{ExecutorRef(pool)};
  cpu.key.seed = options.seed;
  const Shape shape(options.batch, options.seq);
  std::vector<std::int32_t> inputs(shape.elems()), targets(shape.elems());
  const auto fill = [&](const Graph& graph, View<float> params) {
    initialize_parameters(cpu, graph.parameters, params, options.seed);
    return options.model.empty() ? Error{} : read_model(options, graph, params);
  };
  const auto batch = [&](std::size_t i, AnyView& x, AnyView& y) {
    const Shape flat(shape.elems());
    x = View<const std::int32_t>(inputs.data(), shape);
    y = View<const std::int32_t>(targets.data(), shape);
    return data.batch(i, options.batch, options.seq, {inputs.data(), flat}, {targets.data(), flat});
  };
  const auto norms = probe_gradient_norms<float>(cpu, dispatch, *whole, make, request, budget,
                                                 batches, fill, batch);
  if (!norms) return norms.error;
  const auto outcome = freeze_to_fit(*whole, make, *norms, budget, *optimizer, request);
  if (!outcome) return Error::say("--may-freeze: ", outcome.error.text());

  const std::vector<LayerGroup> groups = layer_groups(*whole);
  double all = 0;
  for (const double norm : *norms) all += norm;
  std::size_t frozen = 0, unknown = 0;
  std::string names;
  char text[200];
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (outcome->frozen[g]) {
      ++frozen;
      const bool measured = (*norms)[g] > 0;
      if (!measured) ++unknown;
      std::snprintf(text, sizeof text, measured ? " (%.2g %%)" : " (does not fit alone)",
                    all > 0 ? 100 * (*norms)[g] / all : 0);
      names += (names.empty() ? "" : ", ") + groups[g].name + text;
    } else {
      options.train += (options.train.empty() ? "" : ",") + groups[g].name;
    }
  }
  std::snprintf(
      text, sizeof text,
      "%zu of %zu layers, with %.2g %% of the squared norm of the gradient of %zu batches%s:",
      frozen, groups.size(), 100 * outcome->lost, batches,
      unknown > 0 ? ", as far as that could be measured within it" : "");
  said.push_back(text);
  said.push_back(names);
  said.push_back("training all takes at least " + mebibytes(outcome->least_before) +
                 ", and without these " + mebibytes(outcome->least_after) + ", of " +
                 mebibytes(limit) + "; " + std::to_string(outcome->plans) + " plans were made");
  return {};
}
