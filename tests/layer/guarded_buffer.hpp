// SPDX-License-Identifier: MIT
/// Guarded elements and random values, for tests that compare a kernel with a reference of theirs.
#pragma once

#include <adacc/core/guarded.hpp>
#include <adacc/core/random.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// 64-byte aligned elements between guards.
template <class T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t count) : block_(count * sizeof(T), 0xA5) {}
  T* data() { return block_.template as<T>(); }
  T& operator[](std::size_t i) { return data()[i]; }
  bool guard_intact() const { return block_.intact(); }

 private:
  adacc::testing::GuardedBlock block_;
};

/// Uniform in [-scale, scale).
inline std::vector<double> random_values(std::size_t count, std::uint64_t seed, double scale = 1) {
  std::vector<double> values(count);
  const adacc::RandomKey key{.seed = seed};
  for (std::size_t i = 0; i < count; ++i)
    values[i] = scale * (2 * double(adacc::unit_float(adacc::random_word(key, i))) - 1);
  return values;
}
