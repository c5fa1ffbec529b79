// SPDX-License-Identifier: MIT
/// Philox4x32-10 against its published vectors, and the streams that are cut from it.
#include <doctest/doctest.h>
#include <adacc/core/random.hpp>

#include <cstdint>
#include <set>

namespace random_test { namespace {

using namespace adacc;

constexpr bool equal(const PhiloxBlock& a, const PhiloxBlock& b) {
  for (int i = 0; i < 4; ++i)
    if (a.word[i] != b.word[i]) return false;
  return true;
}

// Random123's kat_vectors, the three of philox4x32 with ten rounds.
static_assert(equal(philox4x32({{0, 0, 0, 0}}, 0, 0),
                    {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
static_assert(equal(philox4x32({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff,
                               0xffffffff),
                    {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
static_assert(equal(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822,
                               0x299f31d0),
                    {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));

TEST_CASE("the published vectors, at run time") {
  const volatile std::uint32_t zero = 0;
  const PhiloxBlock block = philox4x32({{zero, zero, zero, zero}}, zero, zero);
  CHECK(equal(block, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
}

TEST_CASE("streams differ in every part of the key, and blocks within a stream") {
  constexpr RandomKey base{
      .seed = 5, .step = 6, .micro_step = 7, .activation = 8, .purpose = Purpose::rounding};
  std::set<std::uint64_t> seen;
  int streams = 0;
  const auto add = [&](const RandomKey& key, std::uint64_t index) {
    const PhiloxBlock block = random_block(key, index);
    seen.insert(std::uint64_t{block.word[0]} << 32 | block.word[1]);
    ++streams;
  };
  add(base, 0);
  add(base, 1);
  add(base, std::uint64_t{1} << 32);
  add(base, (std::uint64_t{1} << 40) - 1);
  RandomKey key = base;
  key.seed = 6;
  add(key, 0);
  key.seed = base.seed + (std::uint64_t{1} << 32);
  add(key, 0);
  key = base;
  key.step = 7;
  add(key, 0);
  key = base;
  key.micro_step = 8;
  add(key, 0);
  add(base.with_activation(9), 0);
  for (const Purpose purpose : {Purpose::dropout, Purpose::initialization, Purpose::data,
                                Purpose::sampling, Purpose::probe})
    add(base.with_purpose(purpose), 0);
  // Neighbours that would meet if fields overlapped in the counter.
  add({.seed = 5, .step = 6, .micro_step = 0xFFFF, .activation = 8}, 0);
  add({.seed = 5, .step = 6, .micro_step = 0xFFFF, .activation = 8}, std::uint64_t{1} << 32);
  CHECK(static_cast<int>(seen.size()) == streams);
}

TEST_CASE("with_ changes one part only") {
  constexpr RandomKey base{
      .seed = 1, .step = 2, .micro_step = 3, .activation = 4, .purpose = Purpose::data};
  constexpr RandomKey other = base.with_activation(9).with_purpose(Purpose::probe);
  static_assert(other.seed == 1 && other.step == 2 && other.micro_step == 3);
  static_assert(other.activation == 9 && other.purpose == Purpose::probe);
  static_assert(base.with_activation(9).purpose == Purpose::data);
  static_assert(base.with_purpose(Purpose::probe).activation == 4);
}

TEST_CASE("words are the words of blocks") {
  const RandomKey key{.seed = 99};
  for (std::uint64_t e = 0; e < 64; ++e)
    CHECK(random_word(key, e) == random_block(key, e / 4).word[e % 4]);
}

TEST_CASE("unit_float fills [0, 1) and nothing else") {
  static_assert(unit_float(0) == 0);
  static_assert(unit_float(0xFFFFFFFF) == 1 - 1.0F / 16777216);
  static_assert(unit_float(0xFFFFFFFF) < 1);
  static_assert(unit_float(0x80000000) == 0.5F);
  double sum = 0;
  constexpr int count = 100000;
  for (std::uint64_t e = 0; e < count; ++e) {
    const float u = unit_float(random_word({.seed = 3}, e));
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += static_cast<double>(u);
  }
  CHECK(sum / count == doctest::Approx(0.5).epsilon(0.01));  // 5 standard errors
}

}}  // namespace random_test
