// SPDX-License-Identifier: MIT
/// A match: many courts, one player on all of them, and the score.
///
/// Everything here follows from the seed and the weights that it begins with. If learning is late
/// when a rollout is over, the match stands still for some frames: the frames that are played are the
/// same, however long they took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "agent.hpp"

namespace game {

/// Balls that arrived in a frame, and how many of them were caught.
struct Score {
  std::size_t arrived = 0, caught = 0;
  double percent() const {
    return arrived == 0 ? 0 : 100.0 * static_cast<double>(caught) / static_cast<double>(arrived);
  }
};

/// FNV-1a of bytes.
struct Hash {
  std::uint64_t value = 0xcbf29ce484222325U;

  void add(const void* data, std::size_t bytes) {
    const auto* const from = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) value = (value ^ from[i]) * 0x100000001b3U;
  }
};

class Match {
 public:
  static constexpr std::size_t frames_per_decision = 2;

  /// The agent learns while it plays, or plays as it is.
  Match(Agent& agent, std::uint64_t seed, bool learns)
      : agent_(agent), learns_(learns), played_(rollout_size) {
    for (std::uint32_t c = 0; c < courts; ++c) all.emplace_back(seed, c);
  }

  std::vector<Court> all;
  std::vector<Score> scores;  ///< by frame

  /// Whether a rollout is over, and nothing more can be played before it was taken over.
  bool rollout_over() const { return row_ == horizon && scores.size() % frames_per_decision == 0; }

  /// Takes over the rollout that is over. The agent has to be idle.
  adacc::Error take_over() {
    row_ = 0;
    return learns_ ? agent_.take_over(played_.data(), all) : adacc::Error{};
  }

  /// Plays a frame.
  adacc::Error advance() {
    if (scores.size() % frames_per_decision == 0) {
      if (const adacc::Error why = agent_.decide(all, decisions_++, row(row_))) return why;
      ++row_;
    }
    Score score;
    Decision* const decisions = row(row_ - 1);
    for (std::size_t c = 0; c < courts; ++c) {
      const Arrival arrival = all[c].advance(decisions[c].move);
      hash_.add(&all[c].ball, sizeof all[c].ball);
      hash_.add(&all[c].paddle, sizeof all[c].paddle);
      if (arrival == Arrival::none) continue;
      const bool caught = arrival == Arrival::caught;
      decisions[c].last = true;
      decisions[c].reward = caught ? 1 : 0;
      ++score.arrived;
      score.caught += caught;
    }
    scores.push_back(score);
    return {};
  }

  /// The score from frame `from` to before `to`.
  Score score(std::size_t from, std::size_t to) const {
    Score sum;
    for (std::size_t i = from; i < to && i < scores.size(); ++i)
      sum.arrived += scores[i].arrived, sum.caught += scores[i].caught;
    return sum;
  }

  /// The critic's chance to catch the ball of court `c`, at the last decision.
  float expected(std::size_t c) const {
    return row_ == 0 ? 0 : played_[(row_ - 1) * courts + c].value;
  }

  /// A hash of where every ball and paddle was in every frame.
  std::uint64_t hash() const { return hash_.value; }

 private:
  Decision* row(std::size_t i) { return played_.data() + i * courts; }

  Agent& agent_;
  bool learns_;
  std::vector<Decision> played_;
  std::size_t row_ = 0;
  std::uint32_t decisions_ = 0;
  Hash hash_;
};

}  // namespace game
