// SPDX-License-Identifier: MIT
/// ReLU6: from 0 to 6 what comes in, below and above that the bound; networks for phones have it.
///
/// Backward reads a mask alone, one bit an element in aux, as MobileTL (Chuang et al., 2023) has it: what
/// goes in and what comes out need not be kept for it.
#pragma once

#include <cstddef>

#include "../core/cpu.hpp"
#include "../model/contract.hpp"
#include "mask.hpp"

namespace adacc { inline namespace v0_1 {

/// Any shape, elementwise. A NaN stays a NaN in forward; the slope there, and at 0 and 6, is 0.
struct Relu6 {
  static constexpr const char* name = "relu6";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::rows;
  static constexpr bool dx_overwrites_dy = true;

  constexpr std::size_t aux_bytes(Shape in, Dtype) const { return detail::mask_bytes(in.elems()); }

  template <class T>
  void forward(Cpu& cpu, Params<const T>, View<const T> x, View<T> y, Bytes aux, Bytes) const {
    detail::write_masked(
        cpu, x, y, aux, [](T v) { return v < 0   ? T(0)
                                         : v > 6 ? T(6)
                                                 : v; },
        [](T v) { return v > 0 && v < 6; });
  }

  template <class T>
  void backward(Cpu& cpu, Params<const T>, View<const T>, View<const T>, View<const T> dy,
                View<T> dx, Params<T>, ConstBytes aux, Bytes) const {
    detail::pass_masked(cpu, dy, dx, aux);
  }
};

}}  // namespace adacc::v0_1
