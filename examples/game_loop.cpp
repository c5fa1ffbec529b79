// SPDX-License-Identifier: MIT
/// Learning inside a game: 60 frames a second, of which training gets two milliseconds.
///
/// Balls cross a court and a paddle must be where they arrive. The player is a network that begins
/// with no idea and learns from every ball that has arrived, in slices of 2 ms: each runs as many
/// parts of the training step as fit, and the next frame goes on where it stopped. In the end the
/// same training is done once more uninterrupted, and must have given the same bits.
///
///     game_loop                 30 seconds, drawn as text where the output is a terminal
///     game_loop --virtual-time  as fast as it can, on a clock that counts parts: for tests
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <support/command_line.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "game_loop/learner.hpp"

namespace {

constexpr std::int64_t millisecond = 1'000'000;  // ticks are nanoseconds
constexpr std::int64_t frame_ticks = 16'666'667;

/// The time that the game and its training see.
class Clock {
 public:
  explicit Clock(bool is_virtual) : virtual_(is_virtual) {}

  std::int64_t operator()() {
    if (virtual_) return ticks_ += 7'000;  // whatever is done between two looks takes 7 us
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
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
  int frames = 1800;
  bool virtual_time = false, draw = false;
  double slice_ms = 2;
  std::uint64_t seed = 1;
};

double percent(const std::vector<bool>& caught, std::size_t from, std::size_t to) {
  const auto first = caught.begin() + static_cast<long>(from);
  const auto last = caught.begin() + static_cast<long>(to);
  return from == to ? 0
                    : 100.0 * static_cast<double>(std::count(first, last, true)) /
                          static_cast<double>(to - from);
}

double mean(const std::vector<double>& values, std::size_t from, std::size_t to) {
  double sum = 0;
  for (std::size_t i = from; i < to; ++i) sum += values[i];
  return from == to ? 0 : sum / static_cast<double>(to - from);
}

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
void print_longest(const game::Learner& learner) {
  const adacc::Step<>& step = learner.step();
  std::size_t longest = 0, parts = 0;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < step.instruction_count(); ++i) {
    parts += step.parts(i);
    sum += learner.cursor.longest(i) * static_cast<std::int64_t>(step.parts(i));
    if (learner.cursor.longest(i) > learner.cursor.longest(longest)) longest = i;
  }
  const adacc::Instruction& run = step.program().schedule.instructions[longest];
  const bool loss = run.op == adacc::Op::loss || run.op == adacc::Op::loss_gradient;
  std::printf(
      "longest instruction: a part of %s %s, %.3f ms at most, %.1f %% of a step of %zu parts\n",
      name_of(run.op), loss ? step.graph().loss.name : step.graph().node(run.node).name,
      static_cast<double>(learner.cursor.longest(longest)) / millisecond,
      100.0 * static_cast<double>(learner.cursor.longest(longest)) / static_cast<double>(sum),
      parts);
}

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "game_loop: %s\n", why.text());
  return 1;
}

int play(const Options& options) {
  Clock now(options.virtual_time);
  const auto player = std::make_unique<game::Learner>();
  game::Learner& learner = *player;
  if (const adacc::Error why = learner.set_up(options.seed)) return fail(why);
  if (const adacc::Error why = learner.warm_up(now)) return fail(why);
  game::Court court(options.seed);
  std::map<std::uint32_t, std::vector<game::Sample>> flights;  // of balls that have not arrived
  std::vector<std::int64_t> slices, frames;
  std::size_t overran = 0;
  const auto slice_ticks = static_cast<std::int64_t>(options.slice_ms * millisecond);

  std::int64_t next_frame = now();
  for (int frame = 0; frame < options.frames; ++frame) {
    const std::int64_t start = now();
    for (const game::Ball& ball : court.balls)
      if (ball.x >= 0) flights[ball.number].push_back(game::sample_of(ball));
    court.advance(learner.predict(court.next()), [&](const game::Ball& ball, float y) {
      for (game::Sample& sample : flights[ball.number]) {
        sample.arrival = y;
        learner.samples.push_back(sample);
      }
      flights.erase(ball.number);
    });
    if (options.draw && frame % 4 == 0)
      std::printf("\033[H\033[J%sframe %d  steps %zu  loss %.5f  caught %.0f %% of the last 20\n",
                  court.text(76, 20).c_str(), frame, learner.losses.size(),
                  learner.losses.empty() ? 0 : learner.losses.back(),
                  percent(court.caught,
                          court.caught.size() - std::min<std::size_t>(20, court.caught.size()),
                          court.caught.size()));

    if (frame % 120 == 119) learner.cursor.forget_all();  // interruptions do not count for ever
    const std::int64_t begin = now();
    if (const adacc::Error why = learner.train(now, begin + slice_ticks)) return fail(why);
    const std::int64_t end = now();
    slices.push_back(end - begin);
    frames.push_back(end - start);
    overran += end - begin > slice_ticks;
    next_frame = std::max(next_frame + frame_ticks, end - frame_ticks);
    now.wait_until(next_frame);
  }

  const std::size_t arrived = court.caught.size(), some = std::min<std::size_t>(30, arrived / 2);
  const std::size_t steps = learner.losses.size(), few = std::min<std::size_t>(20, steps / 2);
  std::printf("%s%s", options.draw ? "\033[H\033[J" : "", court.text(76, 20).c_str());
  std::printf("%d frames, %zu balls; caught %.0f %% of the first %zu, %.0f %% of the last\n",
              options.frames, arrived, percent(court.caught, 0, some), some,
              percent(court.caught, arrived - some, arrived));
  std::printf(
      "%zu training steps in slices of %.1f ms; mean loss %.5f in the first %zu, %.5f in "
      "the last\n",
      steps, options.slice_ms, mean(learner.losses, 0, few), few,
      mean(learner.losses, steps - few, steps));
  if (!options.virtual_time) {
    print_longest(learner);
    std::printf(
        "drawing a batch: %.3f ms at most; an update: %.3f ms; %zu slices started nothing\n",
        static_cast<double>(learner.longest_batch()) / millisecond,
        static_cast<double>(learner.longest_update()) / millisecond, learner.stalls);
    print_percentiles("slice", slices);
    print_percentiles("frame without waiting", frames);
    std::printf("the slice overran in %.2f %% of the frames\n",
                100.0 * static_cast<double>(overran) / static_cast<double>(slices.size()));
  }
  const auto same = learner.same_uninterrupted();
  if (!same) return fail(same.error);
  std::printf("uninterrupted training gives the same losses and parameters, bit for bit: %s\n",
              *same ? "yes" : "no");
  return *same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.draw = isatty(STDOUT_FILENO) != 0;
  CLI::App app("A player learns in two milliseconds of each frame.", "game_loop");
  app.add_option("--frames", options.frames, "Frames to play, 60 a second")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--slice", options.slice_ms, "Milliseconds of training in a frame")
      ->check(support::between(0.01, 16))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of the balls and the network")
      ->check(support::whole_number())
      ->capture_default_str();
  app.add_flag("--virtual-time", options.virtual_time,
               "Do not wait, count parts as time, and print no times");
  app.add_flag("--draw,!--no-draw", options.draw, "Draw the court as text");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  return play(options);
}
