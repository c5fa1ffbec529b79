// SPDX-License-Identifier: MIT
/// Every codec and option that the benchmarks judge, as one table of functions.
///
/// All groups with all that may become of outliers; symmetric scales and stochastic rounding with
/// each group's default outliers. Not the full product, which would take minutes to compile.
#pragma once

#include <adacc/codec/bf16.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/codec.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/codec/packed_index.hpp>

#include <cstddef>
#include <vector>

namespace codec_list {

enum class Family { int4, int8, bf16, mask, index };

struct Entry {
  Family family;
  const char* name;
  adacc::QuantOptions options;  ///< of int4 and int8
  std::size_t (*encoded_bytes)(std::size_t rows, std::size_t cols, adacc::Dtype);
  adacc::Error (*encode)(adacc::Cpu&, adacc::View<const float>, adacc::Bytes);
  adacc::Error (*decode)(adacc::Cpu&, adacc::ConstBytes, adacc::View<float>);

  bool is_quant() const { return family == Family::int4 || family == Family::int8; }
  bool is_default() const { return !is_quant() || options == adacc::QuantOptions{}; }
};

template <class Codec>
Entry entry(Family family, adacc::QuantOptions options = {}) {
  return {family,
          Codec::name,
          options,
          &Codec::encoded_bytes,
          [](adacc::Cpu& cpu, adacc::View<const float> x, adacc::Bytes blob) {
            return Codec::encode(cpu, x, blob);
          },
          [](adacc::Cpu& cpu, adacc::ConstBytes blob, adacc::View<float> x) {
            return Codec::decode(cpu, blob, x);
          }};
}

struct Int4 {
  static constexpr Family family = Family::int4;
  template <adacc::QuantOptions o>
  using With = adacc::Int4OutlierWith<o>;
};
struct Int8 {
  static constexpr Family family = Family::int8;
  template <adacc::QuantOptions o>
  using With = adacc::Int8OutlierWith<o>;
};

/// Places for 3 of 256 channels.
inline constexpr unsigned more_places = 8;

template <class Width, adacc::QuantOptions o>
void add(std::vector<Entry>& all) {
  all.push_back(entry<typename Width::template With<o>>(Width::family, o));
}

template <class Width, std::size_t g>
void add_group(std::vector<Entry>& all) {
  using adacc::Outliers;
  using adacc::Rounding;
  using Options = adacc::QuantOptions;
  add<Width, Options{.group = g}>(all);
  add<Width, Options{.group = g, .outliers = Outliers::none}>(all);
  if constexpr (g != 0) {
    add<Width, Options{.group = g, .outliers_per_mille = more_places}>(all);
    add<Width,
        Options{.group = g, .outliers = Outliers::channels, .outliers_per_mille = more_places}>(
        all);
  }
  add<Width, Options{.group = g, .symmetric = true}>(all);
  add<Width, Options{.group = g, .rounding = Rounding::stochastic}>(all);
}

template <class Width>
void add_width(std::vector<Entry>& all) {
  add_group<Width, 0>(all);
  add_group<Width, adacc::whole_row>(all);
  add_group<Width, 256>(all);
  add_group<Width, 128>(all);
  add_group<Width, 64>(all);
  add_group<Width, 32>(all);
}

/// Those that encode any numbers.
inline std::vector<Entry> lossy() {
  std::vector<Entry> all;
  add_width<Int4>(all);
  add_width<Int8>(all);
  all.push_back(entry<adacc::Bf16>(Family::bf16));
  return all;
}

/// Those that keep what they are for: whether a number is positive, small whole numbers.
inline Entry mask() { return entry<adacc::BitMask>(Family::mask); }

inline std::vector<Entry> indices() {
  return {entry<adacc::PackedIndexWith<4>>(Family::index),
          entry<adacc::PackedIndexWith<8>>(Family::index),
          entry<adacc::PackedIndexWith<12>>(Family::index)};
}

}  // namespace codec_list
