// SPDX-License-Identifier: MIT
/// What emulated_block.hpp runs the threads of a block as under the thread sanitizer: fibers, each of which it takes
/// for a thread.
///
/// They take turns on one thread of the system, so that results do not change from run to run. The sanitizer
/// is told of no order among them but that of barriers: it compares who touched which bytes, and reports what
/// two threads did to the same ones in one phase, however they took turns.
#pragma once

#include <sanitizer/tsan_interface.h>
#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace emulated {

class Fibers {
 public:
  /// With more than 255 threads clang's sanitizer forgets what it saw, without a word. So a few threads of a
  /// block of 256 share a fiber, 0 and 240 say, and what these two do to each other goes unseen.
  static constexpr int most = 240;

  /// Calls phase(at(i)) for every i below `threads`, each by a fiber. Before and behind it is a barrier.
  template <class Phase, class At>
  static void run(int threads, const Phase& phase, const At& at) {
    Fibers& all = of_process();
    all.call_ = [](const void* what, int thread) { (*static_cast<const Phase*>(what))(thread); };
    all.phase_ = &phase;
    __tsan_release(&all.begin_);
    for (int i = 0; i < threads; ++i) all.resume(at(i));
    __tsan_acquire(&all.end_);
  }

  static std::uint32_t add(std::uint32_t& to, std::uint32_t by) {
    return std::atomic_ref(to).fetch_add(by, std::memory_order_relaxed);
  }
  template <class Number>
  static void maximum(Number& to, Number value) {
    replace(to, value, [](Number old, Number other) { return old < other; });
  }
  template <class Number>
  static void minimum(Number& to, Number value) {
    replace(to, value, [](Number old, Number other) { return other < old; });
  }

 private:
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    void* known_as = nullptr;  ///< to the sanitizer
  };

  Fibers() {
    constexpr std::size_t bytes = std::size_t{512} * 1024;
    for (Fiber& fiber : fibers_) {
      fiber.stack = std::make_unique<char[]>(bytes);
      fiber.known_as = __tsan_create_fiber(0);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = bytes;
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, &Fibers::body, 0);
    }
  }
  static Fibers& of_process() {
    static Fibers& fibers = *new Fibers;  // which is never torn down: nor are the sanitizer's
    return fibers;
  }

  void resume(int thread) {
    now_ = thread;
    Fiber& fiber = fibers_[thread % most];
    __tsan_switch_to_fiber(fiber.known_as, __tsan_switch_to_fiber_no_sync);
    swapcontext(&main_, &fiber.context);
  }
  static void body() {
    for (;;) of_process().turn();
  }
  // Unseen by the sanitizer, to which these members would be what threads share.
  __attribute__((no_sanitize("thread"))) void turn() {
    const int me = now_;
    __tsan_acquire(&begin_);
    call_(phase_, me);
    __tsan_release(&end_);
    __tsan_switch_to_fiber(main_known_as_, __tsan_switch_to_fiber_no_sync);
    swapcontext(&fibers_[me % most].context, &main_);
  }

  template <class Number, class Better>
  static void replace(Number& to, Number value, const Better& better) {
    const std::atomic_ref shared(to);
    Number old = shared.load(std::memory_order_relaxed);
    while (better(old, value) &&
           !shared.compare_exchange_weak(old, value, std::memory_order_relaxed)) {}
  }

  Fiber fibers_[most];
  ucontext_t main_{};
  void* main_known_as_ = __tsan_get_current_fiber();
  void (*call_)(const void*, int) = nullptr;
  const void* phase_ = nullptr;
  int now_ = 0;
  char begin_ = 0, end_ = 0;
};

}  // namespace emulated
