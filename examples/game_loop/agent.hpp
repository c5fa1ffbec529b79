// SPDX-License-Identifier: MIT
/// The player: an actor and its critic in one network, which learns by reward in slices of a frame.
///
/// It plays by weights that stand still while a rollout is played: `horizon` decisions on each of
/// `courts` courts. Meanwhile the weights that learn take `updates_per_rollout` steps on the rollout
/// before, in whatever slices there are, and the next rollout is played by what they have become. So
/// what is played, and what is learned, depend on the seed alone, and not on how fast the machine is.
///
/// Formulas. Advantages: Schulman, Moritz, Levine, Jordan, Abbeel, "High-dimensional continuous
/// control using generalized advantage estimation", arXiv 1506.02438, equations 11, 12 and 16, with a
/// discount of 1, since every ball ends: V is the chance to catch it. The loss, which makes up for
/// weights that have moved on since the rollout: adacc/layer/actor_critic_loss.hpp.
#pragma once

#include <adacc/adacc.hpp>
#include <adacc/core/block.hpp>
#include <adacc/layer/actor_critic_loss.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/train/save.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "court.hpp"

namespace game {

inline constexpr std::size_t courts = 64, horizon = 16, rollout_size = courts * horizon;

/// A decision, and what came of it.
struct Decision {
  std::array<float, Court::sights> sight{};
  Move move = Move::stay;
  float log_probability = 0;  ///< of the move
  float value = 0;            ///< the chance to catch the ball, as the critic saw it
  float reward = 0;           ///< 1 if the ball was caught before the next decision
  bool last = false;          ///< the ball has arrived
};

class Agent {
 public:
  using Model = adacc::Sequential<adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>>;
  using Net = adacc::Network<Model, adacc::ActorCriticLoss>;
  static constexpr std::size_t batch = 256, outputs = moves + 1;
  static constexpr std::size_t updates_per_rollout = 32;
  static constexpr int parts = 16;
  static constexpr double rate = 2e-3, trace = 0.95;  ///< the estimator's lambda

  std::size_t stalls = 0;

  explicit Agent(std::size_t hidden)
      : net_{Model{{adacc::Linear{.out = hidden}},
                   {},
                   {adacc::Linear{.out = hidden}},
                   {},
                   {adacc::Linear{.out = outputs}}},
             adacc::ActorCriticLoss{.entropy_weight = 0.01}},
        model_("a player of " + std::to_string(Court::sights) + ", " + std::to_string(hidden) +
               ", " + std::to_string(hidden) + " and " + std::to_string(outputs) + " units") {}
  Agent(const Agent&) = delete;  // steps know where the network is
  Agent& operator=(const Agent&) = delete;

  /// Takes all memory, and draws the parameters or reads them from `path`.
  adacc::Error set_up(std::uint64_t seed, const std::string& path) {
    using namespace adacc;
    seed_ = seed;
    cpu_.key.seed = seed;
    auto program = make_program(net_, Shape(batch, Court::sights), {.parts = parts});
    if (!program) return program.error;
    auto training = Training<>::make(net_, std::move(*program), cpu_);
    if (!training) return training.error;
    training_ = std::move(*training);
    training_.model = model_;
    training_.clip = 0.5;
    auto player = Inference<>::make(net_, Shape(courts, Court::sights));
    if (!player) return player.error;
    player_ = std::move(*player);

    Error error = player_.take_memory();
    const auto take = [&](auto& block, std::size_t size, const char* what) {
      auto made = std::remove_reference_t<decltype(block)>::make(size, what);
      if (!made && !error) error = made.error;
      block = std::move(*made);
    };
    take(sights_, courts * Court::sights, "what the player sees");
    take(x_, batch * Court::sights, "the input");
    take(y_, batch * experience_cols, "the targets");
    take(rollout_x_, rollout_size * Court::sights, "the rollout");
    take(rollout_y_, rollout_size * experience_cols, "the rollout");
    if (error) return error;
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
      draw_batch();
      if (const adacc::Error why = cursor.begin(input(), targets())) return why;
      const auto slice = cursor.run_until(cpu_, now, std::numeric_limits<std::int64_t>::max());
      if (!slice) return slice.error;
    }
    return {};
  }

  /// Decides on all courts at once; `number` counts decisions.
  adacc::Error decide(const std::vector<Court>& seen, std::uint32_t number, Decision* out) {
    const adacc::RandomKey key{.seed = seed_, .step = number, .purpose = adacc::Purpose::sampling};
    const auto judged = judge(seen);
    if (!judged) return judged.error;
    for (std::size_t c = 0; c < courts; ++c) {
      const float* const logits = judged->row(c);
      Decision& decision = out[c];
      decision = {};
      decision.sight = seen[c].sight();
      decision.value = logits[moves];
      // Softmax of three, and the move at which a uniform number falls.
      const float top = *std::max_element(logits, logits + moves);
      float chance[moves], sum = 0;
      for (std::size_t m = 0; m < moves; ++m) sum += chance[m] = std::exp(logits[m] - top);
      float left = sum * adacc::unit_float(adacc::random_word(key, c));
      std::size_t move = 0;
      while (move + 1 < moves && left >= chance[move]) left -= chance[move++];
      decision.move = static_cast<Move>(move);
      decision.log_probability = std::log(chance[move] / sum);
    }
    return {};
  }

  /// Whether all has been learned from the rollout that was taken last.
  bool idle() const { return left_ == 0 && !learning() && !ended_; }

  /// A rollout is over: `played` are its decisions, a row of all courts for each in order, and
  /// `seen` is what followed. The next is played by what was learned from those before, and this one
  /// is learned from meanwhile. Call it if idle().
  adacc::Error take_over(const Decision* played, const std::vector<Court>& seen) {
    const auto judged = judge(seen);
    if (!judged) return judged.error;
    float advantages[rollout_size];
    for (std::size_t c = 0; c < courts; ++c) {
      float next = judged->row(c)[moves], sum = 0;
      for (std::size_t t = horizon; t-- > 0;) {
        const std::size_t i = t * courts + c;
        const Decision& decision = played[i];
        if (decision.last) next = sum = 0;
        sum = decision.reward + next - decision.value + static_cast<float>(trace) * sum;
        next = decision.value;
        advantages[i] = sum;
      }
    }
    double mean = 0, square = 0;
    for (const float a : advantages) mean += static_cast<double>(a) / rollout_size;
    for (const float a : advantages)
      square += (static_cast<double>(a) - mean) * (static_cast<double>(a) - mean) / rollout_size;
    const double scale = 1 / (std::sqrt(square) + 1e-6);
    for (std::size_t i = 0; i < rollout_size; ++i) {
      const Decision& decision = played[i];
      std::memcpy(rollout_x_.data() + i * Court::sights, decision.sight.data(),
                  sizeof decision.sight);
      const float experience[] = {
          static_cast<float>(decision.move),
          static_cast<float>((static_cast<double>(advantages[i]) - mean) * scale),
          advantages[i] + decision.value, decision.log_probability};
      std::memcpy(rollout_y_.data() + i * adacc::experience_cols, experience, sizeof experience);
    }
    left_ = updates_per_rollout;
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
  adacc::View<const float> input() const { return {x_.data(), adacc::Shape(batch, Court::sights)}; }
  adacc::View<const float> targets() const {
    return {y_.data(), adacc::Shape(batch, adacc::experience_cols)};
  }

  /// Whether a step has begun and not ended.
  bool learning() const { return training_.compiled_step().active(); }

  adacc::Error play_what_was_learned() { return player_.copy_parameters(training_.params()); }

  /// What the network that plays makes of what is to be seen; valid until it is asked again.
  adacc::Result<adacc::View<const float>> judge(const std::vector<Court>& seen) {
    for (std::size_t c = 0; c < courts; ++c) {
      const auto sight = seen[c].sight();
      std::memcpy(sights_.data() + c * Court::sights, sight.data(), sizeof sight);
    }
    const adacc::Shape shape(courts, Court::sights);
    return player_.infer(cpu_, adacc::View<const float>(sights_.data(), shape));
  }

  /// The batch of the next update: a function of the rollout, the seed and its number.
  void draw_batch() {
    constexpr std::size_t sights = Court::sights, cols = adacc::experience_cols;
    const adacc::RandomKey key{.seed = seed_,
                               .step = static_cast<std::uint32_t>(training_.updates()),
                               .activation = 1,  // 0 is for moves
                               .purpose = adacc::Purpose::sampling};
    for (std::size_t i = 0; i < batch; ++i) {
      const std::size_t from = adacc::random_word(key, i) % rollout_size;
      std::memcpy(x_.data() + i * sights, rollout_x_.data() + from * sights,
                  sights * sizeof(float));
      std::memcpy(y_.data() + i * cols, rollout_y_.data() + from * cols, cols * sizeof(float));
    }
  }

  adacc::Error update() {
    ended_ = false;
    const auto outcome = training_.update(rate);
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

  Net net_;
  std::string model_;
  adacc::Cpu cpu_;
  std::uint64_t seed_ = 0;
  adacc::Training<> training_;
  adacc::Inference<> player_;
  adacc::Block<float> sights_, x_, y_, rollout_x_, rollout_y_;
  std::size_t left_ = 0;  ///< updates of this rollout that have not begun
  std::int64_t longest_update_ = 0, longest_batch_ = 0;
  bool ended_ = false;  ///< a step has ended and its update has not been made
};

}  // namespace game
