// SPDX-License-Identifier: MIT
/// The game: balls cross a court, bounce off its long sides, and a paddle at the far end tries to
/// be where they arrive.
///
/// It knows nothing of learning. A ball's path is simulated frame by frame; where it will arrive is
/// for the player to find out. All randomness comes from (seed, ball), so a game can be played
/// again.
#pragma once

#include <adacc/core/random.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace game {

/// Lengths in units of the court: x and y in [0, 1]; velocities per frame.
struct Ball {
  float x = 0, y = 0, vx = 0, vy = 0;
  std::uint32_t number = 0;
};

class Court {
 public:
  static constexpr std::size_t balls_at_once = 3;
  static constexpr float half_paddle = 0.06F, paddle_speed = 0.25F;

  explicit Court(std::uint64_t seed) : seed_(seed) {
    for (std::size_t i = 0; i < balls.size(); ++i) {
      balls[i] = serve();
      balls[i].x = -static_cast<float>(i) / balls_at_once;  // they start one after the other
    }
  }

  std::array<Ball, balls_at_once> balls;
  float paddle = 0.5F;
  std::vector<bool> caught;  ///< by arrival

  /// The ball that arrives first.
  const Ball& next() const {
    const Ball* first = &balls[0];
    for (const Ball& ball : balls)
      if ((1 - ball.x) / ball.vx < (1 - first->x) / first->vx) first = &ball;
    return *first;
  }

  /// One frame: the paddle moves towards `goal`, the balls on. Calls arrived(ball, y) for those
  /// that reach the end, and serves others in their place.
  template <class Arrived>
  void advance(float goal, const Arrived& arrived) {
    const float way = goal - paddle;
    paddle += std::fabs(way) <= paddle_speed ? way : std::copysign(paddle_speed, way);
    for (Ball& ball : balls) {
      ball.x += ball.vx;
      ball.y += ball.vy;
      if (ball.y < 0) ball.y = -ball.y, ball.vy = -ball.vy;
      if (ball.y > 1) ball.y = 2 - ball.y, ball.vy = -ball.vy;
      if (ball.x < 1) continue;
      caught.push_back(std::fabs(ball.y - paddle) <= half_paddle);
      arrived(ball, ball.y);
      ball = serve();
    }
  }

  /// The court as text, `width` x `height` characters within its walls.
  std::string text(std::size_t width, std::size_t height) const {
    const auto cell = [](float at, std::size_t cells) {
      const float scaled = at * static_cast<float>(cells);
      return scaled <= 0 ? std::size_t{0} : std::min(static_cast<std::size_t>(scaled), cells - 1);
    };
    std::vector<std::string> rows(height, std::string(width, ' '));
    for (const Ball& ball : balls)
      if (ball.x >= 0) rows[cell(ball.y, height)][cell(ball.x, width)] = 'o';
    const std::size_t low = cell(paddle - half_paddle, height);
    const std::size_t high = cell(paddle + half_paddle, height);
    for (std::size_t r = low; r <= high; ++r) rows[r][width - 1] = '#';
    std::string all = '+' + std::string(width, '-') + "+\n";
    for (const std::string& row : rows) all += '|' + row + "|\n";
    return all + '+' + std::string(width, '-') + "+\n";
  }

 private:
  Ball serve() {
    adacc::RandomKey key{.seed = seed_, .step = ++served_, .purpose = adacc::Purpose::data};
    const auto uniform = [&](std::uint64_t i, float low, float high) {
      return low + (high - low) * adacc::unit_float(adacc::random_word(key, i));
    };
    return {0, uniform(0, 0, 1), uniform(1, 1 / 60.0F, 1 / 35.0F), uniform(2, -0.03F, 0.03F),
            served_};
  }

  std::uint64_t seed_;
  std::uint32_t served_ = 0;
};

}  // namespace game
