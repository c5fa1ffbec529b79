// SPDX-License-Identifier: MIT
/// The list of all codecs, for tests that hold for every one: a new codec is added here.
#pragma once

#include <adacc/codec/bf16.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/codec/packed_index.hpp>

/// Calls f.operator()<Codec>() for every codec.
template <class F>
constexpr void for_each_codec(const F& f) {
  using namespace adacc;
  f.template operator()<Bf16>();
  f.template operator()<BitMask>();
  f.template operator()<PackedIndexWith<1>>();
  f.template operator()<PackedIndexWith<4>>();
  f.template operator()<PackedIndexWith<11>>();
  f.template operator()<PackedIndexWith<16>>();
  f.template operator()<Int8Outlier>();
  f.template operator()<Int8OutlierWith<Int8Options{
      .group = whole_row, .outliers = Outliers::channels, .outliers_per_mille = 20}>>();
  f.template operator()<Int8OutlierWith<Int8Options{.outliers = Outliers::none}>>();
  f.template operator()<Int4Outlier>();
  f.template
  operator()<Int4OutlierWith<Int4Options{.group = 32, .rounding = Rounding::stochastic}>>();
  f.template operator()<Int4OutlierWith<Int4Options{
      .group = 256, .outliers = Outliers::channels, .symmetric = true}>>();
}
