// SPDX-License-Identifier: MIT
/// Training on a device: a network learns to tell faults of a machine from its vibrations, in
/// static memory whose size the compiler proves.
///
/// A sensor on the housing of a rotating machine measures acceleration on three axes. The machine
/// is healthy, out of balance, has a damaged bearing, or is loose on its mount. The data comes from
/// a physical model: on each axis a mass on a spring with a damper, driven by what the fault does,
/// integrated eight times between two samples.
///
/// There is no heap here: `operator new` ends the program, and a test counts calls of malloc. What
/// the build says about size and stack comes from footprint.cmake.
#include <adacc/adacc.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/layer/plain/conv1d.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_over_time.hpp>
#include <adacc/layer/plain/relu.hpp>
#include <adacc/layer/plain/softmax_cross_entropy.hpp>
#include <adacc/optimizer/adamw.hpp>
#include <adacc/train/fixed_training.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "device/no_heap.hpp"
#include "device/random.hpp"

namespace {

using namespace adacc;

// The network, and what its training needs: all of it known to the compiler.

constexpr std::size_t batch = 16, samples = 128, axes = 3, classes = 4;
constexpr Shape windows(batch, samples, axes);

/// Four convolutions, each with a ReLU whose output is `Stored` until its two readers in backward.
/// A convolution's own output is read by nobody there.
template <class Stored>
struct Detector {
  template <class Functor, class Policy = Retain>
  using L = Layer<Functor, Policy>;
  using Convolution = L<plain::Conv1d>;
  using Activation = L<plain::Relu, Stored>;
  using Model =
      Sequential<Convolution, Activation, Convolution, Activation, Convolution, Activation,
                 Convolution, L<plain::Relu>, L<plain::MeanOverTime>, L<plain::Linear>>;
  static constexpr Network<Model, plain::SoftmaxCrossEntropy> net{
      Model{{plain::Conv1d{.out = 12, .kernel = 9, .stride = 2}},
            {},
            {plain::Conv1d{.out = 12}},
            {},
            {plain::Conv1d{.out = 12}},
            {},
            {plain::Conv1d{.out = 16, .kernel = 5, .stride = 2}},
            {},
            {},
            {plain::Linear{.out = classes}}},
      {}};
};
constexpr const auto& net = Detector<Compress<Bf16>>::net;

constexpr auto make_training = [] { return make_program(net, windows); };
constinit FixedTraining<decltype(make_training), AdamW> training;
decltype(training)::Memory memory;  // zeros

struct Batch {
  alignas(64) float input[windows.elems()];
  alignas(64) std::int32_t targets[batch];
};
Batch sensed;
constexpr std::size_t device_bytes = 256 * KiB;
constexpr std::size_t used_bytes = sizeof training + sizeof memory + sizeof sensed;
static_assert(used_bytes <= device_bytes, "training does not fit the device");
// Kept as they are, the activations would not leave room for the rest.
static_assert(used_bytes - training.arena_bytes +
                      make_program(Detector<Retain>::net, windows)->peak_bytes() >
                  device_bytes,
              "nothing needs to be compressed");

// The machine.

enum Fault : std::int32_t { healthy, imbalance, bearing, loose };
constexpr const char* fault_names[] = {"healthy", "imbalance", "bearing", "loose"};

/// Writes `samples` accelerations of three axes, in m/s^2, and returns the fault.
Fault simulate(std::uint32_t window, float* out) {
  constexpr float tau = 6.2831853F, sample_rate = 1000;
  constexpr int substeps = 8;
  constexpr float dt = 1 / (sample_rate * substeps);
  constexpr float resonance[axes] = {170, 150, 240};  // Hz
  constexpr float damping = 0.05F;
  device::Random random(window);
  const auto fault = static_cast<Fault>(random_word({.seed = 99, .step = window}, 0) % classes);

  const float speed = random.uniform(22, 34);  // revolutions per second
  const float severity = random.uniform(0.5F, 1.5F);
  const float unbalance = random.uniform(4, 10) + (fault == imbalance ? 40 * severity : 0);
  const float strike = fault == bearing ? 30 * severity : 0;
  const float gap = fault == loose ? 1e-6F / severity : 1;  // m; the mount lifts beyond it
  const float strike_rate = 3.58F * speed;  // balls that pass a flaw of the outer race
  const float sensor_noise = random.uniform(0.2F, 0.4F);

  float position[axes] = {}, velocity[axes] = {}, acceleration[axes] = {};
  float angle = random.uniform(0, tau), next_strike = random.uniform(0, 1 / strike_rate);
  const int settle = 64;  // samples until the start no longer shows
  for (int sample = -settle; sample < static_cast<int>(samples); ++sample) {
    for (int k = 0; k < substeps; ++k) {
      angle += tau * speed * dt;
      next_strike -= dt;
      float blow = 0;
      if (next_strike < 0) {
        next_strike += random.uniform(0.95F, 1.05F) / strike_rate;
        blow = strike;
      }
      const float turning[axes] = {unbalance * std::cos(angle), unbalance * std::sin(angle),
                                   0.1F * unbalance * std::sin(angle)};
      const float struck[axes] = {0.6F * blow, 0.8F * blow, 0.3F * blow};
      for (std::size_t a = 0; a < axes; ++a) {
        const float omega = tau * resonance[a];
        // A loose mount pulls with a fifth of its stiffness once it has lifted.
        const float spring = position[a] < gap ? position[a] : gap + 0.2F * (position[a] - gap);
        acceleration[a] = turning[a] + struck[a] + 0.5F * random.uniform(-1, 1) -
                          omega * omega * spring - 2 * damping * omega * velocity[a];
        velocity[a] += dt * acceleration[a];
        position[a] += dt * velocity[a];
      }
    }
    if (sample < 0) continue;
    for (std::size_t a = 0; a < axes; ++a)
      out[static_cast<std::size_t>(sample) * axes + a] =
          acceleration[a] + sensor_noise * random.noise();
  }
  return fault;
}

/// Fills input and targets with windows first, first + 1, …
void simulate_batch(std::uint32_t first) {
  for (std::size_t b = 0; b < batch; ++b)
    sensed.targets[b] =
        simulate(first + static_cast<std::uint32_t>(b), sensed.input + b * samples * axes);
}

// Learning.

constexpr std::uint32_t steps = 400, fresh_windows = 1024, fresh_from = 1U << 30;
constexpr double stated_accuracy = 0.98;

const View<const float> input_view(sensed.input, windows);
const View<const std::int32_t> target_view(sensed.targets, Shape(batch));

int fail(const Error& why) {
  std::printf("tiny_device: %s\n", why.text());
  return 1;
}

Error train(Cpu& cpu) {
  double mean = 0;
  for (std::uint32_t i = 0; i < steps; ++i) {
    simulate_batch(i * batch);
    const double rate = 4e-3 * (1 - 0.9 * i / steps);
    const Result<double> loss = training.step(cpu, input_view, target_view, rate);
    if (!loss) return loss.error;
    mean += *loss;
    if ((i + 1) % 100 != 0) continue;
    std::printf("step %4u  loss %.4f\n", static_cast<unsigned>(i + 1), mean / 100);
    mean = 0;
  }
  return {};
}

/// The share of windows never seen in training whose fault is named right.
Result<double> accuracy(Cpu& cpu) {
  std::uint32_t right[classes] = {}, seen[classes] = {}, all_right = 0;
  for (std::uint32_t first = 0; first < fresh_windows; first += batch) {
    simulate_batch(fresh_from + first);
    const Result<View<const float>> scores = training.infer(cpu, input_view);
    if (!scores) return scores.error;
    for (std::size_t b = 0; b < batch; ++b) {
      const float* const logits = scores->row(b);
      std::int32_t best = 0;
      for (std::int32_t c = 1; c < static_cast<std::int32_t>(classes); ++c)
        if (logits[c] > logits[best]) best = c;
      const std::int32_t fault = sensed.targets[b];
      ++seen[fault];
      right[fault] += best == fault;
      all_right += best == fault;
    }
  }
  for (std::size_t c = 0; c < classes; ++c)
    std::printf("%-10s %4u of %4u\n", fault_names[c], static_cast<unsigned>(right[c]),
                static_cast<unsigned>(seen[c]));
  return static_cast<double>(all_right) / fresh_windows;
}

}  // namespace

int main() {
  static char text[512];  // stdio would ask malloc for it
  std::setvbuf(stdout, text, _IOLBF, sizeof text);
  const auto shown = [](std::size_t bytes) {
    return static_cast<unsigned>(bytes);
  };  // newlib has no %zu
  std::printf("static memory for training: %u of %u bytes, proven by the compiler\n",
              shown(used_bytes), shown(device_bytes));
  std::printf(
      "  activations, their gradients and encoded forms %u, parameters %u, gradients and "
      "moments %u, batch %u, program %u\n",
      shown(sizeof memory.arena), shown(sizeof memory.params),
      shown(sizeof memory.gradients + sizeof memory.state), shown(sizeof sensed),
      shown(sizeof training + sizeof memory.steps));
  Cpu cpu;
  cpu.key.seed = 7;
  if (const Error why = training.set_up(net, memory)) return fail(why);
  training.initialize(cpu, 7);
  if (const Error why = train(cpu)) return fail(why);
  const Result<double> share = accuracy(cpu);
  if (!share) return fail(share.error);
  std::printf("accuracy %.4f on %u fresh windows (stated: %.2f)\n", *share,
              static_cast<unsigned>(fresh_windows), stated_accuracy);
  return *share >= stated_accuracy ? 0 : 1;
}
