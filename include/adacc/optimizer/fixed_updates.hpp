// SPDX-License-Identifier: MIT
/// An optimizer's updates in memory fixed by the compiler: the bits of UpdateTable, without a table.
///
/// A parameter's state is one range of the block of states. Ranges follow each other in the order of the
/// parameters; each tensor of state starts 64-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/view.hpp"
#include "optimizer.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Calls visit(parameter, key, at) for each parameter with an update:
/// - key: number of the trained parameter, for random numbers
/// - at: where each tensor of the parameter's state begins, in bytes
/// Returns the bytes of all states.
template <class Optimizer, class Table, class Visit>
constexpr std::size_t each_fixed_state(const Optimizer& optimizer, const Table& table, Dtype scalar,
                                       const Visit& visit) {
  constexpr std::size_t count = Optimizer::state_count;
  std::size_t bytes = 0;
  each_trained_owner(table, 0, [&](std::size_t i, std::uint32_t key) {
    std::size_t at[count + 1] = {};
    for (std::size_t s = 0; s < count; ++s) {
      const StateSpec spec = state_of(optimizer, s, table[i]);
      at[s] = bytes;
      bytes += align_up(state_bytes(spec.form, spec.elems, scalar));
    }
    visit(table[i], key, static_cast<const std::size_t*>(at));
  });
  return bytes;
}

}  // namespace detail

/// Bytes of an optimizer's state for a table of parameters (an Array<Parameter>, or another type with size() and
/// []), with gradients of type `scalar`. The optimizer's state() is constexpr for a constant expression.
template <class Optimizer, class Table>
constexpr std::size_t fixed_state_bytes(const Optimizer& optimizer, const Table& table,
                                        Dtype scalar) {
  return detail::each_fixed_state(optimizer, table, scalar,
                                  [](const auto&, std::uint32_t, const std::size_t*) {});
}

/// One update of all parameters.
/// - params: the block of parameters
/// - gradients: mirrors the trained parameters
/// - state: fixed_state_bytes(), 64-byte aligned; zeros before the first update
template <class Optimizer, class Context, class Table, class T>
void update_fixed(const Optimizer& optimizer, Context& context, const Table& table, View<T> params,
                  View<T> gradients, Bytes state, const UpdateTerms& terms) {
  for (int pass = 0; pass < detail::passes_of(optimizer); ++pass)
    detail::each_fixed_state(
        optimizer, table, dtype_of<T>,
        [&](const auto& parameter, std::uint32_t key, const std::size_t* at) {
          const UpdateCut cut = detail::cut_of(optimizer, parameter, pass);
          for_tiles(context, cut.tiles(), [&](std::size_t tile, int) {
            const std::size_t first = tile * cut.tile, left = cut.items - first;
            detail::update_at_level(
                optimizer,
                ParameterRange<T>{parameter, params.data() + parameter.offset,
                                  gradients.data() + parameter.offset, state.data(), at, pass,
                                  first, left < cut.tile ? left : cut.tile,
                                  terms.key.with_purpose(Purpose::moments).with_activation(key), 0,
                                  parameter.shape.elems()},
                terms);
          });
        });
}

}}  // namespace adacc::v0_1
