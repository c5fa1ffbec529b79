// SPDX-License-Identifier: MIT
/// A GPT on a device, and one training step after the other: what Trainer is on the CPU, as far as
/// devices go.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/tokens.hpp>
#include <adacc/io/weights/gpt2.hpp>
#include <adacc/io/weights/weights_header.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/learning_rate.hpp>
#include <support/optimizer.hpp>
#include <support/solver.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "device_training.hpp"
#include "model_file.hpp"
#include "options.hpp"
#include "plan_changes.hpp"
#include "sampling.hpp"

class DeviceTrainer {
 public:
  explicit DeviceTrainer(const Options& options) : options_(options) {}
  DeviceTrainer(const DeviceTrainer&) = delete;
  DeviceTrainer& operator=(const DeviceTrainer&) = delete;

  /// Opens the device, compiles the steps for --policy, takes the memory they need, and draws the
  /// parameters or reads --model. Costs are measured on the first batch of `data`.
  adacc::Error set_up(const adacc::Tokens& data) {
    if (const adacc::Error why = allocate(true)) return why;
    if (const adacc::Error why = measure(data)) return why;
    return options_.model.empty() ? adacc::Error() : read_start();
  }

  /// The same, and goes on where `saved` was, the checkpoint that --resume names; `same_text` says
  /// whether it was trained on `data`. The plan is that of the checkpoint if it was made here, and for
  /// the same step.
  adacc::Error resume(const adacc::CheckpointInfo& saved, const Notes& notes,
                      const adacc::Tokens& data, bool same_text) {
    using namespace adacc;
    const bool evolved = options_.plans() && notes.plans_alike(saved, options_);
    if (const Error why = allocate(!evolved)) return why;
    if (const Error why =
            training_->load(options_.resume, evolved ? Restore::all : Restore::numbers))
      return why;
    training_->set_seed(options_.seed);
    const std::size_t place = same_text ? static_cast<std::size_t>(saved.data_position) : 0;
    next_batch_ = place / (options_.batch * options_.seq);
    if (!evolved) return measure(data);
    profile_.set_costs("those of the checkpoint");
    return {};
  }

  adacc::Error save(const std::string& path, const Notes& notes) const {
    Notes now = notes;
    now.set("--head-rows", std::to_string(training_->head_rows()));
    return training_->save(path, now.text());
  }
  /// Writes what is known of costs to --profile, if they were measured for it.
  adacc::Error save_profile() const {
    return training_->evolution() == nullptr ? adacc::Error()
                                             : profile_.save(*training_->evolution());
  }

  /// Writes the model to --export.
  adacc::Error export_model() const {
    std::vector<float> params(graph().parameter_elems);
    const adacc::Shape all(params.size());
    if (const adacc::Error why = training_->read_parameters({params.data(), all})) return why;
    return write_model(options_, graph(), {params.data(), all});
  }

  /// Text by the parameters as they are, which the CPU takes over: `count` bytes.
  adacc::Result<std::string> generate(std::size_t count) const {
    using namespace adacc;
    const auto network = gpt::make(options_.network);
    auto graph = gpt::graph(options_.network, 1, options_.seq, options_.threads, 1,
                            {.trained = trained_.empty() ? nullptr : &trained_});
    if (!graph) return graph.error;
    const std::size_t elems = graph->parameter_elems;
    auto inference = Inference<>::make(make_dispatch<float, Cpu>(network), std::move(*graph));
    if (!inference) return inference.error;
    auto arena = Block<std::byte>::make(inference->arena_bytes(), "activations of one sequence");
    auto params = Block<float>::make(elems, "parameters on the host");
    if (!arena) return arena.error;
    if (!params) return params.error;
    if (const Error why = training_->read_parameters(params->view())) return why;
    if (const Error why = inference->bind(arena->view(), params->view())) return why;
    EigenPool pool(options_.threads);
    Cpu cpu{ExecutorRef(pool)};
    cpu.key.seed = options_.seed;
    return sampled_text(network, cpu, *inference, params->data(), options_.network.vocab, count);
  }

  /// Forward, backward and update on the next batch.
  adacc::Result<adacc::TrainingOutcome> step(const adacc::Tokens& data,
                                             const adacc::LearningRate& rate) {
    training_->set_data_position(
        data.position(next_batch_ + options_.micro, options_.batch, options_.seq));
    auto outcome = update(data, rate);
    if (const adacc::Evolution* evolution = training_->evolution())
      changes_ = change_lines(training_->boundary(), *evolution, program());
    if (outcome && outcome->finite) next_batch_ += options_.micro;
    else training_->set_data_position(data.position(next_batch_, options_.batch, options_.seq));
    return outcome;
  }

  /// The mean loss over the first batches of `data`, at most 20 of them.
  adacc::Result<double> evaluate(const adacc::Tokens& data) {
    return batch_.mean(
        data, [&](auto inputs, auto targets) { return training_->evaluate(inputs, targets); });
  }

  std::uint64_t done() const { return training_->updates(); }
  const adacc::Program& program() const { return training_->program(); }
  std::size_t predicted_peak() const { return program().peak_bytes(); }
  std::size_t measured_peak() const { return training_->measured_peak(); }
  std::size_t retain_peak() const { return training_->retain_peak(); }
  adacc::TrainingMemoryUse memory_use() const { return training_->memory_use(); }
  std::size_t total_bytes() const { return training_->total_bytes(); }
  /// How the head computes.
  std::string head_text() const {
    const std::size_t rows = options_.batch * options_.seq;
    const std::size_t tile = training_->head_rows() < rows ? training_->head_rows() : rows;
    return std::to_string(tile) + " of " + std::to_string(rows) + " rows at a time";
  }
  /// Steps that were launches of a graph; empty with --no-capture.
  std::optional<std::uint64_t> captured_steps() const {
    if (options_.no_capture) return {};
    return training_->captured_steps();
  }
  adacc::Error capture_failure() const { return training_->capture_failure(); }
  std::size_t plan_version() const { return program().plan.version; }
  std::string place_text() const { return training_->device(); }

  /// What auto did: its budget (0 if the policies are fixed) and its plan.
  std::size_t budget_bytes() const {
    return training_->evolution() == nullptr ? 0 : training_->evolution()->budget_bytes();
  }
  const adacc::PlanOutcome* outcome() const {
    return training_->evolution() == nullptr ? nullptr : &training_->evolution()->outcome();
  }
  const adacc::CostProfile* profile() const {
    return training_->evolution() == nullptr ? nullptr : &training_->evolution()->profile();
  }
  const std::string& cost_source() const { return profile_.costs(); }
  /// Changes of the plan before the step that ran last, a line each, and why one was not made.
  const std::vector<std::string>& changes() const { return changes_; }
  const adacc::Error& refused() const { return training_->boundary().update.failed; }

  /// To the memory of --pinned, and what of it a step fills. A step that waits for it waits on the
  /// device, where nobody reads a clock.
  adacc::LinkCost link() const {
    return training_->evolution() == nullptr ? adacc::LinkCost{}
                                             : training_->evolution()->request().link;
  }
  std::size_t offloaded_bytes() const { return program().schedule.store_bytes; }
  static double stall_seconds() { return 0; }
  std::string store_text() const {
    if (options_.pinned_text.empty()) return {};
    const adacc::LinkCost link = this->link();
    char text[160];
    std::snprintf(text, sizeof text, "page-locked memory, writes %.2f GB/s, reads %.2f GB/s",
                  link.write_rate / 1e9, link.read_rate / 1e9);
    return text;
  }

 private:
  const adacc::Graph& graph() const { return program().graph; }

  /// Of activations.
  adacc::Dtype scalar() const {
    return options_.precision == "bf16" ? adacc::Dtype::bf16 : adacc::Dtype::f32;
  }

  /// Costs are read from --profile if `fresh`.
  adacc::Error allocate(bool fresh) {
    using namespace adacc;
    if (const Error why = batch_.make(options_.batch, options_.seq)) return why;
    if (!options_.train.empty()) {
      auto graph = plain_graph(options_);
      if (!graph) return graph.error;
      auto trained = trained_by_name(*graph, options_.train);
      if (!trained) return Error::say("--train: ", trained.error.text());
      trained_ = std::move(*trained);
    }
    DevicePlanning planning;
    planning.trained = trained_.empty() ? nullptr : &trained_;
    if (!options_.plans())
      planning.fixed =
          gpt::named_plan(options_.policy, options_.network, options_.batch, options_.seq,
                          {.trained = planning.trained, .scalar = scalar()});
    planning.planner = support::planner_of(options_.solver);
    auto optimizer =
        support::make_optimizer(options_.optimizer, options_.moments, options_.weight_decay);
    if (!optimizer) return optimizer.error;
    planning.optimizer = *optimizer;
    if (fresh) planning.profile = &profile_;
    auto made = make_device_training(options_, planning);
    if (!made) return made.error;
    training_ = std::move(*made);
    return {};
  }

  /// The parameters that --model names.
  adacc::Error read_start() {
    std::vector<float> params(graph().parameter_elems);
    const adacc::Shape all(params.size());
    if (const adacc::Error why = read_model(options_, graph(), {params.data(), all})) return why;
    return training_->write_parameters({params.data(), all});
  }

  /// Measures costs on the first batch of `data`, if auto needs them, and plans by them.
  adacc::Error measure(const adacc::Tokens& data) {
    if (!options_.plans()) return {};
    if (adacc::Error why = batch_.fill(data, next_batch_)) return why;
    const double start = adacc::steady_seconds();
    if (adacc::Error why = training_->prepare(batch_.inputs(), batch_.targets())) return why;
    const adacc::PlanBoundary& boundary = training_->boundary();
    if (boundary.update.failed) return boundary.update.failed;
    return profile_.settle(boundary, *training_->evolution(), "measured by events",
                           adacc::steady_seconds() - start, ", gradient errors probed");
  }

  /// --micro batches, and the update that their gradients make.
  adacc::Result<adacc::TrainingOutcome> update(const adacc::Tokens& data,
                                               const adacc::LearningRate& rate) {
    if (options_.micro == 1) {  // which waits once
      if (adacc::Error why = batch_.fill(data, next_batch_)) return why;
      return training_->step(batch_.inputs(), batch_.targets(), rate.at(done()));
    }
    for (std::size_t i = 0; i < options_.micro; ++i) {
      if (adacc::Error why = batch_.fill(data, next_batch_ + i)) return why;
      if (auto loss = training_->accumulate(batch_.inputs(), batch_.targets()); !loss)
        return loss.error;
    }
    return training_->update(rate.at(done()));
  }

  const Options& options_;
  adacc::TrainedSet trained_;  ///< that --train names; empty: all
  std::unique_ptr<DeviceTraining> training_;
  std::uint64_t next_batch_ = 0;
  ProfileFile profile_{options_.profile};
  std::vector<std::string> changes_;
  Batch batch_;
};
