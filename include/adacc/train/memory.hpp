// SPDX-License-Identifier: MIT
/// The memory of a Training, by context: the host's, unless specialized (for a device).
#pragma once

#include <cstdint>

#include "../core/any_view.hpp"
#include "../core/block.hpp"
#include "../optimizer/gradient_norm.hpp"
#include "initialize.hpp"

namespace adacc { inline namespace v0_1 {

template <class Context>
class TrainingMemory {
 public:
  /// What holds arena, parameters, gradients and state.
  template <class T>
  using Block = adacc::Block<T>;
  /// Whether steps run on threads of the host, whose clock then tells what waits for what.
  static constexpr bool on_host = true;

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
  /// use(View<const T>) of what `block` holds, in memory that the host reads; its error.
  template <class T, class Use>
  Error read(View<const T> block, const Use& use) const {
    return use(block);
  }
  /// fill(View<T>) of memory that the host writes, all of it; that is then what `block` holds, unless
  /// there was an error.
  template <class T, class Fill>
  Error write(View<T> block, const Fill& fill) const {
    return fill(block);
  }
  /// One whole step, and its loss; from a recording, if the context makes any.
  template <class Step>
  Result<double> run(Step& step, Context& context, AnyView input, AnyView targets) {
    return step.run(context, input, targets);
  }
  std::uint64_t captured_steps() const { return 0; }
  Error capture_failure() const { return {}; }

  /// As a number of the host's, once all is done that was queued.
  template <class T>
  double norm(Context& context, View<T> gradients) {
    return gradient_norm(context, gradients);
  }
};

}}  // namespace adacc::v0_1
