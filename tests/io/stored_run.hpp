// SPDX-License-Identifier: MIT
/// Steps of adapters above weights in a file, or above decoded ones, and their bits.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "../step/step_run.hpp"
#include "adacc/io/weights/gguf_llama.hpp"
#include "adacc/model/trained_by_name.hpp"
#include "adacc/train.hpp"
#include "llama_file.hpp"

namespace stored_run {

using namespace adacc;
using llama_file::Batch;

/// Losses of some steps, and the trained parameters after them.
struct Ran {
  std::vector<double> losses;
  std::vector<float> trained;
  TrainingMemoryUse use;
};

template <class T, class Model>
Ran train(const Model& model, const Lora& lora, bool stored, const char* trained_names,
          int workers = 1, int parts = 1) {
  const auto net = llama::make_lora(model.config(), lora);
  const Batch batch(model.config().vocab);
  step_run::Backwards executor{workers};
  TrainingOptions<Cpu, AdamW> options;
  options.context = Cpu{ExecutorRef(executor)};
  options.seed = 5;
  options.graph.parts = parts;
  TrainedSet trained;
  if (trained_names != nullptr) {
    const auto graph = make_graph(net, batch.shape);
    REQUIRE(graph);
    auto set = trained_by_name(*graph, trained_names);
    REQUIRE_MESSAGE(set, set.error.text());
    trained = *set;
    options.graph.trained = &trained;
  }
  if (stored) options.graph.stored = &model.stored();
  auto training = Training<T>::make(net, batch.shape, options);
  REQUIRE_MESSAGE(training, training.error.text());
  const Error why = model.read(training->compiled_step().graph(), training->params());
  REQUIRE_MESSAGE(!why, why.text());
  Ran ran;
  for (int i = 0; i < 3; ++i) {
    const auto outcome = training->step(batch.input(), batch.targets(), 1e-2);
    REQUIRE_MESSAGE(outcome, outcome.error.text());
    ran.losses.push_back(outcome->loss);
  }
  const Graph& graph = training->compiled_step().graph();
  ran.trained.assign(training->params().data(), training->params().data() + graph.gradient_elems);
  ran.use = training->memory_use();
  return ran;
}

inline bool same_bits(const Ran& a, const Ran& b) {
  return a.losses == b.losses && a.losses[0] == a.losses[0] && a.losses[2] < a.losses[0] &&
         a.trained.size() == b.trained.size() &&
         std::memcmp(a.trained.data(), b.trained.data(), a.trained.size() * sizeof(float)) == 0;
}

}  // namespace stored_run
