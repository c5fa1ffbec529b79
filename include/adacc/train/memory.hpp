// SPDX-License-Identifier: MIT
/// The memory of a Training, by context: the host's, unless specialized (for a device).
#pragma once

#include <cstdint>

#include "../core/any_view.hpp"
#include "../core/block.hpp"
#include "../core/clock.hpp"
#include "../optimizer/gradient_norm.hpp"
#include "initialize.hpp"

namespace adacc { inline namespace v0_1 {

template <class Context>
class TrainingMemory {
 public:
  /// A block for arena, parameters, gradients or state.
  template <class T>
  using Block = adacc::Block<T>;
  /// Whether steps run on threads of the host, so its clock can time waiting.
  static constexpr bool on_host = true;

  /// Takes other memory of steps and updates.
  Error make(const Context&) { return {}; }
  /// Lends this memory to a step.
  template <class Step>
  Error bind(Step&) const {
    return {};
  }

  template <class Table, class T>
  Error initialize(Context& context, const Table& table, View<T> params, std::uint64_t seed) {
    initialize_parameters(context, table, params, seed);
    return {};
  }
  /// Zeros in `copies`, of which the first become copies of parameters in bfloat16 (ParameterForm::with_copies).
  template <class T>
  Error copy_parameters(View<const T>, View<bfloat16>) const {
    return {};
  }
  /// An error that kernels of the context could not return.
  Error failure(Context&) { return {}; }
  /// Calls use(View<const T>) with the numbers of `block` in memory that the host reads; returns its error.
  template <class T, class Use>
  Error read(View<const T> block, const Use& use) const {
    return use(block);
  }
  /// Calls fill(View<T>) with memory that the host writes, all of it. The numbers then go to `block`, unless
  /// there was an error.
  template <class T, class Fill>
  Error write(View<T> block, const Fill& fill) const {
    return fill(block);
  }
  /// Calls change(View<T>) with the numbers of `block` in memory that the host writes; they then go back, unless there was
  /// an error.
  template <class T, class Change>
  Error change(View<T> block, const Change& change) const {
    return change(block);
  }
  /// Begins to time a step, or an update, by `clock`, if there is one.
  void start(ClockRef clock) { started_ = clock ? clock() : 0; }
  /// Seconds since start(), of all that is known without a wait: on a device, those of the step alone. 0: unknown.
  double elapsed(ClockRef clock) const { return clock ? clock() - started_ : 0; }
  /// Runs one whole step; returns the loss. Launches a captured step, if the context has one. If `gradients` are given, the
  /// caller is about to ask for their norm, which a device then forms before the host waits.
  template <class Step, class T>
  Result<double> run(Step& step, Context& context, AnyView input, AnyView targets, View<T>) {
    return step.run(context, input, targets);
  }
  std::uint64_t captured_steps() const { return 0; }
  std::size_t captured_bytes() const { return 0; }
  Error capture_failure() const { return {}; }

  /// The norm as a number of the host's; waits for queued kernels.
  template <class T>
  double norm(Context& context, View<T> gradients) {
    return gradient_norm(context, gradients);
  }

 private:
  double started_ = 0;
};

}}  // namespace adacc::v0_1
