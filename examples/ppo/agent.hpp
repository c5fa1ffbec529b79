// SPDX-License-Identifier: MIT
/// A player that learns by reward in slices of a frame: proximal policy optimization (PPO) with several environments.
///
/// An actor and its critic are one network. It plays by weights that stand still while a rollout is played:
/// `horizon` decisions in each of `environments`. Meanwhile the weights that learn take `updates_per_rollout` steps on
/// the rollout before, in whatever slices there are, and the next rollout is played by what they have become. So
/// what is played, and what is learned, depend on the seed alone, and not on how fast the machine is.
///
/// Formulas. Advantages: adacc/train/advantages.hpp. The clipped loss, which makes up for weights that have moved on
/// since the rollout: adacc/layer/actor_critic_loss.hpp.
#pragma once

#include <adacc/adacc.hpp>
#include <adacc/core/block.hpp>
#include <adacc/layer/actor_critic_loss.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/train/advantages.hpp>
#include <adacc/train/save.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ppo {

struct AgentOptions {
  std::size_t sights = 0;         ///< numbers that an environment shows
  std::size_t moves = 0;          ///< to choose from
  std::size_t hidden = 64;        ///< units in each of two hidden layers
  std::size_t environments = 64;  ///< played side by side
  std::size_t horizon = 16;       ///< decisions of a rollout, in each environment
  std::size_t batch = 256;        ///< decisions that an update learns from
  std::size_t updates_per_rollout = 32;
  int parts = 16;  ///< that a layer is cut into, for slices
  double rate = 2e-3;
  double reward_scale = 1;  ///< of rewards in learning: what is to be expected should be about 1
  adacc::AdvantageOptions advantage;
  adacc::ActorCriticLoss loss;
};

class Agent {
 public:
  using Model = adacc::Sequential<adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>>;
  using Net = adacc::Network<Model, adacc::ActorCriticLoss>;

  std::size_t stalls = 0;

  explicit Agent(const AgentOptions& options)
      : options_(options), net_{Model{{adacc::Linear{.out = options.hidden}},
                                      {},
                                      {adacc::Linear{.out = options.hidden}},
                                      {},
                                      {adacc::Linear{.out = options.moves + 1}}},
                                options.loss},
        model_("a player of " + std::to_string(options.sights) + ", " +
               std::to_string(options.hidden) + ", " + std::to_string(options.hidden) + " and " +
               std::to_string(options.moves + 1) + " units") {}
  Agent(const Agent&) = delete;  // steps know where the network is
  Agent& operator=(const Agent&) = delete;

  const AgentOptions& options() const { return options_; }

  /// Takes all memory, and draws the parameters or reads them from `path`.
  adacc::Error set_up(std::uint64_t seed, const std::string& path) {
    using namespace adacc;
    seed_ = seed;
    cpu_.key.seed = seed;
    auto program =
        make_program(net_, Shape(options_.batch, options_.sights), {.parts = options_.parts});
    if (!program) return program.error;
    auto training = Training<>::make(net_, std::move(*program), cpu_);
    if (!training) return training.error;
    training_ = std::move(*training);
    training_.model = model_;
    training_.clip = 0.5;
    auto player = Inference<>::make(net_, Shape(options_.environments, options_.sights));
    if (!player) return player.error;
    player_ = std::move(*player);

    Error error = player_.take_memory();
    const auto take = [&](auto& block, std::size_t size, const char* what) {
      auto made = std::remove_reference_t<decltype(block)>::make(size, what);
      if (!made && !error) error = made.error;
      block = std::move(*made);
    };
    const std::size_t all = options_.environments * options_.horizon;
    take(sights_, options_.environments * options_.sights, "what the player sees");
    take(x_, options_.batch * options_.sights, "the input");
    take(y_, options_.batch * experience_cols, "the targets");
    take(seen_, all * options_.sights, "the rollout");
    take(rollout_x_, all * options_.sights, "the rollout");
    take(rollout_y_, all * experience_cols, "the rollout");
    take(values_, all + options_.environments, "the rollout");
    take(rewards_, all, "the rollout");
    take(advantages_, all, "the rollout");
    take(chances_, options_.moves, "chances");
    if (error) return error;
    moves_.assign(all, 0);
    log_probabilities_.assign(all, 0);
    endings_.assign(all, Ending::none);
    if (!path.empty())
      if (const auto loaded = training_.load(path); !loaded) return loaded.error;
    return play_what_was_learned();
  }

  adacc::Error save(const std::string& path) const { return training_.save(path); }

  /// Runs whole steps on nothing, so that times are known before the first frame. Learns nothing.
  template <class Clock>
  adacc::Error warm_up(Clock& now) {
    adacc::Cursor<>& cursor = training_.cursor();
    for (int round = 0; round < 3; ++round) {
      if (round == 1) cursor.forget_all();  // the first met cold caches: not to be believed
      std::fill_n(x_.data(), x_.size(), 0.0F);
      std::fill_n(y_.data(), y_.size(), 0.0F);
      if (const adacc::Error why = cursor.begin(input(), targets())) return why;
      const auto slice = cursor.run_until(cpu_, now, std::numeric_limits<std::int64_t>::max());
      if (!slice) return slice.error;
    }
    return {};
  }

  /// What each environment shows, a row each: to be filled before decide() and take_over().
  float* sight(std::size_t environment) { return sights_.data() + environment * options_.sights; }

  /// Whether a rollout is over: take_over() or drop_rollout() comes before the next decision.
  bool rollout_over() const { return row_ == options_.horizon; }

  /// Decides in all environments at once.
  adacc::Error decide() {
    const adacc::RandomKey key{
        .seed = seed_, .step = decisions_++, .purpose = adacc::Purpose::sampling};
    const auto judged = judge();
    if (!judged) return judged.error;
    std::memcpy(seen_.data() + row_ * sights_.size(), sights_.data(),
                sights_.size() * sizeof(float));
    for (std::size_t e = 0; e < options_.environments; ++e) {
      const std::size_t i = row_ * options_.environments + e;
      const float* const logits = judged->row(e);
      // Softmax, and the move at which a uniform number falls. Functions are of doubles: rounded to float, they are the
      // same in all C libraries.
      const float top = *std::max_element(logits, logits + options_.moves);
      float sum = 0;
      for (std::size_t m = 0; m < options_.moves; ++m)
        sum += chances_[m] = static_cast<float>(std::exp(static_cast<double>(logits[m] - top)));
      float left = sum * adacc::unit_float(adacc::random_word(key, e));
      std::size_t move = 0;
      while (move + 1 < options_.moves && left >= chances_[move]) left -= chances_[move++];
      moves_[i] = move;
      log_probabilities_[i] =
          static_cast<float>(std::log(static_cast<double>(chances_[move] / sum)));
      values_[i] = logits[options_.moves];
      rewards_[i] = 0;
      endings_[i] = adacc::Ending::none;
    }
    ++row_;
    return {};
  }

  /// Of the last decision: the move, the value that the critic saw, and what came of it.
  std::size_t move(std::size_t environment) const { return moves_[last(environment)]; }
  float value(std::size_t environment) const { return row_ == 0 ? 0 : values_[last(environment)]; }
  void add(std::size_t environment, float reward, adacc::Ending ending) {
    rewards_[last(environment)] += reward * static_cast<float>(options_.reward_scale);
    if (ending != adacc::Ending::none) endings_[last(environment)] = ending;
  }

  /// Whether all has been learned from the rollout that was taken last.
  bool idle() const { return left_ == 0 && !learning() && !ended_; }

  /// Nothing is learned from the rollout that is over.
  void drop_rollout() { row_ = 0; }

  /// Takes over the rollout that is over; sight() shows what followed. The next is played by what was learned from
  /// those before, and this one is learned from meanwhile. Call it if idle().
  adacc::Error take_over() {
    const auto judged = judge();
    if (!judged) return judged.error;
    const std::size_t all = moves_.size(), sights = options_.sights;
    for (std::size_t e = 0; e < options_.environments; ++e)
      values_[all + e] = judged->row(e)[options_.moves];
    const adacc::Shape shape(options_.horizon, options_.environments);
    if (const adacc::Error why = adacc::generalized_advantages<float>(
            options_.advantage, {rewards_.data(), shape},
            {values_.data(), adacc::Shape(options_.horizon + 1, options_.environments)},
            {endings_.data(), shape}, {advantages_.data(), shape}))
      return why;
    learned_from_ = 0;
    double mean = 0, square = 0;
    const auto each = [&](const auto& use) {
      for (std::size_t i = 0; i < all; ++i)
        if (endings_[i] != adacc::Ending::skipped) use(i, static_cast<double>(advantages_[i]));
    };
    each([&](std::size_t, double) { ++learned_from_; });
    const auto count = static_cast<double>(learned_from_);
    each([&](std::size_t, double a) { mean += a / count; });
    each([&](std::size_t, double a) { square += (a - mean) * (a - mean) / count; });
    const double scale = 1 / (std::sqrt(square) + 1e-6);
    std::size_t to = 0;
    each([&](std::size_t i, double a) {
      std::memcpy(rollout_x_.data() + to * sights, seen_.data() + i * sights,
                  sights * sizeof(float));
      const float experience[] = {static_cast<float>(moves_[i]),
                                  static_cast<float>((a - mean) * scale),
                                  advantages_[i] + values_[i], log_probabilities_[i]};
      std::memcpy(rollout_y_.data() + to++ * adacc::experience_cols, experience, sizeof experience);
    });
    row_ = 0;
    left_ = learned_from_ == 0 ? 0 : options_.updates_per_rollout;
    return play_what_was_learned();
  }

  /// Learns until `deadline` on the clock, or until idle().
  template <class Clock>
  adacc::Error train(Clock& now, std::int64_t deadline) {
    adacc::Error why;
    for (bool fresh = true; !idle(); fresh = false) {
      if (ended_) {
        if (!timed(now, deadline, longest_update_, fresh, [&] { why = update(); })) return {};
        if (why) return why;
        continue;
      }
      if (!learning()) {
        const auto next = [&] {
          draw_batch();
          why = training_.begin(input(), targets());
        };
        if (!timed(now, deadline, longest_batch_, fresh, next)) return {};
        if (why) return why;
        --left_;
        fresh = false;
      }
      const auto slice = training_.slice(now, deadline);
      if (!slice) return slice.error;
      if (slice->stalled && fresh) {  // the system held us up once; this is a game, it tries again
        training_.cursor().forget();
        ++stalls;
      }
      if (!slice->ended) return {};
      ended_ = true;
    }
    return {};
  }

  /// Learns all that there is to learn from the rollout; steps that have not begun, in one piece.
  adacc::Error finish() {
    if (learning()) {
      const auto slice =
          training_.cursor().run(training_.context(), std::numeric_limits<std::size_t>::max());
      if (!slice) return slice.error;
      ended_ = true;
    }
    while (!idle()) {
      if (!ended_) {
        draw_batch();
        --left_;
        if (const auto loss = training_.accumulate(input(), targets()); !loss) return loss.error;
      }
      if (const adacc::Error why = update()) return why;
    }
    return {};
  }

  /// What is known of the times of a step's instructions.
  adacc::Cursor<>& cursor() { return training_.cursor(); }
  adacc::View<const float> weights() const { return training_.params(); }
  const adacc::Step<>& step() const { return training_.compiled_step(); }
  std::uint64_t updates() const { return training_.updates(); }
  std::int64_t longest_update() const { return longest_update_; }
  std::int64_t longest_batch() const { return longest_batch_; }

 private:
  adacc::View<const float> input() const {
    return {x_.data(), adacc::Shape(options_.batch, options_.sights)};
  }
  adacc::View<const float> targets() const {
    return {y_.data(), adacc::Shape(options_.batch, adacc::experience_cols)};
  }

  /// The place of the last decision in an environment.
  std::size_t last(std::size_t environment) const {
    return (row_ - 1) * options_.environments + environment;
  }

  /// Whether a step has begun and not ended.
  bool learning() const { return training_.compiled_step().active(); }

  adacc::Error play_what_was_learned() { return player_.copy_parameters(training_.params()); }

  /// What the network that plays makes of what is to be seen; valid until it is asked again.
  adacc::Result<adacc::View<const float>> judge() {
    const adacc::Shape shape(options_.environments, options_.sights);
    return player_.infer(cpu_, adacc::View<const float>(sights_.data(), shape));
  }

  /// The batch of the next update: a function of the rollout, the seed and its number.
  void draw_batch() {
    const std::size_t sights = options_.sights, cols = adacc::experience_cols;
    const adacc::RandomKey key{.seed = seed_,
                               .step = static_cast<std::uint32_t>(training_.updates()),
                               .activation = 1,  // 0 is for moves
                               .purpose = adacc::Purpose::sampling};
    for (std::size_t i = 0; i < options_.batch; ++i) {
      const std::size_t from = adacc::random_word(key, i) % learned_from_;
      std::memcpy(x_.data() + i * sights, rollout_x_.data() + from * sights,
                  sights * sizeof(float));
      std::memcpy(y_.data() + i * cols, rollout_y_.data() + from * cols, cols * sizeof(float));
    }
  }

  adacc::Error update() {
    ended_ = false;
    const auto outcome = training_.update(options_.rate);
    if (!outcome) return outcome.error;
    if (!outcome->finite)
      return adacc::Error::say("loss or gradient are no longer finite after ", updates(),
                               " updates; the weights are those from before");
    return {};
  }

  /// Does `work` if, by the longest time it took so far, it ends before the deadline. That time is
  /// forgotten if it leaves a slice idle.
  template <class Clock, class Work>
  static bool timed(Clock& now, std::int64_t deadline, std::int64_t& longest, bool fresh,
                    const Work& work) {
    const std::int64_t start = now();
    if (start >= deadline || longest > deadline - start) {
      if (fresh && start < deadline) longest = 0;
      return false;
    }
    work();
    const std::int64_t took = now() - start;
    if (took > longest) longest = took;
    return true;
  }

  AgentOptions options_;
  Net net_;
  std::string model_;
  adacc::Cpu cpu_;
  std::uint64_t seed_ = 0;
  adacc::Training<> training_;
  adacc::Inference<> player_;
  adacc::Block<float> sights_, chances_, x_, y_;
  // The rollout that is played, by decision and environment; values have a row more.
  adacc::Block<float> seen_, values_, rewards_, advantages_;
  std::vector<std::size_t> moves_;
  std::vector<float> log_probabilities_;
  std::vector<adacc::Ending> endings_;
  // The rollout that is learned from, without decisions that were skipped.
  adacc::Block<float> rollout_x_, rollout_y_;
  std::size_t learned_from_ = 0;
  std::size_t row_ = 0;  ///< decisions made in this rollout
  std::uint32_t decisions_ = 0;
  std::size_t left_ = 0;  ///< updates of this rollout that have not begun
  std::int64_t longest_update_ = 0, longest_batch_ = 0;
  bool ended_ = false;  ///< a step has ended and its update has not been made
};

}  // namespace ppo
