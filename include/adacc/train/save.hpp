// SPDX-License-Identifier: MIT
/// Training::save() and load(): checkpoints (io/checkpoint.hpp) of all that a training is.
#pragma once

#include <string>
#include <utility>

#include "../io/checkpoint.hpp"
#include "../io/plan_text.hpp"
#include "file_order.hpp"
#include "saved_state.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
CheckpointInfo Training<T, Context, Optimizer>::info() const {
  CheckpointInfo info;
  const Graph& graph = step_.graph();
  info.model = model;
  info.optimizer = detail::state_text(table_, graph);
  info.plan = plan_text(graph, plan());
  info.updates = updates_;
  info.data_position = data_position;
  info.key.seed = context_.key.seed;
  info.key.step = static_cast<std::uint32_t>(updates_);
  info.layout = detail::layout_of(graph);
  info.graph = graph.fingerprint;
  info.scalar = dtype_of<T>;
  info.parameter_elems = graph.parameter_elems;
  info.state_bytes = table_.bytes();
  return info;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::save(const std::string& path,
                                            const std::string& notes) const {
  CheckpointInfo info = this->info();
  info.notes = notes;
  if (keeper_ != nullptr) info.evolution = keeper_->text();
  return detail::write_in_file_order(step_.graph(), params(), [&](View<const T> ordered) {
    return save_checkpoint<T>(path, info, ordered, state_.view());
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
  const auto fail = [&](const Error& why) {
    return Error::say("checkpoint ", one_line(path, 100).c_str(), ": ", why.text());
  };
  auto state = detail::SavedState<T>::make(saved.optimizer, saved.state_bytes, optimizer,
                                           step_.graph(), table_);
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
  if (const Error why = detail::read_in_file_order(step_.graph(), params(), [&](View<T> ordered) {
        return file->read(ordered, state->memory(state_.view()));
      }))
    return why;
  state->convert(state_.view());
  updates_ = saved.updates;
  data_position = saved.data_position;
  context_.key.seed = saved.key.seed;
  give_up();
  return saved;
}

}}  // namespace adacc::v0_1
