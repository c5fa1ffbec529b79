// SPDX-License-Identifier: MIT
/// SIMD vectors of targets above the build's own instructions (core/vector_target.hpp), with the arithmetic that packet.hpp
/// has in a build for such a processor: the same bits. Eigen's packets are those of the compiler's options alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../../core/vector_target.hpp"
#include "gemm.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T, std::size_t Lanes>
struct TargetVec {
  static_assert(Lanes > 1);
  using Raw = typename Simd<T, Lanes * sizeof(T)>::type;
  using Int = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  using Ints = typename Simd<Int, Lanes * sizeof(T)>::type;

  using Number = T;
  static constexpr std::size_t lanes = Lanes;

  Raw raw;

  [[gnu::always_inline]] static TargetVec all(T value) {
#if defined(__clang__) || !ADACC_HAS_VECTORS
    return {value - Raw{}};
#else
    // Where the build has no such vectors, g++ fills one that is not constant number by number. So one is filled here.
    Raw first{};
    std::memcpy(&first, &value, sizeof value);
    return {__builtin_shuffle(first, Ints{})};
#endif
  }
  [[gnu::always_inline]] static TargetVec count_from(T first) {
    T numbers[Lanes];
    for (std::size_t i = 0; i < Lanes; ++i) numbers[i] = first + static_cast<T>(i);
    return load(numbers);
  }
  [[gnu::always_inline]] static TargetVec load(const T* from) {
    TargetVec to;
    std::memcpy(&to.raw, from, sizeof to.raw);
    return to;
  }
  [[gnu::always_inline]] void store(T* to) const { std::memcpy(to, &raw, sizeof raw); }

  [[gnu::always_inline]] friend TargetVec operator+(const TargetVec& a, const TargetVec& b) {
    return {a.raw + b.raw};
  }
  [[gnu::always_inline]] friend TargetVec operator-(const TargetVec& a, const TargetVec& b) {
    return {a.raw - b.raw};
  }
  [[gnu::always_inline]] friend TargetVec operator-(const TargetVec& a) { return {-a.raw}; }
  [[gnu::always_inline]] friend TargetVec operator*(const TargetVec& a, const TargetVec& b) {
    return {a.raw * b.raw};
  }
  [[gnu::always_inline]] friend TargetVec operator/(const TargetVec& a, const TargetVec& b) {
    return {a.raw / b.raw};
  }
  [[gnu::always_inline]] friend TargetVec larger(const TargetVec& a, const TargetVec& b) {
    return {ADACC_CHOOSE_LANES(a.raw < b.raw, b.raw, a.raw)};
  }
  [[gnu::always_inline]] friend TargetVec smaller(const TargetVec& a, const TargetVec& b) {
    return {ADACC_CHOOSE_LANES(b.raw < a.raw, b.raw, a.raw)};
  }
  [[gnu::always_inline]] friend TargetVec abs(const TargetVec& a) {
    Ints bits;
    std::memcpy(&bits, &a.raw, sizeof bits);
    bits &= (std::numeric_limits<Int>::max)();
    TargetVec to;
    std::memcpy(&to.raw, &bits, sizeof bits);
    return to;
  }
  [[gnu::always_inline]] TargetVec times_plus(const TargetVec& b, const TargetVec& c) const {
    return {raw * b.raw + c.raw};
  }
  [[gnu::always_inline]] TargetVec unless_less(const TargetVec& a, const TargetVec& b,
                                               const TargetVec& other) const {
    return {ADACC_CHOOSE_LANES(a.raw < b.raw, other.raw, raw)};
  }

  /// Halves are added, or compared, until one number is left; of four sums of eight doubles, neighbours are added.
  [[gnu::always_inline]] T sum() const {
    T numbers[Lanes];
    store(numbers);
    if constexpr (sizeof(T) == 8 && Lanes == 8)
      return ((numbers[0] + numbers[4]) + (numbers[1] + numbers[5])) +
             ((numbers[2] + numbers[6]) + (numbers[3] + numbers[7]));
    for (std::size_t half = Lanes / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) numbers[i] += numbers[i + half];
    return numbers[0];
  }
  [[gnu::always_inline]] T maximum() const {
    T numbers[Lanes];
    store(numbers);
    for (std::size_t half = Lanes / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i)
        numbers[i] = numbers[i] < numbers[i + half] ? numbers[i + half] : numbers[i];
    return numbers[0];
  }

  /// Cephes' approximation: e^x = 2^m e^r, m = floor(x / ln 2 + 1/2), a polynomial or a fraction for e^r.
  [[gnu::always_inline]] friend TargetVec exp(const TargetVec& x) { return exponential(x); }

 private:
  [[gnu::always_inline]] static TargetVec floor(const TargetVec& x) {
    const Raw whole = ADACC_CONVERT_LANES(ADACC_CONVERT_LANES(x.raw, Ints), Raw);
    return {whole - ADACC_CHOOSE_LANES(x.raw < whole, Raw{} + T(1), Raw{})};
  }
  /// 2^m for whole m whose power is a normal number, or zero right below.
  [[gnu::always_inline]] static TargetVec power_of_two(const Ints& m) {
    constexpr int mantissa = sizeof(T) == 4 ? 23 : 52, bias = sizeof(T) == 4 ? 127 : 1023;
    const Ints bits = (m + bias) << mantissa;
    TargetVec power;
    std::memcpy(&power.raw, &bits, sizeof bits);
    return power;
  }
  /// x 2^m in four steps: none of the powers is beyond the range.
  [[gnu::always_inline]] static TargetVec scaled(const TargetVec& x, const TargetVec& m) {
    const Ints whole = ADACC_CONVERT_LANES(m.raw, Ints), quarter = whole >> 2;
    const TargetVec part = power_of_two(quarter);
    return x * part * part * part * power_of_two(whole - quarter - quarter - quarter);
  }

  [[gnu::always_inline]] static TargetVec exponential(const TargetVec& argument) {
    if constexpr (sizeof(T) == 4) {
      constexpr bool widest = sizeof(Raw) == 64;
      const T limit = widest ? T(88.3762626647950) : T(88.723);
      const TargetVec x = larger(smaller(argument, all(limit)), all(-limit));
      const TargetVec m = floor(x.times_plus(all(T(1.44269504088896341)), all(T(0.5))));
      TargetVec r = x;
      if constexpr (widest) {
        r = m.times_plus(all(T(-0.6931471805599453)), r);
      } else {
        r = m.times_plus(all(T(-0.693359375)), r);
        r = m.times_plus(all(T(2.12194440e-4)), r);
      }
      const TargetVec square = r * r, cube = square * r;
      const TargetVec high = all(T(1.9875691500E-4))
                                 .times_plus(r, all(T(1.3981999507E-3)))
                                 .times_plus(r, all(T(8.3334519073E-3)));
      const TargetVec low = all(T(4.1665795894E-2))
                                .times_plus(r, all(T(1.6666665459E-1)))
                                .times_plus(r, all(T(5.0000001201E-1)));
      const TargetVec y = high.times_plus(cube, low).times_plus(square, r + all(1));
      if constexpr (widest)
        return larger(y * power_of_two(ADACC_CONVERT_LANES(m.raw, Ints)), argument);
      else return larger(scaled(y, m), argument);
    } else {
      const TargetVec clamped = larger(smaller(argument, all(T(709.784))), all(T(-709.784)));
      const TargetVec m = floor(all(T(1.4426950408889634073599)).times_plus(clamped, all(T(0.5))));
      const TargetVec x =
          clamped - m * all(T(0.693145751953125)) - m * all(T(1.42860682030941723212e-6));
      const TargetVec square = x * x;
      const TargetVec p = all(T(1.26177193074810590878e-4))
                              .times_plus(square, all(T(3.02994407707441961300e-2)))
                              .times_plus(square, all(T(9.99999999999999999910e-1))) *
                          x;
      const TargetVec q = all(T(3.00198505138664455042e-6))
                              .times_plus(square, all(T(2.52448340349684104192e-3)))
                              .times_plus(square, all(T(2.27265548208155028766e-1)))
                              .times_plus(square, all(T(2.00000000000000000009e0)));
      return larger(scaled(all(2).times_plus(p / (q - p), all(1)), m), argument);
    }
  }
};

}}}  // namespace adacc::v0_1::detail
