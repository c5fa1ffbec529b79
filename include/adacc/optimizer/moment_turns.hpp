// SPDX-License-Identifier: MIT
/// How an optimizer's state passes through a window of memory while it lives in a store.
///
/// The state is cut into turns: one transfer reads a turn before an update, and one writes it afterwards. Turns come
/// in the order of updates: the order of the table or, with fused updates, of backward; then no turn holds state of
/// gradients that another layer's backward completes. Large parameters of an elementwise optimizer are cut into
/// pieces, and small ones share a turn. The window has slots for a few turns. All this follows from the parameters
/// and the bytes of the window, never from time.
#pragma once

#include <cstddef>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "../core/error.hpp"
#include "../core/extremes.hpp"
#include "../model/graph.hpp"
#include "../program/instruction.hpp"
#include "update_table.hpp"

namespace adacc { inline namespace v0_1 {

/// The memory through which state in a store passes.
struct MomentWindow {
  std::size_t bytes = 0;  ///< 0: a sixteenth of the state, or 32 MiB if that is less

  static constexpr std::size_t most = 32 * MiB;
};

class MomentTurns {
 public:
  /// Elements [begin, begin + elems) of the o-th parameter with state in the table. For whole parameters, begin is 0.
  struct Piece {
    std::size_t owner = 0;
    std::size_t begin = 0, elems = 0;
  };
  struct Turn {
    std::size_t first = 0, last = 0;    ///< pieces [first, last)
    std::size_t offset = 0, bytes = 0;  ///< in the store; multiples of transfer_alignment
  };
  /// A run of bytes that is contiguous both in UpdateTable's block and in a turn.
  struct Part {
    std::size_t turn = 0, at = 0;  ///< bytes from the start of the turn
    std::size_t in_block = 0;      ///< bytes from the start of the block
    std::size_t bytes = 0;         ///< a multiple of alignment
  };

  MomentTurns() = default;

  /// Cuts the state laid out by `table` for `optimizer` and the parameters of `graph`.
  template <class Optimizer>
  static Result<MomentTurns> make(const Optimizer& optimizer, const UpdateTable& table,
                                  const Graph& graph, MomentWindow window) {
    if (table.bytes() == 0)
      return Error::misuse(optimizer.name, " keeps no state that could be in a store");
    MomentTurns turns;
    turns.states_ = table.states();
    const bool cut = turns.cut_ = detail::is_elementwise(optimizer);
    std::size_t least = 0;  // bytes of a turn
    for (std::size_t o = 0; o < table.owners(); ++o) {
      const Parameter& parameter = graph.parameters[table.owner(o)];
      const std::size_t elems = parameter.shape.elems();
      std::size_t whole = 0, tile = 0;
      for (std::size_t s = 0; s < turns.states_; ++s) {
        const StateSpec spec = detail::state_of(optimizer, s, parameter);
        if (cut && spec.elems != elems && spec.elems != 0)
          return Error::misuse(optimizer.name, " is elementwise, and keeps ", spec.elems,
                               " numbers of a parameter of ", elems);
        turns.specs_.push_back(spec);
        whole += turns.piece_bytes(spec, spec.elems, wide(graph.scalar));
        if (spec.elems != 0)
          tile += turns.piece_bytes(spec, detail::update_tile, wide(graph.scalar));
      }
      detail::raise(least, cut && tile < whole ? tile : whole);
    }
    least = in_units(least);
    std::size_t bytes = window.bytes;
    if (bytes == 0) {
      bytes = table.bytes() / 16;
      if (bytes > MomentWindow::most) bytes = MomentWindow::most;
      detail::raise(bytes, fewest_slots * least);
    }
    if (bytes < fewest_slots * least)
      return Error::say("a window of ", shown(bytes), " is too small for the state of ",
                        optimizer.name, ": it needs ", shown(fewest_slots * least),
                        cut ? "" : ", because parameters are not cut into pieces");
    const std::size_t most = detail::larger(bytes / slots_at_best / unit * unit, least);
    turns.lay_out(table, graph, most);
    std::size_t slot = 0;
    for (const Turn& turn : turns.turns_) detail::raise(slot, turn.bytes);
    turns.slot_bytes_ = slot;
    turns.slots_ = bytes / slot < turns.turns_.size() ? bytes / slot : turns.turns_.size();
    turns.find_parts(table, wide(graph.scalar));
    return turns;
  }

  /// Bytes of the window in memory: slot_count() times slot_bytes().
  std::size_t window_bytes() const { return slots_ * slot_bytes_; }
  std::size_t slot_count() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  /// Bytes in the store.
  std::size_t store_bytes() const { return store_bytes_; }

  const Array<Turn>& turns() const { return turns_; }
  const Piece& piece(std::size_t p) const { return pieces_[p]; }
  /// Numbers of a piece kept by tensor s.
  std::size_t elems(std::size_t s, const Piece& piece) const {
    const std::size_t all = spec(s, piece.owner).elems;
    return cut_ && all != 0 ? piece.elems : all;
  }
  /// By tensor: where the state of piece p begins in its turn, in bytes.
  const std::size_t* state_at(std::size_t p) const { return at_.data() + p * states_; }
  /// Tensor s of the state of the o-th parameter.
  const StateSpec& spec(std::size_t s, std::size_t o) const { return specs_[o * states_ + s]; }
  std::size_t states() const { return states_; }
  /// The first turn of parameter o and all parameters updated together with it; the turn behind the last.
  std::size_t first_turn(std::size_t o) const { return group_begins_[group_of_[o]]; }
  std::size_t last_turn(std::size_t o) const { return group_begins_[group_of_[o] + 1]; }
  /// All parts, in the order of the table's block.
  const Array<Part>& parts() const { return parts_; }

  /// Calls visit(bytes from the start of the piece, bytes from the start of the whole tensor, bytes) for each run of
  /// bytes contiguous in both: the piece is numbers [begin, begin + elems) of a tensor, kept as a tensor of its own.
  /// Bytes are multiples of alignment, to which tensors are filled up.
  template <class Visit>
  static void each_run(const StateSpec& spec, std::size_t begin, std::size_t elems, Dtype scalar,
                       const Visit& visit) {
    if (elems == 0) return;
    if (spec.form != StateForm::int8) {
      const std::size_t number = state_bytes(spec.form, 1, scalar);
      return visit(0, begin * number, align_up(elems * number));
    }
    const std::size_t scale = sizeof(float);
    visit(0, begin, align_up(elems));
    visit(align_up(elems), align_up(spec.elems) + begin / moment_lanes * scale,
          align_up(div_up(elems, moment_lanes) * scale));
  }

 private:
  static constexpr std::size_t unit = transfer_alignment;
  /// One slot is updated, one is being read, one being written.
  static constexpr std::size_t fewest_slots = 3;
  static constexpr std::size_t slots_at_best = 8;

  static std::size_t in_units(std::size_t bytes) { return div_up(bytes, unit) * unit; }
  static std::size_t piece_bytes(const StateSpec& spec, std::size_t elems, Dtype scalar) {
    return align_up(state_bytes(spec.form, elems, scalar));
  }

  void lay_out(const UpdateTable& table, const Graph& graph, std::size_t most) {
    Array<std::size_t> order;
    for (std::size_t o = 0; o < table.owners(); ++o) order.push_back(o);
    const auto completes = [&](std::size_t o) { return graph.gradients[o].complete; };
    if (graph.fuses_updates())
      sort(order, [&](std::size_t a, std::size_t b) {
        return completes(a) != completes(b) ? completes(a) > completes(b) : a < b;
      });
    group_of_.resize(table.owners());
    group_begins_.push_back(0);
    std::size_t used = 0;  // bytes of the open turn
    const auto close = [&] {
      if (turns_.empty() || turns_.back().last == pieces_.size()) return;
      turns_.back().last = pieces_.size();
      turns_.back().bytes = in_units(used);
      store_bytes_ += turns_.back().bytes;
      used = 0;
    };
    const auto add = [&](const Piece& piece) {
      if (turns_.empty() || turns_.back().last != 0)
        turns_.push_back({pieces_.size(), 0, store_bytes_, 0});
      pieces_.push_back(piece);
      for (std::size_t s = 0; s < states_; ++s) {
        at_.push_back(used);
        used += piece_bytes(spec(s, piece.owner), elems(s, piece), wide(graph.scalar));
      }
    };
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t o = order[i];
      if (i > 0 && graph.fuses_updates() && completes(o) != completes(order[i - 1])) {
        close();
        group_begins_.push_back(turns_.size());
      }
      group_of_[o] = group_begins_.size() - 1;
      const auto bytes_of = [&](std::size_t count) {
        std::size_t sum = 0;
        for (std::size_t s = 0; s < states_; ++s)
          sum += piece_bytes(spec(s, o), elems(s, {o, 0, count}), wide(graph.scalar));
        return sum;
      };
      std::size_t left = graph.parameters[table.owner(o)].shape.elems();
      for (std::size_t begin = 0; left > 0;) {
        std::size_t count = left;
        if (used + bytes_of(left) > most)
          count = cut_ ? (most - used) / bytes_of(detail::update_tile) * detail::update_tile : 0;
        if (count == 0) {
          close();
          continue;
        }
        add({o, begin, count});
        begin += count;
        left -= count;
      }
    }
    close();
    group_begins_.push_back(turns_.size());
  }

  void find_parts(const UpdateTable& table, Dtype scalar) {
    for (std::size_t t = 0; t < turns_.size(); ++t)
      for (std::size_t p = turns_[t].first; p < turns_[t].last; ++p) {
        const Piece& piece = pieces_[p];
        for (std::size_t s = 0; s < states_; ++s) {
          const std::size_t in_turn = state_at(p)[s], in_block = table.begin(s, piece.owner);
          each_run(spec(s, piece.owner), piece.begin, elems(s, piece), scalar,
                   [&](std::size_t at, std::size_t in_tensor, std::size_t bytes) {
                     parts_.push_back({t, in_turn + at, in_block + in_tensor, bytes});
                   });
        }
      }
    sort(parts_, [](const Part& a, const Part& b) { return a.in_block < b.in_block; });
  }

  bool cut_ = false;
  std::size_t states_ = 0, slots_ = 0, slot_bytes_ = 0, store_bytes_ = 0;
  Array<StateSpec> specs_;  ///< owner by tensor
  Array<Turn> turns_;
  Array<Piece> pieces_;
  Array<std::size_t> at_;            ///< piece by tensor
  Array<std::size_t> group_of_;      ///< by owner
  Array<std::size_t> group_begins_;  ///< the first turn of each; and the end
  Array<Part> parts_;
};

}}  // namespace adacc::v0_1
