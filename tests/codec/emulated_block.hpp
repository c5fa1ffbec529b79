// SPDX-License-Identifier: MIT
/// A block of 256 threads on the host, for the algorithms of codec/thread_block.hpp: in every phase
/// one thread after the other, in one of several orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace emulated {

enum class Order { ascending, descending, scattered };

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
    for (int i = 0; i < threads; ++i) phase(at(i));
  }
  template <class Condition>
  bool any(const Condition& condition) {
    bool some = false;
    for (int i = 0; i < threads; ++i) some = condition(at(i)) || some;
    return some;
  }
  template <class Value, class Use>
  void exclusive_sum(const Value& value, const Use& use) {
    std::uint32_t before[threads], total = 0;
    for (int i = 0; i < threads; ++i) {
      before[i] = total;
      total += value(i);
    }
    for (int i = 0; i < threads; ++i) use(at(i), before[at(i)], total);
  }
  static void add(std::uint32_t& to, std::uint32_t by) { to += by; }
  template <class Number>
  static void maximum(Number& to, Number value) {
    to = to < value ? value : to;
  }
  static void minimum(std::int32_t& to, std::int32_t value) { to = value < to ? value : to; }

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
