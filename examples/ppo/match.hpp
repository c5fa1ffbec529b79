// SPDX-License-Identifier: MIT
/// A match: many copies of a game, one player on all of them, and the score.
///
/// Everything here follows from the seed and the weights that it begins with. If learning is late
/// when a rollout is over, the match stands still for some frames: the frames that are played are the
/// same, however long they took.
///
/// A Game has
///     Game(seed, number)                   `number` tells copies apart
///     static AgentOptions agent()          how a player learns it
///     static frames_per_decision
///     void look(float* sights) const
///     Happening advance(std::size_t move)  a frame; an episode that ended begins anew
///     void add_to(Hash&) const             all that can be seen
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent.hpp"

namespace ppo {

/// What a frame brought.
struct Happening {
  float reward = 0;
  adacc::Ending ending = adacc::Ending::none;
};

/// Episodes that ended in a frame, and the sum of their returns.
struct Score {
  std::size_t ended = 0;
  double sum = 0;
  double mean() const { return ended == 0 ? 0 : sum / static_cast<double>(ended); }
};

/// FNV-1a of bytes.
struct Hash {
  std::uint64_t value = 0xcbf29ce484222325U;

  void add(const void* data, std::size_t bytes) {
    const auto* const from = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) value = (value ^ from[i]) * 0x100000001b3U;
  }
};

template <class Game>
class Match {
 public:
  /// The agent learns while it plays, or plays as it is.
  Match(Agent& agent, std::uint64_t seed, bool learns)
      : agent_(agent), learns_(learns), returns_(agent.options().environments, 0.0) {
    for (std::uint32_t e = 0; e < returns_.size(); ++e) all.emplace_back(seed, e);
  }

  std::vector<Game> all;
  std::vector<Score> scores;  ///< by frame

  /// Whether a rollout is over, and nothing more can be played before it was taken over.
  bool rollout_over() const {
    return agent_.rollout_over() && scores.size() % Game::frames_per_decision == 0;
  }

  /// Takes over the rollout that is over. The agent has to be idle.
  adacc::Error take_over() {
    if (!learns_) return agent_.drop_rollout(), adacc::Error{};
    look();
    return agent_.take_over();
  }

  /// Plays a frame.
  adacc::Error advance() {
    if (scores.size() % Game::frames_per_decision == 0) {
      look();
      if (const adacc::Error why = agent_.decide()) return why;
    }
    Score score;
    for (std::size_t e = 0; e < all.size(); ++e) {
      const Happening now = all[e].advance(agent_.move(e));
      all[e].add_to(hash_);
      agent_.add(e, now.reward, now.ending);
      returns_[e] += static_cast<double>(now.reward);
      if (now.ending == adacc::Ending::none) continue;
      ++score.ended;
      score.sum += returns_[e];
      returns_[e] = 0;
    }
    scores.push_back(score);
    return {};
  }

  /// The score from frame `from` to before `to`.
  Score score(std::size_t from, std::size_t to) const {
    Score sum;
    for (std::size_t i = from; i < to && i < scores.size(); ++i)
      sum.ended += scores[i].ended, sum.sum += scores[i].sum;
    return sum;
  }

  /// A hash of all that was to be seen in every frame.
  std::uint64_t hash() const { return hash_.value; }

 private:
  void look() {
    for (std::size_t e = 0; e < all.size(); ++e) all[e].look(agent_.sight(e));
  }

  Agent& agent_;
  bool learns_;
  std::vector<double> returns_;
  Hash hash_;
};

}  // namespace ppo
