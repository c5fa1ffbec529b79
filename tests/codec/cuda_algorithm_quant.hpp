// SPDX-License-Identifier: MIT
/// Runs the CUDA kernels of the quantizing codecs on the host and compares with the CPU's codecs.
#pragma once

#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/codec/quant/block/decode.hpp>
#include <adacc/codec/quant/block/encode.hpp>

#include <cstddef>
#include <cstring>
#include <memory>

#include "../test_size.hpp"
#include "cuda_algorithm.hpp"
#include "emulated_block.hpp"

namespace cuda_algorithm {

template <class Codec, class Block>
struct QuantDevice {
  static constexpr unsigned bits = Codec::bits;
  static constexpr QuantOptions O = Codec::options;

  template <class T>
  void encode(View<const T> x, const RandomKey& key, Bytes blob) const {
    const auto job = detail::quant_job<bits, O>(x, blob.data(), key);
    Block block;
    const std::size_t blocks = job.format.blocks();
    if (detail::quant_shares_headers<O>(job.format))
      for (std::size_t i = div_up(16 * blocks, 256); i-- > 0;) detail::quant_prepare(block, i, job);
    const auto shared = std::make_unique<detail::QuantShared>();
    for (std::size_t i = detail::quant_encode_parts<O>(job.format); i-- > 0;) {
      std::memset(static_cast<void*>(shared.get()), 0xEE, sizeof *shared);
      detail::quant_encode_part<bits, O>(block, *shared, i, job);
    }
  }
  template <class T>
  void decode(ConstBytes blob, View<T> x) const {
    const auto job = detail::quant_job<bits, O>(View<const T>(x), nullptr, RandomKey{});
    Block block;
    for (std::size_t i = job.format.blocks() * job.format.whole.tiles; i-- > 0;)
      detail::quant_decode_tile<bits, O>(block, i, job, blob.data(), x.data());
  }
};

template <class Codec, class T, class Block = emulated::Block<emulated::Order::ascending>>
void check_quant() {
  for (const Size& size : sizes)
    for (const Data data : all_data) compare<Codec, T>(size, data, QuantDevice<Codec, Block>{});
}

using Scattered = emulated::Block<emulated::Order::scattered>;
using Descending = emulated::Block<emulated::Order::descending>;

/// Under sanitizers, which take most of their time to compile these, each set of options has one type.
template <QuantOptions O>
void check_options() {
  check_quant<Int4OutlierWith<O>, bfloat16, Scattered>();
  if constexpr (!test_sanitized) check_quant<Int8OutlierWith<O>, float>();
}

/// With every type of element: what options mean does not depend on it, so that one set of options of
/// each kind of group is enough.
template <QuantOptions O>
void check_types() {
  check_quant<Int8OutlierWith<O>, float>();
  check_quant<Int4OutlierWith<O>, bfloat16, Scattered>();
  check_quant<Int4OutlierWith<O>, double, Scattered>();
  if constexpr (!test_sanitized) {
    check_quant<Int4OutlierWith<O>, float, Descending>();
    check_quant<Int8OutlierWith<O>, bfloat16, Descending>();
  }
}

inline constexpr auto stochastic = Rounding::stochastic;

}  // namespace cuda_algorithm
