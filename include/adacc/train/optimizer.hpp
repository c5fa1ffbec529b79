// SPDX-License-Identifier: MIT
/// The optimizer contract: what a Training asks of whoever turns gradients into an update.
///
/// An optimizer is a plain struct of options, and its state is memory of the trainer's:
///
///     static constexpr const char* name = "AdamW";    // checkpoints of others are refused
///     static constexpr std::size_t state_blocks = 2;  // each as large as the parameters
///     template <class Context, class Table, class T>
///     void update(Context&, const Table&, const UpdateBlocks<T>&, const UpdateTerms&) const;
///
/// It is told of those parameters alone that are trained. `update` reads scale * gradients, changes parameters and state, and leaves zeros in the gradients.
/// Blocks mirror the parameter table (an Array<Parameter>, or whatever has size() and []): entries
/// whose `owner` is false share the storage of an earlier one and are skipped; padding is zero and
/// stays it. State is zero before the first update. A rate of 0 changes no parameter, and keeps
/// gradients and state that are zero. The bits depend on the arguments alone, not on the number of
/// threads. AdamW (adamw.hpp) and Sgd (sgd.hpp) are two; testing::OptimizerArchetype has no more.
#pragma once

#include <cstdint>

#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// What an update works on.
template <class T>
struct UpdateBlocks {
  View<T> params;
  View<T> gradients;
  const View<T>* state = nullptr;  ///< `state_blocks` of them
};

/// What an update is told.
struct UpdateTerms {
  std::uint64_t number = 1;  ///< of the update, counted from 1
  double rate = 0;
  double scale = 1;  ///< of the gradients: clipping, and the mean over micro-batches
};

/// How an optimizer runs in a context: calls its member, unless specialized (a device twin).
template <class Optimizer, class Context>
struct optimizer_kernel {
  template <class Table, class T>
  static void update(const Optimizer& optimizer, Context& context, const Table& table,
                     const UpdateBlocks<T>& blocks, const UpdateTerms& terms) {
    optimizer.update(context, table, blocks, terms);
  }
};

}}  // namespace adacc::v0_1
