// SPDX-License-Identifier: MIT
/// A sentence encoder, trained to find the answer that belongs to a question, within a budget.
#pragma once

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/io/weights/bert.hpp>
#include <adacc/layer/contrastive_loss.hpp>
#include <adacc/layer/pooling.hpp>
#include <adacc/train/lengths.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pairs.hpp"

namespace finetune {

struct Options {
  std::string model, pairs, save, log;
  std::size_t batch = 16;  ///< pairs in a step
  std::size_t seq = 64;    ///< tokens of a text
  std::uint64_t steps = 100;
  std::size_t held_out = 500;  ///< pairs to judge by
  double lr = 5e-5;
  double weight_decay = 0.01;
  double clip = 1;
  double scale = 20;  ///< of the cosines
  std::string budget = "100%";
  double tolerance = 1e-2;
  int parts = 1;
  int threads = 1;
  std::string precision = "fp32";  ///< of activations
  std::uint64_t seed = 1;
  std::uint64_t every = 10;  ///< steps from one line to the next
};

/// How well answers are found among all held-out ones.
struct Quality {
  double first = 0;       ///< the share of questions whose answer came out first
  double reciprocal = 0;  ///< the mean of 1 / rank
};

/// The networks of the encoder with a mean over time on it.
inline auto network_of(const adacc::bert::Config& config, double scale) {
  return adacc::Network{
      adacc::Sequential{adacc::bert::encoder(config), adacc::layer(adacc::MeanOverTime{})},
      adacc::ContrastiveLoss{.scale = static_cast<float>(scale)}};
}

/// T: the type of activations, float or bfloat16.
template <class T>
class Tuner {
 public:
  Tuner(const Options& options, const adacc::bert::Config& config)
      : options_(options), config_(config), network_(network_of(config, options.scale)),
        pool_(options.threads), cpu_(adacc::ExecutorRef(pool_)),
        batch_(2 * options.batch, options.seq), judged_(judged, options.seq) {
    cpu_.key.seed = options.seed;
    targets_ = *adacc::Block<std::int32_t>::make(2 * options.batch, "targets");
    // A row of a pair's first text belongs to that of its second, and the other way round.
    for (std::size_t i = 0; i < 2 * options.batch; ++i)
      targets_.data()[i] = static_cast<std::int32_t>((i + options.batch) % (2 * options.batch));
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Plans, takes the memory, reads the weights, and measures costs if the budget asks for it.
  /// `problems` gets all tensors that are missing or of another shape.
  adacc::Error set_up(const Pairs& pairs, std::vector<std::string>& problems) {
    using namespace adacc;
    Result<Graph> graph = make_graph(
        network_, Shape(2 * options_.batch, options_.seq),
        {.scalar = adacc::dtype_of<T>, .workers = options_.threads, .parts = options_.parts});
    if (!graph) return graph.error;
    Result<Program> retain = make_program(*graph, retain_all(*graph));
    if (!retain) return retain.error;
    retain_peak_ = retain->peak_bytes();
    if (const Error why = compile_judge()) return why;
    TrainingOptions<Cpu, AdamW> how{.tolerance = options_.tolerance,
                                    .clock = steady_seconds,
                                    .context = cpu_,
                                    .clip = options_.clip,
                                    .graph = {.parts = options_.parts},
                                    .arena_bytes = judge_.arena_bytes()};
    how.optimizer.weight_decay = static_cast<float>(options_.weight_decay);
    if (const Error why = choose_budget(*graph, how.budget_bytes)) return why;
    // Steps are as long as their longest text needs.
    constexpr std::size_t shortest = 16;
    auto made = Training<T>::make(network_,
                                  Lengths{.largest = Shape(2 * options_.batch, options_.seq),
                                          .powers_from = std::min(shortest, options_.seq)},
                                  std::move(how));
    if (!made) return made.error;
    training_ = std::move(*made);
    if (const Error why =
            bert::read_parameters(options_.model, config_, *graph, training_.params(), &problems))
      return why;
    fill(pairs, 0, options_.seq);
    training_.context().lengths = batch_.lengths();
    if (const Error why = training_.prepare(batch_.tokens(), targets())) return why;
    return training_.boundary().update.failed;
  }

  /// One update from the next pairs of a shuffled round.
  adacc::Result<adacc::TrainingOutcome> step(const Pairs& pairs, double rate) {
    fill(pairs, training_.updates());
    training_.context().lengths = batch_.lengths();
    auto outcome = training_.step(batch_.tokens(), targets(), rate);
    peak_ = std::max(peak_, training_.peak_bytes());
    return outcome;
  }

  /// Looks for the answer of each of the first `count` pairs among those of all.
  adacc::Result<Quality> judge(const std::vector<Pair>& pairs, std::size_t count) {
    using namespace adacc;
    count = std::min(count, pairs.size());
    if (const Error why = judge_.bind(training_.arena(), training_.params())) return why;
    std::vector<float> embedded[2];
    for (std::size_t side = 0; side < 2; ++side)
      for (std::size_t first = 0; first < count; first += judged) {
        const std::size_t here = std::min(judged, count - first);
        for (std::size_t i = 0; i < judged; ++i)
          judged_.set(i, pairs[first + std::min(i, here - 1)][side]);
        if (const Error why = embed(here, embedded[side])) return why;
      }
    const std::size_t channels = config_.channels;
    Quality quality;
    for (std::size_t i = 0; i < count; ++i) {
      const auto likeness = [&](std::size_t j) {
        double sum = 0;
        for (std::size_t c = 0; c < channels; ++c)
          sum += static_cast<double>(embedded[0][i * channels + c]) *
                 static_cast<double>(embedded[1][j * channels + c]);
        return sum;
      };
      const double own = likeness(i);
      std::size_t rank = 1;
      for (std::size_t j = 0; j < count; ++j) rank += j != i && likeness(j) >= own;
      quality.first += rank == 1;
      quality.reciprocal += 1 / static_cast<double>(rank);
    }
    quality.first /= static_cast<double>(count);
    quality.reciprocal /= static_cast<double>(count);
    return quality;
  }

  /// Writes the encoder under the names that it was read by.
  adacc::Error save(const std::string& path) const {
    const adacc::bert::Naming naming(config_, "");
    return adacc::write_pretrained<float>(path, training_.compiled_step().graph(),
                                          training_.params(), naming);
  }

  std::size_t retain_peak() const { return retain_peak_; }
  std::size_t budget_bytes() const { return training_.evolution()->budget_bytes(); }
  std::size_t parameter_bytes() const {
    return training_.compiled_step().graph().parameter_elems * sizeof(float);
  }
  /// The most that the activations of a step have taken.
  std::size_t peak() const { return std::max(peak_, training_.peak_bytes()); }
  /// Of the longest texts, until a step has run.
  const adacc::PlanOutcome& outcome() const { return training_.evolution()->outcome(); }
  const adacc::Plan& plan() const { return training_.plan(); }

 private:
  static double number(float x) { return static_cast<double>(x); }
  static double number(adacc::bfloat16 x) { return number(adacc::to_float(x)); }

  static constexpr std::size_t judged = 16;  ///< texts that are embedded at a time

  adacc::Error choose_budget(const adacc::Graph& graph, std::size_t& bytes) const {
    using namespace adacc;
    if (options_.budget != "smallest") {
      const auto budget = parse_budget(options_.budget);
      if (!budget) return Error::say("--budget: ", budget.error.text());
      bytes = budget->of(retain_peak_);
      return {};
    }
    PlanRequest request;
    request.budget_bytes = retain_peak_;
    request.tolerance = options_.tolerance;
    request.clock = steady_seconds;
    const auto smallest = smallest_peak(graph, estimated_profile(graph), request);
    if (!smallest) return smallest.error;
    bytes = *smallest;
    return {};
  }

  adacc::Error compile_judge() {
    using namespace adacc;
    auto made = Inference<T>::make(network_, Shape(judged, options_.seq),
                                   {.scalar = dtype_of<T>, .workers = options_.threads});
    if (made) judge_ = std::move(*made);
    return made.error;
  }

  /// Appends the rows of the first `count` sequences of judged_, each of length 1.
  adacc::Error embed(std::size_t count, std::vector<float>& to) {
    cpu_.lengths = judged_.lengths();
    const auto last = judge_.infer(cpu_, judged_.tokens());
    if (!last) return last.error;
    const adacc::View<const T>& rows = *last;
    for (std::size_t i = 0; i < count; ++i) {
      double squares = 0;
      for (std::size_t c = 0; c < config_.channels; ++c)
        squares += number(rows.row(i)[c]) * number(rows.row(i)[c]);
      const double factor = 1 / std::max(1e-12, std::sqrt(squares));
      for (std::size_t c = 0; c < config_.channels; ++c)
        to.push_back(static_cast<float>(factor * number(rows.row(i)[c])));
    }
    return {};
  }

  /// The pairs of step `index`: rounds through all of them, what is left of a round is left out. There is room for
  /// `least` tokens, or for the longest text.
  void fill(const Pairs& pairs, std::uint64_t index, std::size_t least = 1) {
    const std::size_t in_round = pairs.train.size() / options_.batch;
    const auto round = static_cast<std::uint32_t>(index / in_round);
    if (order_.empty() || round != round_)
      order_ = shuffled(pairs.train.size(), options_.seed, round_ = round);
    const std::size_t first = index % in_round * options_.batch;
    for (std::size_t i = 0; i < options_.batch; ++i)
      for (const auto& text : pairs.train[order_[first + i]]) least = std::max(least, text.size());
    batch_.resize(least);
    for (std::size_t i = 0; i < options_.batch; ++i) {
      const Pair& pair = pairs.train[order_[first + i]];
      batch_.set(i, pair[0]);
      batch_.set(options_.batch + i, pair[1]);
    }
  }

  adacc::View<const std::int32_t> targets() const {
    return {targets_.data(), adacc::Shape(2 * options_.batch)};
  }

  const Options& options_;
  adacc::bert::Config config_;
  decltype(network_of({}, 1)) network_;
  adacc::EigenPool pool_;
  adacc::Cpu cpu_;
  Batch batch_, judged_;
  adacc::Block<std::int32_t> targets_;
  adacc::Training<T> training_;
  adacc::Inference<T> judge_;
  std::size_t retain_peak_ = 0, peak_ = 0;
  std::vector<std::size_t> order_;
  std::uint32_t round_ = 0;
};

}  // namespace finetune
