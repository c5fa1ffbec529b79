// SPDX-License-Identifier: MIT
/// bfloat16: rounding against the definition, in every corner of float's bits.
#include <doctest/doctest.h>
#include <adacc/core/bfloat16.hpp>
#include <adacc/core/dtype.hpp>
#include <adacc/core/random.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

namespace bfloat16_test { namespace {

using adacc::bfloat16;
using adacc::to_bfloat16;
using adacc::to_float;

static_assert(sizeof(bfloat16) == 2);
static_assert(adacc::dtype_of<bfloat16> == adacc::Dtype::bf16);
static_assert(adacc::bytes_of(adacc::Dtype::bf16) == 2);
static_assert(adacc::bytes_of(adacc::Dtype::f32) == 4);
static_assert(adacc::bytes_of(adacc::Dtype::f64) == 8);
static_assert(to_bfloat16(1.0F).bits == 0x3F80);
static_assert(to_float(bfloat16{0xC040}) == -3.0F);

/// In double, whose precision makes everything below exact.
double value(std::uint16_t bits) { return double{to_float(bfloat16{bits})}; }

/// Every way in which the discarded half can matter, under every upper half.
template <class Check>
void for_interesting_floats(const Check& check) {
  const std::uint32_t lows[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t low : lows) check(adacc::detail::bits_as<float>(upper << 16 | low));
  for (std::uint64_t i = 0; i < 200000; ++i)
    check(adacc::detail::bits_as<float>(adacc::random_word({.seed = 7}, i)));
}

TEST_CASE("every bfloat16 survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bfloat16 x{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(x);
    if (std::isnan(wide)) {
      CHECK(std::isnan(to_float(to_bfloat16(wide))));
      CHECK(std::signbit(to_float(to_bfloat16(wide))) == std::signbit(wide));
    } else {
      REQUIRE(to_bfloat16(wide) == x);
      REQUIRE(adacc::bfloat16_above(wide) == x);
      REQUIRE(adacc::bfloat16_below(wide) == x);
    }
  }
}

TEST_CASE("above and below are the nearest neighbours on either side") {
  std::size_t wrong = 0;
  for_interesting_floats([&](float x) {
    if (!std::isfinite(x)) return;
    const bfloat16 above = adacc::bfloat16_above(x), below = adacc::bfloat16_below(x);
    const bool outside = !(to_float(below) <= x && x <= to_float(above));
    // Apart, they are neighbours: by magnitude one bit differs.
    const int apart = (above.bits & 0x7FFF) - (below.bits & 0x7FFF);
    const bool exact = (adacc::detail::bits_as<std::uint32_t>(x) & 0xFFFF) == 0;
    if (outside || std::abs(apart) != (exact ? 0 : 1)) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("to_bfloat16 takes the nearest, of two as near the even one, and keeps NaNs") {
  std::size_t wrong = 0;
  for_interesting_floats([&](float x) {
    const bfloat16 got = to_bfloat16(x);
    if (std::isnan(x)) {
      const float back = to_float(got);
      if (!std::isnan(back) || std::signbit(back) != std::signbit(x)) ++wrong;
      return;
    }
    if (std::isinf(x)) {
      if (to_float(got) != x) ++wrong;
      return;
    }
    // The infinity counts as 2^128 in rounding.
    const auto finite = [](bfloat16 b) {
      const double v = value(b.bits);
      return std::isinf(v) ? std::copysign(0x1p128, v) : v;
    };
    const bfloat16 above = adacc::bfloat16_above(x), below = adacc::bfloat16_below(x);
    const double up = finite(above) - double{x}, down = double{x} - finite(below);
    const bfloat16 wanted = up < down               ? above
                            : down < up             ? below
                            : (above.bits & 1) == 0 ? above
                                                    : below;
    if (got != wanted) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("beyond the range there is infinity, on the right side") {
  constexpr float largest = std::numeric_limits<float>::max();
  CHECK(to_float(to_bfloat16(largest)) == std::numeric_limits<float>::infinity());
  CHECK(to_float(adacc::bfloat16_above(largest)) == std::numeric_limits<float>::infinity());
  CHECK(to_float(adacc::bfloat16_below(largest)) == to_float(bfloat16{0x7F7F}));
  CHECK(to_float(adacc::bfloat16_below(-largest)) == -std::numeric_limits<float>::infinity());
  CHECK(to_float(adacc::bfloat16_above(-largest)) == to_float(bfloat16{0xFF7F}));
}

}}  // namespace bfloat16_test
