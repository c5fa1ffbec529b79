// SPDX-License-Identifier: MIT
/// The player: a network that learns, in slices of a frame, where balls will arrive.
///
/// Each frame of a ball's flight is a sample whose label is known once the ball has arrived. One
/// training step is: draw a batch from the samples so far, the step itself through a Cursor, and
/// the update. All three count against the slice, by the same rule: nothing starts whose longest
/// time so far would pass the deadline.
#pragma once

#include <adacc/adacc.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/train/adamw.hpp>
#include <adacc/core/block.hpp>
#include <adacc/train/initialize.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "court.hpp"

namespace game {

struct Sample {
  float features[4];
  float arrival;  ///< y
};

inline Sample sample_of(const Ball& ball) {
  return {{2 * ball.x - 1, 2 * ball.y - 1, 80 * ball.vx - 1.8F, 33 * ball.vy}, 0};
}

class Learner {
 public:
  using Model = adacc::Sequential<adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>>;
  using Net = adacc::Network<Model, adacc::MeanSquaredError>;
  static constexpr std::size_t batch = 256, hidden = 128;
  static constexpr int parts = 16;
  static constexpr double rate = 2e-3;

  adacc::Cursor<> cursor;
  std::vector<Sample> samples;          ///< grows at the end alone
  std::vector<double> losses;           ///< by step
  std::vector<std::size_t> samples_at;  ///< by step: how many samples its batch was drawn from
  std::size_t stalls = 0;

  /// Takes all memory and draws the parameters. Stays where it is from then on.
  adacc::Error set_up(std::uint64_t seed) {
    using namespace adacc;
    cpu_.key.seed = seed;
    auto program = make_program(net_, Shape(batch, 4), {.parts = parts});
    if (!program) return program.error;
    auto step = Step<>::make(net_, std::move(*program));
    if (!step) return step.error;
    step_ = std::move(*step);
    program = make_program(net_, Shape(1, 4), {}, Mode::infer);
    if (!program) return program.error;
    step = Step<>::make(net_, std::move(*program));
    if (!step) return step.error;
    predict_ = std::move(*step);

    const std::size_t elems = step_.graph().parameter_elems;
    Error error;
    const auto take = [&](auto& block, std::size_t size, const char* what) {
      auto made = std::remove_reference_t<decltype(block)>::make(size, what);
      if (!made && !error) error = made.error;
      block = std::move(*made);
    };
    take(arena_, step_.arena_bytes(), "the arena");
    take(predict_arena_, predict_.arena_bytes(), "the prediction's arena");
    take(params_, elems, "parameters");
    take(gradients_, elems, "gradients");
    take(m_, elems, "first moments");
    take(v_, elems, "second moments");
    take(x_, batch * 4, "the input");
    take(y_, batch, "the targets");
    if (error) return error;
    if (error = step_.bind(arena_.view(), params_.view(), gradients_.view()); error) return error;
    if (error = predict_.bind(predict_arena_.view(), params_.view()); error) return error;
    initialize_parameters(cpu_, step_.graph().parameters, params_.view(), seed);
    auto made = Cursor<>::make(step_);
    if (!made) return made.error;
    cursor = std::move(*made);
    return {};
  }

  /// Runs whole steps on nothing, so that times are known before the first frame. Learns nothing.
  template <class Clock>
  adacc::Error warm_up(Clock& now) {
    for (int round = 0; round < 3; ++round) {
      if (round == 1) {  // the first met cold caches and pages: not to be believed
        auto fresh = adacc::Cursor<>::make(step_);
        if (!fresh) return fresh.error;
        cursor = std::move(*fresh);
        longest_batch_ = longest_update_ = 0;
      }
      if (adacc::Error why = begin()) return why;
      const auto slice = cursor.run_until(cpu_, now, std::numeric_limits<std::int64_t>::max());
      if (!slice) return slice.error;
    }
    std::memset(gradients_.data(), 0, gradients_.size() * sizeof(float));
    return {};
  }

  /// Where the ball will arrive, as far as the network knows.
  float predict(const Ball& ball) {
    const Sample sample = sample_of(ball);
    std::memcpy(predict_x_, sample.features, sizeof predict_x_);
    const auto ran = predict_.run(cpu_, adacc::View<const float>(predict_x_, adacc::Shape(1, 4)),
                                  adacc::View<const float>());
    return ran ? predict_.output()[0] : 0.5F;
  }

  /// Trains until `deadline` on the clock.
  template <class Clock>
  adacc::Error train(Clock& now, std::int64_t deadline) {
    if (samples.size() < batch) return {};
    for (bool idle = true;; idle = false) {
      if (!cursor.active()) {
        if (ended_) {
          if (!timed(now, deadline, longest_update_, idle, [&] { update(); })) return {};
          idle = ended_ = false;
        }
        adacc::Error why;
        const auto next = [&] {
          samples_at.push_back(samples.size());
          draw_batch(losses.size(), samples.size());
          why = begin();
        };
        if (!timed(now, deadline, longest_batch_, idle, next)) return {};
        if (why) return why;
        idle = false;
      }
      const auto slice = cursor.run_until(cpu_, now, deadline);
      if (!slice) return slice.error;
      if (slice->stalled && idle) {  // the system held us up once; this is a game, it tries again
        cursor.forget();
        ++stalls;
      }
      if (!slice->ended) return {};
      losses.push_back(cursor.loss());
      ended_ = true;
    }
  }

  /// Trains a fresh network uninterrupted on the same batches; whether all losses and, in the end,
  /// the parameters have the same bits. Overwrites this one's.
  adacc::Result<bool> same_uninterrupted() {
    using namespace adacc;
    step_.abandon();
    if (ended_) update();
    ended_ = false;
    const std::size_t bytes = params_.size() * sizeof(float);
    std::vector<float> learned(params_.data(), params_.data() + params_.size());
    for (Block<float>* block : {&gradients_, &m_, &v_}) std::memset(block->data(), 0, bytes);
    initialize_parameters(cpu_, step_.graph().parameters, params_.view(), cpu_.key.seed);
    updates_ = 0;
    bool same = true;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      draw_batch(i, samples_at[i]);
      cpu_.key.step = static_cast<std::uint32_t>(updates_);
      const auto loss = step_.run(cpu_, input(), targets());
      if (!loss) return loss.error;
      same = same && std::memcmp(&*loss, &losses[i], sizeof(double)) == 0;
      update();
    }
    return same && std::memcmp(learned.data(), params_.data(), bytes) == 0;
  }

  const adacc::Step<>& step() const { return step_; }
  std::int64_t longest_update() const { return longest_update_; }
  std::int64_t longest_batch() const { return longest_batch_; }

 private:
  adacc::View<const float> input() const { return {x_.data(), adacc::Shape(batch, 4)}; }
  adacc::View<const float> targets() const { return {y_.data(), adacc::Shape(batch, 1)}; }

  adacc::Error begin() {
    cpu_.key.step = static_cast<std::uint32_t>(updates_);
    return cursor.begin(input(), targets());
  }

  /// The batch of step `step`, from the first `count` samples: a function of these two.
  void draw_batch(std::size_t step, std::size_t count) {
    const adacc::RandomKey key{.seed = cpu_.key.seed,
                               .step = static_cast<std::uint32_t>(step),
                               .purpose = adacc::Purpose::sampling};
    for (std::size_t i = 0; i < batch; ++i) {
      const Sample& sample = samples[adacc::random_word(key, i) % count];
      std::memcpy(x_.data() + 4 * i, sample.features, sizeof sample.features);
      y_[i] = sample.arrival;
    }
  }

  void update() {
    adacc::AdamW{}.step(cpu_, params_.view(), gradients_.view(), m_.view(), v_.view(),
                        step_.graph().parameters, ++updates_, rate);
  }

  /// Does `work` if, by the longest time it took so far, it ends before the deadline. That time is
  /// forgotten where it leaves a slice idle.
  template <class Clock, class Work>
  static bool timed(Clock& now, std::int64_t deadline, std::int64_t& longest, bool idle,
                    const Work& work) {
    const std::int64_t start = now();
    if (start >= deadline || longest > deadline - start) {
      if (idle && start < deadline) longest = 0;
      return false;
    }
    work();
    const std::int64_t took = now() - start;
    if (took > longest) longest = took;
    return true;
  }

  Net net_{Model{{adacc::Linear{.out = hidden}},
                 {},
                 {adacc::Linear{.out = hidden}},
                 {},
                 {adacc::Linear{.out = 1}}},
           {}};
  adacc::Cpu cpu_;
  adacc::Step<> step_, predict_;
  adacc::Block<std::byte> arena_, predict_arena_;
  adacc::Block<float> params_, gradients_, m_, v_, x_, y_;
  alignas(64) float predict_x_[4] = {};
  std::uint64_t updates_ = 0;
  std::int64_t longest_update_ = 0, longest_batch_ = 0;
  bool ended_ = false;  ///< a step has ended and its update has not been made
};

}  // namespace game
