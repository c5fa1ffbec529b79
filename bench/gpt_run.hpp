// SPDX-License-Identifier: MIT
/// A GPT of a given shape with its data, trained under a plan: what the studies of compression
/// share.
///
/// The studies are about what codecs do to gradients and to training, so a run is fixed by its
/// seed alone: initial parameters, batches, random numbers of stochastic rounding.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/io/text.hpp>
#include <adacc/io/weights/llmc.hpp>
#include <adacc/io/weights/llmc_tokens.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/learning_rate.hpp>
#include <adacc/train/make.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace study {

namespace gpt = adacc::gpt;

using Int4Stochastic =
    adacc::Int4OutlierWith<adacc::Int4Options{.rounding = adacc::Rounding::stochastic}>;
using Int8Stochastic =
    adacc::Int8OutlierWith<adacc::Int8Options{.rounding = adacc::Rounding::stochastic}>;
/// One symmetric scale for a whole row, and nothing kept exactly.
using Int4Coarse =
    adacc::Int4OutlierWith<adacc::Int4Options{.group = adacc::whole_row,
                                              .outliers = adacc::Outliers::none,
                                              .symmetric = true,
                                              .rounding = adacc::Rounding::stochastic}>;

/// By whatever optimizer, with activations of type T.
template <class T>
using TrainingOf = adacc::Training<T, adacc::Cpu, adacc::AnyOptimizer>;
using Training = TrainingOf<float>;

struct Setting {
  gpt::Config network{4, 4, 128, 64, 256};
  std::size_t batch = 8, seq = 64;
  std::uint64_t steps = 1500;
  double lr = 1e-3, min_lr = 1e-4;
  std::uint64_t warmup = 100;
  int threads = 2;
  adacc::Budget budget{0, 0.3};  ///< of a plan that is made and evolves
  double tolerance = 1e-2;       ///< the same plan's

  adacc::LearningRate rate() const { return {lr, min_lr, warmup, steps}; }
};

/// Whether attention may compute its statistics again if its input is not exact, as it does, or
/// has to trust what it saved in forward.
enum class Statistics { again, saved };

/// `path`, a token file of llm.c if it starts like one, and otherwise text.
inline adacc::Result<adacc::Tokens> read_tokens(const std::string& path, std::size_t vocab) {
  std::int32_t magic = 0;
  if (auto file = adacc::InputFile::open(path, "an llm.c token file or text");
      file && file->size() >= sizeof magic && !file->read(&magic, sizeof magic) &&
      magic == adacc::llmc_tokens_magic)
    return adacc::read_llmc_tokens(path, vocab);
  auto text = adacc::read_text(path);
  if (!text) return text;
  if (adacc::Error why = text->check_vocabulary(vocab)) return why;
  return text;
}

/// T: the type of activations, float or bfloat16.
template <class T>
class RunOf {
 public:
  RunOf(const Setting& setting, const adacc::Cpu& cpu)
      : setting_(setting), network_(gpt::make(setting.network)), cpu_(cpu) {}
  RunOf(const RunOf&) = delete;
  RunOf& operator=(const RunOf&) = delete;

  adacc::Result<adacc::Graph> graph() const {
    return adacc::make_graph(network_, shape(),
                             {.scalar = adacc::dtype_of<T>, .workers = setting_.threads});
  }

  /// Parameters from `seed`, and memory for steps under `plan`.
  adacc::Error set_up(adacc::Plan plan, std::uint64_t seed, Statistics statistics,
                      const adacc::AnyOptimizer& optimizer = {}) {
    using namespace adacc;
    auto layout = graph();
    if (!layout) return layout.error;
    if (Error why = set_up_evaluation(*layout, seed)) return why;
    auto train = make_program(*layout, std::move(plan));
    if (!train) return train.error;
    auto made = TrainingOf<T>::make(dispatch(*layout, statistics), std::move(*train), cpu_,
                                    evaluation_bytes_, optimizer);
    if (!made) return made.error;
    training_ = std::move(*made);
    return {};
  }

  /// The same under a plan that is made for the budget, from costs measured on the first batch of
  /// `data`, and evolves as train_gpt's does.
  adacc::Error set_up_planned(std::uint64_t seed, const adacc::Tokens& data) {
    using namespace adacc;
    auto layout = gpt::graph<gpt::PlannedSet>(setting_.network, setting_.batch, setting_.seq,
                                              setting_.threads, 1, {.scalar = adacc::dtype_of<T>});
    if (!layout) return layout.error;
    if (Error why = set_up_evaluation(*layout, seed)) return why;
    auto retain = make_program(*layout, retain_all(*layout));
    if (!retain) return retain.error;
    auto codecs = dispatch(*layout, Statistics::again);
    auto made = TrainingOf<T>::make(std::move(codecs), std::move(*layout),
                                    {.budget_bytes = setting_.budget.of(retain->peak_bytes()),
                                     .tolerance = setting_.tolerance,
                                     .clock = steady_seconds,
                                     .context = cpu_,
                                     .arena_bytes = evaluation_bytes_});
    if (!made) return made.error;
    training_ = std::move(*made);
    if (Error why = fill_next(data)) return why;
    return training_.prepare(inputs(), targets());
  }

  /// Replaces the plan; parameters stay, and the gradients of later steps go to `gradients`.
  adacc::Result<adacc::Step<T>> step_under(adacc::Plan plan, Statistics statistics) const {
    auto layout = graph();
    if (!layout) return layout.error;
    auto program = adacc::make_program(*layout, std::move(plan));
    if (!program) return program.error;
    return adacc::Step<T>::make(dispatch(*layout, statistics), std::move(*program));
  }

  /// The next step; every seed starts elsewhere in the data.
  adacc::Result<adacc::TrainingOutcome> train(const adacc::Tokens& data) {
    if (adacc::Error why = fill_next(data)) return why;
    return training_.step(inputs(), targets(), setting_.rate().at(training_.updates()));
  }

  /// The mean loss over all batches of `data`.
  adacc::Result<double> evaluate(const adacc::Tokens& data) {
    const std::size_t count = data.batches(setting_.batch, setting_.seq);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (adacc::Error why = fill(data, i)) return why;
      const auto loss = training().evaluate(inputs(), targets());
      if (!loss) return loss.error;
      sum += *loss;
    }
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }

  /// Makes batch `index` of `data` what inputs() and targets() give.
  adacc::Error fill(const adacc::Tokens& data, std::uint64_t index) {
    return data.batch(index, setting_.batch, setting_.seq, inputs_.view(), targets_.view());
  }
  adacc::View<const std::int32_t> inputs() const { return {inputs_.data(), shape()}; }
  adacc::View<const std::int32_t> targets() const { return {targets_.data(), shape()}; }

  TrainingOf<T>& training() { return training_; }
  const TrainingOf<T>& training() const { return training_; }
  /// Null if the plan is fixed.
  const adacc::Evolution* evolution() const { return training_.evolution(); }

 private:
  adacc::Shape shape() const { return adacc::Shape(setting_.batch, setting_.seq); }

  adacc::Error fill_next(const adacc::Tokens& data) {
    return fill(data, training().updates() + seed_ * 1000);
  }

  /// Everything but the training itself.
  adacc::Error set_up_evaluation(const adacc::Graph& graph, std::uint64_t seed) {
    using namespace adacc;
    cpu_.key.seed = seed_ = seed;
    const auto test = make_program(graph, retain_all(graph), Mode::evaluate);
    if (!test) return test.error;
    evaluation_bytes_ = test->peak_bytes();
    auto inputs = Block<std::int32_t>::make(shape().elems(), "inputs");
    auto targets = Block<std::int32_t>::make(shape().elems(), "targets");
    if (!inputs || !targets) return inputs ? targets.error : inputs.error;
    inputs_ = std::move(*inputs);
    targets_ = std::move(*targets);
    return {};
  }

  adacc::Dispatch<T, adacc::Cpu> dispatch(const adacc::Graph& graph, Statistics statistics) const {
    using adacc::CausalAttention;
    auto dispatch = adacc::make_dispatch<T, adacc::Cpu>(network_);
    dispatch.template add_codec<adacc::Bf16>();
    dispatch.template add_codec<adacc::Int8Outlier>();
    dispatch.template add_codec<Int8Stochastic>();
    dispatch.template add_codec<adacc::Int4Outlier>();
    dispatch.template add_codec<Int4Stochastic>();
    dispatch.template add_codec<Int4Coarse>();
    if (statistics == Statistics::again) return dispatch;
    for (const adacc::Node& node : graph.nodes)
      if (std::string(node.name) == CausalAttention::name)
        dispatch.layers[static_cast<std::size_t>(node.layer)].backward =
            [](const void* functor, adacc::Cpu& cpu, const adacc::BackwardCall<T>& call) {
              adacc::BackwardCall<T> trusting = call;
              trusting.exact_input = trusting.exact_output = true;
              static_cast<const CausalAttention*>(functor)->backward(cpu, trusting);
            };
    return dispatch;
  }

  Setting setting_;
  gpt::Gpt<gpt::RetainSet> network_;
  adacc::Cpu cpu_;
  std::uint64_t seed_ = 0;
  TrainingOf<T> training_;
  std::size_t evaluation_bytes_ = 0;  ///< of the arena
  adacc::Block<std::int32_t> inputs_, targets_;
};

using Run = RunOf<float>;

}  // namespace study
