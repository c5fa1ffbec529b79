// SPDX-License-Identifier: MIT
/// Random numbers of a simulated sample: each has a stream of its own, so any sample can be drawn again.
#pragma once

#include <adacc/core/random.hpp>

#include <cstddef>
#include <cstdint>

namespace device {

class Random {
 public:
  explicit Random(const adacc::RandomKey& key) : key_(key) {}
  explicit Random(std::uint32_t sample, std::uint64_t seed = 0)
      : Random(adacc::RandomKey{.seed = seed, .step = sample, .purpose = adacc::Purpose::data}) {}
  float uniform(float low, float high) { return low + (high - low) * adacc::unit_float(word()); }
  /// Nearly normal with standard deviation 1: the sum of four uniform numbers.
  float noise() {
    return 1.7320508F * (uniform(-0.5F, 0.5F) + uniform(-0.5F, 0.5F) + uniform(-0.5F, 0.5F) +
                         uniform(-0.5F, 0.5F));
  }
  std::size_t below(std::size_t count) { return word() % count; }

 protected:
  adacc::RandomKey key_;

 private:
  /// Word next_ of the stream; they come in fours.
  std::uint32_t word() {
    if (next_ % 4 == 0) block_ = adacc::random_block(key_, next_ / 4);
    return block_.word[next_++ % 4];
  }

  adacc::PhiloxBlock block_{};
  std::uint64_t next_ = 0;
};

}  // namespace device
