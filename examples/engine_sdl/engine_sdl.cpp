// SPDX-License-Identifier: MIT
/// The smallest engine that learns while it draws: a chaser (red) learns, in 2 ms of each frame, where its quarry (blue)
/// will be in a third of a second, and goes there. Slice time and loss are drawn above.
///
///     engine_sdl                  until the window is closed
///     engine_sdl 3000 end.bmp     so many frames on a clock that counts its readings, and the last picture
#include <adacc/adacc.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/train/training.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "screen.hpp"

using namespace adacc;
constexpr std::size_t rows = 128, seen = 8, ahead = 20, remembered = 4096, bars = 240;
constexpr std::int64_t budget = 2'000'000;  // ns
struct Point {
  float x, y;
} path[remembered];  // of the quarry, a frame each

static Point quarry(std::size_t frame) {
  const float s = 0.02F * static_cast<float>(frame % 1'000'000);
  return {std::sin(3 * s) * 0.8F, std::sin(4 * s + std::sin(s)) * 0.8F};
}

// The quarry's places in this frame and in three before, four frames apart.
static void look(std::size_t frame, float* to) {
  for (std::size_t i = 0; i < seen; i += 2) {
    const Point& at = path[(frame - 2 * i) % remembered];
    to[i] = at.x, to[i + 1] = at.y;
  }
}
static int fail(const char* why) { return std::fprintf(stderr, "engine_sdl: %s\n", why), 2; }

int main(int argc, char** argv) {
  const std::size_t frames = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  if (argc > 3 || (argc > 1 && frames == 0)) return fail("usage: engine_sdl [FRAMES [PICTURE]]");
  std::int64_t readings = 0;
  const auto now = [&]() -> std::int64_t {
    return frames > 0 ? readings += 7000 : static_cast<std::int64_t>(1e9 * steady_seconds());
  };

  const Sequential model{layer(Linear{.out = 48}), layer(Gelu{}), layer(Linear{.out = 48}),
                         layer(Gelu{}), layer(Linear{.out = 2})};
  const Network net{model, MeanSquaredError{}};
  auto program = make_program(net, Shape(rows, seen), {.parts = 8});  // a step, cut into parts
  if (!program) return fail(program.error.text());
  auto training = Training<>::make(net, std::move(*program));  // its memory and optimizer
  if (!training) return fail(training.error.text());
  auto player = Inference<>::make(net, Shape(1, seen));  // answers while a step is under way
  if (!player) return fail(player.error.text());
  if (const Error why = player->take_memory()) return fail(why.text());
  Screen screen("it learns", 480, 520);
  if (!screen.is_there()) return fail(screen.reason());

  static float x[rows * seen], y[rows * 2], sight[seen], slices[bars], losses[bars];
  Point chaser{0, 0}, guess{0, 0};
  double loss = 1, in_front = 0;
  for (std::size_t t = 0; (frames == 0 || t < frames) && screen.stays_open(); ++t) {
    path[t % remembered] = quarry(t);
    const std::int64_t begin = now();
    while (t > 400 && now() < begin + budget) {
      if (!training->cursor().active()) {  // what was seen in the last seconds, and what followed
        for (std::size_t r = 0; r < rows; ++r) {
          const RandomKey key{.step = static_cast<std::uint32_t>(training->updates())};
          const std::size_t at = t - ahead - random_word(key, r) % 320;
          look(at, x + r * seen);
          const Point& then = path[(at + ahead) % remembered];
          y[2 * r] = then.x, y[2 * r + 1] = then.y;
        }
        const View<const float> input(x, Shape(rows, seen)), targets(y, Shape(rows, 2));
        if (const Error why = training->begin(input, targets)) return fail(why.text());
      }
      const auto slice = training->slice(now, begin + budget);
      if (!slice) return fail(slice.error.text());
      if (!slice->ended) break;  // the next frame goes on from here
      const auto outcome = training->update(1e-3);
      if (!outcome) return fail(outcome.error.text());
      loss = outcome->loss;
      if (const Error why = player->copy_parameters(training->params())) return fail(why.text());
    }
    slices[t % bars] = static_cast<float>(now() - begin) * 1e-6F;
    losses[t % bars] = static_cast<float>(loss);
    if (training->updates() > 0) {
      look(t, sight);
      const auto answer =
          player->infer(training->context(), View<const float>(sight, Shape(1, seen)));
      if (!answer) return fail(answer.error.text());
      guess = {answer->row(0)[0], answer->row(0)[1]};
    }
    const Point way{guess.x - chaser.x, guess.y - chaser.y}, goal = quarry(t + ahead);
    const float share = std::fmin(1.0F, 0.08F / (std::hypot(way.x, way.y) + 1e-6F));
    chaser = {chaser.x + share * way.x, chaser.y + share * way.y};
    in_front += 0.005 * ((std::hypot(chaser.x - goal.x, chaser.y - goal.y) < 0.1F) - in_front);

    const auto dot = [&](Point p, int size, unsigned color) {
      screen.box(static_cast<int>(240 + 220 * p.x) - size, static_cast<int>(290 + 220 * p.y) - size,
                 2 * size, 2 * size, color);
    };
    screen.box(0, 0, 480, 520, 0xFFFFFF);
    for (std::size_t k = 0; k < ahead; ++k) dot(quarry(t + k), 2, 0xCCCCCC);
    dot(path[t % remembered], 7, 0x0040C0), dot(chaser, 7, 0xD04010);
    screen.bars(0, 40, slices, bars, t + 1, 10, 0x50A050);  // 10 dots a millisecond
    screen.bars(240, 40, losses, bars, t + 1, 95, 0x0040C0);
    const double slice_ms = static_cast<double>(slices[t % bars]);
    screen.write(4, 46, "SLICE %.2f MS  ARENA %zu BYTES", slice_ms, training->peak_bytes());
    screen.write(4, 62, "LOSS %.5f  IN FRONT %.0f PER CENT", loss, 100 * in_front);
    screen.show();
    if (frames == 0) SDL_Delay(16);
  }
  std::printf("loss %.5f, in front %.1f %%\n", loss, 100 * in_front);
  if (argc > 2 && !screen.save(argv[2])) return fail(screen.reason());
  return 0;
}
