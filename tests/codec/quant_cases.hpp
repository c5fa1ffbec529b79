// SPDX-License-Identifier: MIT
/// What the tests of quantizing codecs share: options, and how to read and compare.
#pragma once

#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>

#include <cstddef>
#include <cstring>

#include "encoded.hpp"
#include "quant_reader.hpp"

namespace quant_cases {

using namespace adacc;
using sample::Blob;
using sample::decoded;
using sample::encoded;
using sample::Matrix;
using sample::Read;
using sample::read_quant;
using sample::round_trip;

inline constexpr QuantOptions symmetric{.symmetric = true};
inline constexpr QuantOptions rows{.group = whole_row};
inline constexpr QuantOptions group32{.group = 32, .outliers_per_mille = 20};
inline constexpr QuantOptions group64{.group = 64, .symmetric = true};
inline constexpr QuantOptions group128_channels{
    .group = 128, .outliers = Outliers::channels, .outliers_per_mille = 8};
inline constexpr QuantOptions rows_channels{.group = whole_row, .outliers = Outliers::channels};
inline constexpr QuantOptions column_channels{.outliers = Outliers::channels,
                                              .outliers_per_mille = 30};
inline constexpr QuantOptions no_places{.outliers = Outliers::none};
inline constexpr QuantOptions group256_none{.group = 256, .outliers = Outliers::none};
inline constexpr QuantOptions stochastic{.rounding = Rounding::stochastic};
inline constexpr QuantOptions symmetric_stochastic{
    .group = 32, .symmetric = true, .rounding = Rounding::stochastic};

template <class T>
float as_float(T x) {
  return detail::to_number(x);
}

template <class T>
bool same(const Matrix<T>& a, const Matrix<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace quant_cases
