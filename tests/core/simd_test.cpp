// SPDX-License-Identifier: MIT
/// Vectors of the compiler, and the arrays of lanes that stand in for them: each operation has the bits of a loop over
/// scalars.
#include <doctest/doctest.h>

#include <adacc/core/random.hpp>
#include <adacc/core/simd.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace simd_test { namespace {

using namespace adacc;

/// 16 bytes of T: the compiler's vector, and the array.
template <class T>
using Vector = typename detail::Simd<T, 16>::type;
template <class T>
using Lanes = detail::LaneArray<T, 16 / sizeof(T)>;

static_assert(alignof(Lanes<float>) == alignof(Vector<float>));
static_assert(sizeof(Lanes<double>) == sizeof(Vector<double>));

template <class V>
V loaded(const void* from) {
  V to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

/// Whether lane i of a vector has the bits of expected(i).
template <class T, class V, class Expected>
bool has(const V& vector, const Expected& expected) {
  T lanes[sizeof(V) / sizeof(T)];
  std::memcpy(lanes, &vector, sizeof vector);
  for (std::size_t i = 0; i < sizeof(V) / sizeof(T); ++i) {
    const T wanted = static_cast<T>(expected(i));
    if (std::memcmp(&lanes[i], &wanted, sizeof wanted) != 0) return false;
  }
  return true;
}

template <class V, class C>
V chosen(const C& condition, const V& a, const V& b) {
  if constexpr (detail::is_lane_array<V>) return detail::chosen_lanes(condition, a, b);
  else return ADACC_CHOOSE_LANES(condition, a, b);
}
template <class To, class V>
To converted(const V& from) {
  if constexpr (detail::is_lane_array<V>) return detail::converted_lanes<To>(from);
  else return ADACC_CONVERT_LANES(from, To);
}
template <class V>
V mixed(const V& a, const V& b) {
  if constexpr (detail::is_lane_array<V>) return detail::shuffled_lanes<7, 1, 5, 2>(a, b);
  else return ADACC_SHUFFLE_LANES(a, b, 7, 1, 5, 2);
}

/// Comparisons, choices and arithmetic of V, whose lanes are T, on two arrays of lanes.
template <class T, class V>
void check_arithmetic(const T* x, const T* y) {
  using Mask = detail::LaneMask<T>;
  const V a = loaded<V>(x), b = loaded<V>(y);
  CHECK(has<T>(V(a + b), [&](std::size_t i) { return x[i] + y[i]; }));
  CHECK(has<T>(V(a - b), [&](std::size_t i) { return x[i] - y[i]; }));
  CHECK(has<T>(V(a * b), [&](std::size_t i) { return x[i] * y[i]; }));
  CHECK(has<T>(V(T(3) - a), [&](std::size_t i) { return T(3) - x[i]; }));
  CHECK(has<T>(V(a * T(3)), [&](std::size_t i) { return x[i] * T(3); }));
  CHECK(has<T>(V(-a), [&](std::size_t i) { return -x[i]; }));
  V sum = a;
  sum += b;
  sum *= a;
  sum -= T(1);
  CHECK(has<T>(sum, [&](std::size_t i) {
    const T both = static_cast<T>(x[i] + y[i]), product = static_cast<T>(both * x[i]);
    return product - T(1);
  }));
  CHECK(has<Mask>(a < b, [&](std::size_t i) { return x[i] < y[i] ? -1 : 0; }));
  CHECK(has<Mask>(a > b, [&](std::size_t i) { return x[i] > y[i] ? -1 : 0; }));
  CHECK(has<Mask>(a <= b, [&](std::size_t i) { return x[i] <= y[i] ? -1 : 0; }));
  CHECK(has<Mask>(a >= b, [&](std::size_t i) { return x[i] >= y[i] ? -1 : 0; }));
  CHECK(has<Mask>(a == b, [&](std::size_t i) { return x[i] == y[i] ? -1 : 0; }));
  CHECK(has<Mask>(a != T(2), [&](std::size_t i) { return x[i] != T(2) ? -1 : 0; }));
  CHECK(has<T>(chosen<V>(a < b, a, b), [&](std::size_t i) { return x[i] < y[i] ? x[i] : y[i]; }));
}

template <class T, class V>
void check_bits(const T* x, const T* y) {
  const V a = loaded<V>(x), b = loaded<V>(y);
  CHECK(has<T>(V(a & b), [&](std::size_t i) { return x[i] & y[i]; }));
  CHECK(has<T>(V(a | b), [&](std::size_t i) { return x[i] | y[i]; }));
  CHECK(has<T>(V(a ^ T(5)), [&](std::size_t i) { return x[i] ^ T(5); }));
  CHECK(has<T>(V(a << T(3)), [&](std::size_t i) { return x[i] << 3; }));
  CHECK(has<T>(V(a >> T(3)), [&](std::size_t i) { return x[i] >> 3; }));
}

/// Numbers of chance, small enough that no sum or product of integers overflows.
template <class T>
T number(std::uint32_t i) {
  const std::uint32_t word = random_word({.seed = 11}, i);
  const int whole = static_cast<int>(word % 23) - (std::is_signed_v<T> ? 11 : 0);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(whole) / 3;
  else return static_cast<T>(whole);
}

TEST_CASE_TEMPLATE("operators of vectors and of arrays of lanes", T, float, double, std::int32_t,
                   std::int64_t, std::uint32_t, std::uint64_t, std::uint16_t, std::uint8_t) {
  for (std::uint32_t round = 0; round < 50; ++round) {
    T x[16 / sizeof(T)], y[16 / sizeof(T)];
    for (std::uint32_t i = 0; i < 16 / sizeof(T); ++i) {
      x[i] = number<T>(40 * round + i);
      y[i] = number<T>(40 * round + 20 + i);
    }
    if (std::is_floating_point_v<T> && round == 0) x[0] = std::numeric_limits<T>::quiet_NaN();
    if (std::is_floating_point_v<T> && round == 1) x[0] = T(-0.0), y[0] = 0;
    if constexpr (sizeof(T) >= 4) {
      check_arithmetic<T, Vector<T>>(x, y);
      check_arithmetic<T, Lanes<T>>(x, y);
    }
    if constexpr (std::is_integral_v<T>) {
      check_bits<T, Vector<T>>(x, y);
      check_bits<T, Lanes<T>>(x, y);
    }
    if constexpr (std::is_floating_point_v<T>) {
      for (T& n : y) n = n < 0 ? n - 1 : n + 1;
      const auto quotient = [&](std::size_t i) { return x[i] / y[i]; };
      CHECK(has<T>(Vector<T>(loaded<Vector<T>>(x) / loaded<Vector<T>>(y)), quotient));
      CHECK(has<T>(loaded<Lanes<T>>(x) / loaded<Lanes<T>>(y), quotient));
    }
  }
}

template <class Floats, class Wholes>
void check_changes_of_lanes() {
  const float x[] = {-2.9F, 0.5F, 7.9F, 1e6F}, y[] = {1, 2, 3, 4};
  const std::int32_t wholes[] = {-2, 0, 7, 1000000};
  const Floats a = loaded<Floats>(x), b = loaded<Floats>(y);
  const Wholes whole = converted<Wholes>(a);
  CHECK(has<std::int32_t>(whole, [&](std::size_t i) { return wholes[i]; }));
  CHECK(has<float>(converted<Floats>(whole), [&](std::size_t i) { return wholes[i]; }));
  CHECK(has<float>(mixed(a, b), [&](std::size_t i) {
    const float expected[] = {y[3], x[1], y[1], x[2]};
    return expected[i];
  }));
}

TEST_CASE("conversions and shuffles of vectors and of arrays of lanes") {
  check_changes_of_lanes<Vector<float>, Vector<std::int32_t>>();
  check_changes_of_lanes<Lanes<float>, Lanes<std::int32_t>>();
  static_assert(detail::chosen_lanes(true, 1, 2) == 1 && detail::chosen_lanes(false, 1, 2) == 2);
}

TEST_CASE_TEMPLATE("a scalar operand may be a lane of the vector that changes", V, Vector<float>,
                   Lanes<float>) {
  const float numbers[] = {2, 3, 5, 7};
  V v = loaded<V>(numbers);
  v *= v[0];
  CHECK(has<float>(v, [&](std::size_t i) { return numbers[i] * numbers[0]; }));
}

}}  // namespace simd_test
