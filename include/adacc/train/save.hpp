// SPDX-License-Identifier: MIT
/// Training::save() and load(): checkpoints (io/checkpoint.hpp) of a whole training.
#pragma once

#include <cmath>
#include <string>
#include <utility>

#include "../core/no_memory.hpp"
#include "../core/number_text.hpp"
#include "../core/read_number.hpp"
#include "../io/checkpoint.hpp"
#include "../io/plan_text.hpp"
#include "file_order.hpp"
#include "saved_state.hpp"
#include "training.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The norm for clipping the gradients of the next update: the last line of the description of the
/// optimizer's state in a checkpoint.
inline constexpr char norm_line[] = "\nnorm of the gradients: ";
inline std::string norm_text(double norm) {
  return std::string(norm_line) + NumberText::shortest(norm).c_str();  // to the last bit
}
/// Takes the norm off the end of `text`; -1: none. Files of earlier versions have the norm in
/// hexadecimal digits.
inline Result<double> take_norm(std::string& text) {
  const std::size_t line = text.find(norm_line);
  if (line == std::string::npos) return -1.0;
  const std::string digits = text.substr(line + sizeof norm_line - 1);
  double norm = 0;
  if (!read_hexadecimal(digits, norm) || !(norm >= 0))
    return Error::say("its norm of the gradients is \"", one_line(digits, 40).c_str(),
                      "\"; expected a number from 0 on");
  text.resize(line);
  return std::isfinite(norm) ? norm : -1;
}

}  // namespace detail

template <class T, class Context, class Optimizer>
CheckpointInfo Training<T, Context, Optimizer>::info(const UpdateTable& table) const {
  const Step<T, Context>& step = keeper_ == nullptr ? step_ : keeper_->saved_step(*this);
  const Graph& graph = step.graph();
  CheckpointInfo info =
      detail::checkpoint_info(graph, table, model, data_position, context_.key.seed, updates_);
  if (clip.by == ClipBy::previous && updater_.previous_norm >= 0)
    info.optimizer += detail::norm_text(updater_.previous_norm);
  info.plan = plan_text(graph, step.program().plan);
  return info;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::save(const std::string& path,
                                            const std::string& notes) const {
  if (const Error why = detail::check_made(step_.graph())) return why;
  if (fused() && (step_.begun() != begun_ || batches_ != 0))
    return Error::misuse(
        "a step with fused updates has begun, and is not counted yet: call update() behind its "
        "end, and then save()");
  return write(path, notes, table(), [&](const auto& put) { return read_state(put); });
}

template <class T, class Context, class Optimizer>
template <class State>
Error Training<T, Context, Optimizer>::write(const std::string& path, const std::string& notes,
                                             const UpdateTable& table, const State& state) const {
  CheckpointInfo info = this->info(table);
  info.notes = notes;
  if (keeper_ != nullptr) info.evolution = keeper_->text();
  return params_.each_form([&](auto params) {
    return memory_.read(params, [&](auto from) {
      return detail::write_in_file_order(step_.graph(), from, [&](auto ordered) {
        return save_checkpoint(path, info, ordered, table.bytes(), state);
      });
    });
  });
}

template <class T, class Context, class Optimizer>
Result<CheckpointInfo> Training<T, Context, Optimizer>::load(const std::string& path,
                                                             Restore what) {
  return detail::or_no_memory("to load a checkpoint",
                              [&] { return read(path, what, table(), updater_.state()); });
}

template <class T, class Context, class Optimizer>
Result<CheckpointInfo> Training<T, Context, Optimizer>::read(const std::string& path, Restore what,
                                                             const UpdateTable& table,
                                                             Bytes state_memory) {
  if (const Error why = settle()) return why;
  if (keeper_ != nullptr)
    if (const Error why = keeper_->run_saved_step(*this)) return why;
  Result<CheckpointFile> file = CheckpointFile::open(path);
  if (!file) return file.error;
  if (const Error why = file->examine(info(table))) return why;
  const CheckpointInfo& saved = file->info();
  const auto fail = [&](const Error& why) {
    return Error::say("checkpoint ", one_line(path, 100).c_str(), ": ", why.text());
  };
  std::string state_text = saved.optimizer;
  const Result<double> norm = detail::take_norm(state_text);
  if (!norm) return fail(norm.error);
  auto state = detail::SavedState<Wide<T>>::make(
      state_text, saved.state_bytes, optimizer, step_.graph(), table, updater_.stored() != nullptr);
  if (!state) return fail(state.error);
  if (what == Restore::all && keeper_ != nullptr) {
    Array<const CodecInfo*> codecs;
    for (const CodecDispatch<T, Context>& codec : step_.dispatch().codecs)
      codecs.push_back(codec.info);
    Result<Plan> plan = parse_plan(saved.plan, step_.graph(), codecs, saved.graph);
    if (!plan)
      return fail(Error::say(plan.error.text(),
                             "; numbers of another precision or batch are restored without the "
                             "plan (Restore::numbers)"));
    if (saved.evolution.empty())
      return fail(
          Error::say("its plan was fixed, and this training's is not: make it of a program, "
                     "or restore the numbers alone"));
    if (const Error why = keeper_->restore(*this, std::move(*plan), saved.evolution))
      return fail(why);
  }
  const auto read_numbers = [&](auto to, Bytes state_to) {
    if (const Error why = detail::read_in_file_order(step_.graph(), to, [&](auto ordered) {
          if (updater_.stored() != nullptr) return file->read_parameters(ordered);
          return file->read(ordered, state->memory(state_to));
        }))
      return why;
    if (updater_.stored() != nullptr) return read_stored(*state, *file);
    state->convert(state_to);
    return Error();
  };
  const Error not_read = params_.each_form([&](auto params) {
    return memory_.write(params, [&](auto to) {
      return memory_.write(state_memory,
                           [&](Bytes state_to) { return read_numbers(to, state_to); });
    });
  });
  const Error not_copied = params_.make_copies(memory_);
  if (not_read) return not_read;
  if (not_copied) return not_copied;
  updates_ = saved.updates;
  updater_.previous_norm = *norm;
  data_position = saved.data_position;
  context_.key.seed = saved.key.seed;
  give_up();
  return saved;
}

template <class T, class Context, class Optimizer>
Error Training<T, Context, Optimizer>::read_stored(detail::SavedState<Wide<T>>& saved,
                                                   CheckpointFile& file) {
  const MomentTurns& turns = updater_.stored()->turns();
  return updater_.stored()->write([&](std::size_t p, std::byte* to) {
    const MomentTurns::Piece& piece = turns.piece(p);
    for (std::size_t s = 0; s < turns.states(); ++s)
      if (const Error why = saved.read_piece(file, s, piece.owner, piece.begin,
                                             turns.elems(s, piece), to + turns.state_at(p)[s]))
        return why;
    return Error();
  });
}

}}  // namespace adacc::v0_1
