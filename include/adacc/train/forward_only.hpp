// SPDX-License-Identifier: MIT
/// Training by forward passes alone, in the memory of parameters and of the arena of an evaluation.
///
/// Source: Malladi et al., "Fine-tuning language models with just forward passes" (MeZO), NeurIPS
/// 2023, which is SPSA (Spall, IEEE Trans. Automatic Control 37, 1992) in the memory of inference. An
/// update evaluates the loss at two points on either side of the parameters p, along each of n random
/// directions z_k,
///
///     s_k = (loss(p + epsilon z_k) - loss(p - epsilon z_k)) / (2 epsilon)
///     p  -= rate (sum_k s_k z_k / n + weight_decay p)
///
/// so the expectation of the mean of s_k z_k is the gradient, up to terms in epsilon^2. An update costs
/// 2 n forward passes and is noisy: with P trained parameters, the estimate's squared error
/// is (P - 1) / n times the squared gradient.
///
/// No direction is stored. Elements of a direction are +1 or -1, bits of the counter-based generator by
/// seed, update, direction, parameter and element: their variance is the least possible for the
/// expectation, and no machine rounds them. (The paper draws normal numbers, whose bits differ
/// with the C library.) epsilon is the distance of each parameter's move.
///
/// p is moved in place and moved back, exactly but for rounding: each of the 2 n + 2 moves of an
/// update rounds a parameter once, by at most half a unit in the last place of |p| + 2 epsilon. This
/// rounding is part of the algorithm: the same for any number of threads, run to run, and in a resumed
/// run.
///
///     auto training = ForwardOnly<>::make(net, Shape(4, 256), {.directions = 4});
///     training->step(x, y, 1e-5);
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "../core/any_view.hpp"
#include "../core/block.hpp"
#include "../core/thread_stack.hpp"
#include "../io/checkpoint.hpp"
#include "../optimizer/updater.hpp"
#include "../step/step.hpp"
#include "file_order.hpp"
#include "initialize.hpp"
#include "memory_use.hpp"
#include "saved_state.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 {

/// Every option has a default.
template <class Context>
struct ForwardOnlyOptions {
  double epsilon = 1e-3;    ///< distance of moves of parameters; more than 0
  int directions = 1;       ///< per update, from 1 to 65536
  double clip = 0;          ///< slopes are scaled down to this root of their mean square; 0 is off
  double weight_decay = 0;  ///< decoupled; applies if the parameter's spec says `decay`
  Context context{};        ///< where steps run: Cpu(ExecutorRef(pool)) for several threads
  std::uint64_t seed = 0;   ///< for parameters and directions; 0: the context's
  /// How the network becomes a graph (TrainingOptions). Parameters not in `trained` are never
  /// touched; all are in full, and there are no gradients.
  GraphOptions graph{};
  std::size_t arena_bytes = 0;  ///< at least as many, for other steps that borrow the arena
  std::string model{};          ///< the network's name in checkpoints
};

namespace detail {

/// A signed distance along one direction.
struct Along {
  std::uint16_t direction = 0;
  double distance = 0;
};

/// Moves each parameter once, by the sum over `parts` of distance times direction. An optimizer without state
/// that reads no gradient, so an UpdateTable can run the move.
struct Move {
  const Along* parts;
  std::size_t count;
  double decay;  ///< fraction that decaying parameters lose

  static constexpr const char* name = "forward-only";
  static constexpr std::size_t state_count = 0;

  template <class Visit>
  void each_option(const Visit& visit) const {
    visit("weight decay", decay);
  }
  const char* mistake() const { return decay >= 0 ? nullptr : "weight decay must be 0 or more"; }

  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms&) const {
    constexpr std::size_t lanes = 128;  // signs in a block of random words
    static_assert(update_tile % lanes == 0);
    const T kept = range.parameter.decay ? static_cast<T>(decay) : T{0};
    const RandomKey key = range.key.with_purpose(Purpose::directions);
    for (std::size_t at = 0; at < range.count; at += lanes) {
      T sum[lanes] = {};
      for (std::size_t k = 0; k < count; ++k) {
        RandomKey stream = key;
        stream.micro_step = parts[k].direction;
        const PhiloxBlock random = random_block(stream, (range.first + at) / lanes);
        const T distance = static_cast<T>(parts[k].distance);
        for (std::size_t word = 0; word < 4; ++word) {
          const std::uint32_t signs = random.word[word];
          for (std::size_t bit = 0; bit < 32; ++bit)
            sum[32 * word + bit] += (signs >> bit & 1U) != 0 ? -distance : distance;
        }
      }
      T* const p = range.values + range.first + at;
      const std::size_t left = range.count - at;
      for (std::size_t i = 0; i < (left < lanes ? left : lanes); ++i) p[i] += sum[i] - kept * p[i];
    }
  }
};

}  // namespace detail

template <class T = float, class Context = Cpu>
class ForwardOnly {
 public:
  using Options = ForwardOnlyOptions<Context>;

  double epsilon = 1e-3;            ///< from the options; may change between updates
  double clip = 0;                  ///< from the options; may change between updates
  double weight_decay = 0;          ///< from the options; may change between updates
  std::uint64_t data_position = 0;  ///< yours: where the next batch begins, kept in checkpoints
  std::string model;                ///< the network's name in checkpoints

  ForwardOnly() = default;

  /// Takes the memory to train `network`, which must outlive the trainer, on inputs of shape `input`, and
  /// draws the parameters. A Training of the same seed draws the same values.
  template <class Network>
  static Result<ForwardOnly> make(const Network& network, Shape input, Options options = {}) {
    Result<Graph> graph =
        make_graph<Context>(network, input, detail::graph_options(options, dtype_of<T>));
    if (!graph) return graph.error;
    return make(make_dispatch<T, Context>(network), std::move(*graph), std::move(options));
  }
  template <class Network>
  static Result<ForwardOnly> make(const Network&& temporary, Shape, Options = {}) = delete;

  /// Trains a graph, which says which parameters are frozen, with a dispatch table for its layers.
  static Result<ForwardOnly> make(
      Dispatch<T, Context> dispatch,
      Graph graph,  // moved on; NOLINT(performance-unnecessary-value-param)
      Options options = {}) {
    if (const Error why = detail::check_stack<Context>()) return why;
    if (!(options.epsilon > 0) || !std::isfinite(options.epsilon))
      return Error::say("epsilon, by which parameters are moved, must be more than 0 and finite");
    if (options.directions < 1 || options.directions > 0x10000)
      return Error::say("an update takes from 1 to 65536 directions, and was asked for ",
                        options.directions);
    if (options.graph.updates != Updates::separate ||
        options.graph.parameters != ParameterForm::full)
      return Error::say(
          "forward-only training moves parameters that are held in full, and has no gradients: "
          "leave GraphOptions::updates and parameters as they are");
    if (const Error why = detail::check_clip(options.clip)) return why;
    if (!graph.has_loss)
      return Error::say("the network has no loss, and forward-only training compares losses");
    if (graph.gradient_elems == 0)
      return Error::say("all parameters are frozen: there is nothing to train");
    auto step = detail::make_pass(std::move(dispatch), std::move(graph), Mode::evaluate);
    if (!step) return step.error;
    ForwardOnly training;
    training.step_ = std::move(*step);
    training.step_.divide_by_all(true);
    training.context_ = options.context;
    if (options.seed != 0) training.context_.key.seed = options.seed;
    training.epsilon = options.epsilon;
    training.clip = options.clip;
    training.weight_decay = options.weight_decay;
    training.model = options.model;
    const Graph& kept = training.step_.graph();
    auto updater = Updater<Wide<T>, Context>::make(move_of(options.weight_decay), kept);
    if (!updater) return updater.error;
    training.updater_ = std::move(*updater);
    training.slopes_.resize(static_cast<std::size_t>(options.directions));
    const std::size_t bytes = training.step_.arena_bytes();
    Result<Block<std::byte>> arena = Block<std::byte>::make(
        bytes < options.arena_bytes ? options.arena_bytes : bytes, "activations");
    if (!arena) return arena.error;
    training.arena_ = std::move(*arena);
    Error error;
    training.params_.take(kept, error);
    if (error) return error;
    if (const Error why = training.step_.bind(training.arena(), training.params())) return why;
    initialize_parameters(training.context_, kept.parameters, training.params(),
                          training.context_.key.seed);
    training.passes_ = detail::ForwardPasses<T, Context>(training.step_);
    auto cursor = Cursor<T, Context>::make(training.step_);
    if (!cursor) return cursor.error;
    training.cursor_ = std::move(*cursor);
    return training;
  }

  /// One update from the losses of 2 n forward passes on a batch, at the rate `lr`. Layers with random
  /// numbers (dropout) are the identity. If a loss is not finite, nothing is
  /// updated, but for the rounding of moves. The outcome's loss is the mean of all passes; grad_norm is
  /// the root of the slopes' mean square, which estimates the gradient's L2 norm.
  Result<TrainingOutcome> step(AnyView input, AnyView targets, double lr) {
    if (const Result<double> loss = accumulate(input, targets); !loss) return loss.error;
    return update(lr);
  }

  /// Runs the 2 n forward passes of a micro-batch, and adds their slopes to the sums since the
  /// last update. Returns the mean loss of the passes.
  Result<double> accumulate(AnyView input, AnyView targets) {
    if (const Error why = begin(input, targets)) return why;
    while (under_way_)
      if (const Error why = pass_ended(cursor().run(context_, static_cast<std::size_t>(-1))))
        return why;
    return step_.targets().mean(batch_losses_ / (2 * static_cast<double>(slopes_.size())));
  }

  /// Begins accumulate() in slices. slice() runs the micro-batch; behind its end, update() or the next
  /// micro-batch follows.
  Error begin(AnyView input, AnyView targets) {
    if (const Error why = idle()) return why;
    if (!(epsilon > 0) || !std::isfinite(epsilon))
      return Error::misuse(
          "epsilon, by which parameters are moved, must be more than 0 and finite");
    // A mistake in the batch has to be found before parameters are moved.
    if (const Error why = step_.begin(input, targets)) return why;
    step_.abandon();
    input_ = input, targets_ = targets;
    pass_ = 0;
    batch_losses_ = 0;
    under_way_ = true;
    return begin_pass();
  }

  /// Runs the begun micro-batch until the clock reads `deadline`, or the micro-batch ends (Slice::ended). The
  /// moves of parameters between passes are not cut.
  template <class Clock>
  Result<Slice> slice(Clock&& now, std::int64_t deadline) {
    if (!under_way_) return Error::misuse("no micro-batch is under way: begin() it before slice()");
    for (std::size_t parts = 0;;) {
      Result<Slice> slice = cursor().run_until(context_, now, deadline);
      const bool pass = !slice || slice->ended;
      if (pass)
        if (const Error why = pass_ended(slice)) return why;
      parts += slice->parts;
      if (parts != slice->parts) slice->stalled = false;
      slice->parts = parts;
      slice->ended = pass && !under_way_;
      if (!pass || slice->ended) return slice;
    }
  }

  /// Gives up a micro-batch under way in slices: parameters go back to their values before.
  void abandon() {
    if (!under_way_) return;
    step_.abandon();
    give_up();
  }

  /// One update from the mean slopes of the micro-batches since the last update.
  Result<TrainingOutcome> update(double lr) {
    if (const Error why = idle()) return why;
    if (batches_ == 0)
      return Error::misuse("there are no slopes to update from: accumulate() some first");
    if (const Error why = updater_.check_update(move_of(weight_decay), step_.graph(), lr, clip))
      return give_up(), why;
    TrainingOutcome outcome;
    outcome.batches = batches_;
    outcome.none_counted = counted_.counted == 0;
    if (outcome.none_counted) return give_up(), outcome;
    const auto count = static_cast<double>(slopes_.size());
    const double batches = counted_.weight(batches_);
    double squares = 0;
    for (detail::Along& slope : slopes_) {
      slope.distance /= batches;
      squares += slope.distance * slope.distance;
    }
    outcome.loss = losses_ / (2 * count * batches);
    outcome.grad_norm = std::sqrt(squares / count);
    outcome.finite = std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
    if (outcome.finite) {
      const double scale = -lr * clip_scale(outcome.grad_norm, clip) / count;
      for (detail::Along& slope : slopes_) slope.distance *= scale;
      move(slopes_.data(), slopes_.size(), lr * weight_decay);
      ++updates_;
    }
    give_up();
    return outcome;
  }

  /// The mean loss at the present parameters; changes nothing. Not while a micro-batch is under
  /// way.
  Result<double> evaluate(AnyView input, AnyView targets) {
    if (const Error why = idle()) return why;
    return passes_.evaluate(memory_, context_, arena(), params(), input, targets);
  }
  /// Copies the last activation to `output`; changes nothing. Not while a micro-batch is under way.
  Error infer(AnyView input, View<T> output) {
    if (const Error why = idle()) return why;
    return passes_.infer(memory_, context_, arena(), params(), input, output);
  }

  /// The arena stays as large as a forward pass takes: less is an error.
  Error set_budget(std::size_t bytes) {
    if (bytes >= peak_bytes()) return {};
    return Error::say("a budget of ", shown(bytes), " is too small: a forward pass takes ",
                      shown(peak_bytes()), ", and has no plan that takes less");
  }

  /// Saves parameters, updates, data position, seed and `notes` of yours: nothing else is kept between
  /// updates.
  Error save(const std::string& path, const std::string& notes = {}) const {
    if (const Error why = idle()) return why;
    CheckpointInfo info = this->info();
    info.notes = notes;
    return detail::write_in_file_order(step_.graph(), params(), [&](View<const Wide<T>> ordered) {
      return save_checkpoint<Wide<T>>(path, info, ordered, {});
    });
  }

  /// Goes on from the checkpoint at `path`, bit for bit if options and batches are the same.
  /// Refuses checkpoints of other networks, and of trainings by backpropagation, and then changes
  /// nothing.
  Result<CheckpointInfo> load(const std::string& path) {
    if (const Error why = idle()) return why;
    Result<CheckpointFile> file = CheckpointFile::open(path);
    if (!file) return file.error;
    if (const Error why = file->examine(info())) return why;
    if (const Error why = detail::read_in_file_order(
            step_.graph(), params(),
            [&](View<Wide<T>> ordered) { return file->read(ordered, {}); }))
      return why;
    updates_ = file->info().updates;
    data_position = file->info().data_position;
    context_.key.seed = file->info().key.seed;
    give_up();
    return file->info();
  }

  std::uint64_t updates() const { return updates_; }  ///< made so far; the step of the random key
  std::size_t batches() const { return batches_; }    ///< micro-batches since the last update
  const Plan& plan() const { return step_.program().plan; }
  int directions() const { return static_cast<int>(slopes_.size()); }
  std::size_t peak_bytes() const { return step_.arena_bytes(); }  ///< for a forward pass, exactly

  Context& context() { return context_; }
  const Step<T, Context>& compiled_step() const { return step_; }
  Bytes arena() { return {arena_.data(), Shape(arena_.size())}; }
  View<Wide<T>> params() { return params_.full(); }
  View<const Wide<T>> params() const { return params_.full(); }

  /// Bytes of memory that the trainer holds.
  TrainingMemoryUse memory_use() const {
    return {params().size() * sizeof(Wide<T>), 0, 0, arena_.size(), 0};
  }

 private:
  struct Pair {
    detail::Along parts[2];
  };

  /// Refuses calls while parameters are moved, or without a training.
  Error idle() const {
    if (!under_way_) return detail::check_made(step_.graph());
    return Error::misuse(
        "a micro-batch is under way in slices, and parameters are moved: let slice() end it, or "
        "abandon() it");
  }

  Cursor<T, Context>& cursor() {
    cursor_.follow(step_);
    return cursor_;
  }

  /// The two passes of direction k are at its ends, the plus first.
  Error begin_pass() {
    const std::size_t k = pass_ / 2;
    if (pass_ % 2 != 0) move({{along(k, -2), {}}}, 1);
    else if (k == 0) move({{along(0), {}}}, 1);
    else move({{along(k - 1), along(k)}}, 2);
    context_.key.step = static_cast<std::uint32_t>(updates_);
    if (const Error why = cursor().begin(input_, targets_)) return give_up(), why;
    return {};
  }

  /// A pass has ended, or failed; begins the next one.
  template <class Ran>
  Error pass_ended(const Ran& ran) {
    if (!ran) return give_up(), ran.error;
    const double loss = cursor_.loss();
    const std::size_t k = pass_ / 2;
    if (pass_ % 2 == 0) {
      plus_ = loss;
    } else {
      batch_losses_ += plus_ + loss;
      const double slope = (plus_ - loss) / (2 * epsilon);
      detail::Along& sum = slopes_[k];
      sum = {static_cast<std::uint16_t>(k), batches_ == 0 ? slope : sum.distance + slope};
    }
    if (++pass_ < 2 * slopes_.size()) return begin_pass();
    move({{along(slopes_.size() - 1), {}}}, 1);
    under_way_ = false;
    losses_ += batch_losses_;
    counted_ = counted_ + step_.targets();
    ++batches_;
    return {};
  }

  /// Forgets the sums; parameters moved by a pass go back.
  void give_up() {
    if (under_way_) move({{along(pass_ / 2, pass_ % 2 == 0 ? -1 : 1), {}}}, 1);
    under_way_ = false;
    batches_ = 0;
    losses_ = 0;
    counted_ = {};
  }

  /// A move with this weight decay, to be checked.
  static detail::Move move_of(double decay) { return {nullptr, 0, decay}; }

  /// `times` the distance epsilon along direction k; back if negative.
  detail::Along along(std::size_t k, double times = 1) const {
    return {static_cast<std::uint16_t>(k), times * epsilon};
  }

  void move(const Pair& pair, std::size_t count) { move(pair.parts, count, 0); }

  void move(const detail::Along* parts, std::size_t count, double decay) {
    UpdateTerms terms = updater_.terms(updates_, 0, 1, context_.key.seed);
    terms.number = updates_ + 1;
    // Neither state nor store: there is nothing that could fail.
    static_cast<void>(updater_.update(detail::Move{parts, count, decay}, context_, step_.graph(),
                                      params_.lend(params()), terms));
  }

  CheckpointInfo info() const {
    return detail::checkpoint_info(step_.graph(), updater_.table(), model, data_position,
                                   context_.key.seed, updates_);
  }

  Context context_;
  Block<std::byte> arena_;
  Parameters<T, Context> params_;
  Updater<Wide<T>, Context> updater_;
  Array<detail::Along> slopes_;  ///< by direction, summed over micro-batches
  TrainingMemory<Context> memory_;
  detail::ForwardPasses<T, Context> passes_;
  Step<T, Context> step_;
  Cursor<T, Context> cursor_;
  AnyView input_, targets_;  ///< the micro-batch under way
  std::size_t pass_ = 0;     ///< number of the running pass
  std::size_t batches_ = 0;  ///< micro-batches whose slopes are summed
  double plus_ = 0;          ///< the loss of the pass before, at the plus end
  double batch_losses_ = 0;  ///< sum over this micro-batch's passes
  double losses_ = 0;        ///< sum over all micro-batches before
  TargetCount counted_;      ///< targets of all micro-batches before
  bool under_way_ = false;
  std::uint64_t updates_ = 0;
};

}}  // namespace adacc::v0_1
