// SPDX-License-Identifier: MIT
/// Parameters that keep their values: they cost no gradients and no moments, and activations read only for their
/// gradients are not kept.
///
/// In types, around any part of a model, or around its loss:
///
///     using Net = Network<Sequential<Frozen<Embedded>, Layer<Linear>>, Loss>;
///     const Network net{Sequential{frozen(embedded), layer(Linear{.out = 4})}, loss};
///
/// or when a graph is made, by a set of the trained parameters (GraphOptions::trained; by name with trained_by_name,
/// trained_by_name.hpp). If layers share a parameter, the first of them decides for all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/array.hpp"
#include "layer.hpp"

namespace adacc { inline namespace v0_1 {

/// Which of a graph's parameters are trained, in the order of Graph::parameters.
using TrainedSet = Array<bool>;

/// How much of a part of a model is frozen.
enum class Freeze : std::uint8_t {
  nothing,
  all_but_biases,  ///< but for parameters called "bias"
  all
};

/// A part of a model with frozen parameters. Wherever the part may stand, so may this.
template <class Part, Freeze what = Freeze::all, bool = is_model_part<Part>>
struct Frozen {
  using last_layer = typename Part::last_layer;
  Part part{};

  template <class Visitor>
  constexpr void visit(Visitor& visitor) const {
    if constexpr (requires { visitor.freeze(what); }) {
      const Freeze before = visitor.freeze(what);
      if (before > what) visitor.freeze(before);  // a part of something more frozen
      part.visit(visitor);
      visitor.freeze(before);
    } else {
      part.visit(visitor);
    }
  }
};

/// A loss with frozen parameters.
template <class Loss, Freeze what>
struct Frozen<Loss, what, false> {
  Loss loss{};
};

/// frozen(layer(Linear{.out = 512}))
template <class Part>
constexpr Frozen<Part> frozen(const Part& part) {
  return {part};
}

/// All but the biases: frozen_but_biases(block).
template <class Part>
constexpr Frozen<Part, Freeze::all_but_biases> frozen_but_biases(const Part& part) {
  return {part};
}

}}  // namespace adacc::v0_1
