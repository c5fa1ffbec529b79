// SPDX-License-Identifier: MIT
/// A game that learns to play itself: 60 frames a second, of which learning gets two milliseconds.
///
/// A ball crosses a court, and a paddle must be where it arrives. The player begins with no idea. It
/// moves at random, is rewarded for every ball that it catches, and from that alone learns to see
/// where a ball will come down: a small actor and its critic, in slices of 2 ms. Each slice runs as
/// many parts of a training step as fit, and the next frame goes on where it stopped. How the steps
/// were cut changes nothing: a seed makes the same game and the same weights, bit for bit.
///
///     game_loop                 a minute, drawn as text if the output is a terminal
///     game_loop --virtual-time  as fast as it can, on a clock that counts parts: for tests
///     game_loop --save player --picture score.svg
///     game_loop --load player --only-play --watch
///     game_loop --export player.h
///     game_loop --game pole --watch     a cart balances a pole instead
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <adacc/core/steady_clock.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/weights/weights_header.hpp>

#include <support/command_line.hpp>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "game_loop/court.hpp"
#include "game_loop/picture.hpp"
#include "game_loop/pole.hpp"

namespace {

constexpr std::int64_t millisecond = 1'000'000;  // ticks are nanoseconds
constexpr double frames_per_second = 60;
constexpr std::int64_t frame_ticks = 16'666'667;

/// The time that the game and its training see.
class Clock {
 public:
  explicit Clock(bool is_virtual) : virtual_(is_virtual) {}

  std::int64_t operator()() {
    if (virtual_) return ticks_ += 7'000;  // whatever is done between two looks takes 7 us
    return static_cast<std::int64_t>(1e9 * adacc::steady_seconds());
  }

  void wait_until(std::int64_t time) {
    if (virtual_) {
      ticks_ = std::max(ticks_, time);
      return;
    }
    const std::int64_t left = time - (*this)();
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  }

 private:
  bool virtual_;
  std::int64_t ticks_ = 0;
};

struct Options {
  std::size_t frames = 3600, hidden = 64;
  bool virtual_time = false, watch = false, replay = false, only_play = false;
  double slice_ms = 2;
  std::uint64_t seed = 1;
  std::string game = "ball", load, save, picture, header;
};

/// What the frames of a game took.
struct Times {
  std::vector<std::int64_t> slices,
      frames;  ///< slices: of frames in which there was something to do
  std::size_t overran = 0, stood_still = 0;
};

void print_percentiles(const char* what, std::vector<std::int64_t> ticks) {
  std::sort(ticks.begin(), ticks.end());
  const auto at = [&](double share) {
    const auto i = static_cast<std::size_t>(share * static_cast<double>(ticks.size() - 1));
    return static_cast<double>(ticks[i]) / millisecond;
  };
  std::printf("%s, ms: p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n", what, at(0.5), at(0.9), at(0.99),
              at(1));
}

/// The instruction with the longest part, by what the cursor remembers, and its share of a step.
void print_longest(ppo::Agent& agent) {
  const adacc::Cursor<>& cursor = agent.cursor();
  const adacc::Step<>& step = agent.step();
  std::size_t longest = 0, parts = 0;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < step.instruction_count(); ++i) {
    parts += step.parts(i);
    sum += cursor.longest(i) * static_cast<std::int64_t>(step.parts(i));
    if (cursor.longest(i) > cursor.longest(longest)) longest = i;
  }
  const adacc::Instruction& inst = step.program().schedule.instructions[longest];
  const bool loss = inst.op == adacc::Op::loss || inst.op == adacc::Op::loss_gradient;
  std::printf(
      "longest instruction: a part of %s %s, %.3f ms at most, %.1f %% of a step of %zu parts\n",
      name_of(inst.op), loss ? step.graph().loss.name : step.graph().node(inst.node).name,
      static_cast<double>(cursor.longest(longest)) / millisecond,
      100.0 * static_cast<double>(cursor.longest(longest)) / static_cast<double>(sum), parts);
}

void print_times(ppo::Agent& agent, const Times& times, bool learns) {
  learns = learns && !times.slices.empty();
  if (learns) {
    print_longest(agent);
    std::printf(
        "drawing a batch: %.3f ms at most; an update: %.3f ms; %zu slices started nothing\n",
        static_cast<double>(agent.longest_batch()) / millisecond,
        static_cast<double>(agent.longest_update()) / millisecond, agent.stalls);
    print_percentiles("slice", times.slices);
  }
  print_percentiles("frame without waiting", times.frames);
  if (learns)
    std::printf(
        "%.2f %% of %zu slices overran\n",
        100.0 * static_cast<double>(times.overran) / static_cast<double>(times.slices.size()),
        times.slices.size());
}

template <class Game>
void watch(const ppo::Match<Game>& match, const ppo::Agent& agent) {
  const std::size_t frame = match.scores.size();
  const ppo::Score lately = match.score(frame - std::min<std::size_t>(frame, 180), frame);
  std::printf("\033[H\033[J%s%5.1f s  %" PRIu64
              " updates  expected here: %.0f %%  of late, in %zu games: %.0f %%\n",
              match.all[0].text(76, 20).c_str(), static_cast<double>(frame) / frames_per_second,
              agent.updates(), 100 * std::clamp<double>(static_cast<double>(agent.value(0)), 0, 1),
              match.all.size(), game::percent_of<Game>(lately));
}

/// Plays in real time, or in virtual time, and learns in slices of it.
template <class Game>
adacc::Error play(const Options& options, ppo::Agent& agent, ppo::Match<Game>& match,
                  Times& times) {
  Clock now(options.virtual_time);
  const bool learns = !options.only_play;
  if (learns)
    if (const adacc::Error why = agent.warm_up(now)) return why;
  const auto slice_ticks = static_cast<std::int64_t>(options.slice_ms * millisecond);
  std::int64_t next_frame = now();
  for (std::size_t frame = 0; match.scores.size() < options.frames; ++frame) {
    const std::int64_t start = now();
    if (match.rollout_over()) ++times.stood_still;
    else if (const adacc::Error why = match.advance()) return why;
    if (options.watch && frame % 4 == 0) watch(match, agent);

    // Interruptions do not count for ever; what is known in the end is printed.
    if (frame % 120 == 119 && match.scores.size() + 120 < options.frames)
      agent.cursor().forget_all();
    const std::int64_t begin = now();
    const bool had_nothing = agent.idle() && !match.rollout_over();
    if (match.rollout_over() && agent.idle() && match.scores.size() < options.frames)
      if (const adacc::Error why = match.take_over()) return why;
    if (learns)
      if (const adacc::Error why = agent.train(now, begin + slice_ticks)) return why;
    const std::int64_t end = now();
    if (!had_nothing) times.slices.push_back(end - begin);
    times.frames.push_back(end - start);
    times.overran += end - begin > slice_ticks;
    next_frame = std::max(next_frame + frame_ticks, end - frame_ticks);
    now.wait_until(next_frame);
  }
  return learns ? agent.finish() : adacc::Error{};
}

/// Plays the same game once more with every step in one piece; whether all of it has the same bits.
template <class Game>
adacc::Result<bool> replays(const Options& options, const ppo::Agent& agent,
                            const ppo::Match<Game>& match) {
  const auto again = std::make_unique<ppo::Agent>(agent.options());
  if (const adacc::Error why = again->set_up(options.seed, options.load)) return why;
  ppo::Match<Game> replay(*again, options.seed, !options.only_play);
  while (replay.scores.size() < options.frames) {
    if (replay.rollout_over()) {
      if (const adacc::Error why = again->finish()) return why;
      if (const adacc::Error why = replay.take_over()) return why;
    }
    if (const adacc::Error why = replay.advance()) return why;
  }
  if (const adacc::Error why = again->finish()) return why;
  const auto ours = agent.weights(), theirs = again->weights();
  return match.hash() == replay.hash() &&
         std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)) == 0;
}

std::uint64_t hash_of(adacc::View<const float> values) {
  ppo::Hash hash;
  hash.add(values.data(), values.size() * sizeof(float));
  return hash.value;
}

int fail(const adacc::Error& why, int status = 1) {
  std::fprintf(stderr, "game_loop: %s\n", why.text());
  return status;
}

template <class Game>
int run(const Options& options) {
  // A game is not to be lost because its files cannot be written.
  for (const std::string* path : {&options.save, &options.picture, &options.header})
    if (!path->empty())
      if (const auto file = adacc::AtomicFile::create(*path); !file) return fail(file.error, 2);

  ppo::AgentOptions learning = Game::agent();
  learning.hidden = options.hidden;
  const auto player = std::make_unique<ppo::Agent>(learning);
  ppo::Agent& agent = *player;
  if (const adacc::Error why = agent.set_up(options.seed, options.load)) return fail(why, 2);
  ppo::Match<Game> match(agent, options.seed, !options.only_play);
  const std::uint64_t updates_before = agent.updates();
  Times times;
  if (const adacc::Error why = play(options, agent, match, times)) return fail(why);

  const std::size_t frames = match.scores.size(), tenth = frames / 10;
  const auto percent = [&](std::size_t from, std::size_t to) {
    return game::percent_of<Game>(match.score(from, to));
  };
  std::printf("%s%s", options.watch ? "\033[H\033[J" : "", match.all[0].text(76, 20).c_str());
  std::printf("%zu frames, %zu games, ", frames, match.all.size());
  std::printf(Game::summary, match.score(0, frames).ended, percent(0, tenth),
              percent(frames - tenth, frames));
  std::printf("\n");
  if (!options.only_play)
    std::printf("%" PRIu64 " updates in slices of %.1f ms; the game stood still for %zu frames\n",
                agent.updates() - updates_before, options.slice_ms, times.stood_still);
  if (!options.virtual_time) print_times(agent, times, !options.only_play);
  std::printf("game %016" PRIx64 ", weights %016" PRIx64 "\n", match.hash(),
              hash_of(agent.weights()));
  if (!options.picture.empty())
    if (const adacc::Error why =
            adacc::write_file(options.picture, game::picture(match, frames_per_second)))
      return fail(why);
  bool same = true;
  if (options.replay) {
    const auto replayed = replays(options, agent, match);
    if (!replayed) return fail(replayed.error);
    same = *replayed;
    std::printf("played again with every step in one piece, it has the same bits: %s\n",
                same ? "yes" : "no");
  }
  if (!options.save.empty())
    if (const adacc::Error why = agent.save(options.save)) return fail(why);
  if (!options.header.empty())
    if (const adacc::Error why = adacc::write_weights_header(
            options.header, adacc::named_parameters(agent.step().graph(), agent.weights())))
      return fail(why);
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.watch = isatty(STDOUT_FILENO) != 0;
  CLI::App app("A game that learns to play itself in two milliseconds of each frame.", "game_loop");
  app.add_option("--game", options.game, "ball: catch it; pole: balance it on a cart")
      ->check(CLI::IsMember({"ball", "pole"}))
      ->capture_default_str();
  app.add_option("--frames", options.frames, "Frames to play, 60 a second")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--slice", options.slice_ms, "Milliseconds of learning in a frame")
      ->check(support::between(0.01, 16))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of the balls, the moves and the network")
      ->check(support::whole_number())
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "Units in each of the player's two hidden layers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--virtual-time", options.virtual_time,
               "Do not wait, count parts as time, and print no times");
  app.add_flag("--watch,--draw,!--no-draw", options.watch, "Draw a court as text while it plays");
  app.add_option("--load", options.load, "Begin with the player that --save wrote here");
  app.add_option("--save", options.save, "Write the player to this file in the end");
  app.add_option("--export", options.header,
                 "Write the player's weights to this file as a C header");
  app.add_flag("--only-play", options.only_play, "Play as it is, and learn nothing");
  app.add_flag(
      "--replay", options.replay,
      "In the end play it again from the seed, each step in one piece, and compare all bits");
  app.add_option("--picture", options.picture, "Draw the score over time into this SVG file");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  return options.game == "ball" ? run<game::Court>(options) : run<game::Pole>(options);
}
