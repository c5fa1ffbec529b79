// SPDX-License-Identifier: MIT
/// The contract of a trainer: what Training, ForwardOnly, DataParallel and Pipeline have in common.
///
/// A trainer owns parameters, whatever its updates need beside them, and an arena. Everything is taken when it is
/// made; nothing below allocates but set_budget(), save() and load():
///
///     Result<TrainingOutcome> step(x, y, rate);     // accumulate() and update()
///     Result<double> accumulate(x, y);              // one micro-batch; its mean loss, where that is known
///     Error begin(x, y);                            // accumulate() in slices: begins it
///     Result<Slice> slice(now, deadline);           // runs it until the clock reads `deadline`, or it ends
///     Result<TrainingOutcome> update(rate);         // from the micro-batches since the last update
///     Result<double> evaluate(x, y);                // the mean loss; nothing changes by it
///     Error infer(x, out);                          // the last activation; nothing changes by it
///     Error set_budget(bytes);                      // of the arena, from the next update on
///     Error save(path, notes);
///     load(path);                                   // goes on bit for bit; an Error, or a Result
///     std::uint64_t updates();   std::size_t batches();   // made, and micro-batches since the last
///     const Plan& plan();        std::size_t peak_bytes();        TrainingMemoryUse memory_use();
///
/// `x`, `y` and `out` are views of the shapes that the trainer was made for. Slices have the bits of one call,
/// whatever the clock says. A mistake in the order of calls is an error that changes nothing: evaluate(), infer()
/// and update() while a micro-batch is under way, slice() while none is. On several ranks all of them
/// make the same calls, but for accumulate(), begin() and slice(), and those of DataParallel's evaluate() and
/// infer(); `x` is read by the rank that has the first layer, `y` and `out` by the one that has the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "../core/any_view.hpp"
#include "../step/cursor.hpp"
#include "memory_use.hpp"
#include "outcome.hpp"

namespace adacc { inline namespace v0_1 {

/// One of numbers of type T.
template <class Trained, class T = float>
concept Trainer = requires(Trained& trained, const Trained& is, AnyView x, AnyView y, View<T> out,
                           double rate, std::int64_t (&now)(), std::size_t bytes,
                           const std::string& path) {
  requires std::is_same_v<decltype(trained.step(x, y, rate)), Result<TrainingOutcome>>;
  requires std::is_same_v<decltype(trained.accumulate(x, y)), Result<double>>;
  requires std::is_same_v<decltype(trained.begin(x, y)), Error>;
  requires std::is_same_v<decltype(trained.slice(now, std::int64_t{})), Result<Slice>>;
  requires std::is_same_v<decltype(trained.update(rate)), Result<TrainingOutcome>>;
  requires std::is_same_v<decltype(trained.evaluate(x, y)), Result<double>>;
  requires std::is_same_v<decltype(trained.infer(x, out)), Error>;
  requires std::is_same_v<decltype(trained.set_budget(bytes)), Error>;
  requires std::is_same_v<decltype(trained.save(path, path)), Error>;
  trained.load(path);
  requires std::is_same_v<decltype(is.updates()), std::uint64_t>;
  requires std::is_same_v<decltype(is.batches()), std::size_t>;
  requires std::is_same_v<decltype(is.plan()), const Plan&>;
  requires std::is_same_v<decltype(is.peak_bytes()), std::size_t>;
  requires std::is_same_v<decltype(is.memory_use()), TrainingMemoryUse>;
};

}}  // namespace adacc::v0_1
