// SPDX-License-Identifier: MIT
/// A GPT on the CPU, its memory, and one training step after the other.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/tokens.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <adacc/model/trained_by_name.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/learning_rate.hpp>
#include <adacc/ranks/data_parallel/data_parallel.hpp>
#include <adacc/train/forward_only.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/merge_adapters.hpp>
#include <adacc/train/save.hpp>
#include <support/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "fits_machine.hpp"
#include "model_file.hpp"
#include "options.hpp"
#include "plan_changes.hpp"
#include "profile_file.hpp"
#include "resident.hpp"
#include "sampling.hpp"
#include "scratch_files.hpp"
#include "touched.hpp"

/// T: the type of activations, float or bfloat16.
template <class T>
class Trainer {
  using Trained = adacc::Training<T, adacc::Cpu, adacc::AnyOptimizer>;
  using Parallel = adacc::DataParallel<T, adacc::Cpu, adacc::AnyOptimizer>;
  using Inference = adacc::Inference<T>;
  using ForwardOnly = adacc::ForwardOnly<T>;

 public:
  /// With the other ranks of `group`, if options are parallel().
  explicit Trainer(const Options& options, adacc::GroupRef group = {})
      : options_(options), group_(group), network_(adacc::gpt::make(options.network)),
        adapted_(adacc::gpt::make_lora(options.network, options.adapters())),
        pool_(options.threads), cpu_(adacc::ExecutorRef(pool_)) {
    cpu_.key.seed = options.seed;
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Compiles the steps for --policy, takes the memory they need, and draws the parameters or reads
  /// --model. Costs are measured on the first batch of `data`.
  adacc::Error set_up(const adacc::Tokens& data) {
    adacc::Error why = allocate(true);
    if (!why) why = measure(data);
    if (!options_.parallel()) return why ? why : read_start();
    if ((why = go_parallel(why))) return why;
    if (options_.model.empty()) return {};
    if ((why = share_error(group_, group_.rank() == 0 ? read_start() : adacc::Error()))) return why;
    return parallel_.broadcast_parameters();
  }

  /// The same, and goes on where `saved` was, the checkpoint that --resume names; `same_text` says
  /// whether it was trained on `data`.
  adacc::Error resume(const adacc::CheckpointInfo& saved, const Notes& notes,
                      const adacc::Tokens& data, bool same_text) {
    using namespace adacc;
    const bool evolved = options_.plans() && notes.plans_alike(saved, options_);
    if (options_.parallel()) {
      Error why = allocate(!evolved);
      if (!why && !evolved) why = measure(data);
      if ((why = go_parallel(why))) return why;
      if ((why = parallel_.load(options_.resume))) return why;
      if (evolved) profile_.set_costs("those of the checkpoint");
      go_on_from(saved, same_text);
      mark_arena();
      return {};
    }
    if (Error why = allocate(!evolved)) return why;
    const auto loaded =
        options_.forward_only
            ? forward_.load(options_.resume)
            : training_.load(options_.resume, evolved ? Restore::all : Restore::numbers);
    if (!loaded) return loaded.error;
    go_on_from(saved, same_text);
    if (evolved) {
      profile_.set_costs("those of the checkpoint");
      mark_arena();
      return {};
    }
    return measure(data);
  }

  /// A checkpoint, and beside it the adapters, if there are any.
  adacc::Error save(const std::string& path, const Notes& notes) {
    const adacc::Error why = options_.parallel()     ? parallel_.save(path, notes.text())
                             : options_.forward_only ? forward_.save(path, notes.text())
                                                     : training_.save(path, notes.text());
    if (why) return why;
    if (group_.rank() != 0) return {};
    return options_.lora.rank == 0 ? adacc::Error{} : save_adapters(path + ".lora.safetensors");
  }

  /// Writes the model to --export, its adapters merged.
  adacc::Error export_model() {
    const std::vector<float> params = merged();
    return write_model(options_, graph(), {params.data(), adacc::Shape(params.size())});
  }

  /// Writes the same to --merge, as a checkpoint of parameters alone.
  adacc::Error save_merged() {
    const std::vector<float> params = merged();
    return write_merged(options_, graph(), {params.data(), adacc::Shape(params.size())}, done());
  }

  /// Writes what is known of costs to --profile, if they were measured for it. Those that several ranks
  /// know by the end may be another machine's.
  adacc::Error save_profile() const {
    const bool known = !parallel_ && trained().evolution() != nullptr;
    return known ? profile_.save(*trained().evolution()) : adacc::Error();
  }

  /// Forward, backward and update on the next batch. Before it, auto looks at what it observed:
  /// boundary() has what that changed.
  adacc::Result<adacc::TrainingOutcome> step(const adacc::Tokens& data,
                                             const adacc::LearningRate& rate) {
    changes_.clear();
    data_position() =
        data.position(next_batch_ + options_.update_batches(), options_.batch, options_.seq);
    auto outcome = update(data, rate);
    const adacc::PlanBoundary& boundary = trained().boundary();
    if (const adacc::Evolution* evolution = trained().evolution())
      changes_ = change_lines(boundary, *evolution, program());
    if (boundary.looked || boundary.update.changed || boundary.measured) {
      ResidentPeak::give_back();
      mark_arena();
    }
    if (outcome && outcome->finite) next_batch_ += options_.update_batches();
    else data_position() = data.position(next_batch_, options_.batch, options_.seq);
    return outcome;
  }

  /// The mean loss over the first batches of `data`, at most 20 of them.
  adacc::Result<double> evaluate(const adacc::Tokens& data) {
    return batch_.mean(data, [&](auto inputs, auto targets) {
      return options_.forward_only ? forward_.evaluate(inputs, targets)
                                   : trained().evaluate(inputs, targets);
    });
  }

  /// `count` bytes after a line break, each drawn from the model's distribution.
  adacc::Result<std::string> generate(std::size_t count) {
    const std::vector<float> decoded = params().empty() ? full_parameters() : std::vector<float>();
    const float* const weights = decoded.empty() ? params().data() : decoded.data();
    if (const adacc::Error why = inference_.bind(arena(), parameters())) return why;
    return sampled_text(network_, cpu_, inference_, weights, options_.network.vocab, count);
  }

  std::uint64_t done() const {
    return options_.forward_only ? forward_.updates() : trained().updates();
  }
  const adacc::Program& program() const {
    return options_.forward_only ? forward_.compiled_step().program()
                                 : trained().compiled_step().program();
  }
  std::size_t predicted_peak() const { return program().peak_bytes(); }
  std::size_t retain_peak() const { return retain_peak_; }
  adacc::TrainingMemoryUse memory_use() const {
    return parallel_               ? parallel_.memory_use()
           : options_.forward_only ? forward_.memory_use()
                                   : training_.memory_use();
  }
  /// Which ranks train, in words; empty without shards.
  std::string ranks_text() const {
    if (!parallel_) return {};
    const int ranks = group_.size();
    return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks over MPI") + ", an update of " +
           std::to_string(parallel_.shards()) + " shards" +
           (ranks == 1                 ? ""
            : options_.shard_gradients ? ", moments and gradients sharded"
            : options_.shard_moments   ? ", moments sharded"
                                       : "");
  }
  std::string place_text() const {
    return std::to_string(options_.threads) + (options_.threads == 1 ? " thread" : " threads");
  }
  /// What memory_use() may come to; 0 without --total.
  std::size_t total_bytes() const { return total_bytes_; }
  /// Of the process, over what it held before the training was set up.
  ResidentPeak& resident() { return resident_; }
  std::size_t plan_version() const { return program().plan.version; }

  /// What auto did: its budget (0 if the policies are fixed) and its plan.
  std::size_t budget_bytes() const {
    return trained().evolution() == nullptr ? 0 : trained().evolution()->budget_bytes();
  }
  const adacc::PlanOutcome* outcome() const {
    return trained().evolution() == nullptr ? nullptr : &trained().evolution()->outcome();
  }
  const adacc::CostProfile* profile() const {
    return trained().evolution() == nullptr ? nullptr : &trained().evolution()->profile();
  }
  /// To the scratch file of --offload, as it is reckoned with by now.
  adacc::LinkCost link() const {
    return trained().evolution() == nullptr ? adacc::LinkCost{}
                                            : trained().evolution()->request().link;
  }
  /// What a step sends to the scratch file of --offload, and reads back.
  std::size_t offloaded_bytes() const { return trained().compiled_step().store_bytes(); }
  /// For how long the step that ran last waited for it, in seconds.
  double stall_seconds() const {
    return trained().compiled_step().transfer_times().stall_seconds();
  }
  /// How --offload works, in words; empty without it.
  std::string store_text() const { return files_.offload_text(options_, link()); }
  /// How --moments-store works, in words; empty without it.
  std::string moments_text() const { return files_.moments_text(options_, memory_use()); }
  /// Where the costs came from, in words; empty if nothing was planned.
  const std::string& cost_source() const { return profile_.costs(); }
  /// Changes of the plan before the step that ran last, a line each, and why one was not made.
  const std::vector<std::string>& changes() const { return changes_; }
  const adacc::Error& refused() const { return trained().boundary().update.failed; }

  /// Arena bytes that training steps have touched since the plan was made; 0 behind the step before which
  /// it was, since whatever measured or moved it has touched the arena, too.
  std::size_t measured_peak() { return touched_bytes(arena(), predicted_peak()); }

 private:
  const adacc::Graph& graph() const { return program().graph; }
  adacc::View<float> params() {
    return options_.forward_only ? forward_.params() : trained().params();
  }
  /// As steps are lent them.
  adacc::ParameterBlock<float> parameters() {
    if (options_.forward_only) return forward_.params();
    return trained().parameters();
  }
  /// A copy in fp32.
  std::vector<float> full_parameters() {
    std::vector<float> full;
    const auto copy = [&](adacc::View<const float> all) {
      full.assign(all.begin(), all.end());
      return adacc::Error();
    };
    if (options_.forward_only) static_cast<void>(copy(params()));
    else static_cast<void>(trained().read_parameters(copy));  // without memory: none
    return full;
  }
  /// visit(View<float>) of the parameters, which it may change.
  template <class Visit>
  adacc::Error visit_parameters(const Visit& visit) {
    return options_.forward_only ? visit(params()) : trained().write_parameters(visit);
  }
  /// In what form --parameters holds them.
  adacc::ParameterForm form() const { return support::parameter_form(options_.parameters); }
  adacc::Bytes arena() { return options_.forward_only ? forward_.arena() : trained().arena(); }
  std::uint64_t& data_position() {
    return options_.forward_only ? forward_.data_position : trained().data_position;
  }

  /// --micro batches, and the update that their gradients make.
  adacc::Result<adacc::TrainingOutcome> update(const adacc::Tokens& data,
                                               const adacc::LearningRate& rate) {
    if (options_.forward_only) {
      if (adacc::Error why = batch_.fill(data, next_batch_)) return why;
      return forward_.step(batch_.inputs(), batch_.targets(), rate.at(done()));
    }
    if (options_.fused) {
      if (adacc::Error why = batch_.fill(data, next_batch_)) return why;
      return training_.step(batch_.inputs(), batch_.targets(), rate.at(done()));
    }
    if (options_.parallel()) {
      for (int s = 0; s < parallel_.shard_count(); ++s) {
        const auto first = static_cast<std::size_t>(parallel_.shard(s)) * options_.micro;
        for (std::size_t i = first; i < first + options_.micro; ++i) {
          if (adacc::Error why = batch_.fill(data, next_batch_ + i)) return why;
          if (auto loss = parallel_.accumulate(batch_.inputs(), batch_.targets()); !loss)
            return loss.error;
        }
      }
      return parallel_.update(rate.at(done()));
    }
    for (std::size_t i = 0; i < options_.micro; ++i) {
      if (adacc::Error why = batch_.fill(data, next_batch_ + i)) return why;
      if (auto loss = training_.accumulate(batch_.inputs(), batch_.targets()); !loss)
        return loss.error;
    }
    return training_.update(rate.at(done()));
  }

  /// Of a training that only plans, or is measured.
  struct Stateless {
    static constexpr const char* name = "none";
    static constexpr std::size_t state_count = 0;
    template <class Number>
    void update(const adacc::ParameterRange<Number>&, const adacc::UpdateTerms&) const {}
  };
  bool gradients_in_arena() const {
    return options_.fused || (options_.parallel() && options_.shard_gradients);
  }

  Trained& trained() { return parallel_ ? parallel_.training() : training_; }
  const Trained& trained() const { return parallel_ ? parallel_.training() : training_; }

  /// Numbers of the checkpoint that training does not keep itself.
  void go_on_from(const adacc::CheckpointInfo& saved, bool same_text) {
    forward_.context().key.seed = options_.seed;
    cpu_.key.seed = trained().context().key.seed = options_.seed;
    const std::size_t place = same_text ? static_cast<std::size_t>(saved.data_position) : 0;
    next_batch_ = place / (options_.batch * options_.seq);
  }

  /// The same training on all ranks, in place of the one that was set up to plan, or to measure, here:
  /// `so_far` says whether that went well. The plan is rank 0's, from the costs of the slowest.
  adacc::Error go_parallel(adacc::Error so_far) {
    using namespace adacc;
    if (const Error why = share_error(group_, so_far)) return why;
    typename Trained::Options how{
        .total_bytes = total_bytes_,
        .tolerance = options_.tolerance,
        .clock = steady_seconds,
        .context = cpu_,
        .clip = clip(),
        .optimizer = optimizer_,
        .planning = {.watch_times = !options_.fixed_costs, .most_runs = options_.most_runs},
        .arena_bytes = borrowed_bytes_,
        .model = options_.model_text()};
    DataParallelOptions ranks{.shards = options_.shards,
                              .micro_batches = static_cast<int>(options_.micro),
                              .sharded_state = options_.shard_moments,
                              .sharded_gradients = options_.shard_gradients};
    Graph graph = training_.compiled_step().graph();
    const Plan plan = training_.plan();
    if (const Evolution* known = training_.evolution()) {
      graph = known->graph();
      how.planning.profile = known->profile();
      if (total_bytes_ == 0) how.budget_bytes = known->wanted_budget_bytes();
      how.planning.planner = support::planner_of(options_.solver);
    } else {
      ranks.plan = &plan;
    }
    training_ = Trained();
    auto made = Parallel::make(group_, dispatch(), std::move(graph), std::move(how), ranks);
    if (!made) return made.error;
    parallel_ = std::move(*made);
    mark_arena();
    return {};
  }

  adacc::Clipping clip() const {
    return {options_.clip,
            options_.clip_by == "step" ? adacc::ClipBy::this_step : adacc::ClipBy::previous};
  }

  adacc::gpt::Tuning tuning() const {
    return {options_.adapters(), trained_.empty() ? nullptr : &trained_, adacc::dtype_of<T>};
  }

  /// Which parameters --train names.
  adacc::Error choose_trained() {
    if (options_.train.empty()) return {};
    auto graph = make(options_.batch, options_.seq);
    if (!graph) return graph.error;
    auto trained = adacc::trained_by_name(*graph, options_.train);
    if (!trained) return adacc::Error::say("--train: ", trained.error.text());
    trained_ = std::move(*trained);
    return {};
  }

  /// The parameters that --model and --adapter name, if they do.
  adacc::Error read_start() {
    if (options_.model.empty()) return {};
    return visit_parameters([&](adacc::View<float> params) {
      if (adacc::Error why = read_model(options_, graph(), params)) return why;
      return options_.adapter.empty() ? adacc::Error{}
                                      : adacc::read_adapters(options_.adapter, graph(), params);
    });
  }

  /// The parameters, with what adapters add to the weights beside them.
  std::vector<float> merged() {
    using namespace adacc;
    std::vector<float> params = full_parameters();
    if (options_.lora.rank == 0) return params;
    merge_adapters(graph(), View<float>(params.data(), Shape(params.size())),
                   {options_.lora.rank, options_.adapters().alpha});
    return params;
  }

  /// The adapters alone, under the names of their parameters.
  adacc::Error save_adapters(const std::string& path) {
    return visit_parameters([&](adacc::View<float> params) {
      return adacc::write_adapters<float>(path, graph(), params,
                                          {options_.lora.rank, options_.adapters().alpha});
    });
  }

  adacc::ProfileSource source() const {
    std::string model = options_.model_text();
    if (options_.parts > 1) model += ", in " + std::to_string(options_.parts) + " parts";
    if (form() == adacc::ParameterForm::bf16) model += ", parameters in bf16";
    if (options_.precision == "bf16") model += ", activations in bf16";
    // Who plans for a stated number of threads wants one plan, however many run.
    return {adacc::machine_name(), model, options_.threads,
            options_.plan_threads >= options_.threads};
  }

  /// The steps and their memory. Costs are read from --profile if `fresh`.
  adacc::Error allocate(bool fresh) {
    using namespace adacc;
    if (const Error why = choose_trained()) return why;
    Result<Graph> graph = make(options_.batch, options_.seq);
    if (!graph) return graph.error;
    separate_retain_peak_ = peak_bytes(*graph, retain_all(*graph));
    if (gradients_in_arena()) set_updates(*graph, Updates::fused);
    set_parameters(*graph, form());
    retain_peak_ = peak_bytes(*graph, retain_all(*graph));
    if (options_.forward_only && options_.parts > 1) {
      graph = make(options_.batch, options_.seq, options_.parts);
      if (!graph) return graph.error;
    }
    const auto evaluation = make_program(*graph, retain_all(*graph), Mode::evaluate);
    if (!evaluation) return evaluation.error;
    borrowed_bytes_ = evaluation->peak_bytes();
    if (options_.sample > 0) {
      Result<Graph> one = make(1, options_.seq);
      if (!one) return one.error;
      set_parameters(*one, form());
      auto inference = Inference::make(dispatch(), std::move(*one));
      if (!inference) return inference.error;
      inference_ = std::move(*inference);
      borrowed_bytes_ = std::max(borrowed_bytes_, inference_.arena_bytes());
    }
    if (Error why = batch_.make(options_.batch, options_.seq)) return why;
    if (options_.forward_only) return make_forward_only(std::move(*graph));
    auto optimizer =
        support::make_optimizer(options_.optimizer, options_.moments, options_.weight_decay);
    if (!optimizer) return optimizer.error;
    optimizer_ = *optimizer;
    // What several ranks then train with is made by go_parallel(), and may be shared among them.
    if (options_.parallel()) *optimizer = Stateless();
    if (const Error why = options_.plans() ? plan(fresh, *optimizer) : fix_plan(*graph, *optimizer))
      return why;
    trained().clip = clip();
    trained().model = options_.model_text();
    mark_arena();
    return {};
  }

  /// What --forward-only holds: parameters, and the arena of an evaluation.
  adacc::Error make_forward_only(adacc::Graph graph) {
    using namespace adacc;
    auto made = ForwardOnly::make(dispatch(), std::move(graph),
                                  {.epsilon = options_.epsilon,
                                   .directions = options_.directions,
                                   .clip = options_.clip,
                                   .weight_decay = options_.weight_decay,
                                   .context = cpu_,
                                   .arena_bytes = borrowed_bytes_,
                                   .model = options_.model_text()});
    if (!made) return made.error;
    forward_ = std::move(*made);
    mark_arena();
    return {};
  }

  /// The policies that --policy names.
  adacc::Error fix_plan(const adacc::Graph& graph, const adacc::AnyOptimizer& optimizer) {
    using namespace adacc;
    Result<Program> train = make_program(
        graph,
        gpt::named_plan(options_.policy, options_.network, options_.batch, options_.seq, tuning()));
    if (!train) return train.error;
    const std::size_t arena = std::max(train->peak_bytes(), borrowed_bytes_);
    MomentStore moments;
    if (const Error why = files_.open_moments(options_, graph, optimizer, moments)) return why;
    if (Error why = check_memory(arena, graph, optimizer, moments)) return why;
    auto made = Trained::make(dispatch(), std::move(*train), cpu_, arena, optimizer, moments);
    if (!made) return made.error;
    training_ = std::move(*made);
    return {};
  }

  /// A plan within --budget, from the costs in --profile or, until measure(), estimated ones.
  adacc::Error plan(bool fresh, const adacc::AnyOptimizer& optimizer) {
    using namespace adacc;
    auto graph = gpt::graph<gpt::PlannedSet>(options_.network, options_.batch, options_.seq,
                                             options_.workers(), options_.parts, tuning());
    if (!graph) return graph.error;
    if (!options_.total_text.empty()) {
      const auto fp32 = memory_beside_arena(*graph, AdamW{});
      if (!fp32) return fp32.error;
      total_bytes_ = options_.total.of(fp32->total() + separate_retain_peak_);
    }
    if (gradients_in_arena()) set_updates(*graph, Updates::fused);
    set_parameters(*graph, form());
    typename Trained::Options how{
        .budget_bytes = total_bytes_ != 0 ? 0 : options_.budget.of(retain_peak_),
        .total_bytes = total_bytes_,
        .tolerance = options_.tolerance,
        .clock = steady_seconds,
        .context = cpu_,
        .optimizer = optimizer,
        .planning = {.watch_times = !options_.fixed_costs, .most_runs = options_.most_runs},
        .arena_bytes = borrowed_bytes_};
    how.planning.planner = support::planner_of(options_.solver);
    if (const Error why = files_.open_offload(options_, retain_peak_, how.planning)) return why;
    if (const Error why = files_.open_moments(options_, *graph, optimizer, how.moment_store))
      return why;
    if (total_bytes_ == 0) {
      const std::size_t arena = std::min(how.budget_bytes, measuring_bytes(*graph));
      if (Error why = check_memory(arena, *graph, optimizer, how.moment_store)) return why;
    }
    profile_.writes = group_.rank() == 0;
    if (fresh)
      if (const Error why = profile_.read(*graph, source(), how)) return why;
    auto made = Trained::make(dispatch(), std::move(*graph), std::move(how));
    if (!made) return made.error;
    training_ = std::move(*made);
    return {};
  }

  /// Measures costs on the first batch of `data`, if auto needs them, and plans by them.
  adacc::Error measure(const adacc::Tokens& data) {
    using namespace adacc;
    if (!options_.plans()) return {};
    if (Error why = batch_.fill(data, next_batch_)) return why;
    const double start = steady_seconds();
    if (Error why = trained().prepare(batch_.inputs(), batch_.targets())) return why;
    const PlanBoundary& boundary = trained().boundary();
    if (boundary.update.failed) return boundary.update.failed;
    if (const Error why = profile_.settle(boundary, *trained().evolution(), "measured",
                                          steady_seconds() - start, ", gradient errors probed"))
      return why;
    mark_arena();
    return {};
  }

  /// Fills the arena with the pattern.
  void mark_arena() { mark_untouched(arena()); }

  adacc::Result<adacc::Graph> make(std::size_t batch, std::size_t seq, int parts = 1) const {
    return adacc::gpt::graph(options_.network, batch, seq, options_.workers(), parts, tuning());
  }

  adacc::Dispatch<T, adacc::Cpu> dispatch() const {
    auto dispatch = options_.lora.rank == 0 ? adacc::make_dispatch<T, adacc::Cpu>(network_)
                                            : adacc::make_dispatch<T, adacc::Cpu>(adapted_);
    dispatch.template add_codec<adacc::Int8Outlier>();
    dispatch.template add_codec<adacc::Int4Outlier>();
    return dispatch;
  }

  const Options& options_;
  adacc::GroupRef group_;
  adacc::gpt::Gpt<adacc::gpt::RetainSet> network_;
  adacc::gpt::LoraGpt<adacc::gpt::RetainSet> adapted_;  ///< with --lora
  adacc::TrainedSet trained_;                           ///< that --train names; empty: all
  adacc::EigenPool pool_;
  adacc::Cpu cpu_;
  ScratchFiles files_;
  ResidentPeak resident_;
  adacc::AnyOptimizer optimizer_;
  Trained training_;                ///< empty once it has become
  Parallel parallel_;               ///< this, with shards
  ForwardOnly forward_;             ///< in its place, with --forward-only
  Inference inference_;             ///< of one sequence, with --sample
  std::size_t borrowed_bytes_ = 0;  ///< of the arena, by evaluation and sampling
  std::size_t total_bytes_ = 0;
  std::size_t retain_peak_ = 0;
  std::size_t separate_retain_peak_ = 0;  ///< without --fused
  std::uint64_t next_batch_ = 0;
  ProfileFile profile_{options_.profile};
  std::vector<std::string> changes_;
  Batch batch_;
};
