// SPDX-License-Identifier: MIT
/// SIMD vectors with Eigen's packets underneath: one source for every instruction set known to Eigen.
///
/// Eigen's array expressions cannot keep a tile of accumulators in registers, nor sum a row in the same order wherever
/// the row starts in memory. Loops over these vectors can. A vector of one element is a plain scalar: the end of a row,
/// or a build without SIMD.
#pragma once

#include <cstddef>
#include <type_traits>

#include "eigen.hpp"
#include "target_packet.hpp"

// g++ warns of a packet's alignment attribute, lost in a template argument, as in Eigen's own templates; g++ 12 also
// takes undefined values in its AVX-512 header for uninitialized ones (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace adacc { inline namespace v0_1 { namespace detail {

/// Elements of T in the widest vector.
template <class T>
inline constexpr std::size_t max_lanes =
    static_cast<std::size_t>(Eigen::internal::packet_traits<T>::size);

template <class T, std::size_t Lanes>
struct Vec {
  using Packet = typename Eigen::internal::find_best_packet<T, static_cast<int>(Lanes)>::type;
  using Raw = std::conditional_t<Lanes == 1, T, Packet>;
  static_assert(Lanes == 1 || Eigen::internal::unpacket_traits<Packet>::size == Lanes,
                "adacc: no vector has this many elements");

  using Number = T;
  static constexpr std::size_t lanes = Lanes;

  Raw raw;

  static Vec all(T value) { return {Eigen::internal::pset1<Raw>(value)}; }
  /// first, first + 1, first + 2, …
  static Vec count_from(T first) { return {Eigen::internal::plset<Raw>(first)}; }
  static Vec load(const T* from) { return {Eigen::internal::ploadu<Raw>(from)}; }
  void store(T* to) const { Eigen::internal::pstoreu<T>(to, raw); }

  friend Vec operator+(Vec a, Vec b) { return {Eigen::internal::padd(a.raw, b.raw)}; }
  friend Vec operator-(Vec a, Vec b) { return {Eigen::internal::psub(a.raw, b.raw)}; }
  friend Vec operator-(Vec a) { return {Eigen::internal::pnegate(a.raw)}; }
  friend Vec operator*(Vec a, Vec b) { return {Eigen::internal::pmul(a.raw, b.raw)}; }
  friend Vec operator/(Vec a, Vec b) { return {Eigen::internal::pdiv(a.raw, b.raw)}; }
  friend Vec abs(Vec a) { return {Eigen::internal::pabs(a.raw)}; }
  friend Vec smaller(Vec a, Vec b) { return {Eigen::internal::pmin(a.raw, b.raw)}; }
  friend Vec larger(Vec a, Vec b) { return {Eigen::internal::pmax(a.raw, b.raw)}; }
  friend Vec exp(Vec a) { return {Eigen::internal::pexp(a.raw)}; }

  /// this * b + c, with one rounding if the machine can.
  Vec times_plus(Vec b, Vec c) const { return {Eigen::internal::pmadd(raw, b.raw, c.raw)}; }
  /// This, but `other` wherever a < b.
  Vec unless_less(Vec a, Vec b, Vec other) const {
    return {Eigen::internal::pselect(Eigen::internal::pcmp_lt(a.raw, b.raw), other.raw, raw)};
  }
  T sum() const { return Eigen::internal::predux(raw); }
  T maximum() const { return Eigen::internal::predux_max(raw); }
};

/// A vector of a target: Eigen's packets for the build's own instructions.
template <class T, std::size_t Lanes, class Target>
using VecOf = std::conditional_t<std::is_same_v<Target, BuildTarget> || Lanes == 1, Vec<T, Lanes>,
                                 TargetVec<T, Lanes>>;

/// Elements of T in the target's widest vector.
template <class T, class Target>
inline constexpr std::size_t lanes_of = Target::bytes / sizeof(T);
template <class T>
inline constexpr std::size_t lanes_of<T, BuildTarget> = max_lanes<T>;

template <class T, class Target>
using Widest = VecOf<T, lanes_of<T, Target>, Target>;

/// Elements of the next narrower vector: half as many if there is one, else 1.
template <class T, std::size_t Lanes, class Target>
constexpr std::size_t narrower() {
  constexpr int half = static_cast<int>(Lanes / 2);
  if constexpr (half <= 1) return 1;
  else if constexpr (!std::is_same_v<Target, BuildTarget>) return half * sizeof(T) < 16 ? 1 : half;
  else
    return Eigen::internal::unpacket_traits<
               typename Eigen::internal::find_best_packet<T, half>::type>::size == half
               ? half
               : 1;
}

ADACC_TARGET_CODE_BEGIN
/// Sum of a[i] * b[i], in an order that depends on n and the target alone.
template <class Target = BuildTarget, class T>
T dot(const T* a, const T* b, std::size_t n) {
  using V = Widest<T, Target>;
  constexpr std::size_t lanes = lanes_of<T, Target>;
  V total = V::all(0);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) total = V::load(a + i).times_plus(V::load(b + i), total);
  T sum = total.sum();
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
ADACC_TARGET_CODE_END

/// out (cols, ld_out) = factor * in (rows, ld_in), transposed; columns of `out` from `rows` up to
/// `padded_rows` become zero.
template <class T>
void transpose(const T* in, std::size_t ld_in, std::size_t rows, std::size_t cols, T factor, T* out,
               std::size_t ld_out, std::size_t padded_rows) {
  constexpr std::size_t lanes = max_lanes<T>;
  using V = Widest<T, BuildTarget>;
  std::size_t i = 0;
  if constexpr (lanes > 1) {
    for (; i + lanes <= rows; i += lanes) {
      std::size_t j = 0;
      for (; j + lanes <= cols; j += lanes) {
        Eigen::internal::PacketBlock<typename V::Raw, static_cast<int>(lanes)> block;
        for (std::size_t r = 0; r < lanes; ++r)
          block.packet[r] = V::load(in + (i + r) * ld_in + j).raw;
        Eigen::internal::ptranspose(block);
        for (std::size_t r = 0; r < lanes; ++r)
          (V{block.packet[r]} * V::all(factor)).store(out + (j + r) * ld_out + i);
      }
      for (; j < cols; ++j)
        for (std::size_t r = i; r < i + lanes; ++r)
          out[j * ld_out + r] = factor * in[r * ld_in + j];
    }
  }
  for (; i < padded_rows; ++i)
    for (std::size_t j = 0; j < cols; ++j)
      out[j * ld_out + i] = i < rows ? factor * in[i * ld_in + j] : T(0);
}

}}}  // namespace adacc::v0_1::detail

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
