// SPDX-License-Identifier: MIT
/// Training::save() and load(): checkpoints (io/checkpoint.hpp) of all that a training is.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../io/checkpoint.hpp"
#include "../io/plan_text.hpp"
#include "saved_state.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Where parameters lie in a file: in their order, whichever of them are frozen.
inline std::vector<std::size_t> offsets_in_files(const Graph& graph) {
  std::vector<std::size_t> offsets;
  std::size_t next = 0;
  for (const Parameter& parameter : graph.parameters) {
    std::size_t mine = next;
    if (parameter.owner) next += padded_elems(parameter.shape, graph.scalar);
    for (std::size_t i = 0; i < offsets.size() && !parameter.owner; ++i)
      if (graph.parameters[i].offset == parameter.offset) mine = offsets[i];
    offsets.push_back(mine);
  }
  return offsets;
}

/// Calls copy(offset in a file of `saved`, offset in the block of `graph`, elements) for every parameter
/// of `saved`. The parameters of `graph` are these, wherever they lie.
template <class Copy>
void each_parameter(const Graph& saved, const Graph& graph, const Copy& copy) {
  const std::vector<std::size_t> offsets = offsets_in_files(saved);
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (saved.parameters[i].owner)
      copy(offsets[i], graph.parameters[i].offset, saved.parameters[i].shape.elems());
}

/// The norm that the gradients of the next update are clipped by, as the last line of what a checkpoint
/// says of the optimizer's state.
inline constexpr char norm_line[] = "\nnorm of the gradients: ";
inline std::string norm_text(double norm) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%a", norm_line, norm);  // to the last bit
  return text;
}
/// The norm that `text` ends with, which is taken off; -1: none.
inline double take_norm(std::string& text) {
  const std::size_t line = text.find(norm_line);
  if (line == std::string::npos) return -1;
  const double norm = std::strtod(text.c_str() + line + sizeof norm_line - 1, nullptr);
  text.resize(line);
  return norm >= 0 && std::isfinite(norm) ? norm : -1;
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
CheckpointInfo Training<T, Context, Optimizer>::info(const UpdateTable& table) const {
  CheckpointInfo info;
  const Graph& graph = step_.graph();
  info.model = model;
  info.optimizer = detail::state_text(table, graph);
  if (clip_by == ClipBy::previous && previous_norm_ >= 0)
    info.optimizer += detail::norm_text(previous_norm_);
  info.plan = plan_text(graph, plan());
  info.updates = updates_;
  info.data_position = data_position;
  info.key.seed = context_.key.seed;
  info.key.step = static_cast<std::uint32_t>(updates_);
  info.layout = detail::layout_of(graph);
  info.graph = graph.fingerprint;
  info.scalar = dtype_of<T>;
  info.parameter_elems = graph.parameter_elems;
  info.state_bytes = table.bytes();
  return info;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::save(const std::string& path,
                                            const std::string& notes) const {
  return write(path, notes, table_, state_.view());
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::write(const std::string& path, const std::string& notes,
                                             const UpdateTable& table, ConstBytes state) const {
  CheckpointInfo info = this->info(table);
  info.notes = notes;
  if (keeper_ != nullptr) info.evolution = keeper_->text();
  const Graph& graph = step_.graph();
  if (graph.gradient_elems == graph.parameter_elems)
    return save_checkpoint<T>(path, info, params(), state);
  Result<adacc::Block<T>> all =
      adacc::Block<T>::make(graph.parameter_elems, "parameters in a file's order");
  if (!all) return all.error;
  detail::each_parameter(graph, graph, [&](std::size_t in_file, std::size_t at, std::size_t n) {
    std::memcpy(all->data() + in_file, params().data() + at, n * sizeof(T));
  });
  return save_checkpoint<T>(path, info, std::as_const(*all).view(), state);
}

template <class T, class Context, class Optimizer>
Result<CheckpointInfo> Training<T, Context, Optimizer>::load(const std::string& path,
                                                             Restore what) {
  return read(path, what, table_, state_.view());
}

template <class T, class Context, class Optimizer>
Result<CheckpointInfo> Training<T, Context, Optimizer>::read(const std::string& path, Restore what,
                                                             const UpdateTable& table,
                                                             Bytes state_memory) {
  if (const Error why = settle()) return why;
  Result<CheckpointFile> file = CheckpointFile::open(path);
  if (!file) return file.error;
  if (const Error why = file->check(info(table))) return why;
  const CheckpointInfo& saved = file->info();
  const auto fail = [&](const Error& why) {
    return Error::say("checkpoint ", one_line(path, 100).c_str(), ": ", why.text());
  };
  std::string state_text = saved.optimizer;
  const double norm = detail::take_norm(state_text);
  auto state =
      detail::SavedState<T>::make(state_text, saved.state_bytes, optimizer, step_.graph(), table);
  if (!state) return fail(state.error);
  if (what == Restore::all && keeper_ != nullptr) {
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
  if (graph.gradient_elems == graph.parameter_elems) {
    if (const Error why = file->read(params(), state->memory(state_memory))) return why;
  } else {
    Result<adacc::Block<T>> all =
        adacc::Block<T>::make(graph.parameter_elems, "parameters in a file's order");
    if (!all) return all.error;
    if (const Error why = file->read(all->view(), state->memory(state_memory))) return why;
    detail::each_parameter(graph, graph, [&](std::size_t in_file, std::size_t at, std::size_t n) {
      std::memcpy(params().data() + at, all->data() + in_file, n * sizeof(T));
    });
  }
  state->convert(state_memory);
  updates_ = saved.updates;
  previous_norm_ = norm;
  data_position = saved.data_position;
  context_.key.seed = saved.key.seed;
  give_up();
  return saved;
}

}}  // namespace adacc::v0_1
