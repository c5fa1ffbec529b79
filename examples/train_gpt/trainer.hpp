/// A GPT, its memory, and one training step after the other.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/io/checkpoint.hpp>
#include <adacc/io/llmc.hpp>
#include <adacc/io/plan_text.hpp>
#include <adacc/io/tokens.hpp>
#include <adacc/plan/make_plan.hpp>
#include <adacc/train/evolving.hpp>
#include <adacc/train/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "../clock.hpp"
#include "../observe.hpp"
#include "costs.hpp"
#include "options.hpp"

class Trainer {
 public:
  explicit Trainer(const Options& options)
      : options_(options), network_(gpt::make(options.network)), pool_(options.threads),
        cpu_(adacc::ExecutorRef(pool_)) {
    cpu_.key.seed = options.seed;
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Compiles the steps for --policy or, where that is not given, for the plan in `saved_plan`,
  /// takes the memory they need and draws the parameters or reads --model. What auto measures it
  /// measures on the first batch of `data`.
  adacc::Error set_up(const std::string& saved_plan, const adacc::Tokens& data) {
    using namespace adacc;
    Result<Graph> graph = make(options_.batch, options_.seq);
    if (!graph) return graph.error;
    Result<Program> retain = make_program(*graph, retain_all(*graph));
    if (!retain) return retain.error;
    retain_peak_ = retain->peak_bytes();
    if (Error why = compile(evaluate_, *graph, Mode::evaluate)) return why;
    if (options_.sample > 0) {
      Result<Graph> one = make(1, options_.seq);
      if (!one) return one.error;
      if (Error why = compile(infer_, *one, Mode::infer)) return why;
    }
    const std::size_t tokens = options_.batch * options_.seq;
    Result<Block<std::int32_t>> inputs = Block<std::int32_t>::make(tokens, "inputs");
    Result<Block<std::int32_t>> targets = Block<std::int32_t>::make(tokens, "targets");
    if (!inputs || !targets) return inputs ? targets.error : inputs.error;
    inputs_ = std::move(*inputs);
    targets_ = std::move(*targets);

    const bool planned =
        options_.policy == "auto" || (options_.policy.empty() && saved_plan.empty());
    const Error why = planned ? plan_and_measure(data) : fix_plan(*graph, saved_plan);
    if (why) return why;
    training().optimizer.weight_decay = static_cast<float>(options_.weight_decay);
    training().clip = options_.clip;
    if (const Error unbound = share_arena()) return unbound;
    if (options_.model.empty()) return {};
    return read_llmc_parameters(options_.model, *graph, training().params());
  }

  adacc::Error load(const std::string& path) {
    auto info = adacc::load_checkpoint(path, gpt::describe(options_.network), training().params(),
                                       training().m(), training().v());
    if (!info) return info.error;
    cpu_.key.seed = training().cpu().key.seed = info->key.seed;
    training().updates = info->optimizer_steps;
    return {};
  }

  adacc::Error save(const std::string& path) {
    adacc::CheckpointInfo info;
    info.model = gpt::describe(options_.network);
    info.plan = plan();
    info.optimizer_steps = info.data_position = done();
    info.key.seed = cpu_.key.seed;
    info.key.step = static_cast<std::uint32_t>(done());
    auto& t = training();
    return adacc::save_checkpoint(path, info, t.params(), t.m(), t.v());
  }

  /// Forward, backward and update on the next batch. Before it, auto looks at what it observed:
  /// changes() has what that changed.
  adacc::Result<adacc::Training<>::Outcome> step(const adacc::Tokens& data,
                                                 const adacc::LearningRate& rate) {
    changes_.clear();
    refused_ = {};
    if (adacc::Error why = next_batch(data, done())) return why;
    if (!evolving_) return training_.step(inputs(), targets(), rate.at(done()));
    const auto seen = observer_.observe(*evolving_, inputs(), targets());
    if (!seen) return seen.error;
    if (seen->arena_used) fill_arena();
    if (seen->all_probed && keeps_profile_) {
      const adacc::Evolution& evolution = evolving_->evolution();
      if (adacc::Error why = adacc::save_profile(options_.profile, evolution.graph(),
                                                 evolution.profile(), profile_source(options_)))
        return why;
    }
    auto outcome = evolving_->step(inputs(), targets(), rate.at(done()));
    const adacc::EvolutionUpdate& update = evolving_->last_update();
    refused_ = update.failed;
    if (!update.changed) return outcome;
    for (const adacc::PlanChange& change : update.changes) changes_.push_back(describe(change));
    if (adacc::Error why = share_arena()) return why;
    return outcome;
  }

  /// The mean loss over the first batches of `data`, at most 20 of them.
  adacc::Result<double> evaluate(const adacc::Tokens& data) {
    const std::size_t all = data.batches(options_.batch, options_.seq);
    const std::size_t count = all < 20 ? all : 20;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (adacc::Error why = next_batch(data, i)) return why;
      auto loss = evaluate_.run(cpu_, inputs(), targets());
      if (!loss) return loss.error;
      sum += *loss;
    }
    return sum / static_cast<double>(count);
  }

  /// `count` bytes after a line break, each drawn from the model's distribution.
  std::string generate(std::size_t count) {
    using namespace adacc;
    const std::size_t context = options_.seq, c = options_.network.channels;
    std::string text = "\n";
    std::string out;
    const std::size_t vocab = options_.network.vocab;
    auto logits = Block<float>::make(vocab, "logits");
    auto scratch = Block<std::byte>::make(
        network_.loss.logits_workspace_bytes(Shape(1, c), Dtype::f32, cpu_.workers()), "scratch");
    if (!logits || !scratch) return out;
    RandomKey key = cpu_.key.with_purpose(Purpose::sampling);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t seen = text.size() < context ? text.size() : context;
      for (std::size_t t = 0; t < context; ++t)
        inputs_[t] = t < seen ? static_cast<unsigned char>(text[text.size() - seen + t]) : 0;
      const View<const std::int32_t> window(inputs_.data(), Shape(1, context));
      if (!infer_.run(cpu_, window, window)) return out;
      const LossNode& head = infer_.graph().loss;
      network_.loss.logits<float>(
          cpu_,
          {training().params().data(), infer_.graph().parameters.data() + head.first_parameter, 1},
          View<const float>(infer_.output().data() + (seen - 1) * c, Shape(1, c)),
          View<float>(logits->data(), Shape(1, vocab)), {scratch->data(), Shape(scratch->size())});
      text += static_cast<char>(draw(logits->data(), vocab, random_word(key, i)));
      out += text.back();
    }
    return out;
  }

  std::uint64_t done() const { return training().updates; }
  const adacc::Program& program() const { return training().compiled().program(); }
  std::size_t predicted_peak() const { return program().peak_bytes(); }
  std::size_t retain_peak() const { return retain_peak_; }
  std::size_t parameter_bytes() const { return program().graph.parameter_elems * sizeof(float); }
  std::size_t plan_version() const { return program().plan.version; }
  std::string plan() const { return adacc::plan_text(program().graph, program().plan); }

  /// What auto did: its budget (0 where the policies are fixed) and its plan.
  std::size_t budget_bytes() const { return budget_bytes_; }
  const adacc::PlanOutcome* outcome() const {
    return evolving_ ? &evolving_->evolution().outcome() : nullptr;
  }
  /// Where the costs came from, in words; empty where nothing was planned.
  const std::string& cost_source() const { return cost_source_; }
  /// Changes of the plan before the step that ran last, a line each, and why one was not made.
  const std::vector<std::string>& changes() const { return changes_; }
  const adacc::Error& refused() const { return refused_; }

  /// Arena bytes that training steps have touched: the end of the last cache line that differs
  /// from the pattern it was filled with.
  std::size_t measured_peak() {
    const adacc::Bytes arena = training().arena();
    std::size_t end = predicted_peak();
    while (end > 0) {
      const std::size_t line = (end - 1) / adacc::alignment * adacc::alignment;
      for (std::size_t i = line; i < end; ++i)
        if (arena[i] != pattern) return end;
      end = line;
    }
    return 0;
  }

 private:
  static constexpr std::byte pattern{0xA5};

  adacc::Training<>& training() { return evolving_ ? evolving_->training() : training_; }
  const adacc::Training<>& training() const {
    return evolving_ ? evolving_->training() : training_;
  }

  /// Arena bytes that evaluation and sampling need.
  std::size_t borrowed_bytes() const {
    return std::max(evaluate_.arena_bytes(), infer_.arena_bytes());
  }

  void fill_arena() {
    std::memset(training().arena().data(), static_cast<int>(pattern), training().arena().size());
  }

  /// Fills the arena with the pattern and lends it to the forward-only steps as well.
  adacc::Error share_arena() {
    fill_arena();
    for (adacc::Step<>* step : {&evaluate_, &infer_}) {
      if (step == &infer_ && options_.sample == 0) continue;
      if (adacc::Error why = step->bind(training().arena(), training().params())) return why;
    }
    return {};
  }

  /// The plan that --policy names or that `saved_plan` spells out.
  adacc::Error fix_plan(const adacc::Graph& graph, const std::string& saved_plan) {
    using namespace adacc;
    Plan plan;
    if (!options_.policy.empty()) {
      plan = gpt::named_plan(options_.policy, options_.network, options_.batch, options_.seq);
    } else {
      Array<const CodecInfo*> codecs;
      for (const auto& codec : dispatch().codecs) codecs.push_back(codec.info);
      Result<Plan> parsed = parse_plan(saved_plan, graph, codecs);
      if (!parsed) return parsed.error;
      plan = std::move(*parsed);
    }
    Result<Program> train = make_program(graph, std::move(plan));
    if (!train) return train.error;
    const std::size_t arena = std::max(train->peak_bytes(), borrowed_bytes());
    if (Error why = check_memory(arena, graph.parameter_elems * sizeof(float))) return why;
    auto made = Training<>::make(dispatch(), std::move(*train), cpu_, arena);
    if (!made) return made.error;
    training_ = std::move(*made);
    return {};
  }

  /// Costs first, from the profile or measured, and then the plan that makes the best of them.
  adacc::Error plan_and_measure(const adacc::Tokens& data) {
    using namespace adacc;
    auto graph = gpt::graph<gpt::PlannedSet>(options_.network, options_.batch, options_.seq,
                                             options_.threads);
    if (!graph) return graph.error;
    budget_bytes_ = options_.budget.of(retain_peak_);
    PlanRequest request;
    request.budget_bytes = budget_bytes_;
    request.tolerance = options_.tolerance;
    request.clock = wall_seconds;
    const std::size_t arena = std::min(budget_bytes_, measuring_bytes(*graph));
    if (Error why = check_memory(arena, graph->parameter_elems * sizeof(float))) return why;
    CostProfile profile = gpt::estimated_costs(*graph);
    // A budget that nothing fits is better known before anything is measured.
    if (Result<PlanOutcome> first = make_plan(*graph, profile, request); !first) return first.error;
    if (budget_bytes_ < retain_peak_ || !options_.profile.empty()) {
      if (Error why = next_batch(data, 0)) return why;
      auto costs = train_gpt_costs(options_, *graph, dispatch(), cpu_, arena, inputs(), targets(),
                                   wall_seconds);
      if (!costs) return costs.error;
      cost_source_ = costs->source;
      keeps_profile_ = costs->measured && !options_.profile.empty();
      profile = std::move(costs->profile);
    }
    auto made = EvolvingTraining<>::make(dispatch(), std::move(*graph), std::move(profile), request,
                                         make_plan, cpu_, {}, borrowed_bytes());
    if (!made) return made.error;
    evolving_ = std::move(*made);
    evolving_->clock = wall_seconds;
    observer_ = Observer(options_.steps);
    return {};
  }

  std::string describe(const adacc::PlanChange& change) const {
    const adacc::Node& node = program().graph.node(change.activation);
    return "activation " + std::to_string(change.activation) + " (" + node.name + ", block " +
           std::to_string(node.copy) + "): " + name_of(change.from) + " -> " + name_of(change.to) +
           ", " + name_of(change.reason);
  }

  adacc::Result<adacc::Graph> make(std::size_t batch, std::size_t seq) const {
    return adacc::make_graph(network_, adacc::Shape(batch, seq), {.workers = options_.threads});
  }

  adacc::Dispatch<float, adacc::Cpu> dispatch() const {
    auto dispatch = adacc::make_dispatch<float, adacc::Cpu>(network_);
    dispatch.add_codec<adacc::Int8Outlier>();
    dispatch.add_codec<adacc::Int4Outlier>();
    return dispatch;
  }

  /// A forward-only step; it needs no plan, because nothing is kept for backward.
  adacc::Error compile(adacc::Step<>& step, const adacc::Graph& graph, adacc::Mode mode) const {
    auto program = adacc::make_program(graph, adacc::retain_all(graph), mode);
    if (!program) return program.error;
    auto made = adacc::Step<>::make(dispatch(), std::move(*program));
    if (made) step = std::move(*made);
    return made.error;
  }

  static adacc::Error check_memory(std::size_t arena, std::size_t params) {
    const auto machine =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (static_cast<double>(arena) + 4.0 * static_cast<double>(params) <= machine) return {};
    return adacc::Error::say("this takes ", adacc::shown(arena), " for activations and 4 x ",
                             adacc::shown(params), " for parameters, more than the machine's ",
                             adacc::shown(static_cast<std::size_t>(machine)),
                             "; try fewer --layers, --channels, --batch or --seq");
  }

  adacc::Error next_batch(const adacc::Tokens& data, std::uint64_t index) {
    return data.batch(index, options_.batch, options_.seq, inputs_.view(), targets_.view());
  }
  adacc::View<const std::int32_t> inputs() const {
    return {inputs_.data(), adacc::Shape(options_.batch, options_.seq)};
  }
  adacc::View<const std::int32_t> targets() const {
    return {targets_.data(), adacc::Shape(options_.batch, options_.seq)};
  }

  /// An index drawn from softmax(logits) by the random word.
  static std::size_t draw(const float* logits, std::size_t count, std::uint32_t word) {
    double largest = logits[0], sum = 0;
    for (std::size_t i = 1; i < count; ++i) largest = std::max<double>(largest, logits[i]);
    for (std::size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - largest);
    double left = sum * static_cast<double>(adacc::unit_float(word));
    for (std::size_t i = 0; i < count; ++i) {
      left -= std::exp(logits[i] - largest);
      if (left < 0) return i;
    }
    return count - 1;
  }

  const Options& options_;
  gpt::Gpt<gpt::RetainSet> network_;
  adacc::EigenPool pool_;
  adacc::Cpu cpu_;
  adacc::Training<> training_;                         ///< where the policies are fixed
  std::optional<adacc::EvolvingTraining<>> evolving_;  ///< where they are not
  adacc::Step<> evaluate_, infer_;
  std::size_t retain_peak_ = 0;
  std::size_t budget_bytes_ = 0;
  std::string cost_source_;
  bool keeps_profile_ = false;  ///< measured by this run, for --profile
  Observer observer_;
  std::vector<std::string> changes_;
  adacc::Error refused_;
  adacc::Block<std::int32_t> inputs_, targets_;
};
