// SPDX-License-Identifier: MIT
/// Pictures: tensors of shape (batch, height, width, channels), and windows that slide over them.
///
/// Channels lie innermost: a pixel is a row of a matrix, like a token, and every layer on rows works on pictures, too.
/// Nothing here computes with data; layers on Eigen and the plain ones share this header.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "../../core/bytes.hpp"
#include "../../core/error.hpp"
#include "../../core/shape.hpp"

namespace adacc { inline namespace v0_1 {

/// Height and width of a kernel, a step or a margin: `3` is {3, 3}.
struct Extents {
  std::size_t height, width;

  constexpr Extents(std::size_t both) : height(both), width(both) {}  // NOLINT: meant to convert
  constexpr Extents(std::size_t h, std::size_t w) : height(h), width(w) {}

  friend constexpr bool operator==(Extents, Extents) = default;
  constexpr std::size_t area() const { return height * width; }
};

namespace detail {

/// The error of `in` as pictures, if any.
constexpr Error check_pictures(const char* layer, Shape in) {
  if (in.rank() == 4 && in.elems() > 0) return {};
  return Error::say(layer, ": the input is ", in,
                    "; expected (batch, height, width, channels), each at least 1");
}

/// A window of `kernel` pixels, `dilation` apart, that moves by `stride` over a picture with a
/// margin of `padding` pixels on every side.
struct Window {
  Extents kernel, stride, padding, dilation;

  /// From a window's first pixel to its last, and one.
  constexpr Extents reach() const {
    return {(kernel.height - 1) * dilation.height + 1, (kernel.width - 1) * dilation.width + 1};
  }
  /// Windows in a picture: rows and columns of the output.
  constexpr Extents places(Shape in) const {
    return {(in[1] + 2 * padding.height - reach().height) / stride.height + 1,
            (in[2] + 2 * padding.width - reach().width) / stride.width + 1};
  }

  constexpr Error examine(const char* layer, Shape in) const {
    constexpr std::size_t most = std::size_t{1} << 24;  // sums and products of two of them fit
    for (const Extents extents : {kernel, stride, dilation})
      if (extents.height == 0 || extents.width == 0)
        return Error::say(layer, ": kernel, stride and dilation are at least 1, and are ",
                          kernel.height, " x ", kernel.width, ", ", stride.height, " x ",
                          stride.width, " and ", dilation.height, " x ", dilation.width);
    for (const Extents extents : {kernel, stride, dilation, padding})
      if (extents.height > most || extents.width > most)
        return Error::say(layer, ": kernel, stride, dilation and padding are at most ", most);
    if (const Error why = check_pictures(layer, in)) return why;
    if (in[1] > most || in[2] > most)
      return Error::say(layer, ": the pictures of ", in, " are larger than ", most, " x ", most);
    if (in[1] + 2 * padding.height < reach().height || in[2] + 2 * padding.width < reach().width)
      return Error::say(layer, ": the kernel reaches over ", reach().height, " x ", reach().width,
                        " pixels, and with its padding the input ", in, " has ",
                        in[1] + 2 * padding.height, " x ", in[2] + 2 * padding.width);
    return {};
  }
};

/// The taps i of a kernel, from `first` to `last`, of which the pixel at + i * dilation lies in a
/// picture of `extent` pixels: at may be negative.
struct TapRange {
  std::size_t first, last;

  constexpr TapRange(std::ptrdiff_t at, std::size_t dilation, std::size_t taps,
                     std::size_t extent) {
    first = at >= 0 ? 0 : div_up(static_cast<std::size_t>(-at), dilation);
    const std::ptrdiff_t room = static_cast<std::ptrdiff_t>(extent) - at;  // pixels to the end
    last = room <= 0 ? 0 : div_up(static_cast<std::size_t>(room), dilation);
    if (last > taps) last = taps;
    if (first > last) first = last;
  }
};

/// The pixels of a picture seen by one window: taps [rows.first, rows.last) x [cols.first, cols.last).
struct WindowPixels {
  std::ptrdiff_t top, left;
  Extents dilation;
  TapRange rows, cols;

  /// Window (y, x) of a picture of shape `in`.
  constexpr WindowPixels(const Window& window, Shape in, std::size_t y, std::size_t x)
      : top(static_cast<std::ptrdiff_t>(y * window.stride.height) -
            static_cast<std::ptrdiff_t>(window.padding.height)),
        left(static_cast<std::ptrdiff_t>(x * window.stride.width) -
             static_cast<std::ptrdiff_t>(window.padding.width)),
        dilation(window.dilation), rows(top, dilation.height, window.kernel.height, in[1]),
        cols(left, dilation.width, window.kernel.width, in[2]) {}

  constexpr std::size_t count() const {
    return (rows.last - rows.first) * (cols.last - cols.first);
  }
  /// The element of picture `b` of shape `in` where tap (r, s)'s channels begin.
  constexpr std::size_t element(Shape in, std::size_t b, std::size_t r, std::size_t s) const {
    const auto row =
        static_cast<std::size_t>(top + static_cast<std::ptrdiff_t>(r * dilation.height));
    const auto col =
        static_cast<std::size_t>(left + static_cast<std::ptrdiff_t>(s * dilation.width));
    return ((b * in[1] + row) * in[2] + col) * in[3];
  }
};

/// The error of a convolution by `window` of pictures `in` into `out` channels, in `groups`, if any.
constexpr Error check_convolution(const char* layer, const Window& window, std::size_t out,
                                  std::size_t groups, Shape in) {
  if (out == 0 || groups == 0)
    return Error::say(layer, ": ", out, " outputs in ", groups, " groups; each is at least 1");
  if (const Error why = window.examine(layer, in)) return why;
  if (in.cols() % groups == 0 && out % groups == 0) return {};
  return Error::say(layer, ": ", groups, " groups do not divide ", in.cols(), " channels and ", out,
                    " outputs into equal parts");
}

}  // namespace detail

}}  // namespace adacc::v0_1
