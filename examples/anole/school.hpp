// SPDX-License-Identifier: MIT
/// Trains one network of any sizes within a byte budget, and judges it.
#pragma once

#include <adacc/io/budget.hpp>
#include <adacc/optimizer/learning_rate.hpp>
#include <adacc/train/make.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "frames.hpp"
#include "picture_net.hpp"

namespace anole {

/// Parameters of a network, as graphs place them of which all is trained.
struct Weights {
  Sizes sizes;
  std::vector<float> values;
};

/// Frames to learn from, and the answers.
struct Lesson {
  const Clips* clips = nullptr;
  std::vector<std::size_t> frames;
  std::vector<std::int32_t> answers;
};

struct Course {
  std::size_t samples = 0;  ///< frames seen in all
  std::size_t batch = 32;
  double rate = 2e-3;
  std::uint64_t seed = 0;
  adacc::Budget budget{};  ///< of activations, in bytes or of what retain needs
};

/// What a course took.
struct Bill {
  std::size_t peak_bytes = 0, retain_bytes = 0;
};

/// Trains a network from the beginning, or from `start`.
inline adacc::Result<Weights> train(const Sizes& sizes, const Lesson& lesson, const Course& course,
                                    const Weights* start = nullptr, Bill* bill = nullptr) {
  using namespace adacc;
  const Net net = sizes.net();
  const Shape shape = input_shape(course.batch);
  const Result<Graph> graph = graph_of(net, course.batch, false);
  if (!graph) return graph.error;
  const std::size_t retain = peak_bytes(*graph, plan_from_types(*graph));
  TrainingOptions<Cpu, AdamW> options;
  options.budget_bytes = course.budget.of(retain);
  options.tolerance = 0;  // without loss: masks, packed indices, and what is computed again
  options.seed = course.seed;
  options.clip = 1;
  options.optimizer.weight_decay = 0.01F;
  options.planning.evolving = false;
  auto training = Training<>::make(net, shape, options);
  if (!training) return training.error;
  if (start != nullptr)
    std::memcpy(training->params().data(), start->values.data(),
                start->values.size() * sizeof(float));
  if (bill != nullptr) *bill = {training->peak_bytes(), retain};

  const std::size_t steps = course.samples / course.batch;
  const LearningRate rate{course.rate, course.rate / 50, steps / 20, steps};
  auto x = Block<float>::make(shape.elems(), "a batch of pictures");
  if (!x) return x.error;
  std::vector<std::int32_t> answers(course.batch);
  Draws draws(course.seed, static_cast<std::uint32_t>(Stream::batches), 0);
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t b = 0; b < course.batch; ++b) {
      const std::size_t i = draws.below(lesson.frames.size());
      as_input(lesson.clips->picture(lesson.frames[i]), x->data() + b * pixels);
      answers[b] = lesson.answers[i];
    }
    const auto outcome = training->step(
        View<const float>(x->data(), shape),
        View<const std::int32_t>(answers.data(), answers_shape(course.batch)), rate.at(step));
    if (!outcome) return outcome.error;
    if (!outcome->finite)
      return Error::say("the loss is no longer finite after ", step,
                        " steps: a smaller learning rate may help");
  }
  return Weights{sizes, std::vector<float>(training->params().begin(), training->params().end())};
}

/// The share of the lesson that is answered rightly.
inline adacc::Result<double> judge(const Weights& weights, const Lesson& lesson) {
  using namespace adacc;
  const Net net = weights.sizes.net();
  auto network = Inference<>::make(net, input_shape(1));
  if (!network) return network.error;
  if (const Error why = network->take_memory()) return why;
  if (const Error why =
          network->copy_parameters({weights.values.data(), Shape(weights.values.size())}))
    return why;
  Cpu cpu;
  alignas(64) float x[pixels];
  std::size_t right = 0;
  for (std::size_t i = 0; i < lesson.frames.size(); ++i) {
    as_input(lesson.clips->picture(lesson.frames[i]), x);
    const auto scores = network->infer(cpu, View<const float>(x, input_shape(1)));
    if (!scores) return scores.error;
    right += largest(scores->data(), weights.sizes.outputs) ==
             static_cast<std::size_t>(lesson.answers[i]);
  }
  return static_cast<double>(right) / static_cast<double>(lesson.frames.size());
}

}  // namespace anole
