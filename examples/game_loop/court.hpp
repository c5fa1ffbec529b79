// SPDX-License-Identifier: MIT
/// The game: a ball crosses a court, bounces off its long sides, and a paddle at the far end tries to
/// be where it arrives.
///
/// It knows nothing of learning: it takes a move and says whether a ball has arrived and was caught. Each ball is an
/// episode.
/// All randomness comes from (seed, court, ball), so a game can be played again.
#pragma once

#include <adacc/core/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../ppo/match.hpp"

namespace game {

/// Lengths in units of the court: x and y in [0, 1]; velocities per frame.
struct Ball {
  float x = 0, y = 0, vx = 0, vy = 0;
};

class Court {
 public:
  /// The paddle is slower than the fastest balls: it has to know where they will be.
  static constexpr float half_paddle = 0.06F, paddle_speed = 0.022F;

  Court(std::uint64_t seed, std::uint32_t number) : seed_(seed), number_(number) {
    serve();
    ball.x = -static_cast<float>(number % 16) / 16;  // courts do not beat in time
  }

  Ball ball;
  float paddle = 0.5F;

  static constexpr std::size_t frames_per_decision = 2;
  static constexpr double best_return = 1;
  static constexpr const char* score_words = "balls caught, % of those that arrived";
  static constexpr const char* summary =
      "%zu balls; caught %.1f %% in the first tenth, %.1f %% in the last";

  /// A ball ends soon, and its reward is 1: without a discount, the value is the chance to catch it.
  static ppo::AgentOptions agent() {
    return {.sights = 5, .moves = 3, .advantage = {.discount = 1, .trace = 0.95}, .loss = {}};
  }

  /// What a player sees, each number about within [-1, 1].
  void look(float* sights) const {
    const float seen[] = {2 * ball.x - 1, 2 * ball.y - 1, 80 * ball.vx - 1.8F, 33 * ball.vy,
                          2 * paddle - 1};
    std::copy(seen, seen + 5, sights);
  }

  /// One frame: the paddle moves up, stays, or moves down, the ball flies on, and if it has arrived the next one is
  /// served.
  ppo::Happening advance(std::size_t move) {
    const float way = static_cast<float>(static_cast<int>(move) - 1) * paddle_speed;
    paddle = std::clamp(paddle + way, half_paddle, 1 - half_paddle);
    ball.x += ball.vx;
    ball.y += ball.vy;
    if (ball.y < 0) ball.y = -ball.y, ball.vy = -ball.vy;
    if (ball.y > 1) ball.y = 2 - ball.y, ball.vy = -ball.vy;
    if (ball.x < 1) return {};
    const bool caught = std::fabs(ball.y - paddle) <= half_paddle;
    serve();
    return {caught ? 1.0F : 0.0F, adacc::Ending::over};
  }

  void add_to(ppo::Hash& hash) const {
    hash.add(&ball, sizeof ball);
    hash.add(&paddle, sizeof paddle);
  }

  /// The court as text, `width` x `height` characters within its walls.
  std::string text(std::size_t width, std::size_t height) const {
    const auto cell = [](float at, std::size_t cells) {
      const float scaled = at * static_cast<float>(cells);
      return scaled <= 0 ? std::size_t{0} : std::min(static_cast<std::size_t>(scaled), cells - 1);
    };
    std::vector<std::string> rows(height, std::string(width, ' '));
    if (ball.x >= 0) rows[cell(ball.y, height)][cell(ball.x, width)] = 'o';
    const std::size_t low = cell(paddle - half_paddle, height);
    const std::size_t high = cell(paddle + half_paddle, height);
    for (std::size_t r = low; r <= high; ++r) rows[r][width - 1] = '#';
    std::string all = '+' + std::string(width, '-') + "+\n";
    for (const std::string& row : rows) all += '|' + row + "|\n";
    return all + '+' + std::string(width, '-') + "+\n";
  }

 private:
  void serve() {
    const adacc::RandomKey key{
        .seed = seed_, .step = ++served_, .activation = number_, .purpose = adacc::Purpose::data};
    const auto uniform = [&](std::uint64_t i, float low, float high) {
      return low + (high - low) * adacc::unit_float(adacc::random_word(key, i));
    };
    ball = {0, uniform(0, 0, 1), uniform(1, 1 / 60.0F, 1 / 35.0F), uniform(2, -0.03F, 0.03F)};
  }

  std::uint64_t seed_;
  std::uint32_t number_, served_ = 0;
};

}  // namespace game
