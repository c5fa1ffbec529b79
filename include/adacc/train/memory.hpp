// SPDX-License-Identifier: MIT
/// The memory of a Training, by context: the host's, unless specialized (for a device).
#pragma once

#include <cstdint>

#include "../core/block.hpp"
#include "gradient_norm.hpp"
#include "initialize.hpp"

namespace adacc { inline namespace v0_1 {

template <class Context>
class TrainingMemory {
 public:
  /// What holds arena, parameters, gradients and state.
  template <class T>
  using Block = adacc::Block<T>;

  /// Takes what steps and updates need beside these.
  Error make(const Context&) { return {}; }
  /// Lends a step what it needs of that.
  template <class Step>
  Error bind(Step&) const {
    return {};
  }

  template <class Table, class T>
  Error initialize(Context& context, const Table& table, View<T> params, std::uint64_t seed) {
    initialize_parameters(context, table, params, seed);
    return {};
  }
  /// What kernels of the context could not return.
  Error failure(Context&) { return {}; }
  /// As a number of the host's.
  template <class T>
  double norm(Context& context, View<T> gradients) {
    return gradient_norm(context, gradients);
  }
};

}}  // namespace adacc::v0_1
