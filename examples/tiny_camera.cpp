// SPDX-License-Identifier: MIT
/// A camera that learns where it is: a convolutional network in int8, trained elsewhere, goes on learning on
/// the device, in 256 KiB that the compiler counts.
///
/// The camera tells parts on a belt apart. It was trained above one belt (tiny_camera/offline.cpp), and is
/// then mounted elsewhere: tilted, out of focus, weakly lit from the side, above a lighter belt
/// (tiny_camera/scene.hpp). There it is shown known parts, and adapts. Which tensors learn was chosen
/// offline, by what each is worth and takes; the others stay constants in int8. That sparse updates fit such
/// a device is the finding of Lin et al., "On-device training under 256KB memory", 2022.
///
/// There is no heap here, as in tiny_device. On a device of another size (-DDEVICE_KIB=192) either the offline
/// half chooses other tensors, or the compiler says that it does not fit.
///
///     tiny_camera [PLACES]    adapts in so many places, each drawn by its number; 3 if not said
#include <cstdio>
#include <cstdlib>

#include "device/no_heap.hpp"
#include "tiny_camera/network.hpp"
#include "tiny_camera_weights.h"  // which tiny_camera_offline wrote

namespace {

using namespace tiny_camera;

constexpr Tables tables{
    {&camera_conv0_weight[0][0][0][0], &camera_conv1_weight[0][0][0][0],
     &camera_conv2_weight[0][0][0][0], &camera_conv3_weight[0][0][0][0],
     &camera_conv4_weight[0][0][0][0]},
    {camera_conv0_weight_scale, camera_conv1_weight_scale, camera_conv2_weight_scale,
     camera_conv3_weight_scale, camera_conv4_weight_scale},
    {camera_grid_scale[0], camera_grid_scale[1], camera_grid_scale[2], camera_grid_scale[3],
     camera_grid_scale[4]}};
constexpr const float* biases[convolutions] = {
    camera_conv0_bias, camera_conv1_bias, camera_conv2_bias, camera_conv3_bias, camera_conv4_bias};

constexpr unsigned learning_weights = [] {
  unsigned set = 0;
  for (std::size_t k = 0; k < convolutions; ++k) set |= camera_trained[2 * k] != 0 ? 1U << k : 0;
  return set;
}();
constexpr auto net = Camera<learning_weights>::network(tables);

constexpr auto make_training = [] {
  const Result<Graph> graph = make_graph(net, pictures);
  const TrainedSet set = trained_set(*graph, camera_trained);
  return make_program(net, pictures, {.parts = parts_of_step, .trained = &set});
};
constinit FixedTraining<decltype(make_training), Optimizer> training;
decltype(training)::Memory memory;  // zeros

struct Batch {
  alignas(64) float input[pictures.elems()];
  alignas(64) std::int32_t targets[batch];
};
Batch seen;
constexpr std::size_t used_bytes = sizeof training + sizeof memory + sizeof seen + table_bytes;
static_assert(used_bytes <= device_bytes,
              "tiny_camera: training does not fit the device: see DEVICE_KIB");
static_assert(sizeof training + sizeof seen <= rest_bytes,
              "tiny_camera: the offline half counts on less beside tables and what is trained");
// Were all weights trained, the device would be too small: sparse updates are needed.
static_assert(used_bytes - training.arena_bytes +
                      make_program(Camera<(1U << convolutions) - 1>::network(tables), pictures,
                                   {.parts = parts_of_step})
                          ->peak_bytes() +
                      12 * (weights_of(3) + weights_of(4)) >
                  device_bytes,
              "all of it could be trained");
const View<const float> input_view(seen.input, pictures);
const View<const std::int32_t> target_view(seen.targets, Shape(batch));

int fail(const Error& why) {
  std::printf("tiny_camera: %s\n", why.text());
  return 1;
}

/// The network as it was delivered.
void reset() {
  load(training.table(), tables, biases, &camera_head_weight[0][0], camera_head_bias,
       memory.params);
  training.restart();
}

constexpr std::uint64_t lessons = 10, fresh = 11;  // seeds of pictures

Error adapt(Cpu& cpu, const Conditions& conditions) {
  constexpr Lesson lesson;
  for (std::uint32_t i = 0; i < lesson.steps; ++i) {
    take_batch(conditions, lessons, i * batch, seen.input, seen.targets);
    const Result<double> loss = training.step(cpu, input_view, target_view, lesson.rate_at(i));
    if (!loss) return loss.error;
  }
  return {};
}

constexpr std::uint32_t judged = 256;

/// How many of `judged` fresh pictures are named right.
Result<std::uint32_t> right(Cpu& cpu, const Conditions& conditions) {
  std::uint32_t count = 0;
  for (std::uint32_t first = 0; first < judged; first += batch) {
    take_batch(conditions, fresh, first, seen.input, seen.targets);
    const Result<View<const float>> scores = training.infer(cpu, input_view);
    if (!scores) return scores.error;
    for (std::size_t b = 0; b < batch; ++b) count += best_of(scores->row(b)) == seen.targets[b];
  }
  return count;
}

/// In percent.
double percent(std::uint32_t count, std::uint32_t of) { return 100.0 * count / of; }

}  // namespace

int main(int argc, char** argv) {
  static char text[512];  // stdio would ask malloc for it
  std::setvbuf(stdout, text, _IOLBF, sizeof text);
  const int places = argc > 1 ? std::atoi(argv[1]) : 3;
  if (argc > 2 || places < 1 || places > 1000) {
    std::printf("usage: tiny_camera [PLACES], 1 to 1000\n");
    return 2;
  }
  const auto shown = [](std::size_t bytes) {
    return static_cast<unsigned>(bytes);
  };  // newlib has no %zu
  std::printf("memory: %u of %u bytes, proven by the compiler\n", shown(used_bytes),
              shown(device_bytes));
  std::printf(
      "  int8 weights and what comes with them %u, activations and their gradients %u, "
      "parameters %u, gradients %u, moments %u, batch %u, programs %u\n",
      shown(table_bytes), shown(sizeof memory.arena), shown(sizeof memory.params),
      shown(sizeof memory.gradients), shown(sizeof memory.state), shown(sizeof seen),
      shown(sizeof training + sizeof memory.steps));
  std::printf("learning: the last layer, and of the convolutions");
  for (std::size_t t = 0; t < tensors; ++t)
    if (camera_trained[t] != 0)
      std::printf(" %s%u", t % 2 == 0 ? "weight" : "bias", static_cast<unsigned>(t / 2));
  std::printf("\n");

  Cpu cpu;
  if (const Error why = training.set_up(net, memory)) return fail(why);
  reset();
  const Result<std::uint32_t> home = right(cpu, workshop());
  if (!home) return fail(home.error);
  std::printf("in the workshop %.1f %%\n", percent(*home, judged));
  std::uint32_t all_before = 0, all_after = 0;
  double least = 100;
  for (int p = 1; p <= places; ++p) {
    const Conditions conditions = place(static_cast<std::uint32_t>(p));
    reset();
    const Result<std::uint32_t> before = right(cpu, conditions);
    if (!before) return fail(before.error);
    if (const Error why = adapt(cpu, conditions)) return fail(why);
    const Result<std::uint32_t> after = right(cpu, conditions);
    if (!after) return fail(after.error);
    std::printf("place %d: before %.1f %%, after %.1f %%\n", p, percent(*before, judged),
                percent(*after, judged));
    all_before += *before, all_after += *after;
    const double gained = percent(*after, judged) - percent(*before, judged);
    if (gained < least) least = gained;
  }
  const std::uint32_t all = judged * static_cast<std::uint32_t>(places);
  const double gain = percent(all_after, all) - percent(all_before, all);
  constexpr double stated = 5;
  std::printf(
      "mean: before %.1f %%, after %.1f %%, %.1f points more, at least %.1f (stated: %.0f)\n",
      percent(all_before, all), percent(all_after, all), gain, least, stated);
  return gain >= stated ? 0 : 1;
}
