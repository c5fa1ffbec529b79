// SPDX-License-Identifier: MIT
/// Learning on the threads of an engine that has its own scheduler.
///
/// Each frame the engine kicks jobs that move 64 000 particles through a wind, and one job that
/// learns: a slice of a training step, whose tiles are jobs again (job_system/executor.hpp). Workers
/// steal from one another, so tiles and particles meet on every thread, in another order each time.
/// The network learns what the wind is at a place, and must come out with the same bits however many
/// workers there are and wherever the frames cut its steps.
///
///     job_system                  1, 2 and 4 workers
///     job_system --workers 8 --slice 0.5
#include <CLI/CLI.hpp>

#include <adacc/adacc.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/train/training.hpp>

#include <support/command_line.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "job_system/executor.hpp"

namespace {

struct Options {
  std::vector<int> workers{1, 2, 4};
  std::uint64_t updates = 200;
  std::size_t hidden = 64;
  double slice_ms = 2;
};

std::int64_t nanoseconds() { return static_cast<std::int64_t>(1e9 * adacc::steady_seconds()); }

/// The acceleration at a place: two vortices.
void wind(float x, float y, float* out) {
  const auto vortex = [&](float cx, float cy, float strength) {
    const float dx = x - cx, dy = y - cy, pull = strength / (0.1F + dx * dx + dy * dy);
    out[0] -= pull * dy;
    out[1] += pull * dx;
  };
  out[0] = out[1] = 0;
  vortex(-0.4F, 0.3F, 0.2F);
  vortex(0.5F, -0.2F, -0.3F);
}

/// The engine's own work: particles on [-1, 1]^2, moved in chunks.
class Swarm {
 public:
  static constexpr std::size_t chunks = 64, chunk = 1000;

  Swarm() : particles_(chunks * chunk) {
    for (std::size_t i = 0; i < particles_.size(); ++i) {
      const auto uniform = [&](std::uint64_t k) {
        return 2 * adacc::unit_float(adacc::random_word({.seed = 3}, 2 * i + k)) - 1;
      };
      particles_[i] = {uniform(0), uniform(1), 0, 0};
    }
  }

  /// A job: chunk `index` of the swarm `data` flies on for a frame.
  static void fly(void* data, std::size_t index, int) {
    Particle* const all = static_cast<Swarm*>(data)->particles_.data() + index * chunk;
    for (std::size_t i = 0; i < chunk; ++i) {
      Particle& p = all[i];
      float force[2];
      for (int step = 0; step < 4; ++step) {
        wind(p.x, p.y, force);
        p.vx = 0.999F * (p.vx + 0.004F * force[0]);
        p.vy = 0.999F * (p.vy + 0.004F * force[1]);
        p.x += 0.004F * p.vx;
        p.y += 0.004F * p.vy;
        if (std::fabs(p.x) > 1) p.x = std::copysign(1.0F, p.x), p.vx = -p.vx;
        if (std::fabs(p.y) > 1) p.y = std::copysign(1.0F, p.y), p.vy = -p.vy;
      }
    }
  }

 private:
  struct Particle {
    float x = 0, y = 0, vx = 0, vy = 0;
  };
  std::vector<Particle> particles_;
};

/// Learns the wind in slices.
class Learner {
 public:
  using Model = adacc::Sequential<adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>, adacc::Layer<adacc::Gelu>,
                                  adacc::Layer<adacc::Linear>>;
  static constexpr std::size_t batch = 2048;

  explicit Learner(std::size_t hidden)
      : net_{Model{{adacc::Linear{.out = hidden}},
                   {},
                   {adacc::Linear{.out = hidden}},
                   {},
                   {adacc::Linear{.out = 2}}},
             {}} {}
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  adacc::Error set_up(const EngineExecutor& executor) {
    using namespace adacc;
    Cpu cpu{ExecutorRef(executor)};
    cpu.key.seed = 1;
    auto program = make_program(net_, Shape(batch, 2), {.workers = executor.workers(), .parts = 2});
    if (!program) return program.error;
    auto training = Training<>::make(net_, std::move(*program), cpu);
    if (!training) return training.error;
    training_ = std::move(*training);
    auto x = Block<float>::make(batch * 2, "the input"),
         y = Block<float>::make(batch * 2, "the targets");
    if (!x || !y) return x ? y.error : x.error;
    x_ = std::move(*x);
    y_ = std::move(*y);
    return {};
  }

  /// A job: a slice of `slice_ticks`, or what there is left of `most_updates`.
  static void learn(void* data, std::size_t, int) { static_cast<Learner*>(data)->slice(); }

  std::int64_t slice_ticks = 0;
  std::uint64_t most_updates = 0;
  adacc::Error error;
  double first_loss = 0, loss = 0;

  bool ended() const { return error || training_.updates() >= most_updates; }
  adacc::View<const float> weights() const { return training_.params(); }

 private:
  void slice() {
    const std::int64_t deadline = nanoseconds() + slice_ticks;
    while (!ended() && nanoseconds() < deadline) {
      if (!training_.compiled_step().active()) {
        draw_batch();
        const adacc::Shape shape(batch, 2);
        error = training_.begin(adacc::View<const float>(x_.data(), shape),
                                adacc::View<const float>(y_.data(), shape));
        if (error) return;
      }
      const auto ran = training_.slice(nanoseconds, deadline);
      if (!ran) error = ran.error;
      else if (ran->stalled)
        training_.cursor().forget();  // it was held up once: the next slice tries again
      if (!ran || !ran->ended) return;
      const auto outcome = training_.update(3e-3);
      if (!outcome) error = outcome.error;
      else loss = outcome->loss;
      if (outcome && training_.updates() == 1) first_loss = loss;
    }
  }

  /// Places, and the wind there: a function of the number of the update.
  void draw_batch() {
    const adacc::RandomKey key{.step = static_cast<std::uint32_t>(training_.updates()),
                               .purpose = adacc::Purpose::sampling};
    for (std::size_t i = 0; i < batch; ++i) {
      for (std::size_t k = 0; k < 2; ++k)
        x_[2 * i + k] = 2 * adacc::unit_float(adacc::random_word(key, 2 * i + k)) - 1;
      wind(x_[2 * i], x_[2 * i + 1], &y_[2 * i]);
    }
  }

  adacc::Network<Model, adacc::MeanSquaredError> net_;
  adacc::Training<> training_;
  adacc::Block<float> x_, y_;
};

struct Percentiles {
  double middle = 0, late = 0;
};
Percentiles percentiles(std::vector<std::int64_t> ticks) {
  std::sort(ticks.begin(), ticks.end());
  const auto at = [&](double share) {
    return ticks.empty() ? 0
                         : static_cast<double>(ticks[static_cast<std::size_t>(
                               share * static_cast<double>(ticks.size() - 1))]) /
                               1e6;
  };
  return {at(0.5), at(0.99)};
}

/// Frames until all is learned, on so many workers; the weights that come out.
adacc::Result<std::vector<float>> play(const Options& options, int workers) {
  engine::JobSystem jobs(workers);
  const EngineExecutor executor(jobs);
  const auto swarm = std::make_unique<Swarm>();
  const auto learner = std::make_unique<Learner>(options.hidden);
  if (const adacc::Error why = learner->set_up(executor)) return why;
  learner->slice_ticks = static_cast<std::int64_t>(options.slice_ms * 1e6);
  learner->most_updates = options.updates;

  constexpr std::size_t frames_alone = 30;  // without learning, to compare
  std::vector<std::int64_t> alone, learning;
  while (!learner->ended()) {
    const std::int64_t start = nanoseconds();
    const bool learns = alone.size() == frames_alone;
    engine::Counter frame;
    if (learns) jobs.kick(Learner::learn, learner.get(), 1, frame);
    jobs.kick(Swarm::fly, swarm.get(), Swarm::chunks, frame);
    jobs.wait(frame);
    (learns ? learning : alone).push_back(nanoseconds() - start);
  }
  if (learner->error) return learner->error;

  const Percentiles before = percentiles(alone), with = percentiles(learning);
  std::printf("%d %s: frames of %.2f ms (p99 %.2f), %.2f ms (p99 %.2f) while it learns\n", workers,
              workers == 1 ? "worker" : "workers", before.middle, before.late, with.middle,
              with.late);
  std::printf("  %zu updates in %zu frames, %zu tiles, %zu jobs stolen; loss %.4f, then %.4f\n",
              static_cast<std::size_t>(options.updates), learning.size(), executor.tiles(),
              static_cast<std::size_t>(jobs.stolen()), learner->first_loss, learner->loss);
  return std::vector<float>(learner->weights().begin(), learner->weights().end());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Learns on the threads of an engine's job system.", "job_system");
  app.add_option("--workers", options.workers,
                 "Numbers of threads to do it with, one after the other")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--updates", options.updates, "Training steps")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "Units in each of two hidden layers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--slice", options.slice_ms, "Milliseconds of learning in a frame")
      ->check(support::between(0.01, 16))
      ->capture_default_str();
  if (const auto status = support::parse(app, argc, argv)) return *status;

  std::vector<float> first;
  bool same = true;
  for (const int workers : options.workers) {
    const auto weights = play(options, workers);
    if (!weights) {
      std::fprintf(stderr, "job_system: %s\n", weights.error.text());
      return 1;
    }
    if (first.empty()) first = *weights;
    same = same && first.size() == weights->size() &&
           std::memcmp(first.data(), weights->data(), first.size() * sizeof(float)) == 0;
  }
  std::printf("the weights have the same bits each time: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
