// SPDX-License-Identifier: MIT
/// Counter-based random numbers: Philox4x32-10.
///
/// A number is a pure function of (seed, step, micro-step, activation, purpose, element), so a
/// recomputed dropout draws the mask of the first time and no order of execution or number of
/// threads can change a bit. Algorithm and constants: Salmon, Moraes, Dror, Shaw, "Parallel
/// random numbers: as easy as 1, 2, 3", SC'11.
#pragma once

#include <cstddef>
#include <cstdint>

#include "config.hpp"

namespace adacc { inline namespace v0_1 {

/// Four random words.
struct PhiloxBlock {
  std::uint32_t word[4];
};

namespace detail {

/// The constants of Philox4x32. The rounds are written three times, because they share little more than these: here
/// for one block, in constant expressions and on devices; in layer/dropout.hpp over arrays of 32-bit lanes, which
/// every compiler vectorizes; in codec/quant/host/codes.hpp over vectors of 64-bit lanes, which hold whole products.
/// Tests compare the others with this one.
struct Philox {
  static constexpr int rounds = 10;
  static constexpr std::uint32_t factor_0 = 0xD2511F53, factor_1 = 0xCD9E8D57;
  static constexpr std::uint32_t step_0 = 0x9E3779B9, step_1 = 0xBB67AE85;  ///< added each round
};

}  // namespace detail

/// Philox4x32 with ten rounds: `counter` encrypted under the 64-bit key (k0, k1).
ADACC_HD constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < detail::Philox::rounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{detail::Philox::factor_0} * counter.word[0];
    const std::uint64_t p1 = std::uint64_t{detail::Philox::factor_1} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ counter.word[1] ^ k0,
                static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ counter.word[3] ^ k1,
                static_cast<std::uint32_t>(p0)}};
    k0 += detail::Philox::step_0;
    k1 += detail::Philox::step_1;
  }
  return counter;
}

/// The use of a stream of random numbers: streams of different purpose never meet.
enum class Purpose : std::uint8_t {
  dropout,
  rounding,
  initialization,
  data,
  sampling,
  probe,
  moments,
  directions,
  parameters
};

/// Names one stream of random numbers; the element index selects a number of the stream.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint16_t micro_step = 0;
  std::uint32_t activation = 0;
  Purpose purpose = Purpose::dropout;

  ADACC_HD constexpr RandomKey with_activation(std::uint32_t id) const {
    RandomKey key = *this;
    key.activation = id;
    return key;
  }
  ADACC_HD constexpr RandomKey with_purpose(Purpose what) const {
    RandomKey key = *this;
    key.purpose = what;
    return key;
  }
};

/// Words 4 * block … 4 * block + 3 of the stream `key`; block < 2^40.
ADACC_HD constexpr PhiloxBlock random_block(const RandomKey& key, std::uint64_t block) {
  const std::uint32_t high = static_cast<std::uint32_t>(block >> 32) & 0xFF;
  const PhiloxBlock counter = {
      {static_cast<std::uint32_t>(block), key.activation, key.step,
       std::uint32_t{key.micro_step} | static_cast<std::uint32_t>(key.purpose) << 16 | high << 24}};
  return philox4x32(counter, static_cast<std::uint32_t>(key.seed),
                    static_cast<std::uint32_t>(key.seed >> 32));
}

/// Word `element` of the stream `key`.
ADACC_HD constexpr std::uint32_t random_word(const RandomKey& key, std::uint64_t element) {
  return random_block(key, element / 4).word[element % 4];
}

/// Uniform in [0, 1), 24 bits: exact in float.
ADACC_HD constexpr float unit_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0F / 16777216.0F);
}

}}  // namespace adacc::v0_1
