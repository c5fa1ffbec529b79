// SPDX-License-Identifier: MIT
/// The executor contract: how kernels reach the caller's threads.
///
/// An executor is any object with
///
///     int  workers() const;                                  // at least 1, constant
///     void run(std::size_t tiles, adacc::TileFn tile) const; // or non-const
///
/// `run` calls `tile(i, worker)` once for each i in [0, tiles), on any thread and in any order, with
/// 0 <= worker < workers() and never two calls at a time for one worker. It returns when all calls have returned, and
/// must not throw. `run` is never called inside of a tile. Tiles compute in the floating-point mode of the caller of
/// `run` (core/float_mode.hpp).
#pragma once

#include <cstddef>
#include <type_traits>

#include "float_mode.hpp"

namespace adacc { inline namespace v0_1 {

/// A reference to a callable (std::size_t tile, int worker): two words, no ownership.
class TileFn {
 public:
  template <class Function>
  constexpr explicit TileFn(const Function& function)
      : object_(&function), call_([](const void* object, std::size_t tile, int worker) {
          (*static_cast<const Function*>(object))(tile, worker);
        }) {}

  void operator()(std::size_t tile, int worker) const { call_(object_, tile, worker); }

 private:
  const void* object_;
  void (*call_)(const void*, std::size_t, int);
};

/// A reference to the caller's executor. If empty (the default), tiles run one after the other on the calling thread.
class ExecutorRef {
 public:
  constexpr ExecutorRef() = default;

  template <class Executor>
    requires(!std::is_same_v<std::remove_const_t<Executor>, ExecutorRef>)
  constexpr ExecutorRef(Executor& executor)  // implicit: a parameter type
      : object_(const_cast<void*>(static_cast<const void*>(&executor))),  // cast back below
        workers_(executor.workers()), run_([](void* object, std::size_t tiles, TileFn tile) {
          static_cast<Executor*>(object)->run(tiles, tile);
        }) {}

  constexpr int workers() const { return workers_; }

  void run(std::size_t tiles, TileFn tile) const {
    if (run_ != nullptr && tiles > 1) {
      const auto in_mode = [tile, mode = detail::FloatMode::of_thread()](std::size_t i,
                                                                         int worker) {
        const detail::FloatModeScope scope(mode);
        tile(i, worker);
      };
      return run_(object_, tiles, TileFn(in_mode));
    }
    for (std::size_t i = 0; i < tiles; ++i) tile(i, 0);
  }

 private:
  void* object_ = nullptr;
  int workers_ = 1;
  void (*run_)(void*, std::size_t, TileFn) = nullptr;
};

}}  // namespace adacc::v0_1
