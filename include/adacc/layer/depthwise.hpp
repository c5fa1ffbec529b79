// SPDX-License-Identifier: MIT
/// Depthwise convolution: every channel has a kernel of its own, and meets no other.
///
/// A product has nothing to share here, so these are direct loops over the picture, a register of channels at a time.
/// The kernel is (channels, height, width, 1), as for every convolution; the loops want the channels innermost, so the
/// kernel is first transposed into the workspace: kernel area times channels, nothing beside a picture. Sums run in one
/// order however the batch is cut.
#pragma once

#include <cstddef>
#include <type_traits>

#include "../core/bytes.hpp"
#include "../core/cpu.hpp"
#include "../core/view.hpp"
#include "math/picture.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Channels summed up at a time.
template <class T>
inline constexpr std::size_t depthwise_lanes = 64 / sizeof(T);

/// (channels, area) to (area, channels).
template <class T>
void turn_kernel(const T* weight, std::size_t channels, std::size_t area, T* to) {
  for (std::size_t t = 0; t < area; ++t)
    for (std::size_t c = 0; c < channels; ++c) to[t * channels + c] = weight[c * area + t];
}

/// Calls body(first, lanes) for runs of channels; the number of lanes is a constant in all runs but the last.
template <class T, class Body>
void for_each_lanes(std::size_t channels, const Body& body) {
  constexpr std::size_t lanes = depthwise_lanes<T>;
  std::size_t c = 0;
  for (; c + lanes <= channels; c += lanes) body(c, std::integral_constant<std::size_t, lanes>());
  if (c < channels) body(c, channels - c);
}

/// One row of the output: for every pixel the sum over the kernel's taps within the picture.
template <class T>
void depthwise_row(const Window& window, const T* pictures, Shape in, std::size_t b, std::size_t y,
                   const T* kernel, const T* bias, T* to, std::size_t width) {
  const std::size_t channels = in.cols();
  for (std::size_t x = 0; x < width; ++x, to += channels) {
    const WindowPixels pixels(window, in, y, x);
    for_each_lanes<T>(channels, [&](std::size_t c, auto count) {
      T sum[depthwise_lanes<T>];
      for (std::size_t l = 0; l < count; ++l) sum[l] = bias == nullptr ? T(0) : bias[c + l];
      for (std::size_t r = pixels.rows.first; r < pixels.rows.last; ++r)
        for (std::size_t s = pixels.cols.first; s < pixels.cols.last; ++s) {
          const T* const from = pictures + pixels.element(in, b, r, s) + c;
          const T* const weight = kernel + (r * window.kernel.width + s) * channels + c;
          for (std::size_t l = 0; l < count; ++l) sum[l] += from[l] * weight[l];
        }
      for (std::size_t l = 0; l < count; ++l) to[c + l] = sum[l];
    });
  }
}

template <class T>
void depthwise_forward(Cpu& cpu, const Window& window, View<const T> weight, const T* bias,
                       View<const T> x, View<T> y, Bytes workspace) {
  T* const kernel = static_cast<T*>(static_cast<void*>(workspace.data()));
  turn_kernel(weight.data(), x.cols(), window.kernel.area(), kernel);
  const std::size_t height = y.shape()[1], width = y.shape()[2];
  cpu.parallel(y.shape()[0] * height, [&](std::size_t row, int) {
    depthwise_row(window, x.data(), x.shape(), row / height, row % height, kernel, bias,
                  y.data() + row * width * y.cols(), width);
  });
}

/// One row of dx: for every pixel the sum over the windows reading it.
template <class T>
void depthwise_dx_row(const Window& window, View<const T> dy, View<T> dx, std::size_t row,
                      const T* kernel) {
  const Shape in = dx.shape(), out = dy.shape();
  const std::size_t channels = in.cols(), b = row / in[1], y = row % in[1] + window.padding.height;
  T* to = dx.data() + row * in[2] * channels;
  // The window reading a pixel by tap r, or `windows` if there is none.
  const auto window_of = [](std::size_t at, std::size_t tap, std::size_t stride,
                            std::size_t windows) {
    if (at < tap || (at - tap) % stride != 0 || (at - tap) / stride >= windows) return windows;
    return (at - tap) / stride;
  };
  for (std::size_t x = 0; x < in[2]; ++x, to += channels)
    for_each_lanes<T>(channels, [&](std::size_t c, auto count) {
      T sum[depthwise_lanes<T>];
      for (std::size_t l = 0; l < count; ++l) sum[l] = 0;
      for (std::size_t r = 0; r < window.kernel.height; ++r) {
        const std::size_t oy =
            window_of(y, r * window.dilation.height, window.stride.height, out[1]);
        if (oy == out[1]) continue;
        for (std::size_t s = 0; s < window.kernel.width; ++s) {
          const std::size_t ox = window_of(x + window.padding.width, s * window.dilation.width,
                                           window.stride.width, out[2]);
          if (ox == out[2]) continue;
          const T* const from = dy.data() + ((b * out[1] + oy) * out[2] + ox) * channels + c;
          const T* const weight = kernel + (r * window.kernel.width + s) * channels + c;
          for (std::size_t l = 0; l < count; ++l) sum[l] += from[l] * weight[l];
        }
      }
      for (std::size_t l = 0; l < count; ++l) to[c + l] = sum[l];
    });
}

template <class T>
void depthwise_dx(Cpu& cpu, const Window& window, View<const T> weight, View<const T> dy,
                  View<T> dx, Bytes workspace) {
  T* const kernel = static_cast<T*>(static_cast<void*>(workspace.data()));
  turn_kernel(weight.data(), dx.cols(), window.kernel.area(), kernel);
  cpu.parallel(dx.shape()[0] * dx.shape()[1],
               [&](std::size_t row, int) { depthwise_dx_row(window, dy, dx, row, kernel); });
}

/// dweight (channels, area) += the sum over all windows, each run of channels on one thread.
template <class T>
void depthwise_dweight(Cpu& cpu, const Window& window, View<const T> x, View<const T> dy,
                       View<T> dweight, Bytes workspace) {
  const Shape in = x.shape(), out = dy.shape();
  const std::size_t channels = in.cols(), area = window.kernel.area();
  constexpr std::size_t lanes = depthwise_lanes<T>;
  T* const sums = static_cast<T*>(static_cast<void*>(workspace.data()));
  cpu.parallel(div_up(channels, lanes), [&](std::size_t tile, int) {
    const std::size_t c = tile * lanes;
    const std::size_t count = channels - c < lanes ? channels - c : lanes;
    for (std::size_t t = 0; t < area; ++t)
      for (std::size_t l = 0; l < count; ++l)
        sums[t * channels + c + l] = dweight[(c + l) * area + t];
    for (std::size_t line = 0; line < out[0] * out[1]; ++line) {
      const std::size_t b = line / out[1], oy = line % out[1];
      for (std::size_t ox = 0; ox < out[2]; ++ox) {
        const T* const up = dy.data() + (line * out[2] + ox) * channels + c;
        const WindowPixels pixels(window, in, oy, ox);
        for (std::size_t r = pixels.rows.first; r < pixels.rows.last; ++r)
          for (std::size_t s = pixels.cols.first; s < pixels.cols.last; ++s) {
            const T* const from = x.data() + pixels.element(in, b, r, s) + c;
            T* const sum = sums + (r * window.kernel.width + s) * channels + c;
            if (count == lanes)
              for (std::size_t l = 0; l < lanes; ++l) sum[l] += up[l] * from[l];
            else
              for (std::size_t l = 0; l < count; ++l) sum[l] += up[l] * from[l];
          }
      }
    }
    for (std::size_t t = 0; t < area; ++t)
      for (std::size_t l = 0; l < count; ++l)
        dweight[(c + l) * area + t] = sums[t * channels + c + l];
  });
}

}}}  // namespace adacc::v0_1::detail
