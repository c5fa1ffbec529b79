// SPDX-License-Identifier: MIT
/// A linear layer in plain loops: y = x W^T + b over the last extent.
///
/// For devices too small for a packed matrix product: some hundred bytes of code and no workspace. The inner loops run
/// over contiguous memory, and every sum has one order. On a processor with vector units adacc::Linear is many times as
/// fast.
#pragma once

#include <array>
#include <cstddef>

#include "../../model/contract.hpp"
#include "../math/shapes.hpp"
#include "row_sums.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// x (..., in) to y (..., out). Parameters: "weight" (out, in), "bias" (out), which starts at zero
/// and does not decay.
struct Linear {
  std::size_t out = 0;

  static constexpr const char* name = "plain_linear";
  static constexpr double input_sensitivity = 0.037;
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;

  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.parameter(0) ? reads::input : reads::none;
  }

  constexpr Shape output_shape(Shape in) const { return in.with_cols(out); }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (out == 0)
      return {.error = Error::say(name, ": the number of outputs is 0; expected at least 1")};
    return {.error = detail::check_rows(name, in)};
  }

  /// The weight starts uniform in +-1/sqrt(in).
  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    const float width = detail::reciprocal_root(static_cast<double>(in.cols()));
    return {ParameterSpec{"weight", Shape(out, in.cols()), Init::uniform(width)},
            ParameterSpec{"bias", Shape(out), Init::zeros(), false}};
  }

  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>& call) const {
    for (std::size_t r = 0; r < call.x.rows(); ++r)
      sums::multiply(call.y.row(r), call.params[1].data(), call.x.row(r), call.params[0].data(),
                     out, call.x.cols());
  }

  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>& call) const {
    const View<const T> weight = call.params[0];
    const sums::AffineBackward<T> add{weight.data(), sums::elements(call.dparams[0]),
                                      sums::elements(call.dparams[1]), out, weight.cols()};
    for (T& element : call.dx) element = 0;
    const T* const x = sums::elements(call.x);
    T* const dx = sums::elements(call.dx);
    for (std::size_t r = 0; r < call.dy.rows(); ++r)
      add(call.dy.row(r), sums::element(x, r * weight.cols()),
          sums::element(dx, r * weight.cols()));
  }
};

}}}  // namespace adacc::v0_1::plain
