// SPDX-License-Identifier: MIT
/// From gradients to new parameters: the place of each parameter's state, and updates.
///
/// A trainer has one updater, and says where gradients are: in a block like the parameters', in a step with
/// handlers of complete gradients, or at lent places (lend_gradients()). The state is in
/// memory or passes through a window from a store (stored_moments.hpp). Both have the same bits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "../core/block.hpp"
#include "../model/graph.hpp"
#include "gradient_norm.hpp"
#include "stored_moments.hpp"
#include "update_table.hpp"

namespace adacc { inline namespace v0_1 {

/// Updates parameters whose numbers are of type Number; StateBlock is memory of the context's.
template <class Number, class Context, class StateBlock = Block<std::byte>>
class Updater {
 public:
  /// Whether threads of the host update, one parameter at a time if need be.
  static constexpr bool on_host = !context_traits<Context>::own_memory;

  /// For the trained parameters of `graph` that are `mine`, in the order of UpdateTable::make(). The state is in
  /// the store of `store`, if there is one, or else where take_state() puts the state.
  template <class Optimizer>
  static Result<Updater> make(const Optimizer& optimizer, const Graph& graph,
                              const MomentStore& store = {}, const bool* owned = nullptr,
                              std::uint32_t first_key = 0) {
    Updater updater;
    Result<UpdateTable> table =
        UpdateTable::make(optimizer, graph.parameters, dtype_of<Number>, owned, first_key);
    if (!table) return table.error;
    updater.table_ = std::move(*table);
    updater.squares_.resize(updater.table_.owners());
    if (!store.store) return static_cast<Updater&&>(updater);  // nvcc would copy it
    if (!on_host)
      return Error::misuse(
          "the optimizer's state can be in a store if threads of the host update; on a device, "
          "let it be in memory");
    auto turns = MomentTurns::make(optimizer, updater.table_, graph, store.window);
    if (!turns) return turns.error;
    auto stored = detail::StoredMoments::make(std::move(*turns), store.store);
    if (!stored) return stored.error;
    updater.stored_ = std::move(*stored);
    return static_cast<Updater&&>(updater);
  }

  void take_state(Error& error) {
    if (stored_ == nullptr) detail::take(state_, table_.bytes(), "the optimizer's state", error);
  }

  /// Refuses an update that would spoil parameters or the state, or clip nothing.
  template <class Optimizer>
  Error check_update(const Optimizer& optimizer, const Graph& graph, double rate,
                     const Clipping& clip) const {
    if (const Error why = table_.check_state(optimizer, graph.parameters)) return why;
    if (const Error why = detail::check_update(optimizer, rate)) return why;
    return detail::check_clip(clip.norm);
  }

  const UpdateTable& table() const { return table_; }
  /// The whole state in the layout of table(); empty if the state is in a store.
  Bytes state() { return {state_.data(), Shape(state_.size())}; }
  ConstBytes state() const { return {state_.data(), Shape(state_.size())}; }
  /// The state in a store; null if the state is in memory.
  detail::StoredMoments* stored() const { return stored_.get(); }
  /// The failure of the store, after which no update runs.
  Error failure() const { return stored_ == nullptr ? Error() : stored_->failure(); }

  /// From now on the gradient of the table's o-th parameter is at `places[o]`.
  void lend_gradients(Array<Number*> places) {
    places_ = static_cast<Array<Number*>&&>(places);
    lent_ = true;
  }
  bool gradients_are_lent() const { return lent_; }

  /// Notes the norm of each parameter's gradient. norm() is the norm of all, from squares in the order of the
  /// parameters: the order of notes does not change a bit.
  void clear_norms() {
    for (double& square : squares_) square = 0;
  }
  void note_norm(std::size_t o, double norm) { squares_[o] = norm * norm; }
  double norm() const {
    double sum = 0;
    for (const double square : squares_) sum += square;
    return std::sqrt(sum);
  }

  /// The factor for gradients of this norm. Clipping by the previous norm takes the norm of the
  /// call before, and clips nothing in the first call.
  double clip(const Clipping& clip, double norm) {
    const double by = clip.by == ClipBy::previous ? previous_norm : norm;
    previous_norm = norm;
    return clip_scale(by, clip.norm);
  }
  double previous_norm = -1;  ///< of the update before; -1: unknown

  /// The options of update `number`. Random numbers do not depend on how micro-batches ran.
  static UpdateTerms terms(std::uint64_t number, double rate, double scale, std::uint64_t seed) {
    return {number, rate, scale, {seed, static_cast<std::uint32_t>(number)}};
  }

  /// One update of all parameters in `memory`, whose state need not be set.
  template <class Optimizer>
  Error update(const Optimizer& optimizer, Context& context, const Graph& graph,
               UpdateMemory<Number> memory, const UpdateTerms& terms) {
    const auto gradient = [&](std::size_t o) {
      return lent_ ? places_[o]
                   : memory.gradients.data() + graph.parameters[table_.owner(o)].offset;
    };
    if constexpr (on_host) {
      if (stored_ != nullptr)
        return update_turns(optimizer, context, graph, memory, terms, 0,
                            stored_->turns().turns().size(), gradient);
      if (lent_) {
        update_each(optimizer, context, graph, memory, terms, 0, table_.owners(), gradient);
        return {};
      }
    }
    memory.state = state();
    optimizer_kernel<Optimizer, Context>::update(optimizer, context, table_, graph.parameters,
                                                 memory, terms);
    return {};
  }

  /// The part of an update for parameters whose gradients a step has completed together: `count` of them from the
  /// table's number `first` on, with gradients gradient(o).
  template <class Optimizer, class Gradient>
  Error update_some(const Optimizer& optimizer, Context& context, const Graph& graph,
                    const UpdateMemory<Number>& memory, const UpdateTerms& terms, std::size_t first,
                    std::size_t count, const Gradient& gradient) {
    if (stored_ != nullptr)
      return update_turns(optimizer, context, graph, memory, terms,
                          stored_->turns().first_turn(first), stored_->turns().last_turn(first),
                          gradient);
    update_each(optimizer, context, graph, memory, terms, first, count, gradient);
    return {};
  }

 private:
  template <class Optimizer, class Gradient>
  void update_each(const Optimizer& optimizer, Context& context, const Graph& graph,
                   const UpdateMemory<Number>& memory, const UpdateTerms& terms, std::size_t first,
                   std::size_t count, const Gradient& gradient) {
    for (std::size_t o = first; o < first + count; ++o) {
      const Parameter& parameter = graph.parameters[table_.owner(o)];
      table_.update_one(optimizer, context, parameter, o,
                        UpdateTable::behind(memory.params.data(), parameter.offset), gradient(o),
                        state(), terms, UpdateTable::behind(memory.held.data(), parameter.offset));
    }
  }

  template <class Optimizer, class Gradient>
  Error update_turns(const Optimizer& optimizer, Context& context, const Graph& graph,
                     const UpdateMemory<Number>& memory, const UpdateTerms& terms,
                     std::size_t first, std::size_t last, const Gradient& gradient) {
    const MomentTurns& turns = stored_->turns();
    return stored_->run(first, last, [&](std::size_t p, std::byte* state) {
      const MomentTurns::Piece& piece = turns.piece(p);
      const Parameter& parameter = graph.parameters[table_.owner(piece.owner)];
      const std::size_t at = parameter.offset + piece.begin;
      table_.update_piece(
          optimizer, context,
          ParameterPiece<Number>{parameter, piece.owner, piece.begin, piece.elems,
                                 UpdateTable::behind(memory.params.data(), at),
                                 gradient(piece.owner) + piece.begin, state, turns.state_at(p),
                                 UpdateTable::behind(memory.held.data(), at)},
          terms);
    });
  }

  UpdateTable table_;
  StateBlock state_;
  std::unique_ptr<detail::StoredMoments> stored_;  ///< in place of the block
  Array<double> squares_;                          ///< norms of gradients, squared, by parameter
  Array<Number*> places_;                          ///< places of lent gradients
  bool lent_ = false;
};

}}  // namespace adacc::v0_1
