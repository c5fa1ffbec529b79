// SPDX-License-Identifier: MIT
/// The activations of a GPT that has learned a little, layer by layer.
///
/// A step under `retain` runs instruction by instruction; right after a layer's forward (and the
/// residual sum that ends there) the activation is read out of the arena, where the program's
/// layout says it lies.
#pragma once

#include <adacc/io/text.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/training.hpp>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codec_inputs.hpp"

namespace captured {

namespace gpt = adacc::gpt;

struct Setting {
  gpt::Config network{4, 4, 128, 128, 256};
  std::size_t batch = 8, seq = 128;
  int steps = 200;
  double lr = 1e-3;
  std::string text;
};

/// What node `k` of a GPT's graph makes.
inline std::string role(int k, int nodes) {
  if (k == 0) return "embedding";
  if (k == nodes - 1) return "norm";
  const char* names[] = {"norm 1", "qkv",     "attention", "middle",
                         "norm 2", "GELU in", "GELU out",  "output"};
  return names[(k - 1) % 8];
}

inline std::string name(int k, int nodes) {
  if (k == 0 || k == nodes - 1) return role(k, nodes);
  return std::to_string((k - 1) / 8 + 1) + " " + role(k, nodes);
}

struct Captured {
  std::vector<codec_inputs::Input> activations;
  double first_loss = 0, last_loss = 0;
};

namespace detail {

/// The activations of the step that `training` makes on the batch given.
inline adacc::Error capture(adacc::Training<>& training, adacc::View<const std::int32_t> input,
                            adacc::View<const std::int32_t> targets, Captured& captured) {
  using adacc::Instruction;
  using adacc::Op;
  adacc::Step<>& step = training.compiled_step();
  const adacc::Program& program = step.program();
  const auto& instructions = program.schedule.instructions;
  if (adacc::Error why = step.begin(input, targets)) return why;
  for (adacc::Position at; at.instruction < step.instruction_count();) {
    const std::size_t i = at.instruction;
    const Instruction& inst = instructions[i];
    if (inst.op == Op::loss_gradient) break;
    at = step.execute(training.context(), at);
    if (at.part != 0) continue;
    const bool sum_follows =
        instructions[i + 1].op == Op::add && instructions[i + 1].node == inst.node;
    if ((inst.op != Op::forward && inst.op != Op::add) || sum_follows) continue;
    const adacc::Shape shape = program.graph.node(inst.node).output;
    auto copy = adacc::Block<float>::make(shape.elems(), "an activation");
    if (!copy) return copy.error;
    std::memcpy(copy->data(),
                training.arena().data() + program.layout.offsets[static_cast<std::size_t>(inst.y)],
                shape.elems() * sizeof(float));
    codec_inputs::Input made{name(inst.node, program.graph.node_count()),
                             shape.rows(),
                             shape.cols(),
                             std::move(*copy),
                             {}};
    made.bulk = codec_inputs::bulk_of(made.view());
    captured.activations.push_back(std::move(made));
  }
  step.abandon();
  return step.error();
}

}  // namespace detail

/// Trains from scratch for setting.steps and captures the activations of one step more.
inline adacc::Result<Captured> capture(const Setting& setting, const adacc::Cpu& cpu) {
  using namespace adacc;
  const auto network = gpt::make(setting.network);
  const Shape shape(setting.batch, setting.seq);
  auto graph = make_graph(network, shape, {.workers = cpu.workers()});
  if (!graph) return graph.error;
  auto program =
      make_program(*graph, gpt::named_plan("retain", setting.network, setting.batch, setting.seq));
  if (!program) return program.error;
  auto training = Training<>::make(network, std::move(*program), cpu);
  if (!training) return training.error;
  auto text = read_text(setting.text);
  if (!text) return text.error;
  auto inputs = Block<std::int32_t>::make(shape.elems(), "inputs");
  auto targets = Block<std::int32_t>::make(shape.elems(), "targets");
  if (!inputs || !targets) return inputs ? targets.error : inputs.error;
  const View<const std::int32_t> x(inputs->data(), shape), y(targets->data(), shape);

  Captured captured;
  for (int i = 0; i <= setting.steps; ++i) {
    const auto step = static_cast<std::uint64_t>(i);
    if (Error why = text->batch(step, setting.batch, setting.seq, inputs->view(), targets->view()))
      return why;
    if (i == setting.steps) break;
    const auto outcome = training->step(x, y, setting.lr);
    if (!outcome) return outcome.error;
    if (i == 0) captured.first_loss = outcome->loss;
    captured.last_loss = outcome->loss;
  }
  if (Error why = detail::capture(*training, x, y, captured)) return why;
  return captured;
}

}  // namespace captured
