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
#include "math/numbers.hpp"
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
  static constexpr LayerFacts facts{.dx_overwrites_dy = true, .runs_in_bf16 = true};

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    constexpr std::size_t piece = detail::piece_elems<T>;
    detail::for_each_piece(cpu, x.size(), piece, [&](std::size_t i, std::size_t n) {
      const detail::Numbers numbers(x.data() + i, n);
      detail::Draft result(y.data() + i, n);
      const auto* const in = numbers.data();
      auto* const out = result.data();
      for (std::size_t k = 0; k < n; ++k) out[k] = in[k] < 0 ? Wide<T>(0) : in[k];
      result.store();
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> y, View<const T> dy, View<T> dx) const {
    using W = Wide<T>;
    detail::for_each_piece(cpu, y.size(), detail::stack_elems, [&](std::size_t i, std::size_t n) {
      // A copy that provably does not alias dx: the compiler vectorizes the loop although dx may be dy.
      detail::StackArray<W> up = detail::Numbers(dy.data() + i, n).array();
      const detail::Numbers numbers(y.data() + i, n);
      const W* const out = numbers.data();
      W* const down = up.data();
      for (std::size_t k = 0; k < n; ++k) {
        const W passed = out[k] > 0 ? down[k] : out[k];  // NaN where y is NaN
        down[k] = out[k] <= 0 ? W(0) : passed;
      }
      detail::store(dx.data() + i, n, up);
    });
  }
};

}}  // namespace adacc::v0_1
