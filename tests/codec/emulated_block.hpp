// SPDX-License-Identifier: MIT
/// A block of 256 threads on the host, for the algorithms of codec/thread_block.hpp. In every phase one thread runs
/// after the other, in one of several orders; under the thread sanitizer as fibers that it takes for threads
/// (racing_block.hpp), so that it reports what two threads do to the same bytes without a barrier in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ADACC_RACING_BLOCK
#endif
#endif

#if defined(ADACC_RACING_BLOCK)
#include "racing_block.hpp"
#endif

namespace emulated {

enum class Order { ascending, descending, scattered };

/// Threads that are nothing but turns.
struct Turns {
  template <class Phase, class At>
  static void run(int threads, const Phase& phase, const At& at) {
    for (int i = 0; i < threads; ++i) phase(at(i));
  }
  static std::uint32_t add(std::uint32_t& to, std::uint32_t by) { return (to += by) - by; }
  template <class Number>
  static void maximum(Number& to, Number value) {
    to = to < value ? value : to;
  }
  template <class Number>
  static void minimum(Number& to, Number value) {
    to = value < to ? value : to;
  }
};

#if defined(ADACC_RACING_BLOCK)
using Threads = Fibers;
#else
using Threads = Turns;
#endif

template <Order order>
class Block {
 public:
  static constexpr int threads = 256;

  template <class R>
  struct PerThread {
    std::unique_ptr<R[]> of = std::make_unique<R[]>(threads);
    R& operator[](int thread) { return of[static_cast<std::size_t>(thread)]; }
    const R& operator[](int thread) const { return of[static_cast<std::size_t>(thread)]; }
  };

  template <class Phase>
  void each(const Phase& phase) {
    Threads::run(threads, phase, at);
  }
  template <class Condition>
  bool any(const Condition& condition) {
    bool holds[threads], some = false;
    each([&](int t) { holds[t] = condition(t); });
    for (const bool one : holds) some = some || one;
    return some;
  }
  template <class Value, class Use>
  void exclusive_sum(const Value& value, const Use& use) {
    std::uint32_t own[threads], before[threads], total = 0;
    each([&](int t) { own[t] = value(t); });
    for (int t = 0; t < threads; ++t) {
      before[t] = total;
      total += own[t];
    }
    each([&](int t) { use(t, before[t], total); });
  }
  static std::uint32_t add(std::uint32_t& to, std::uint32_t by) { return Threads::add(to, by); }
  template <class Number>
  static void maximum(Number& to, Number value) {
    Threads::maximum(to, value);
  }
  static void minimum(std::int32_t& to, std::int32_t value) { Threads::minimum(to, value); }
  /// Blocks run one after the other.
  static bool last(std::uint32_t& arrived, std::uint32_t of) {
    arrived = arrived + 1 == of ? 0 : arrived + 1;
    return arrived == 0;
  }

  template <int width, class Values, class Combine>
  void lanes(const Values& values, const Combine& combine) {
    for (int first = 0; first < threads; first += width) {
      auto& result = values(first);
      for (int t = first + 1; t < first + width; ++t) {
        auto& other = values(t);
        for (std::size_t i = 0; i < std::size(result); ++i)
          result[i] = combine(result[i], other[i]);
      }
      for (int t = first + 1; t < first + width; ++t) {
        auto& other = values(t);
        for (std::size_t i = 0; i < std::size(result); ++i) other[i] = result[i];
      }
    }
  }

 private:
  static int at(int i) {
    if (order == Order::ascending) return i;
    if (order == Order::descending) return threads - 1 - i;
    return (i * 77 + 13) % threads;
  }
};

}  // namespace emulated
