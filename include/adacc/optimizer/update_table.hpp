// SPDX-License-Identifier: MIT
/// The layout of an optimizer's state, and the update of all parameters at once.
///
/// All state is one block. Tensor i of all parameters comes before tensor i + 1 of any; each starts 64-byte aligned,
/// so full moments mirror the block of parameters. Ranges of all parameters in a pass are tiles of one parallel loop:
/// small parameters cost no loop of their own. The layout is made once; an update allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"
#include "../step/memory_check.hpp"
#include "optimizer.hpp"

namespace adacc { inline namespace v0_1 {

/// The memory of an update: the block of parameters, the block of gradients, which mirrors the trained parameters,
/// and `state` in the layout of the UpdateTable. Parameters in bfloat16 are `held`; then `params` is empty. A device's
/// optimizer writes `copies` of changed parameters, rounded to the nearest, at the parameters' places, if there are any.
template <class T>
struct UpdateMemory {
  View<T> params;
  View<T> gradients;
  Bytes state;
  View<bfloat16> held{};
  View<bfloat16> copies{};
};

/// Elements [begin, begin + elems) of a parameter, with only their gradient and state. Values are `held` if in
/// bfloat16.
template <class T>
struct ParameterPiece {
  const ParameterSpec& parameter;
  std::size_t owner = 0;  ///< by UpdateTable::owner()
  std::size_t begin = 0, elems = 0;
  T* values = nullptr;
  T* gradient = nullptr;
  std::byte* state = nullptr;
  const std::size_t* state_at = nullptr;  ///< by tensor, in bytes behind `state`
  bfloat16* held = nullptr;
};

ADACC_TARGET_CODE_BEGIN
namespace detail {

/// Updates values in bfloat16: decodes a few at a time, updates them as usual, and rounds them stochastically by a
/// stream of their own. So updates of less than half the last bit add up.
template <class Optimizer, class T>
void update_held(const Optimizer& optimizer, ParameterRange<T> range, bfloat16* held,
                 const UpdateTerms& terms) {
  const RandomKey key = range.key.with_purpose(Purpose::parameters);
  constexpr std::size_t most = 16 * moment_lanes;
  const std::size_t end = range.first + range.count;
  alignas(alignment) T values[most];
  for (; range.first < end; range.first += range.count) {
    const std::size_t left = end - range.first;
    range.count = left < most ? left : most;
    bfloat16* const from = held + range.first;
    for (std::size_t i = 0; i < range.count; ++i) values[i] = static_cast<T>(to_float(from[i]));
    // Ranges name elements by their place in the piece.
    range.values =
        reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(values) - range.first * sizeof(T));
    optimizer.update(range, terms);
    for (std::size_t i = 0; i < range.count; i += moment_lanes) {
      const RandomHalves random(key, range.begin + range.first + i);
      const std::size_t count = range.count - i < moment_lanes ? range.count - i : moment_lanes;
      for (std::size_t j = 0; j < count; ++j)
        from[i + j] = to_bfloat16(static_cast<float>(values[i + j]), random.template get<0>(j));
    }
  }
}

}  // namespace detail
ADACC_TARGET_CODE_END

class UpdateTable {
 public:
  UpdateTable() = default;

  /// Lays out state for a table of parameters.
  /// - table: an Array<Parameter>, or another type with size() and []. Frozen parameters, and those that share the
  ///   storage of an earlier one, are skipped.
  /// - updated: by entry of the table, whether this rank updates the parameter and keeps its state; null: all
  /// - first_key: in a stage of a network, the trained parameters before it (trained_before()). Random numbers depend
  ///   neither on `updated` nor on stages.
  template <class Optimizer, class Table>
  static Result<UpdateTable> make(const Optimizer& optimizer, const Table& table, Dtype scalar,
                                  const bool* updated = nullptr, std::uint32_t first_key = 0) {
    if (const Error why = detail::check_options(optimizer)) return why;
    UpdateTable built;
    built.states_ = optimizer.state_count;
    built.passes_ = detail::passes_of(optimizer);
    built.text_ = optimizer.name;
    detail::each_trained_owner(table, first_key, [&](std::size_t i, std::uint32_t key) {
      if (updated != nullptr && !updated[i]) return;
      built.owners_.push_back(i);
      built.keys_.push_back(key);
    });
    const std::size_t owners = built.owners_.size();
    built.at_.resize(owners * built.states_);
    for (std::size_t s = 0; s < built.states_; ++s) {
      const std::size_t begin = built.bytes_;
      built.begins_.push_back(begin);
      StateSpec all;
      for (std::size_t o = 0; o < owners; ++o) {
        const StateSpec spec = detail::state_of(optimizer, s, table[built.owners_[o]]);
        if (o == 0) all = spec;
        if (spec.form != all.form || spec.non_negative != all.non_negative)
          return Error::misuse("tensor ", s, " of the state of ", optimizer.name,
                               " has another form in one parameter than in another");
        built.at_[o * built.states_ + s] = built.bytes_;
        built.bytes_ += align_up(state_bytes(spec.form, spec.elems, scalar));
      }
      built.forms_.push_back(all.form);
      built.text_ += std::string("\n") + all.name + ": " + name_of(all.form) + ' ' +
                     std::to_string(built.bytes_ - begin);
    }
    built.begins_.push_back(built.bytes_);
    for (int pass = 0; pass < built.passes_; ++pass) {
      std::size_t tiles = 0;
      for (std::size_t o = 0; o < owners; ++o) {
        built.tiles_.push_back(tiles);
        tiles += detail::cut_of(optimizer, table[built.owners_[o]], pass).tiles();
      }
      built.tiles_.push_back(tiles);
    }
    return built;
  }

  /// Refuses an optimizer with another state than that of make().
  template <class Optimizer, class Table>
  Error check_state(const Optimizer& optimizer, const Table& table) const {
    const std::size_t name = text_.find('\n');
    bool same = text_.compare(0, name, optimizer.name) == 0 && optimizer.state_count == states_ &&
                detail::passes_of(optimizer) == passes_;
    for (std::size_t s = 0; same && s < states_ && owners() > 0; ++s)
      same = detail::state_of(optimizer, s, table[owner(0)]).form == forms_[s];
    if (same) return {};
    return Error::misuse("the state is that of ", text_.substr(0, name).c_str(),
                         " from set-up, and the update is by ", optimizer.name,
                         ": options of an optimizer may change, but not the form of its state");
  }

  /// Counts the parameters of a network before parameter `first` that are not frozen.
  template <class Table>
  static std::uint32_t trained_before(const Table& table, std::size_t first) {
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < first; ++i) count += table[i].frozen ? 0U : 1U;
    return count;
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t states() const { return states_; }
  /// Where tensor i of all parameters begins; begin(states()) is the end.
  std::size_t begin(std::size_t i) const { return begins_[i]; }
  /// Where tensor i of the o-th trained owner of storage begins.
  std::size_t begin(std::size_t i, std::size_t o) const { return at_[o * states_ + i]; }
  std::size_t owners() const { return owners_.size(); }
  std::size_t owner(std::size_t o) const { return owners_[o]; }
  /// For the random numbers that round moments of the o-th of them.
  RandomKey key(std::size_t o, const UpdateTerms& terms) const {
    return terms.key.with_purpose(Purpose::moments).with_activation(keys_[o]);
  }

  /// The optimizer's name and one line for each tensor of state: "first moment: bf16 4096" (bytes).
  const std::string& text() const { return text_; }

  /// One update of all parameters, by the optimizer and table of make().
  template <class Optimizer, class Context, class Table, class T>
  void update(const Optimizer& optimizer, Context& context, const Table& table,
              const UpdateMemory<T>& memory, const UpdateTerms& terms) const {
    static_assert(!context_traits<Context>::own_memory,
                  "adacc: this optimizer has no twin for this device: specialize optimizer_kernel");
    static_assert(
        requires(const ParameterRange<T>& range) { optimizer.update(range, terms); },
        "adacc: an optimizer has template <class T> void update(const ParameterRange<T>&, const "
        "UpdateTerms&) const");
    const std::size_t owners = owners_.size();
    for (int pass = 0; pass < passes_; ++pass) {
      const std::size_t* tiles = tiles_.data() + static_cast<std::size_t>(pass) * (owners + 1);
      for_tiles(context, tiles[owners], [&](std::size_t tile, int) {
        std::size_t low = 0, high = owners;  // the last parameter that begins up to `tile`
        while (high - low > 1) {
          const std::size_t middle = (low + high) / 2;
          (tiles[middle] <= tile ? low : high) = middle;
        }
        const auto& parameter = table[owners_[low]];
        update_tile(
            optimizer,
            ParameterPiece<T>{parameter, low, 0, parameter.shape.elems(),
                              behind(memory.params.data(), parameter.offset),
                              memory.gradients.data() + parameter.offset, memory.state.data(),
                              at_of(low), behind(memory.held.data(), parameter.offset)},
            detail::cut_of(optimizer, parameter, pass), pass, tile - tiles[low], terms);
      });
    }
  }

  /// Updates the o-th parameter of owner(), with values and gradient anywhere. Calls for all owners together give the
  /// bits of update().
  template <class Optimizer, class Context, class T>
  void update_one(const Optimizer& optimizer, Context& context, const ParameterSpec& parameter,
                  std::size_t o, T* values, T* gradient, Bytes state, const UpdateTerms& terms,
                  bfloat16* held = nullptr) const {
    update_piece(optimizer, context,
                 ParameterPiece<T>{parameter, o, 0, parameter.shape.elems(), values, gradient,
                                   state.data(), at_of(o), held},
                 terms);
  }

  /// Updates a piece: the whole parameter or, if the optimizer is elementwise, a piece that begins at a multiple of
  /// update_tile. Calls for all pieces, in any order, give the bits of update().
  template <class Optimizer, class Context, class T>
  void update_piece(const Optimizer& optimizer, Context& context, const ParameterPiece<T>& piece,
                    const UpdateTerms& terms) const {
    for (int pass = 0; pass < passes_; ++pass) {
      const UpdateCut cut = detail::is_elementwise(optimizer)
                                ? UpdateCut{piece.elems, detail::update_tile}
                                : detail::cut_of(optimizer, piece.parameter, pass);
      for_tiles(context, cut.tiles(), [&](std::size_t tile, int) {
        update_tile(optimizer, piece, cut, pass, tile, terms);
      });
    }
  }

  /// `block` + `elems`, or null without a block.
  template <class Element>
  static Element* behind(Element* block, std::size_t elems) {
    return block == nullptr ? nullptr : block + elems;
  }

 private:
  const std::size_t* at_of(std::size_t o) const { return at_.data() + o * states_; }

  template <class Optimizer, class T>
  void update_tile(const Optimizer& optimizer, const ParameterPiece<T>& piece, const UpdateCut& cut,
                   int pass, std::size_t tile, const UpdateTerms& terms) const {
    const std::size_t first = tile * cut.tile, left = cut.items - first;
    ParameterRange<T> range{piece.parameter,         piece.values, piece.gradient, piece.state,
                            piece.state_at,          pass,         first,          0,
                            key(piece.owner, terms), piece.begin,  piece.elems};
    range.count = left < cut.tile ? left : cut.tile;
    if (piece.held == nullptr) detail::update_at_level(optimizer, range, terms);
    else
      detail::call_at_level<detail::update_held<Optimizer, T>>(optimizer, range, piece.held, terms);
  }

  std::size_t bytes_ = 0, states_ = 0;
  int passes_ = 1;
  Array<std::size_t> owners_;  ///< entries of the table
  Array<std::uint32_t> keys_;  ///< for each, its number among trained parameters
  Array<std::size_t> at_;      ///< owner by tensor: where the tensor begins
  Array<std::size_t> begins_;
  Array<StateForm> forms_;
  Array<std::size_t> tiles_;  ///< pass by owner: the tiles before; and all tiles
  std::string text_;
};

/// How an optimizer runs in a context: on its threads, unless specialized (a device twin).
template <class Optimizer, class Context>
struct optimizer_kernel {
  template <class Table, class T>
  static void update(const Optimizer& optimizer, Context& context, const UpdateTable& state,
                     const Table& table, const UpdateMemory<T>& memory, const UpdateTerms& terms) {
    state.update(optimizer, context, table, memory, terms);
  }
};

}}  // namespace adacc::v0_1
