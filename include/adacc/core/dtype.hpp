// SPDX-License-Identifier: MIT
/// Element types of tensors, as run-time values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bfloat16.hpp"
#include "config.hpp"

namespace adacc { inline namespace v0_1 {

/// The numbers are part of the format of blobs (codec/blob.hpp): they never change.
enum class Dtype : std::uint8_t { f32, f64, i32, bf16 };

/// Bytes of one element.
ADACC_HD constexpr std::size_t bytes_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::i32: return 4;
    case Dtype::f64: return 8;
    case Dtype::bf16: return 2;
  }
  return 0;
}

constexpr const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return "f32";
    case Dtype::f64: return "f64";
    case Dtype::i32: return "i32";
    case Dtype::bf16: return "bf16";
  }
  return "?";
}

template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::f32;
};
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::f64;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::i32;
};

template <>
struct DtypeOf<bfloat16> {
  static constexpr Dtype value = Dtype::bf16;
};

template <class T>
inline constexpr Dtype dtype_of = DtypeOf<T>::value;

/// The type of numbers that need more bits than activations of `scalar`: parameters, their gradients, the optimizer's
/// state, statistics, sums. fp32 if activations are bfloat16, else the same type.
constexpr Dtype wide(Dtype scalar) { return scalar == Dtype::bf16 ? Dtype::f32 : scalar; }

namespace detail {
template <class T>
struct WideOf {
  using type = T;
};
template <>
struct WideOf<bfloat16> {
  using type = float;
};
}  // namespace detail

/// wide() for C++ types.
template <class T>
using Wide = typename detail::WideOf<T>::type;

}}  // namespace adacc::v0_1
