// SPDX-License-Identifier: MIT
/// ReLU: negative elements become zero.
///
/// Backward reads the output: its sign tells as much as the input's would, and the next layer keeps the output anyway.
#pragma once

#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/bit_mask.hpp"
#include "../codec/int8_outlier.hpp"
#include "../model/contract.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// Any shape, elementwise. A NaN stays a NaN: forward, and in dx if y is one. The derivative at
/// zero is 0.
struct Relu {
  static constexpr auto backward_reads = reads::output;
  static constexpr auto split = Split::rows;
  /// One bit says all. The others are for outputs whose next reader needs values: they keep positive numbers
  /// positive.
  using output_codecs = CodecList<BitMask, Int8OutlierWith<Int8Options{.positive = true}>, Bf16>;
  static constexpr const char* name = "relu";
  static constexpr bool dx_overwrites_dy = true;

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::for_each_piece(cpu, x.size(), detail::tile_elems, [&](std::size_t i, std::size_t n) {
      const T* const in = x.data() + i;
      T* const out = y.data() + i;
      for (std::size_t k = 0; k < n; ++k) out[k] = in[k] < 0 ? T(0) : in[k];
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> y, View<const T> dy, View<T> dx) const {
    detail::for_each_piece(cpu, y.size(), detail::stack_elems, [&](std::size_t i, std::size_t n) {
      // A copy that provably does not alias dx: the compiler vectorizes the loop although dx may be dy.
      detail::StackArray<T> up = detail::as_array(dy.data() + i, n);
      const T* const out = y.data() + i;
      T* const down = up.data();
      for (std::size_t k = 0; k < n; ++k) {
        const T passed = out[k] > 0 ? down[k] : out[k];  // NaN where y is NaN
        down[k] = out[k] <= 0 ? T(0) : passed;
      }
      detail::as_array(dx.data() + i, n) = up;
    });
  }
};

}}  // namespace adacc::v0_1
