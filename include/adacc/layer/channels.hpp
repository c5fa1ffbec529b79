// SPDX-License-Identifier: MIT
/// A run of channels taken out of all, or put among zeros: and with both, concatenation.
///
/// A layer has one input, and sums reach back (Residual). [x, f(x)], one behind the other in channels, is such a sum: x
/// among zeros, plus f(x) in the place of the zeros. So concatenation needs no node of its own, and is planned like
/// every residual sum. Backward of these layers reads nothing: concatenation costs the zeros written and added.
#pragma once

#include <cstddef>

#include "../core/cpu.hpp"
#include "../model/contract.hpp"
#include "../model/layer.hpp"
#include "../model/residual.hpp"
#include "../model/sequential.hpp"
#include "math/shapes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// body(row) for every row, some on one thread.
template <class Body>
void in_runs_of_rows(const Cpu& cpu, std::size_t rows, const Body& body) {
  constexpr std::size_t tile = 64;
  cpu.parallel(div_up(rows, tile), [&](std::size_t i, int) {
    for (std::size_t r = i * tile; r < (i + 1) * tile && r < rows; ++r) body(r);
  });
}

/// narrow = columns [first, first + narrow's own) of wide.
template <class T>
void take_columns(const Cpu& cpu, View<const T> wide, std::size_t first, View<T> narrow) {
  in_runs_of_rows(cpu, wide.rows(), [&](std::size_t r) {
    const T* const from = wide.row(r) + first;
    T* const to = narrow.row(r);
    for (std::size_t c = 0; c < narrow.cols(); ++c) to[c] = from[c];
  });
}

/// wide = zeros, and narrow from column `first` on.
template <class T>
void place_columns(const Cpu& cpu, View<const T> narrow, std::size_t first, View<T> wide) {
  in_runs_of_rows(cpu, wide.rows(), [&](std::size_t r) {
    const T* const from = narrow.row(r);
    T* const to = wide.row(r);
    for (std::size_t c = 0; c < first; ++c) to[c] = 0;
    for (std::size_t c = 0; c < narrow.cols(); ++c) to[first + c] = from[c];
    for (std::size_t c = first + narrow.cols(); c < wide.cols(); ++c) to[c] = 0;
  });
}

}  // namespace detail

/// (..., C) -> (..., count): channels `first` to `first + count`.
struct SelectChannels {
  std::size_t first = 0, count = 0;

  static constexpr const char* name = "select_channels";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::rows;

  constexpr Shape output_shape(Shape in) const { return in.with_cols(count); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (count > 0 && first <= in.cols() && count <= in.cols() - first)
      return {.error = detail::check_rows(name, in)};
    return {.error = Error::say("select_channels: ", count, " channels from number ", first,
                                " on are not among the ", in.cols(), " of ", in)};
  }

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::take_columns(cpu, x, first, y);
  }
  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    detail::place_columns(cpu, dy, first, dx);
  }
};

/// (..., C) -> (..., of): the channels become numbers `first` to `first + C`, all others zeros.
struct PlaceChannels {
  std::size_t first = 0, of = 0;

  static constexpr const char* name = "place_channels";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::rows;

  constexpr Shape output_shape(Shape in) const { return in.with_cols(of); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (first <= of && in.cols() <= of - first) return {.error = detail::check_rows(name, in)};
    return {.error = Error::say("place_channels: ", in.cols(), " channels from number ", first,
                                " on do not fit into ", of)};
  }

  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    detail::place_columns(cpu, x, first, y);
  }
  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    detail::take_columns(cpu, dy, first, dx);
  }
};

/// y = [x, parts(x)] in channels, for an x of `in` channels of which `parts`, one layer after the other, make `more`.
/// `OutputPolicy` is the policy of the result.
template <class OutputPolicy = Planned, class... Parts>
constexpr auto concatenate(std::size_t in, std::size_t more, const Parts&... parts) {
  return Sequential{layer(PlaceChannels{.first = 0, .of = in + more}),
                    Residual{layer(SelectChannels{.first = 0, .count = in}), parts...,
                             layer<OutputPolicy>(PlaceChannels{.first = in, .of = in + more})}};
}

}}  // namespace adacc::v0_1
