// SPDX-License-Identifier: MIT
/// Vectors of numbers, for any compiler: those of g++ and clang, or, where a compiler has none, arrays of lanes in standard
/// C++ with the same operators, whose loops the compiler may vectorize. Both have the same bits.
///
/// Three operations have no operator that standard C++ could offer, and are macros, which g++ and clang expand to what
/// they have themselves:
///
///     ADACC_CONVERT_LANES(vector, To)          each lane converted, as static_cast does
///     ADACC_SHUFFLE_LANES(a, b, indices...)    lanes of a, then of b, by their numbers
///     ADACC_CHOOSE_LANES(condition, a, b)      lanes of a where the condition's lane is not 0, else of b
///
/// A comparison has lanes of -1 where it holds, else 0. A scalar operand stands for a vector of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Microsoft's cl.exe has none. Tests ask for the arrays where there are vectors.
#if !defined(ADACC_HAS_VECTORS)
#if defined(_MSC_VER) && !defined(__clang__)
#define ADACC_HAS_VECTORS 0
#else
#define ADACC_HAS_VECTORS 1
#endif
#endif

#if ADACC_HAS_VECTORS
#define ADACC_CONVERT_LANES(vector, To) __builtin_convertvector(vector, To)
#define ADACC_SHUFFLE_LANES(...) __builtin_shufflevector(__VA_ARGS__)
#define ADACC_CHOOSE_LANES(condition, a, b) ((condition) ? (a) : (b))
#else
#define ADACC_CONVERT_LANES(vector, To) ::adacc::detail::converted_lanes<To>(vector)
#define ADACC_SHUFFLE_LANES(a, b, ...) ::adacc::detail::shuffled_lanes<__VA_ARGS__>(a, b)
#define ADACC_CHOOSE_LANES(condition, a, b) ::adacc::detail::chosen_lanes(condition, a, b)
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// `count` numbers, aligned as a vector of them.
template <class T, std::size_t count>
struct alignas(count * sizeof(T)) LaneArray {
  using Number = T;
  static constexpr std::size_t lanes = count;
  T lane[count];

  constexpr T& operator[](std::size_t i) { return lane[i]; }
  constexpr const T& operator[](std::size_t i) const { return lane[i]; }
};

template <class>
inline constexpr bool is_lane_array = false;
template <class T, std::size_t count>
inline constexpr bool is_lane_array<LaneArray<T, count>> = true;

/// The array of two operands, of which one may be a scalar.
template <class A, class B>
  requires(is_lane_array<A> || is_lane_array<B>)
using LaneArrayOf = std::conditional_t<is_lane_array<A>, A, B>;

/// Integers as wide as T: the lanes of a comparison.
template <class T>
using LaneMask = std::conditional_t<
    sizeof(T) == 8, std::int64_t,
    std::conditional_t<sizeof(T) == 4, std::int32_t,
                       std::conditional_t<sizeof(T) == 2, std::int16_t, std::int8_t>>>;

template <class Number, class A>
constexpr Number lane_of(const A& a, [[maybe_unused]] std::size_t i) {
  if constexpr (is_lane_array<A>) return a.lane[i];
  else return static_cast<Number>(a);
}

#define ADACC_LANE_OPERATOR(sign)                                                         \
  template <class A, class B>                                                             \
  constexpr LaneArrayOf<A, B> operator sign(const A& a, const B& b) {                     \
    using Number = typename LaneArrayOf<A, B>::Number;                                    \
    LaneArrayOf<A, B> to{};                                                               \
    for (std::size_t i = 0; i < to.lanes; ++i)                                            \
      to.lane[i] = static_cast<Number>(lane_of<Number>(a, i) sign lane_of<Number>(b, i)); \
    return to;                                                                            \
  }                                                                                       \
  template <class T, std::size_t count, class B>                                          \
  constexpr LaneArray<T, count>& operator sign##=(LaneArray<T, count>& a, const B& b) {   \
    const std::conditional_t<is_lane_array<B>, const B&, B> by = b; /* may be a lane */   \
    for (std::size_t i = 0; i < count; ++i)                                               \
      a.lane[i] = static_cast<T>(a.lane[i] sign lane_of<T>(by, i));                       \
    return a;                                                                             \
  }
ADACC_LANE_OPERATOR(+)
ADACC_LANE_OPERATOR(-)
ADACC_LANE_OPERATOR(*)
ADACC_LANE_OPERATOR(/)
ADACC_LANE_OPERATOR(&)
ADACC_LANE_OPERATOR(|)
ADACC_LANE_OPERATOR(^)
ADACC_LANE_OPERATOR(<<)
ADACC_LANE_OPERATOR(>>)
#undef ADACC_LANE_OPERATOR

#define ADACC_LANE_COMPARISON(sign)                                                           \
  template <class A, class B>                                                                 \
  constexpr LaneArray<LaneMask<typename LaneArrayOf<A, B>::Number>, LaneArrayOf<A, B>::lanes> \
  operator sign(const A& a, const B& b) {                                                     \
    using Number = typename LaneArrayOf<A, B>::Number;                                        \
    LaneArray<LaneMask<Number>, LaneArrayOf<A, B>::lanes> to{};                               \
    for (std::size_t i = 0; i < to.lanes; ++i)                                                \
      to.lane[i] = lane_of<Number>(a, i) sign lane_of<Number>(b, i) ? -1 : 0;                 \
    return to;                                                                                \
  }
ADACC_LANE_COMPARISON(<)
ADACC_LANE_COMPARISON(>)
ADACC_LANE_COMPARISON(<=)
ADACC_LANE_COMPARISON(>=)
ADACC_LANE_COMPARISON(==)
ADACC_LANE_COMPARISON(!=)
#undef ADACC_LANE_COMPARISON

template <class T, std::size_t count>
constexpr LaneArray<T, count> operator-(const LaneArray<T, count>& a) {
  LaneArray<T, count> to{};
  for (std::size_t i = 0; i < count; ++i) to.lane[i] = static_cast<T>(-a.lane[i]);
  return to;
}

template <class To, class T, std::size_t count>
constexpr To converted_lanes(const LaneArray<T, count>& from) {
  static_assert(To::lanes == count);
  To to{};
  for (std::size_t i = 0; i < count; ++i)
    to.lane[i] = static_cast<typename To::Number>(from.lane[i]);
  return to;
}

template <std::size_t... indices, class T, std::size_t count>
constexpr LaneArray<T, sizeof...(indices)> shuffled_lanes(const LaneArray<T, count>& a,
                                                          const LaneArray<T, count>& b) {
  static_assert(((indices < 2 * count) && ...));
  return {{(indices < count ? a.lane[indices % count] : b.lane[indices % count])...}};
}

template <class Mask, class T, std::size_t count>
constexpr LaneArray<T, count> chosen_lanes(const LaneArray<Mask, count>& condition,
                                           const LaneArray<T, count>& a,
                                           const LaneArray<T, count>& b) {
  LaneArray<T, count> to{};
  for (std::size_t i = 0; i < count; ++i)
    to.lane[i] = condition.lane[i] != 0 ? a.lane[i] : b.lane[i];
  return to;
}
/// Of scalars, for templates over both.
template <class T>
  requires std::is_arithmetic_v<T>
constexpr T chosen_lanes(bool condition, T a, T b) { return condition ? a : b; }

/// A vector of `Bytes` bytes of T.
template <class T, std::size_t Bytes>
struct Simd {
#if ADACC_HAS_VECTORS
  typedef T type __attribute__((vector_size(Bytes)));
#else
  using type = LaneArray<T, Bytes / sizeof(T)>;
#endif
  static constexpr std::size_t width = Bytes / sizeof(T);
};

}}}  // namespace adacc::v0_1::detail
