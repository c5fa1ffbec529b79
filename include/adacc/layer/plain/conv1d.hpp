// SPDX-License-Identifier: MIT
/// A convolution over time in plain loops: for sensors' signals.
///
///     y[b][t][o] = bias[o] + sum over k, c of x[b][t * stride + k][c] * weight[o][k][c]
///
/// No padding. A window of k samples and all channels is contiguous in x, and so is an output's
/// weight: a window meets all outputs in one product of a matrix and k * C elements.
#pragma once

#include <array>
#include <cstddef>

#include "../../model/contract.hpp"
#include "../math/shapes.hpp"
#include "row_sums.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// x (B, T, C) to y (B, (T - kernel) / stride + 1, out). Parameters: "weight" (out, kernel, C),
/// which starts uniform in +-1/sqrt(kernel * C), and "bias" (out).
struct Conv1d {
  std::size_t out = 0;
  std::size_t kernel = 3;  ///< samples
  std::size_t stride = 1;  ///< samples from one window to the next

  static constexpr const char* name = "plain_conv1d";
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::batch;

  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.parameter(0) ? reads::input : reads::none;
  }

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], windows(in), out); }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (out == 0 || kernel == 0 || stride == 0)
      return {.error = Error::say(name, ": ", out, " outputs, kernel ", kernel, ", stride ", stride,
                                  "; each must be at least 1")};
    if (in.rank() != 3 || in.elems() == 0)
      return {.error =
                  Error::say(name, ": the input is ", in, "; expected (batch, time, channels)")};
    if (in[1] < kernel)
      return {.error = Error::say(name, ": the input ", in, " has fewer samples than the kernel's ",
                                  kernel)};
    return {};
  }

  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    const float width = detail::reciprocal_root(static_cast<double>(kernel * in.cols()));
    return {ParameterSpec{"weight", Shape(out, kernel, in.cols()), Init::uniform(width)},
            ParameterSpec{"bias", Shape(out), Init::zeros(), false}};
  }

  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>& call) const {
    const std::size_t size = kernel * call.x.cols();
    const T* const weight = call.params[0].data();
    const T* const bias = call.params[1].data();
    const T* const x = call.x.data();
    T* to = call.y.data();
    for_each_window(call.y.shape(), Shape(call.x.shape()[1], call.x.cols()),
                    [&](std::size_t begin) {
                      sums::multiply(to, bias, x + begin, weight, out, size);
                      to += out;
                    });
  }

  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>& call) const {
    const View<const T> weight = call.params[0];
    const sums::AffineBackward<T> add{weight.data(), sums::elements(call.dparams[0]),
                                      sums::elements(call.dparams[1]), out, kernel * weight.cols()};
    const Shape in =
        call.x.empty() ? call.dx.shape() : call.x.shape();  // none if only the bias is trained
    for (T& element : call.dx) element = 0;
    const T* const x = sums::elements(call.x);
    T* const dx = sums::elements(call.dx);
    const T* dy = call.dy.data();
    for_each_window(call.dy.shape(), in.rank() == 0 ? in : Shape(in[1], in[2]),
                    [&](std::size_t begin) {
                      add(dy, sums::element(x, begin), sums::element(dx, begin));
                      dy += out;
                    });
  }

 private:
  constexpr std::size_t windows(Shape in) const { return (in[1] - kernel) / stride + 1; }

  /// Calls body(begin) with the first element of every window of the input, in order: `windows` is the output's shape,
  /// `sequence` the shape of one sequence of the input.
  template <class Body>
  void for_each_window(Shape windows, Shape sequence, const Body& body) const {
    for (std::size_t b = 0; b < windows[0]; ++b)
      for (std::size_t t = 0; t < windows[1]; ++t)
        body(b * sequence.elems() + t * stride * sequence.cols());
  }
};

}}}  // namespace adacc::v0_1::plain
