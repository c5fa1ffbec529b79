// SPDX-License-Identifier: MIT
/// Codecs make the same bytes in whatever floating-point mode a host computes, and trap nothing on numbers.
#include <doctest/doctest.h>
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/core/random.hpp>

#include <cfenv>
#include <cmath>
#include <cstddef>

#include "../host_mode.hpp"
#include "quant_cases.hpp"

namespace host_mode_test { namespace {

using namespace quant_cases;

/// Numbers of all magnitudes, by rows: subnormal ones, ordinary ones, those at the end of the range.
template <class T>
Matrix<T> all_magnitudes() {
  Matrix<T> x(260, 70);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float unit = unit_float(random_word({.seed = 21}, i)) - 0.4F;
    const int exponent = i / 70 % 64 < 30 ? -130 : i / 70 % 64 < 60 ? -128 : i % 640 == 0 ? 127 : 1;
    x[i] = static_cast<T>(std::ldexp(unit, exponent));
  }
  return x;
}

/// Numbers near the end of the range, and in every other block tiny ones with a few of them.
template <class T>
Matrix<T> large_magnitudes() {
  Matrix<T> x(260, 70);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float unit = unit_float(random_word({.seed = 22}, i)) - 0.4F;
    const bool tiny = i / 70 / 64 % 2 != 0 && i % 1000 != 7;
    x[i] = static_cast<T>(std::ldexp(unit, tiny ? -100 : 127));
  }
  return x;
}

template <class Codec, class T>
void check_modes(const Matrix<T>& x) {
  INFO(Codec::name);
  const Blob plain = encoded<Codec>(x);
  const Matrix<T> values = round_trip<Codec>(x);
  EigenPool pool(2);  // its threads were there before the host set its mode
  Cpu two(pool), one;
  Blob blob(plain.view().size(), 0xA5);
  Matrix<T> y(x.rows, x.cols);
  Error failed;
  bool flags = false, held = false;
  for (Cpu* cpu : {&one, &two}) {
    {
      const HostMode mode(true);
      failed = Codec::template encode<T>(*cpu, x.view(), blob.view());
      if (!failed) failed = Codec::template decode<T>(*cpu, blob.view(), y.view());
      flags = std::fetestexcept(FE_ALL_EXCEPT) != 0;
      held = HostMode::holds();
    }
    CHECK_FALSE(failed);
    CHECK(blob == plain);
    CHECK(same(y, values));
    if (!HostMode::known) continue;
    CHECK_FALSE(flags);  // nothing is left behind
    CHECK(held);
  }
}

TEST_CASE_TEMPLATE("the bytes do not depend on a host's floating-point mode, and nothing traps", T,
                   float, double) {
  for (const Matrix<T>& x : {all_magnitudes<T>(), large_magnitudes<T>()}) {
    check_modes<Int8Outlier>(x);
    check_modes<Int4Outlier>(x);
    check_modes<Int8OutlierWith<symmetric>>(x);
    check_modes<Int4OutlierWith<rows>>(x);
    check_modes<Int8OutlierWith<group128_channels>>(x);
    check_modes<Int4OutlierWith<stochastic>>(x);
    check_modes<Bf16>(x);
  }
}

TEST_CASE("threads that share work compute in the mode of the thread that hands it out") {
  EigenPool pool(2);
  const Cpu cpu(pool);
  bool same_mode[64] = {};
  {
    const HostMode mode;
    cpu.parallel(64, [&](std::size_t i, int) { same_mode[i] = HostMode::holds(); });
  }
  for (const bool same : same_mode) CHECK(same == HostMode::known);
  cpu.parallel(64, [&](std::size_t i, int) { same_mode[i] = HostMode::holds(); });
  for (const bool same : same_mode) CHECK_FALSE(same);
}

}}  // namespace host_mode_test
