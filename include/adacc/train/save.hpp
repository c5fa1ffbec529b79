// SPDX-License-Identifier: MIT
/// Training::save() and load(): checkpoints (io/checkpoint.hpp) of all that a training is.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../io/checkpoint.hpp"
#include "../io/plan_text.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Where parameters lie in a file: in their order, whichever of them are frozen.
inline std::vector<std::size_t> offsets_in_files(const Graph& graph) {
  std::vector<std::size_t> offsets;
  std::size_t next = 0;
  const std::size_t unit = alignment / bytes_of(graph.scalar);
  for (const Parameter& parameter : graph.parameters) {
    std::size_t mine = next;
    if (parameter.owner) next += (parameter.shape.elems() + unit - 1) / unit * unit;
    for (std::size_t i = 0; i < offsets.size() && !parameter.owner; ++i)
      if (graph.parameters[i].offset == parameter.offset) mine = offsets[i];
    offsets.push_back(mine);
  }
  return offsets;
}

/// Calls copy(offset in a training's block, offset in a file's, elements) for all parameters that
/// are in a block of `elems`: of the parameters, or of the optimizer's state, which is that of the
/// trained ones.
template <class Copy>
void each_in_block(const Graph& graph, std::size_t elems, const Copy& copy) {
  const std::vector<std::size_t> offsets = offsets_in_files(graph);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const Parameter& parameter = graph.parameters[i];
    if (parameter.owner && parameter.offset < elems)
      copy(parameter.offset, offsets[i], parameter.shape.elems());
  }
}

/// A hash of what a block of parameters holds where: layers, names, shapes and offsets.
inline std::uint64_t layout_of(const Graph& graph) {
  const std::vector<std::size_t> offsets = offsets_in_files(graph);
  Mixer all;
  const auto mix = [&](const char* text) {
    for (; *text != '\0'; ++text) all.mix(static_cast<unsigned char>(*text));
    all.mix(256);
  };
  for (std::size_t p = 0; p < offsets.size(); ++p) {
    const Parameter& parameter = graph.parameters[p];
    mix(parameter.node < 0 ? graph.loss.name : graph.node(parameter.node).name);
    mix(parameter.name);
    all.mix(offsets[p]);
    all.mix(static_cast<std::uint64_t>(parameter.shape.rank()));
    for (int i = 0; i < parameter.shape.rank(); ++i) all.mix(parameter.shape[i]);
  }
  return all.value();
}

}  // namespace detail

template <class T, class Context, class Optimizer>
CheckpointInfo Training<T, Context, Optimizer>::info() const {
  CheckpointInfo info;
  const Graph& graph = step_.graph();
  info.model = model;
  info.optimizer = Optimizer::name;
  info.plan = plan_text(graph, plan());
  info.updates = updates_;
  info.data_position = data_position;
  info.key.seed = context_.key.seed;
  info.key.step = static_cast<std::uint32_t>(updates_);
  info.layout = detail::layout_of(graph);
  info.graph = graph.fingerprint;
  info.scalar = dtype_of<T>;
  info.parameter_elems = graph.parameter_elems;
  info.state_blocks = state_blocks;
  return info;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::save(const std::string& path,
                                            const std::string& notes) const {
  CheckpointInfo info = this->info();
  info.notes = notes;
  if (keeper_ != nullptr) info.evolution = keeper_->text();
  const Graph& graph = step_.graph();
  const auto mine = [&](std::size_t i) { return i == 0 ? params() : state(i - 1); };
  if (graph.gradient_elems == graph.parameter_elems)
    return save_checkpoint<T>(path, info, graph.parameter_elems, state_blocks + 1, mine);
  std::vector<T> block(graph.parameter_elems);
  return save_checkpoint<T>(path, info, block.size(), state_blocks + 1, [&](std::size_t i) {
    std::fill(block.begin(), block.end(), T(0));
    const View<const T> from = mine(i);
    detail::each_in_block(graph, from.size(),
                          [&](std::size_t at, std::size_t in_file, std::size_t n) {
                            std::memcpy(block.data() + in_file, from.data() + at, n * sizeof(T));
                          });
    return View<const T>(block.data(), Shape(block.size()));
  });
}

template <class T, class Context, class Optimizer>
Result<CheckpointInfo> Training<T, Context, Optimizer>::load(const std::string& path,
                                                             Restore what) {
  if (const Error why = settle()) return why;
  Result<CheckpointFile> file = CheckpointFile::open(path);
  if (!file) return file.error;
  if (const Error why = file->check(info())) return why;
  const CheckpointInfo& saved = file->info();
  if (what == Restore::all && keeper_ != nullptr) {
    const auto fail = [&](const Error& why) {
      return Error::say("checkpoint ", one_line(path, 100).c_str(), ": ", why.text());
    };
    Array<const CodecInfo*> codecs;
    for (const CodecDispatch<T, Context>& codec : step_.dispatch().codecs)
      codecs.push_back(codec.info);
    Result<Plan> plan = parse_plan(saved.plan, step_.graph(), codecs, saved.graph);
    if (!plan) return fail(plan.error);
    if (saved.evolution.empty())
      return fail(
          Error::say("its plan was fixed, and this training's is not: make it of a program, "
                     "or restore the numbers alone"));
    if (const Error why = keeper_->restore(*this, std::move(*plan), saved.evolution))
      return fail(why);
  }
  const Graph& graph = step_.graph();
  const auto mine = [&](std::size_t i) { return i == 0 ? params() : state(i - 1); };
  const bool all_trained = graph.gradient_elems == graph.parameter_elems;
  std::vector<T> block(all_trained ? 0 : graph.parameter_elems);
  const auto read = file->template read_each<T>(
      state_blocks + 1,
      [&](std::size_t i) {
        return all_trained ? mine(i) : View<T>(block.data(), Shape(block.size()));
      },
      [&](std::size_t i) {
        if (all_trained) return;
        const View<T> to = mine(i);
        detail::each_in_block(graph, to.size(),
                              [&](std::size_t at, std::size_t in_file, std::size_t n) {
                                std::memcpy(to.data() + at, block.data() + in_file, n * sizeof(T));
                              });
      });
  if (read) return read;
  updates_ = saved.updates;
  data_position = saved.data_position;
  context_.key.seed = saved.key.seed;
  give_up();
  return saved;
}

}}  // namespace adacc::v0_1
