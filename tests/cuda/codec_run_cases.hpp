// SPDX-License-Identifier: MIT
/// The codecs that codec_run compares, and the CPU's side of it.
///
/// The CPU's codecs are compiled by the host's compiler, in codec_run_cpu.cpp, as users have them.
/// nvcc mangles template arguments of class type as no host compiler does, so functions here are
/// templates over a case rather than over a codec.
#pragma once

#include <adacc/codec/bf16.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/codec/packed_index.hpp>
#include <adacc/core/random.hpp>

namespace codec_run {

struct Default {
  using Codec = adacc::Int8Outlier;
};
struct Stochastic {
  using Codec = adacc::Int4OutlierWith<adacc::Int4Options{.rounding = adacc::Rounding::stochastic}>;
};
struct Group32 {
  using Codec = adacc::Int8OutlierWith<adacc::Int8Options{.group = 32}>;
};
struct Channels {
  using Codec = adacc::Int4OutlierWith<adacc::Int4Options{.group = 128,
                                                          .outliers = adacc::Outliers::channels}>;
};
struct Rows {
  using Codec =
      adacc::Int8OutlierWith<adacc::Int8Options{.group = adacc::whole_row, .symmetric = true}>;
};
struct Bf16 {
  using Codec = adacc::Bf16;
};
struct Mask {
  using Codec = adacc::BitMask;
};
struct Index5 {
  using Codec = adacc::PackedIndexWith<5>;
};

template <class Case>
std::size_t encoded_bytes(adacc::Shape shape, adacc::Dtype dtype);
template <class Case>
const char* name();
template <class Case, class T>
adacc::Error cpu_encode(const adacc::RandomKey& key, adacc::View<const T> x, adacc::Bytes blob);
template <class Case, class T>
adacc::Error cpu_decode(adacc::ConstBytes blob, adacc::View<T> x);

}  // namespace codec_run
