// SPDX-License-Identifier: MIT
/// Products with a matrix that is never made: row i holds the pixels under window i of a picture.
///
/// A convolution is a product of this matrix with the kernel's weights, but in memory the matrix would have kernel-area
/// times the picture's elements. Here the multiplication's kernel reads the pictures themselves: a window's element
/// (tap, channel) lies at the window's first pixel plus the tap's offset, taps of one kernel row lie one after the
/// other, and taps in the margin are read from a row of zeros. The gradient of the input is the same product over
/// windows of dy, the gradient of the weights packs windows straight into the panels of B. So no column buffer exists,
/// not even in bands, and the bound is the one of gemm.hpp: operations over the rate of multiply-adds.
#pragma once

#include <cstddef>
#include <cstring>

#include "../../core/bytes.hpp"
#include "../../core/cpu.hpp"
#include "gemm.hpp"
#include "picture.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Along one axis: a window's taps in ascending order of the pixels they read. Tap i of the window at
/// grid position g reads pixel g * step + first + i * apart, and is tap first_tap + i * tap_step
/// of the kernel.
struct Taps {
  std::size_t count = 0, apart = 1;
  std::ptrdiff_t first = 0, first_tap = 0, tap_step = 1;
  std::size_t step = 1;
  std::size_t grid = 0;    ///< positions
  std::size_t extent = 0;  ///< pixels; those outside are zeros

  /// For the forward pass, from a picture of `in` to one of `out` pixels.
  static constexpr Taps forward(std::size_t in, std::size_t out, std::size_t kernel,
                                std::size_t stride, std::size_t padding, std::size_t dilation) {
    return {kernel, dilation, -static_cast<std::ptrdiff_t>(padding), 0, 1, stride, out, in};
  }

  /// For the gradient of every stride-th pixel from `phase` on. Pixel g * stride + phase was read by tap r of window g
  /// + (phase + padding - r * dilation) / stride, if this is a whole number.
  static constexpr Taps backward(std::size_t in, std::size_t out, std::size_t kernel,
                                 std::size_t stride, std::size_t padding, std::size_t dilation,
                                 std::size_t phase) {
    Taps taps{0, 1, 0, 0, 0, 1, phase < in ? div_up(in - phase, stride) : 0, out};
    const auto whole = static_cast<std::ptrdiff_t>(stride);
    for (std::size_t r = kernel; r-- > 0;) {  // descending taps: ascending windows
      const std::ptrdiff_t from =
          static_cast<std::ptrdiff_t>(phase + padding) - static_cast<std::ptrdiff_t>(r * dilation);
      if (from % whole != 0) continue;
      if (taps.count == 0) {
        taps.first = from / whole;
        taps.first_tap = static_cast<std::ptrdiff_t>(r);
      } else if (taps.count == 1) {
        taps.apart = static_cast<std::size_t>(from / whole - taps.first);
        taps.tap_step = static_cast<std::ptrdiff_t>(r) - taps.first_tap;
      }
      ++taps.count;
    }
    return taps;
  }

  /// Whether all taps of the window whose first pixel is `at` lie in the picture.
  constexpr bool inside(std::ptrdiff_t at) const {
    return at >= 0 && at + static_cast<std::ptrdiff_t>((count - 1) * apart) <
                          static_cast<std::ptrdiff_t>(extent);
  }
};

/// The matrix of windows: one row for every place of the grid (batch, y, x), in order; columns are
/// (tap row, tap column, channel).
template <class T>
struct Windows {
  const T* data;         ///< pictures (batch, y.extent, x.extent) with `pixel` elements a pixel
  std::size_t pixel;     ///< elements from one pixel to the next
  std::size_t channels;  ///< among them, those read
  Taps y, x;
  const T* zeros;  ///< `channels` zeros, for the margin

  std::size_t cols() const { return y.count * x.count * channels; }
};

/// One window of a tile.
template <class T>
struct WindowPlace {
  std::ptrdiff_t y, x;   ///< its first pixel
  std::ptrdiff_t first;  ///< its first element, counted from Windows::data
  T* to;                 ///< its row of C
  bool inside;           ///< no tap is in the margin
};

/// Places of the rows of C. The row of grid place (b, y, x) starts at
/// data + ((b * height + y * step_y + first_y) * width + x * step_x + first_x) * pixel.
template <class T>
struct PixelRows {
  T* data;
  std::size_t height, width, pixel;
  std::size_t step_y = 1, first_y = 0, step_x = 1, first_x = 0;
};

/// The places of `count` windows from number `first` on.
template <class T>
void place_windows(const Windows<T>& windows, const PixelRows<T>& to, std::size_t first,
                   std::size_t count, WindowPlace<T>* places) {
  std::size_t x = first % windows.x.grid, y = first / windows.x.grid % windows.y.grid;
  std::size_t b = first / windows.x.grid / windows.y.grid;
  for (std::size_t i = 0; i < count; ++i) {
    WindowPlace<T>& place = places[i];
    place.y = static_cast<std::ptrdiff_t>(y * windows.y.step) + windows.y.first;
    place.x = static_cast<std::ptrdiff_t>(x * windows.x.step) + windows.x.first;
    place.first = ((static_cast<std::ptrdiff_t>(b * windows.y.extent) + place.y) *
                       static_cast<std::ptrdiff_t>(windows.x.extent) +
                   place.x) *
                  static_cast<std::ptrdiff_t>(windows.pixel);
    place.inside = windows.y.inside(place.y) && windows.x.inside(place.x);
    place.to = to.data + ((b * to.height + y * to.step_y + to.first_y) * to.width + x * to.step_x +
                          to.first_x) *
                             to.pixel;
    if (++x < windows.x.grid) continue;
    x = 0;
    if (++y < windows.y.grid) continue;
    y = 0;
    ++b;
  }
}

ADACC_TARGET_CODE_BEGIN
/// The kernel of gemm.hpp, with windows as rows of A: elements k to k + depth of each.
template <class T, std::size_t Vectors, class Target>
void window_kernel(const Windows<T>& windows, const WindowPlace<T>* places, std::size_t rows,
                   std::size_t cols, std::size_t k, std::size_t depth, const T* b,
                   std::size_t b_step, bool fresh, const T* bias, std::size_t col) {
  GemmSums<T, Vectors, Target> sums;
  constexpr std::size_t kernel_rows = sums.kernel_rows;
  sums.rows = rows;
  sums.cols = cols;
  const WindowPlace<T>* place[kernel_rows];
  bool inside = true;
  for (std::size_t r = 0; r < kernel_rows; ++r) {
    place[r] = places + least(r, rows - 1);
    inside = inside && place[r]->inside;
  }
  sums.begin(fresh && bias == nullptr,
             [&](std::size_t r) { return (fresh ? bias : place[r]->to) + col; });

  // Taps side by side, with nothing between their pixels' channels, are one run.
  const std::size_t row_elems = windows.x.count * windows.channels;
  const bool joined = inside && windows.x.apart == 1 && windows.pixel == windows.channels;
  const std::size_t run = joined ? row_elems : windows.channels;
  for (const std::size_t end = k + depth; k < end;) {
    const std::size_t i = k / row_elems, j = k % row_elems / run, from = k % row_elems % run;
    const std::size_t count = least(run - from, end - k);
    const auto down = static_cast<std::ptrdiff_t>(i * windows.y.apart);
    const auto right = static_cast<std::ptrdiff_t>(j * windows.x.apart);
    const std::ptrdiff_t offset = (down * static_cast<std::ptrdiff_t>(windows.x.extent) + right) *
                                      static_cast<std::ptrdiff_t>(windows.pixel) +
                                  static_cast<std::ptrdiff_t>(from);
    const T* row[kernel_rows];
    if (inside) {
      for (std::size_t r = 0; r < kernel_rows; ++r)
        row[r] = windows.data + (place[r]->first + offset);
    } else {
      for (std::size_t r = 0; r < kernel_rows; ++r) {
        const bool there =
            static_cast<std::size_t>(place[r]->y + down) < windows.y.extent &&  // not negative
            static_cast<std::size_t>(place[r]->x + right) < windows.x.extent;
        row[r] = there ? windows.data + (place[r]->first + offset) : windows.zeros + from;
      }
    }
    sums.add(count, row, 1, b, b_step);
    b += count * b_step;
    k += count;
  }
  sums.end([&](std::size_t r) { return place[r]->to + col; });
}

/// A tile of a product with windows: row i of C begins at places[i].to.
template <class T, class Target>
void multiply_window_tile(const Windows<T>& windows, const WindowPlace<T>* places,
                          const GemmTile<T>& tile, const T* bias) {
  constexpr std::size_t kernel_rows = GemmKernel<T, Target>::rows;
  tile.for_each_panel([&](std::size_t col, std::size_t count, const T* right, std::size_t step) {
    for (std::size_t i = 0; i < tile.rows; i += kernel_rows) {
      const std::size_t rows = least(kernel_rows, tile.rows - i);
      for_each_piece_of_panel<T, Target>(count, [&]<std::size_t Vectors>(std::size_t j,
                                                                         std::size_t n) {
        window_kernel<T, Vectors, Target>(windows, places + i, rows, n, tile.first_k, tile.depth,
                                          right + j, step, tile.first_k == 0, bias, col + j);
      });
    }
  });
}
ADACC_TARGET_CODE_END

/// Bytes of workspace for `multiply_windows` of m windows: zeros, then the packed block of B.
template <class T>
constexpr std::size_t multiply_windows_bytes(std::size_t m, std::size_t n, std::size_t k,
                                             std::size_t channels) {
  return align_up(channels * sizeof(T)) + GemmBlocks<T>(m, n, k).b_elems() * sizeof(T);
}

/// Row i of `to`, n elements, becomes (row i of `windows`) B, plus `bias` (n) unless it is null.
/// pack(first k, depth, first column, columns, to) packs a panel of B. Windows::zeros is set here.
template <class T, class Pack>
void multiply_windows(Cpu& cpu, std::size_t batch, std::size_t n, Windows<T> windows,
                      const PixelRows<T>& to, const T* bias, Bytes workspace, const Pack& pack) {
  constexpr std::size_t highest = GemmBlocks<T>::max_rows / 2;
  const std::size_t m = batch * windows.y.grid * windows.x.grid;
  if (m == 0) return;
  T* const zeros = static_cast<T*>(static_cast<void*>(workspace.data()));
  const std::size_t zero_elems = align_up(windows.channels * sizeof(T)) / sizeof(T);
  for (std::size_t i = 0; i < zero_elems; ++i) zeros[i] = 0;
  windows.zeros = zeros;
  const InstructionLevel level = target_level();
  const auto multiply = [&](const GemmTile<T>& tile, int) {
    WindowPlace<T> places[highest];
    place_windows(windows, to, tile.first_row, tile.rows, places);
    with_target(level, [&]<class Target>(Target) {
      Target::template call<multiply_window_tile<T, Target>>(windows, places, tile, bias);
    });
  };
  multiply_in_blocks<T>(cpu, m, n, windows.cols(), least(round_up(m, layout_rows), highest),
                        zeros + zero_elems, {}, pack, multiply);
}

/// Copies `count` elements: too few for a call of memcpy to pay.
template <class T>
void copy_run(const T* from, std::size_t count, T* __restrict to) {
  constexpr std::size_t width = GemmBlocks<T>::width;
  std::size_t i = 0;
  for (; i + width <= count; i += width) std::memcpy(to + i, from + i, width * sizeof(T));
  for (; i < count; ++i) to[i] = from[i];
}

/// Packs columns j to j + count of windows p to p + depth as a panel of B, in as many vectors as needed; elements
/// beyond the last column become zero.
template <class T>
void pack_windows(const Windows<T>& windows, std::size_t p, std::size_t depth, std::size_t j,
                  std::size_t count, T* __restrict to) {
  const std::size_t width = round_up(count, GemmBlocks<T>::width);
  const std::size_t row_elems = windows.x.count * windows.channels;
  const std::size_t grid_x = windows.x.grid, grid_y = windows.y.grid;
  for (std::size_t at = 0; at < width;) {
    // A run of one tap's channels, copied from all windows before the next run.
    const std::size_t col = j + at, c = col % windows.channels;
    const std::size_t run = at < count ? least(windows.channels - c, count - at) : width - at;
    const auto down =
        windows.y.first + static_cast<std::ptrdiff_t>(col / row_elems * windows.y.apart);
    const auto right = windows.x.first + static_cast<std::ptrdiff_t>(
                                             col % row_elems / windows.channels * windows.x.apart);
    std::size_t x = p % grid_x, y = p / grid_x % grid_y, b = p / grid_x / grid_y;
    for (std::size_t done = 0; done < depth;) {
      const std::size_t windows_left = least(grid_x - x, depth - done);  // in this row
      const auto row = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(y * windows.y.step) +
                                                down);  // huge if negative
      T* target = to + done * width + at;
      if (row >= windows.y.extent || at >= count) {
        for (std::size_t i = 0; i < windows_left; ++i, target += width)
          for (std::size_t e = 0; e < run; ++e) target[e] = 0;
      } else {
        const T* const line =
            windows.data + (b * windows.y.extent + row) * windows.x.extent * windows.pixel + c;
        for (std::size_t i = 0; i < windows_left; ++i, target += width) {
          const auto column = static_cast<std::size_t>(
              static_cast<std::ptrdiff_t>((x + i) * windows.x.step) + right);
          if (column < windows.x.extent) copy_run(line + column * windows.pixel, run, target);
          else
            for (std::size_t e = 0; e < run; ++e) target[e] = 0;
        }
      }
      done += windows_left;
      x = 0;
      if (++y < grid_y) continue;
      y = 0;
      ++b;
    }
    at += run;
  }
}

/// C (m x windows.cols(), leading dimension ldc) += A (m x windows) times the matrix of windows.
/// `workspace` holds gemm_workspace_bytes of this product, which runs over all windows of `batch`
/// pictures.
template <class T>
void accumulate_windows(Cpu& cpu, std::size_t m, std::size_t batch, Operand<T> a,
                        const Windows<T>& windows, T* c, std::size_t ldc, Bytes workspace) {
  const auto pack = [&](std::size_t p, std::size_t depth, std::size_t j, std::size_t count, T* to) {
    pack_windows(windows, p, depth, j, count, to);
  };
  gemm_with<T>(target_level(), cpu, m, windows.cols(), batch * windows.y.grid * windows.x.grid, a,
               pack, c, ldc, Accumulate::yes, workspace);
}

}}}  // namespace adacc::v0_1::detail
