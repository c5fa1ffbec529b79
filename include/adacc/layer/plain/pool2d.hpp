// SPDX-License-Identifier: MIT
/// Pooling of pictures in plain loops: the largest of each window, or the mean of the whole picture.
///
/// Backward of a maximum reads its place, as in MaxPool2d (../pool2d.hpp), but a byte each: a small device saves code.
#pragma once

#include <cstddef>

#include "../../codec/float_bits.hpp"
#include "../../model/contract.hpp"
#include "../math/picture.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// x (B, H, W, C) to y (B, H / kernel, W / kernel, C), rounded down: the largest element of each window, of
/// several the first; windows touch. A NaN is larger than all.
struct MaxPool2d {
  Extents kernel = 2;  ///< at most 256 pixels

  static constexpr const char* name = "plain_max_pool2d";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const {
    return Shape(in[0], in[1] / kernel.height, in[2] / kernel.width, in[3]);
  }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (const Error why = detail::Window{kernel, kernel, 0, 1}.examine(name, in))
      return {.error = why};
    if (kernel.area() > 256)
      return {.error = Error::say(name, ": a window of ", kernel.height, " x ", kernel.width,
                                  " has more than 256 pixels")};
    return {.aux = output_shape(in).elems()};
  }

  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>& call) const {
    for (std::size_t e = 0; e < call.y.size(); ++e) {
      std::size_t best = 0;
      T largest = call.x[element(call.x.shape(), call.y.shape(), e, 0)];
      for (std::size_t tap = 1; tap < kernel.area(); ++tap) {
        const T value = call.x[element(call.x.shape(), call.y.shape(), e, tap)];
        if (!(value > largest || detail::is_nan(value))) continue;
        largest = value;
        best = tap;
      }
      call.y[e] = largest;
      call.aux[e] = static_cast<std::byte>(best);
    }
  }

  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>& call) const {
    for (T& e : call.dx) e = 0;
    for (std::size_t e = 0; e < call.dy.size(); ++e)
      call.dx[element(call.dx.shape(), call.dy.shape(), e, static_cast<std::size_t>(call.aux[e]))] =
          call.dy[e];
  }

 private:
  /// The element of x seen by output element `e` at `tap`.
  constexpr std::size_t element(Shape in, Shape to, std::size_t e, std::size_t tap) const {
    const std::size_t c = e % to[3], j = e / to[3] % to[2], line = e / to[3] / to[2];
    const std::size_t row = line % to[1] * kernel.height + tap / kernel.width;
    return ((line / to[1] * in[1] + row) * in[2] + j * kernel.width + tap % kernel.width) * in[3] +
           c;
  }
};

/// x (B, H, W, C) to y (B, C): the mean of all pixels.
struct MeanOverPicture {
  static constexpr const char* name = "plain_mean_over_picture";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], in[3]); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_pictures(name, in)};
  }

  template <class Context, class T>
  void forward(Context&, View<const T> x, View<T> y) const {
    const std::size_t pixels = x.shape()[1] * x.shape()[2];
    for (std::size_t e = 0; e < y.size(); ++e) {
      T sum = 0;
      for (std::size_t p = 0; p < pixels; ++p)
        sum += x.row(e / y.cols() * pixels + p)[e % y.cols()];
      y[e] = sum / static_cast<T>(pixels);
    }
  }
  template <class Context, class T>
  void backward(Context&, View<const T> dy, View<T> dx) const {
    const std::size_t pixels = dx.shape()[1] * dx.shape()[2];
    for (std::size_t e = 0; e < dx.size(); ++e)
      dx[e] = dy.row(e / dx.cols() / pixels)[e % dx.cols()] / static_cast<T>(pixels);
  }
};

}}}  // namespace adacc::v0_1::plain
