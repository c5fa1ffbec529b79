// SPDX-License-Identifier: MIT
/// A language model whose adapters, or all of whose weights, learn from conversations, within a budget.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/learning_rate.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#include <support/optimizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../train_gpt/resident.hpp"
#include "conversations.hpp"
#include "model.hpp"
#include "talker.hpp"
#include "written_model.hpp"

namespace chat_tune {

struct TuneOptions {
  ModelOptions model;
  ReadOptions read;
  std::string adapter;  ///< to begin with
  adacc::AdapterShape adapters{8, 16};
  bool train_a = true;
  bool full = false;  ///< all weights are trained, and there are no adapters
  std::string precision = "fp32", parameters = "fp32", moments = "fp32";
  bool fused = false;        ///< updates in the step
  int parts = 0;             ///< that layers are cut into; 0: 1, or as many as take the least
  std::string type = "F16";  ///< of matrices in a model that is written
  std::size_t batch = 4;
  std::size_t micro = 1;  ///< batches of an update
  std::uint64_t steps = 100;
  double lr = 5e-4, min_lr = -1, weight_decay = 0, clip = 1, tolerance = 1e-2;
  std::string clip_by = "step";
  std::uint64_t warmup = 0;
  adacc::Budget budget, total;
  std::string total_text;
  bool smallest = false;
  Order order = Order::random;
  std::uint64_t seed = 1;
  std::uint64_t evaluate_every = 0;  ///< updates; 0: at the beginning and at the end
  std::size_t most_batches = 20;     ///< of held-out documents
  std::size_t match = 0;             ///< held-out conversations whose last answer is compared
  std::uint64_t save_every = 0;
  std::string out, save, resume, log, report;
};

/// Answers of the model to held-out conversations.
struct Match {
  std::size_t right = 0, asked = 0;
  std::size_t too_long = 0;  ///< conversations without room for an answer, of those asked
  std::string question, wanted, answer;  ///< of the first one
};

/// Activations and their gradients are numbers of T.
template <class T>
class Tuner {
 public:
  using Training = adacc::Training<T, adacc::Cpu, adacc::AnyOptimizer>;

  Tuner(const TuneOptions& options, const Model& model, const Documents& documents)
      : options_(options), model_(model), documents_(documents),
        network_(options.full ? network_of(model)
                              : network_of(model, options.adapters, options.train_a)),
        pool_(options.model.threads), shape_(options.batch, options.read.context),
        batches_(documents.train, shape_, options.order, options.seed),
        judged_(documents.held_out, shape_, Order::file, options.seed),
        talker_(model, network_, stored(), form()) {
    judged_.in_order();
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Plans, takes the memory, and reads the weights; goes on where --resume was.
  adacc::Error set_up() {
    using namespace adacc;
    // Pages that were read when the file was opened: weights that are all in memory are read but once more.
    if (options_.full) model_.weights.forget_pages();
    GraphOptions form_of_graph{.scalar = dtype_of<T>,
                               .workers = options_.model.threads,
                               .parts = std::max(1, options_.parts),
                               .updates = options_.fused ? Updates::fused : Updates::separate,
                               .parameters = form(),
                               .stored = stored()};
    Result<std::size_t> smallest = std::size_t{0};
    if (options_.smallest) smallest = least_peak(form_of_graph);
    if (!smallest) return smallest.error;
    const Result<Graph> graph = graph_of(network_, shape_, form_of_graph);
    if (!graph) return graph.error;
    const Result<Program> retain = make_program(*graph, retain_all(*graph));
    if (!retain) return retain.error;
    retain_peak_ = retain->peak_bytes();
    auto optimizer = support::make_optimizer("adamw", options_.moments, options_.weight_decay);
    if (!optimizer) return optimizer.error;
    TrainingOptions<Cpu, AnyOptimizer> how{
        .tolerance = options_.tolerance,
        .clock = steady_seconds,
        .context = Cpu(ExecutorRef(pool_)),
        .seed = options_.seed,
        .clip = {options_.clip,
                 options_.clip_by == "previous" ? ClipBy::previous : ClipBy::this_step},
        .optimizer = std::move(*optimizer),
        .graph = form_of_graph,
        .model = describe()};
    // Held-out documents are judged in the arena of the steps.
    const Result<Program> judge = make_program(*graph, retain_all(*graph), Mode::evaluate);
    if (!judge) return judge.error;
    how.arena_bytes = judge->peak_bytes();
    how.budget_bytes = options_.smallest ? *smallest : options_.budget.of(retain_peak_);
    if (!options_.total_text.empty()) {
      const auto held = memory_beside_arena(*graph, how.optimizer);
      if (!held) return held.error;
      how.total_bytes = options_.total.of(held->total() + retain_peak_);
    }
    auto made = std::visit(
        [&](const auto& network) { return Training::make(network, shape_, std::move(how)); },
        network_);
    if (!made) return made.error;
    training_ = std::move(*made);
    ResidentPeak::give_back();  // tables of plans that were tried
    if (!options_.resume.empty()) {
      const auto loaded = training_.load(options_.resume);
      return loaded ? Error() : loaded.error;
    }
    if (const Error why = read_weights()) return why;
    if (!options_.adapter.empty())
      if (const Error why = read_adapters(options_.adapter, this->graph(), training_.params()))
        return why;
    const PackedBatch& first = batches_.get(0);
    training_.context().positions = first.positions();
    if (const Error why = training_.prepare(first.tokens(), first.targets())) return why;
    return training_.boundary().update.failed;
  }

  /// One update.
  adacc::Result<adacc::TrainingOutcome> step(const adacc::LearningRate& rate) {
    const std::uint64_t first = training_.updates() * options_.micro;
    const double lr = rate.at(training_.updates());
    if (options_.fused) {
      const adacc::PackedBatch& batch = batches_.get(first);
      training_.context().positions = batch.positions();
      return noting_peak(training_.step(batch.tokens(), batch.targets(), lr));
    }
    for (std::size_t i = 0; i < options_.micro; ++i) {
      const adacc::PackedBatch& batch = batches_.get(first + i);
      training_.context().positions = batch.positions();
      if (const auto loss = training_.accumulate(batch.tokens(), batch.targets()); !loss)
        return loss.error;
    }
    return noting_peak(training_.update(lr));
  }

  /// The mean loss over the targets of held-out documents, of at most most_batches batches.
  adacc::Result<double> evaluate() {
    double sum = 0;
    std::size_t counted = 0, at = 0;
    for (std::size_t i = 0; i < options_.most_batches && at < documents_.held_out.size(); ++i) {
      at = judged_.fill(at);
      const adacc::PackedBatch& batch = judged_.batch();
      training_.context().positions = batch.positions();
      const auto loss = training_.evaluate(batch.tokens(), batch.targets());
      if (!loss) return loss.error;
      const std::size_t targets = adacc::count_targets(batch.targets()).counted;
      sum += *loss * static_cast<double>(targets);
      counted += targets;
    }
    return counted == 0 ? 0 : sum / static_cast<double>(counted);
  }

  /// Answers the first held-out conversations greedily, and compares with their last messages.
  adacc::Result<Match> match() {
    Match result;
    adacc::Cpu& cpu = training_.context();
    cpu.positions = {};
    if (const adacc::Error why = talker_.set_up(
            {.context = std::min(model_.weights.sizes().context, 2 * options_.read.context),
             .threads = options_.model.threads},
            adacc::WhenFull::refuse, training_.parameters(), training_.arena()))
      return why;
    for (const Document& document : documents_.held_out) {
      Messages messages = document.messages;
      if (result.asked == options_.match) break;
      if (messages.size() < 2 || messages.back().role != "assistant") continue;
      const std::string wanted = messages.back().content;
      messages.pop_back();
      adacc::Sampler greedy;
      const std::size_t most =
          model_.tokenizer.encode(wanted, adacc::SpecialText::text).size() + 16;
      const auto answer = talker_.answer(cpu, messages, greedy, most, [](std::string_view) {});
      if (!answer) {
        ++result.asked;
        ++result.too_long;
        continue;
      }
      if (result.asked++ == result.too_long) {
        result.question = messages.back().content;
        result.wanted = wanted;
        result.answer = *answer;
      }
      result.right += *answer == wanted;
    }
    return result;
  }

  /// Writes what is learnt: adapters, or the model as a GGUF file or a folder.
  adacc::Error save_learnt(const std::string& path) const {
    const auto write = [&]<class Number>(adacc::View<const Number> params) {
      return is_gguf(path)
                 ? write_gguf_model(path, model_, graph(), params, options_.adapters, options_.type)
                 : write_folder(path, model_, graph(), params);
    };
    if (!options_.full)
      return adacc::write_adapters(path, graph(), training_.params(), options_.adapters);
    return form() == adacc::ParameterForm::bf16 ? write(training_.params_in_bf16())
                                                : write(training_.params());
  }
  adacc::Error save(const std::string& path) { return training_.save(path); }

  std::string describe() const {
    return (model_.weights.sizes().family == "gpt2" ? "GPT-2, layers " : "Llama, layers ") +
           std::to_string(model_.weights.sizes().layers) + ", channels " +
           std::to_string(model_.weights.sizes().channels) +
           (options_.full ? ", all weights trained"
                          : ", LoRA of rank " + std::to_string(options_.adapters.rank));
  }
  const adacc::Graph& graph() const { return training_.compiled_step().graph(); }
  const Training& training() const { return training_; }
  std::uint64_t done() const { return training_.updates(); }
  std::uint32_t round() const { return batches_.round(); }
  std::size_t tokens() const { return shape_.elems() * options_.micro; }
  std::size_t retain_peak() const { return retain_peak_; }
  /// The most that the activations of a step have taken.
  std::size_t peak() const { return std::max(peak_, training_.peak_bytes()); }

 private:
  adacc::ParameterForm form() const { return support::parameter_form(options_.parameters); }
  /// Frozen weights.
  const adacc::StoredParameters* stored() const {
    return options_.full ? nullptr : &model_.weights.stored();
  }
  /// The smallest peak of a step. Without --parts several numbers are tried, without a clock, so that a resumed run has the same, and
  /// `form` gets the one that takes the least.
  adacc::Result<std::size_t> least_peak(adacc::GraphOptions& form) const {
    adacc::Result<std::size_t> least = std::size_t{0};
    adacc::GraphOptions tried = form;
    for (const int parts : {1, 2, 4, 8}) {
      if (options_.parts == 0) tried.parts = parts;
      const auto graph = graph_of(network_, shape_, tried);
      if (!graph) return graph.error;
      const auto retain = make_program(*graph, adacc::retain_all(*graph));
      if (!retain) return retain.error;
      adacc::PlanRequest request;
      request.budget_bytes = retain->peak_bytes();
      request.tolerance = options_.tolerance;
      const auto peak = adacc::smallest_peak(*graph, adacc::estimated_profile(*graph), request);
      if (!peak || options_.parts > 0) return peak;
      if (*least != 0 && *peak >= *least) continue;
      least = *peak;
      form.parts = parts;
    }
    return least;
  }
  /// Reads the parameters in memory from the file.
  adacc::Error read_weights() {
    const auto read = [&](auto params) { return model_.weights.read(graph(), params); };
    return form() == adacc::ParameterForm::bf16 ? read(training_.params_in_bf16())
                                                : read(training_.params());
  }
  adacc::Result<adacc::TrainingOutcome> noting_peak(adacc::Result<adacc::TrainingOutcome> outcome) {
    peak_ = std::max(peak_, training_.peak_bytes());
    return outcome;
  }

  const TuneOptions& options_;
  const Model& model_;
  const Documents& documents_;
  Network network_;
  adacc::EigenPool pool_;
  adacc::Shape shape_;
  Batches batches_, judged_;
  Training training_;
  Talker talker_;
  std::size_t retain_peak_ = 0, peak_ = 0;
};

}  // namespace chat_tune
