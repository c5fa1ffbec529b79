// SPDX-License-Identifier: MIT
/// Codecs with their options that programs run on a CUDA device, and the CPU's bytes to compare with.
///
/// The CPU's codecs are compiled by the host's compiler (codec_cases_cpu.hpp), as users have them. nvcc
/// mangles template arguments of class type as no host compiler does, so functions are templates over a
/// case rather than over a codec.
#pragma once

#include <adacc/codec/bf16.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/codec/packed_index.hpp>
#include <adacc/core/random.hpp>

namespace codec_cases {

struct Int8Default {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{}>;
};
struct Int8NoOutliers {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{.outliers = adacc::Outliers::none}>;
};
struct Int8Symmetric {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{.symmetric = true}>;
};
struct Int8Stochastic {
  using Codec =
      adacc::Int8OutlierWith<adacc::QuantOptions{.rounding = adacc::Rounding::stochastic}>;
};
struct Int8Group32 {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{.group = 32}>;
};
struct Int8Group128 {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{.group = 128}>;
};
struct Int8Group256 {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{.group = 256}>;
};
struct Int8Channels {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{.group = 128,
                                                           .outliers = adacc::Outliers::channels}>;
};
struct Int8Rows {
  using Codec = adacc::Int8OutlierWith<adacc::QuantOptions{.group = adacc::whole_row}>;
};
struct Int4Default {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{}>;
};
struct Int4NoOutliers {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{.outliers = adacc::Outliers::none}>;
};
struct Int4Symmetric {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{.symmetric = true}>;
};
struct Int4Stochastic {
  using Codec =
      adacc::Int4OutlierWith<adacc::QuantOptions{.rounding = adacc::Rounding::stochastic}>;
};
struct Int4Group32 {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{.group = 32}>;
};
struct Int4Group128 {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{.group = 128}>;
};
struct Int4Group256 {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{.group = 256}>;
};
struct Int4Channels {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{.group = 128,
                                                           .outliers = adacc::Outliers::channels}>;
};
struct Int4Rows {
  using Codec = adacc::Int4OutlierWith<adacc::QuantOptions{.group = adacc::whole_row}>;
};
struct Bf16 {
  using Codec = adacc::Bf16;
};
struct Mask {
  using Codec = adacc::BitMask;
};
struct Index4 {
  using Codec = adacc::PackedIndexWith<4>;
};
struct Index11 {
  using Codec = adacc::PackedIndexWith<11>;
};

template <class... Case>
struct Cases {};
using All = Cases<Int8Default, Int8NoOutliers, Int8Symmetric, Int8Stochastic, Int8Group32,
                  Int8Group128, Int8Group256, Int8Channels, Int8Rows, Int4Default, Int4NoOutliers,
                  Int4Symmetric, Int4Stochastic, Int4Group32, Int4Group128, Int4Group256,
                  Int4Channels, Int4Rows, Bf16, Mask, Index4, Index11>;

template <class Case>
const char* name();
template <class Case>
std::size_t encoded_bytes(adacc::Shape shape, adacc::Dtype dtype);
template <class Case, class T>
adacc::Error cpu_encode(const adacc::RandomKey& key, adacc::View<const T> x, adacc::Bytes blob);
template <class Case, class T>
adacc::Error cpu_decode(adacc::ConstBytes blob, adacc::View<T> x);
/// The errors of block i of 64 rows; without rows if the codec judges none.
template <class Case, class T>
adacc::RowErrors cpu_row_errors(adacc::View<const T> x, adacc::ConstBytes blob, std::size_t i);

}  // namespace codec_cases
