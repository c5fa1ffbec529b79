// SPDX-License-Identifier: MIT
/// Hard-swish: swish with a sigmoid of straight lines, as networks for phones have it.
///
///     y = x * min(max(x + 3, 0), 6) / 6       Howard et al., "Searching for MobileNetV3", 2019
///     dy/dx = 0 up to -3, 1 from 3 on, (2 x + 3) / 6 between
///
/// The exact slope needs x. MobileTL (Chuang et al., 2023) trains with masks in its place: a step costs one bit an
/// element, and the gradient is the one of another, nearby function. Both are here; the mask is 1 if 1 is nearer to the
/// slope than 0: if x > 0.
#pragma once

#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../core/cpu.hpp"
#include "../model/contract.hpp"
#include "mask.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

template <class T>
T hard_swish(T x) {
  return x < -3 ? T(0) : x > 3 ? x : x * (x + 3) / 6;
}

struct MaskedHardSwishCurve {
  template <class T>
  static T value(T x) {
    return hard_swish(x);
  }
  template <class T>
  static bool passes(T x) {
    return x > 0;
  }
};

}  // namespace detail

/// Any shape, elementwise, with the exact slope. A NaN stays a NaN, forward and backward.
struct HardSwish {
  static constexpr const char* name = "hard_swish";
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// Like Silu, whose slope this one's follows.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.09;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::for_each_piece(cpu, x.size(), detail::tile_elems, [&](std::size_t i, std::size_t n) {
      const T* const in = x.data() + i;
      T* const out = y.data() + i;
      for (std::size_t k = 0; k < n; ++k) out[k] = detail::hard_swish(in[k]);
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> x, View<const T> dy, View<T> dx) const {
    detail::for_each_piece(cpu, x.size(), detail::tile_elems, [&](std::size_t i, std::size_t n) {
      const T* const in = x.data() + i;
      for (std::size_t k = 0; k < n; ++k) {
        const T slope = in[k] < -3 ? T(0) : in[k] > 3 ? T(1) : (2 * in[k] + 3) / 6;
        dx[i + k] = dy[i + k] * slope;
      }
    });
  }
};

/// Forward of HardSwish; in backward the slope is 1 if x > 0, otherwise 0, from one bit an element in aux. This is an
/// approximation: a gradient check against forward refuses it.
struct MaskedHardSwish : detail::Masked<detail::MaskedHardSwishCurve> {
  static constexpr const char* name = "masked_hard_swish";
};

}}  // namespace adacc::v0_1
