// SPDX-License-Identifier: MIT
/// Layers one after the other.
///
/// The chain is stored in indexed leaf bases: std::tuple costs nvcc two minutes at 200 layers.
#pragma once

#include <cstddef>
#include <utility>

#include "layer.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

template <std::size_t Index, class Part>
struct Leaf {
  static_assert(is_model_part<Part>,
                "adacc: Sequential, Residual and Repeat are composed of Layer<Functor, Policy>, "
                "Sequential, Residual and Repeat; wrap a functor in Layer");
  Part part{};
};

template <class Indices, class... Parts>
struct Leaves;

template <std::size_t... Index, class... Parts>
struct Leaves<std::index_sequence<Index...>, Parts...> : Leaf<Index, Parts>... {
  constexpr Leaves() = default;
  constexpr explicit(sizeof...(Parts) == 1)
      Leaves(const Parts&... parts) requires(sizeof...(Parts) > 0)
      : Leaf<Index, Parts>{parts}... {}

  template <class Visitor>
  constexpr void visit(Visitor& visitor) const {
    const int in_order[] = {
        (static_cast<const Leaf<Index, Parts>*>(this)->part.visit(visitor), 0)...};
    static_cast<void>(in_order);
  }
};

template <class Part, bool = is_model_part<Part>>
struct LastLayer {
  using type = void;
};
template <class Part>
struct LastLayer<Part, true> {
  using type = typename Part::last_layer;
};

/// Finds the part number Index of a chain among its bases.
template <std::size_t Index, class Part>
LastLayer<Part> last_layer_of(const Leaf<Index, Part>*);
template <std::size_t Index>
LastLayer<void> last_layer_of(const void*);  // an empty chain has none

}  // namespace detail

template <class... Parts>
struct Sequential : detail::Leaves<std::index_sequence_for<Parts...>, Parts...> {
  static_assert(sizeof...(Parts) > 0, "adacc: a Sequential needs at least one layer");
  using Base = detail::Leaves<std::index_sequence_for<Parts...>, Parts...>;
  using last_layer = typename decltype(detail::last_layer_of<sizeof...(Parts) - 1>(
      static_cast<const Base*>(nullptr)))::type;
  using Base::Base;
};

template <class... Parts>
Sequential(const Parts&...) -> Sequential<Parts...>;

}}  // namespace adacc::v0_1
