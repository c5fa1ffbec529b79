// SPDX-License-Identifier: MIT
/// Another game: a pole stands on a cart, and the cart is pushed left or right so that the pole does not fall.
///
/// Barto, Sutton, Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems" (1983),
/// with the numbers that Gymnasium's CartPole-v1 has: 50 frames a second, a reward of 1 for each, and 500 frames at most. Whoever
/// has held the pole for so long is not told that it fell: the episode is cut.
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

class Pole {
 public:
  static constexpr std::size_t frames_per_decision = 1, longest = 500;
  static constexpr double best_return = longest;
  static constexpr const char* score_words = "how long poles stood, % of 500 frames";
  static constexpr const char* summary =
      "%zu poles; stood for %.1f %% of 500 frames in the first tenth, %.1f %% in the last";
  static constexpr float far_end = 2.4F, falls_at = 0.20944F;  ///< metres; radians: 12 degrees

  Pole(std::uint64_t seed, std::uint32_t number) : seed_(seed), number_(number) { stand(); }

  static ppo::AgentOptions agent() {
    return {.sights = 4,
            .moves = 2,
            .horizon = 32,
            .rate = 1e-3,
            .reward_scale = 0.02,  // a pole that never falls is worth 1
            .advantage = {.discount = 0.98, .trace = 0.95},
            .loss = {}};
  }

  void look(float* sights) const {
    const float seen[] = {place / far_end, speed / 2, angle / falls_at, turning / 2};
    std::copy(seen, seen + 4, sights);
  }

  /// One frame: the cart is pushed left (0) or right.
  ppo::Happening advance(std::size_t move) {
    if (frames_ == longest) {
      stand();
      return {0, adacc::Ending::skipped};
    }
    constexpr float gravity = 9.8F, mass = 1.1F, pole_mass = 0.1F, half = 0.5F, dt = 0.02F;
    const float force = move == 0 ? -10.0F : 10.0F, sine = std::sin(angle),
                cosine = std::cos(angle);
    const float pushed = (force + pole_mass * half * turning * turning * sine) / mass;
    const float turned = (gravity * sine - cosine * pushed) /
                         (half * (4.0F / 3 - pole_mass * cosine * cosine / mass));
    const float moved = pushed - pole_mass * half * turned * cosine / mass;
    place += dt * speed, speed += dt * moved;
    angle += dt * turning, turning += dt * turned;
    ++frames_;
    const bool fell = std::fabs(place) > far_end || std::fabs(angle) > falls_at;
    if (fell) stand();
    return {1, fell ? adacc::Ending::over : adacc::Ending::none};
  }

  void add_to(ppo::Hash& hash) const {
    for (const float* const one : {&place, &speed, &angle, &turning}) hash.add(one, sizeof *one);
  }

  /// The pole as text, `width` x `height` characters within its walls.
  std::string text(std::size_t width, std::size_t height) const {
    std::vector<std::string> rows(height, std::string(width, ' '));
    const float middle = (place / far_end + 1) / 2 * static_cast<float>(width - 1);
    for (std::size_t r = 0; r < height; ++r) {
      const float up = static_cast<float>(r);
      const float at = middle + 4 * std::tan(angle) * up;  // angles are drawn twice as large
      if (at >= 0 && at < static_cast<float>(width))
        rows[height - 1 - r][static_cast<std::size_t>(at)] = r == 0 ? '#' : '|';
    }
    std::string all = '+' + std::string(width, '-') + "+\n";
    for (const std::string& row : rows) all += '|' + row + "|\n";
    return all + '+' + std::string(width, '-') + "+\n";
  }

  float place = 0, speed = 0, angle = 0, turning = 0;  ///< of the cart, of the pole; per second

 private:
  void stand() {
    const adacc::RandomKey key{
        .seed = seed_, .step = ++stood_, .activation = number_, .purpose = adacc::Purpose::data};
    float* const all[] = {&place, &speed, &angle, &turning};
    for (std::size_t i = 0; i < 4; ++i)
      *all[i] = 0.1F * (adacc::unit_float(adacc::random_word(key, i)) - 0.5F);
    frames_ = 0;
  }

  std::uint64_t seed_;
  std::uint32_t number_, stood_ = 0;
  std::size_t frames_ = 0;
};

}  // namespace game
