// SPDX-License-Identifier: MIT
/// --pipeline: the network over several ranks, each of which trains one stage of it.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/tokens.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/learning_rate.hpp>
#include <adacc/ranks/collectives.hpp>
#include <adacc/ranks/pipeline/plan.hpp>
#include <adacc/ranks/pipeline/save.hpp>
#include <support/optimizer.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "command_line.hpp"
#include "options.hpp"
#include "report.hpp"
#include "run_report.hpp"
#include "touched.hpp"

/// This rank's stage, and what it is fed. T: of activations.
template <class T>
class StageTrainer {
 public:
  using Stage = adacc::Pipeline<T, adacc::Cpu, adacc::AnyOptimizer>;

  /// `group` is the pipeline's alone.
  StageTrainer(const Options& options, adacc::GroupRef group)
      : options_(options), group_(group), network_(adacc::gpt::make(options.network)),
        pool_(options.threads), cpu_(adacc::ExecutorRef(pool_)) {
    cpu_.key.seed = options.seed;
  }
  StageTrainer(const StageTrainer&) = delete;
  StageTrainer& operator=(const StageTrainer&) = delete;

  /// Measures costs on the first batch of `data`, together with the other ranks, and takes the memory of this
  /// rank's stage.
  adacc::Error set_up(const adacc::Tokens& data) { return allocate(data); }

  /// The same, and goes on where the checkpoint `saved` was, which --resume names.
  adacc::Error resume(const adacc::CheckpointInfo& saved, const Notes&, const adacc::Tokens& data,
                      bool same_text) {
    using namespace adacc;
    if (const Error why = allocate(data)) return why;
    if (const Error why = stage_.load(options_.resume)) return why;
    stage_.context().key.seed = options_.seed;
    const std::size_t place = same_text ? static_cast<std::size_t>(saved.data_position) : 0;
    next_batch_ = place / (options_.batch * options_.seq);
    return {};
  }

  adacc::Error save(const std::string& path, const Notes& notes) {
    return stage_.save(path, notes.text());
  }

  std::uint64_t done() const { return stage_.updates(); }
  const adacc::PlannedPipeline& planned() const { return planned_; }
  adacc::TrainingMemoryUse memory_use() const { return stage_.memory_use(); }
  std::size_t predicted_peak() const { return stage_.arena_bytes(); }
  std::size_t measured_peak() { return touched_bytes(stage_.arena(), stage_.arena_bytes()); }
  std::size_t total_bytes() const { return total_bytes_; }
  int stage() const { return stage_.stage(); }

  adacc::Result<adacc::TrainingOutcome> step(const adacc::Tokens& data,
                                             const adacc::LearningRate& rate) {
    using namespace adacc;
    const Shape shape(options_.batch, options_.seq);
    for (std::size_t b = 0; b < options_.micro; ++b)
      if (const Error why =
              data.batch(next_batch_ + b, options_.batch, options_.seq,
                         View<std::int32_t>(inputs_.data() + b * shape.elems(), shape),
                         View<std::int32_t>(targets_.data() + b * shape.elems(), shape)))
        return why;
    const auto part = [&](const std::vector<std::int32_t>& of) {
      return [&of, shape](int b) -> AnyView {
        return View<const std::int32_t>(of.data() + static_cast<std::size_t>(b) * shape.elems(),
                                        shape);
      };
    };
    const auto done = stage_.step(part(inputs_), part(targets_), rate.at(this->done()));
    if (!done) return done.error;
    if (done->finite) next_batch_ += options_.micro;
    stage_.data_position = data.position(next_batch_, options_.batch, options_.seq);
    return TrainingOutcome{.loss = done->loss,
                           .grad_norm = done->grad_norm,
                           .finite = done->finite,
                           .none_counted = done->none_counted,
                           .batches = options_.micro,
                           .declined = done->declined};
  }

 private:
  /// On all ranks together: an error of one is that of all.
  adacc::Error allocate(const adacc::Tokens& data) {
    using namespace adacc;
    auto graph =
        gpt::graph<gpt::PlannedSet>(options_.network, options_.batch, options_.seq,
                                    options_.threads, options_.parts, {.scalar = dtype_of<T>});
    auto optimizer =
        support::make_optimizer(options_.optimizer, options_.moments, options_.weight_decay);
    Batch batch;
    Error why = graph.error;
    if (!why) why = optimizer.error;
    if (!why) why = batch.make(options_.batch, options_.seq);
    if (!why) why = batch.fill(data, next_batch_);
    std::size_t memory = SIZE_MAX / 2;
    if (!why && !options_.total_text.empty()) {
      const auto beside = memory_beside_arena(*graph, AdamW{});
      why = beside.error;
      if (beside)
        memory = total_bytes_ =
            options_.total.of(beside->total() + peak_bytes(*graph, retain_all(*graph)));
    }
    if ((why = share_error(group_, why))) return why;
    auto dispatch = make_dispatch<T, Cpu>(network_);
    dispatch.template add_codec<Int8Outlier>();
    dispatch.template add_codec<Int4Outlier>();
    PipelineRequest request;
    request.micro_batches = static_cast<int>(options_.micro);
    request.tolerance = options_.tolerance;
    request.stages.resize(static_cast<std::size_t>(group_.size()));
    request.stages[static_cast<std::size_t>(group_.rank())].memory_bytes = memory;
    StageMeasuring measuring;
    if (!options_.fixed_costs) measuring.clock = steady_seconds;
    measuring.input = batch.inputs();
    measuring.targets = batch.targets();
    auto planned = plan_pipeline(group_, dispatch, *graph, request, cpu_, *optimizer, measuring);
    if (!planned) return planned.error;
    planned_ = std::move(*planned);
    auto stage = Stage::make(std::move(dispatch), *graph, planned_.plan, request.micro_batches,
                             cpu_, group_, *optimizer);
    if ((why = share_error(group_, stage.error))) return why;
    stage_ = std::move(*stage);
    stage_.clip = options_.clip;
    stage_.model = options_.model_text();
    mark_untouched(stage_.arena());
    const std::size_t elems = options_.batch * options_.seq * options_.micro;
    inputs_.resize(elems);
    targets_.resize(elems);
    return {};
  }

  const Options& options_;
  adacc::GroupRef group_;
  decltype(adacc::gpt::make(options_.network)) network_;
  adacc::EigenPool pool_;
  adacc::Cpu cpu_;
  adacc::PlannedPipeline planned_;
  Stage stage_;
  std::vector<std::int32_t> inputs_, targets_;
  std::uint64_t next_batch_ = 0;
  std::size_t total_bytes_ = 0;  ///< 0 without --total
};

template <class T>
void print_setup(const CommandLine& line, const StageTrainer<T>& trainer,
                 const adacc::Tokens& tokens) {
  const Options& options = line.options;
  std::printf("model       %s\n", options.model_text().c_str());
  std::printf("text        %s, %.2f M tokens\n", tokens.source().c_str(),
              static_cast<double>(tokens.size()) / 1e6);
  std::printf("step        %zu micro-batches of %zu x %zu tokens, %d thread%s a rank\n",
              options.micro, options.batch, options.seq, options.threads,
              options.threads == 1 ? "" : "s");
  const adacc::PlannedPipeline& planned = trainer.planned();
  const adacc::PipelineOutcome& plan = planned.plan;
  std::printf("pipeline    %zu stages; %.1f ms a step predicted, %.1f %% of it a bubble\n",
              plan.stages.size(), 1e3 * plan.time.seconds, 100 * plan.time.bubble);
  const bool measured = planned.seconds > 0;
  if (measured)
    std::printf("  costs     measured in %.1f s; gradient errors of codecs estimated\n",
                planned.seconds);
  else std::printf("  costs     estimated\n");
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const adacc::StageOutcome& stage = plan.stages[s];
    std::printf("  stage %zu   layers %d to %d; %s, %d in flight: %s, of that %s of arena", s,
                stage.first, stage.last, policy_counts(stage.plan).c_str(), stage.in_flight,
                mebibytes(stage.peak_bytes).c_str(), mebibytes(stage.arena_bytes()).c_str());
    if (measured && planned.measured[s] > 0)
      std::printf("; speed %.2f, measured", planned.machines[s].speed);
    else if (measured) std::printf("; no room to measure");
    std::printf("\n");
  }
  if (!options.resume.empty()) print_resumed(line, trainer.done());
  std::fflush(stdout);
}
