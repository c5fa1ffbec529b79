// SPDX-License-Identifier: MIT
/// The game of examples/game_loop for a page: the browser draws, this plays and learns.
///
/// The page calls frame() 60 times a second. learn() takes the slice of time that the page gives. A function that
/// returns false leaves its reason in reason(). Players are checkpoints, as game_loop writes them.
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "../game_loop/court.hpp"

namespace {

constexpr std::size_t lately = 300, shown = 8;
constexpr char file_name[] = "player";  // in the memory of the page

using Match = ppo::Match<game::Court>;

std::unique_ptr<ppo::Agent> agent;
std::unique_ptr<Match> match;
std::string player;
adacc::Error failure;
double longest_ms = 0;

std::int64_t now() { return static_cast<std::int64_t>(1e9 * adacc::steady_seconds()); }

bool holds(const adacc::Error& why) {
  if (why) failure = why;
  return !why;
}

/// A new match of the player in the file, or of one without an idea if there is no name.
bool begin(std::uint64_t seed, const char* path) {
  auto next = std::make_unique<ppo::Agent>(game::Court::agent());
  auto clock = now;
  if (!holds(next->set_up(seed, path)) || !holds(next->warm_up(clock))) return false;
  match.reset();
  agent = std::move(next);
  match = std::make_unique<Match>(*agent, seed, true);
  longest_ms = 0;
  return true;
}

adacc::Error read_player() {
  auto file = adacc::InputFile::open(file_name, "a saved player");
  if (!file) return file.error;
  player.resize(file->size());
  return file->read(player.data(), player.size());
}

}  // namespace

extern "C" {

const char* reason() { return failure.text(); }
bool start(unsigned seed) { return begin(seed, ""); }

/// Plays a frame, unless learning is late.
bool frame() {
  if (match->scores.size() % 120 == 119)
    agent->cursor().forget_all();  // interruptions do not count for ever
  if (!match->rollout_over()) return holds(match->advance());
  return !agent->idle() || holds(match->take_over());
}

/// Learns for `slice_ms` milliseconds at most.
bool learn(double slice_ms) {
  auto clock = now;
  const std::int64_t first = now();
  const bool held = holds(agent->train(clock, first + static_cast<std::int64_t>(1e6 * slice_ms)));
  longest_ms = std::max(longest_ms, 1e-6 * static_cast<double>(now() - first));
  return held;
}

/// All to be drawn of the first eight courts: the ball's x and y, the paddle's place, the chance to catch as the critic sees it.
const float* courts() {
  static float seen[shown][4];
  for (std::size_t c = 0; c < shown; ++c) {
    const game::Court& court = match->all[c];
    const float values[] = {court.ball.x, court.ball.y, court.paddle, agent->value(c)};
    std::copy(values, values + 4, seen[c]);
  }
  return seen[0];
}
double half_paddle() { return static_cast<double>(game::Court::half_paddle); }

double updates() { return static_cast<double>(agent->updates()); }
double frames() { return static_cast<double>(match->scores.size()); }
double longest_slice() { return longest_ms; }
/// Of the balls of the last 300 frames, the share that was caught, in per cent.
double caught() {
  const std::size_t n = match->scores.size();
  return 100 * match->score(n - std::min(n, lately), n).mean();
}

/// The bytes of the player between two updates: their number, or 0. They are at bytes().
std::size_t save() {
  if (!holds(agent->finish()) || !holds(agent->save(file_name)) || !holds(read_player())) return 0;
  return player.size();
}
/// Room for `size` bytes of a player, for load().
char* bytes(std::size_t size) {
  player.resize(size);
  return player.data();
}
/// A new match of the player whose bytes are at bytes(). The old match goes on if the player is refused.
bool load(unsigned seed) {
  return holds(adacc::write_file(file_name, player)) && begin(seed, file_name);
}
}
