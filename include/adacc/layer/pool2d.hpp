// SPDX-License-Identifier: MIT
/// Pooling of pictures: the largest, or the mean, of each window; or the mean of the whole picture.
///
/// No backward here reads an activation. Backward of a maximum reads its place, a few bits for each window, packed into
/// aux by forward; means need nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../codec/float_bits.hpp"
#include "../core/cpu.hpp"
#include "../model/contract.hpp"
#include "math/packed_codes.hpp"
#include "math/picture.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// Channels pooled at a time.
inline constexpr std::size_t pool_lanes = 32;

/// The error of windows for pooling, if any: each has to see a pixel.
constexpr Error check_pool(const char* layer, const Window& window, Shape in) {
  if (const Error why = window.examine(layer, in)) return why;
  if (window.padding.height < window.kernel.height && window.padding.width < window.kernel.width)
    return {};
  return Error::say(layer, ": padding of ", window.padding.height, " x ", window.padding.width,
                    " leaves windows of ", window.kernel.height, " x ", window.kernel.width,
                    " without a pixel; it must be less than the kernel");
}

/// Calls body(window number, its pixels, first channel, channels) for all windows and channels of dy; the body adds to
/// dx, which is set to zero first. Windows overlap, so a task has a picture and some channels to itself.
template <class T, class Body>
void for_each_window_back(Cpu& cpu, const Window& window, Shape out, View<T> dx, const Body& body) {
  const Shape in = dx.shape();
  const std::size_t channels = in.cols(), runs = div_up(channels, pool_lanes);
  cpu.parallel(in[0] * runs, [&](std::size_t tile, int) {
    const std::size_t b = tile / runs, c = tile % runs * pool_lanes;
    const std::size_t count = channels - c < pool_lanes ? channels - c : pool_lanes;
    for (std::size_t pixel = b * in[1] * in[2]; pixel < (b + 1) * in[1] * in[2]; ++pixel)
      for (std::size_t l = 0; l < count; ++l) dx[pixel * channels + c + l] = 0;
    for (std::size_t y = 0; y < out[1]; ++y)
      for (std::size_t x = 0; x < out[2]; ++x)
        body((b * out[1] + y) * out[2] + x, WindowPixels(window, in, y, x), b, c, count);
  });
}

}  // namespace detail

/// x (B, H, W, C) to y (B, H', W', C): the largest element of each window; of several the first. A NaN
/// is larger than all. Windows are `stride` apart, 0: they touch.
struct MaxPool2d {
  Extents kernel = 2;
  Extents stride = 0;
  Extents padding = 0;  ///< never a maximum; less than the kernel

  static constexpr const char* name = "max_pool2d";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const {
    const Extents places = window().places(in);
    return Shape(in[0], places.height, places.width, in[3]);
  }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (const Error why = detail::check_pool(name, window(), in)) return {.error = why};
    if (detail::code_bits(kernel.area()) > 16)
      return {.error = Error::say("max_pool2d: a window of ", kernel.height, " x ", kernel.width,
                                  " has more than 65536 pixels")};
    const Shape out = output_shape(in);
    return {.aux = out[0] * out[1] * line_bytes(out)};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const Shape in = call.x.shape(), out = call.y.shape();
    const std::size_t bits = detail::code_bits(kernel.area()), channels = in.cols();
    cpu.parallel(out[0] * out[1], [&](std::size_t line, int) {
      std::byte* const codes = call.aux.data() + line * line_bytes(out);
      for (std::size_t i = 0; i < line_bytes(out); ++i) codes[i] = std::byte{0};
      for (std::size_t column = 0; column < out[2]; ++column) {
        const detail::WindowPixels pixels(window(), in, line % out[1], column);
        for (std::size_t c = 0; c < channels; c += detail::pool_lanes) {
          const std::size_t count =
              channels - c < detail::pool_lanes ? channels - c : detail::pool_lanes;
          T largest[detail::pool_lanes];
          std::uint32_t place[detail::pool_lanes];
          bool first = true;
          for (std::size_t r = pixels.rows.first; r < pixels.rows.last; ++r)
            for (std::size_t s = pixels.cols.first; s < pixels.cols.last; ++s, first = false) {
              const T* const from = call.x.data() + pixels.element(in, line / out[1], r, s) + c;
              const auto here = static_cast<std::uint32_t>(r * kernel.width + s);
              for (std::size_t l = 0; l < count; ++l) {
                const bool more = first || from[l] > largest[l] || detail::is_nan(from[l]);
                largest[l] = more ? from[l] : largest[l];
                place[l] = more ? here : place[l];
              }
            }
          for (std::size_t l = 0; l < count; ++l)
            call.y[(line * out[2] + column) * channels + c + l] = largest[l];
          detail::write_codes(place, column * channels + c, count, bits, codes);
        }
      }
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    const Shape in = call.dx.shape(), out = call.dy.shape();
    const std::size_t bits = detail::code_bits(kernel.area());
    detail::for_each_window_back(
        cpu, window(), out, call.dx,
        [&](std::size_t number, const detail::WindowPixels& pixels, std::size_t b, std::size_t c,
            std::size_t count) {
          const std::byte* const codes = call.aux.data() + number / out[2] * line_bytes(out);
          for (std::size_t l = 0; l < count; ++l) {
            const std::size_t place =
                detail::read_code(codes, number % out[2] * in[3] + c + l, bits);
            call.dx[pixels.element(in, b, place / kernel.width, place % kernel.width) + c + l] +=
                call.dy[number * in[3] + c + l];
          }
        });
  }

 private:
  constexpr detail::Window window() const {
    return {kernel, stride == 0 ? kernel : stride, padding, 1};
  }
  /// Bytes of the places of one row of windows: a task writes its own bytes.
  constexpr std::size_t line_bytes(Shape out) const {
    return detail::code_bytes(out[2] * out[3], detail::code_bits(kernel.area()));
  }
};

/// x (B, H, W, C) to y (B, H', W', C): the mean of each window's pixels, the margin not counted.
/// Windows are `stride` apart, 0: they touch.
struct MeanPool2d {
  Extents kernel = 2;
  Extents stride = 0;
  Extents padding = 0;  ///< less than the kernel

  static constexpr const char* name = "mean_pool2d";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const {
    const Extents places = window().places(in);
    return Shape(in[0], places.height, places.width, in[3]);
  }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_pool(name, window(), in)};
  }

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    const Shape in = x.shape(), out = y.shape();
    const std::size_t channels = in.cols();
    cpu.parallel(out[0] * out[1], [&](std::size_t line, int) {
      for (std::size_t column = 0; column < out[2]; ++column) {
        const detail::WindowPixels pixels(window(), in, line % out[1], column);
        const T share = 1 / static_cast<T>(pixels.count());
        for (std::size_t c = 0; c < channels; c += detail::pool_lanes) {
          const std::size_t count =
              channels - c < detail::pool_lanes ? channels - c : detail::pool_lanes;
          T sum[detail::pool_lanes] = {};
          for (std::size_t r = pixels.rows.first; r < pixels.rows.last; ++r)
            for (std::size_t s = pixels.cols.first; s < pixels.cols.last; ++s) {
              const T* const from = x.data() + pixels.element(in, line / out[1], r, s) + c;
              for (std::size_t l = 0; l < count; ++l) sum[l] += from[l];
            }
          for (std::size_t l = 0; l < count; ++l)
            y[(line * out[2] + column) * channels + c + l] = share * sum[l];
        }
      }
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    const Shape in = dx.shape();
    detail::for_each_window_back(
        cpu, window(), dy.shape(), dx,
        [&](std::size_t number, const detail::WindowPixels& pixels, std::size_t b, std::size_t c,
            std::size_t count) {
          const T share = 1 / static_cast<T>(pixels.count());
          for (std::size_t r = pixels.rows.first; r < pixels.rows.last; ++r)
            for (std::size_t s = pixels.cols.first; s < pixels.cols.last; ++s) {
              T* const to = dx.data() + pixels.element(in, b, r, s) + c;
              for (std::size_t l = 0; l < count; ++l) to[l] += share * dy[number * in[3] + c + l];
            }
        });
  }

 private:
  constexpr detail::Window window() const {
    return {kernel, stride == 0 ? kernel : stride, padding, 1};
  }
};

/// x (B, H, W, C) to y (B, C): the mean of all pixels.
struct MeanOverPicture {
  static constexpr const char* name = "mean_over_picture";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::batch;

  constexpr Shape output_shape(Shape in) const { return Shape(in[0], in[3]); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_pictures(name, in)};
  }

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    const std::size_t pixels = x.shape()[1] * x.shape()[2], channels = x.cols();
    cpu.parallel(y.rows(), [&](std::size_t b, int) {
      T* const to = y.row(b);
      for (std::size_t c = 0; c < channels; ++c) to[c] = 0;
      for (std::size_t p = 0; p < pixels; ++p) {
        const T* const from = x.row(b * pixels + p);
        for (std::size_t c = 0; c < channels; ++c) to[c] += from[c];
      }
      for (std::size_t c = 0; c < channels; ++c) to[c] /= static_cast<T>(pixels);
    });
  }

  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    const std::size_t pixels = dx.shape()[1] * dx.shape()[2], channels = dx.cols();
    cpu.parallel(dy.rows(), [&](std::size_t b, int) {
      const T* const from = dy.row(b);
      for (std::size_t p = 0; p < pixels; ++p) {
        T* const to = dx.row(b * pixels + p);
        for (std::size_t c = 0; c < channels; ++c) to[c] = from[c] / static_cast<T>(pixels);
      }
    });
  }
};

}}  // namespace adacc::v0_1
