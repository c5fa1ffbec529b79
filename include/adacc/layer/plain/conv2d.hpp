// SPDX-License-Identifier: MIT
/// A convolution over pictures in plain loops, depthwise ones included: for small devices.
///
/// Definition, parameters and checks of Conv2d (../conv2d.hpp), without Eigen, packing or workspace. With groups =
/// channels every channel has a kernel of its own.
#pragma once

#include <array>
#include <cstddef>

#include "../../model/contract.hpp"
#include "../math/picture.hpp"
#include "../math/shapes.hpp"
#include "window_taps.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// x (B, H, W, C) to y (B, H', W', out), H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
/// Parameters: "weight" (out, kernel height, kernel width, C / groups), which starts uniform in
/// +-1/sqrt(kernel area * C / groups), and "bias" (out).
struct Conv2d {
  std::size_t out = 0;
  Extents kernel = 3;
  Extents stride = 1;
  Extents padding = 0;  ///< pixels of zeros on every side
  Extents dilation = 1;
  std::size_t groups = 1;

  static constexpr const char* name = "plain_conv2d";
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::batch;

  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.parameter(0) ? reads::input : reads::none;
  }

  constexpr Shape output_shape(Shape in) const {
    const Extents places = window().places(in);
    return Shape(in[0], places.height, places.width, out);
  }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_convolution(name, window(), out, groups, in)};
  }

  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    const std::size_t group = in.cols() / groups;
    const float width = detail::reciprocal_root(static_cast<double>(kernel.area() * group));
    return {ParameterSpec{"weight", Shape(out, kernel.height, kernel.width, group),
                          Init::uniform(width)},
            ParameterSpec{"bias", Shape(out), Init::zeros(), false}};
  }

  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>& call) const {
    const T* const weight = call.params[0].data();
    const std::size_t from = call.x.cols() / groups, size = kernel.area() * from;
    for (std::size_t e = 0; e < call.y.size(); ++e) call.y[e] = call.params[1][e % out];
    detail::for_each_tap(window(), groups, call.x.shape(), call.y.shape(),
                         [&](std::size_t e, std::size_t o, std::size_t element, std::size_t tap) {
                           const T* const in = call.x.data() + element;
                           const T* const w = weight + o * size + tap * from;
                           T sum = 0;
                           for (std::size_t c = 0; c < from; ++c) sum += in[c] * w[c];
                           call.y[e] += sum;
                         });
  }

  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>& call) const {
    const View<T> dweights = call.dparams[0], dbias = call.dparams[1];
    const Shape in =
        call.x.empty() ? call.dx.shape() : call.x.shape();  // none if only the bias is trained
    for (T& element : call.dx) element = 0;
    if (!dbias.empty())
      for (std::size_t e = 0; e < call.dy.size(); ++e) dbias[e % out] += call.dy[e];
    if (in.rank() == 0) return;
    const std::size_t from = in.cols() / groups, size = kernel.area() * from;
    detail::for_each_tap(window(), groups, in, call.dy.shape(),
                         [&](std::size_t e, std::size_t o, std::size_t element, std::size_t tap) {
                           const T up = call.dy[e];
                           const std::size_t w = o * size + tap * from;
                           if (!dweights.empty())
                             for (std::size_t c = 0; c < from; ++c)
                               dweights[w + c] += up * call.x[element + c];
                           if (!call.dx.empty())
                             for (std::size_t c = 0; c < from; ++c)
                               call.dx[element + c] += up * call.params[0][w + c];
                         });
  }

 private:
  constexpr detail::Window window() const { return {kernel, stride, padding, dilation}; }
};

}}}  // namespace adacc::v0_1::plain
