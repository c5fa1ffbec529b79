// SPDX-License-Identifier: MIT
/// DataParallel::save() and load(): rank 0 reads and writes the file (io/checkpoint.hpp), the same file
/// for any number of ranks, with moments sharded or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "../../io/plan_text.hpp"
#include "../../train/save.hpp"
#include "data_parallel.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::save(const std::string& path, const std::string& notes) {
  State& state = *state_;
  if (state.broken) return state.broken;
  if (!state.sharded) {
    const bool writes = state.group.rank() == 0;
    return share_error(state.group, writes ? state.training.save(path, notes) : Error());
  }
  Result<AllState> all = all_state();
  if (const Error why = share_error(state.group, all.error)) return why;
  if (const Error why = move_states(*all, true)) return state.broken = why;
  const bool writes = state.group.rank() == 0;
  const auto state_of_all = [&](const auto& put) { return put(std::as_const(all->memory).view()); };
  return share_error(
      state.group, writes ? state.training.write(path, notes, all->table, state_of_all) : Error());
}

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::load(const std::string& path) {
  State& state = *state_;
  if (state.broken) return state.broken;
  if (state.in_slices) return state.under_way();
  if (const Error why = state.meets()
                            ? detail::meet_in_call(state.group, State::Call::load, state.calls)
                            : state.join_in_load())
    return state.broken = why;
  const bool reads = state.group.rank() == 0;
  Result<AllState> all = all_state();
  if (const Error why = share_error(state.group, all.error)) return why;
  std::string plan, evolution;
  std::uint64_t numbers[4] = {};
  Error why;
  if (reads) {
    const Bytes memory = state.sharded ? all->memory.view() : state.moments();
    const auto info = state.training.read(path, Restore::numbers, all->table, memory);
    why = info.error;
    if (info) {
      if (info->graph == state.graph().fingerprint) plan = info->plan, evolution = info->evolution;
      numbers[0] = info->updates;
      numbers[1] = info->data_position;
      numbers[2] = info->key.seed;
      std::memcpy(&numbers[3], &state.training.updater_.previous_norm, sizeof(double));
    }
  }
  if ((why = share_error(state.group, why))) return why;
  const Bytes four(reinterpret_cast<std::byte*>(numbers), Shape(sizeof numbers));
  if ((why = broadcast(state.group, four))) return state.broken = why;
  if ((why = broadcast(state.group, plan))) return state.broken = why;
  if ((why = broadcast(state.group, evolution))) return state.broken = why;
  if ((why = broadcast_parameters())) return state.broken = why;
  why = state.sharded ? move_states(*all, false) : state.broadcast_block(state.moments());
  if (why) return state.broken = why;
  state.training.updates_ = numbers[0];
  state.training.data_position = numbers[1];
  state.training.context_.key.seed = numbers[2];
  std::memcpy(&state.training.updater_.previous_norm, &numbers[3], sizeof(double));
  state.training.give_up();
  state.done = 0;
  state.fresh = true;
  state.agreed = false;
  return plan.empty() ? Error() : share_error(state.group, take_plan(plan, evolution));
}

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::take_plan(const std::string& text,
                                                     const std::string& evolution) {
  State& state = *state_;
  // A checkpoint of a fixed plan has no evolution to go on from.
  if (state.plan != nullptr && evolution.empty()) return state.plan->forget(), Error();
  const auto& dispatch = state.training.compiled_step().dispatch();
  Result<Plan> plan =
      parse_plan(text, state.graph(), codecs_of_table(dispatch), state.graph().fingerprint);
  if (!plan) return plan.error;
  if (state.plan != nullptr)
    return state.plan->restore(state.training, std::move(*plan), evolution);
  Result<Program> program = make_program(state.graph(), std::move(*plan));
  return program ? state.training.switch_to(std::move(*program)) : program.error;
}

template <class T, class Context, class Optimizer>
Result<typename DataParallel<T, Context, Optimizer>::AllState>
DataParallel<T, Context, Optimizer>::all_state() const {
  const State& state = *state_;
  AllState states;
  auto table =
      UpdateTable::make(state.training.optimizer, state.graph().parameters, wide(dtype_of<T>));
  if (!table) return table.error;
  states.table = std::move(*table);
  if (!state.sharded || state.group.rank() != 0)
    return static_cast<AllState&&>(states);  // nvcc would copy it
  auto memory = Block<std::byte>::make(states.table.bytes(), "the state of all ranks");
  if (!memory) return memory.error;
  states.memory = std::move(*memory);
  return static_cast<AllState&&>(states);  // nvcc would copy it
}

template <class T, class Context, class Optimizer>
Error DataParallel<T, Context, Optimizer>::move_states(AllState& whole, bool to_file) {
  State& state = *state_;
  const int rank = state.group.rank();
  std::size_t here = 0;  // number among parameters owned by this rank
  for (std::size_t o = 0; o < whole.table.owners(); ++o) {
    const std::size_t parameter = whole.table.owner(o);
    const int owner = state.owners[parameter];
    for (std::size_t s = 0; s < whole.table.states(); ++s) {
      const StateSpec spec =
          detail::state_of(state.training.optimizer, s, state.graph().parameters[parameter]);
      const Shape shape(align_up(state_bytes(spec.form, spec.elems, wide(dtype_of<T>))));
      Bytes piece, file;
      if (owner == rank)
        piece = {state.training.updater_.state().data() + state.training.table().begin(s, here),
                 shape};
      if (rank == 0) file = {whole.memory.data() + whole.table.begin(s, o), shape};
      const Bytes from = to_file ? piece : file, to = to_file ? file : piece;
      if (const Error why =
              transfer(state.group, from, to_file ? owner : 0, to, to_file ? 0 : owner))
        return why;
    }
    if (owner == rank) ++here;
  }
  return {};
}

}}  // namespace adacc::v0_1
