// SPDX-License-Identifier: MIT
/// Root-mean-square normalization: each row divided by its root mean square, scaled per channel.
///
/// Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019. With r = 1 / rms(x):
///
///     y  = x * r * weight
///     g  = dy * weight
///     dx = r * (g - x * r^2 * mean(g * x))
///
/// Built like LayerNorm: all passes over a row happen in the first-level cache.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "../codec/bf16.hpp"
#include "../codec/int4_outlier.hpp"
#include "../codec/int8_outlier.hpp"
#include "../core/dtype.hpp"
#include "../model/contract.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// (..., C) -> (..., C). Parameter: weight (C). aux: the rows' reciprocal root mean squares.
struct RmsNorm {
  float epsilon = 1e-5F;  ///< added to the mean square

  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The input enters through x / rms alone, scaled by exact statistics, and only its part along dy reaches dx.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.065;
  static constexpr bool normalizes_rows = true;
  static constexpr const char* name = "rms_norm";
  static constexpr bool dx_overwrites_dy = true;

  constexpr Reads reads_when(Wanted) const { return reads::input; }

  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (!(epsilon > 0)) return {.error = Error::say("rms_norm: epsilon must be a number above 0")};
    if (const Error why = detail::check_rows(name, in)) return {.error = why};
    return {.aux = in.rows() * bytes_of(wide(query.scalar)),
            .workspace = workspace_bytes(in, query.scalar, query.pass)};
  }

  constexpr std::array<ParameterSpec, 1> parameters(Shape in) const {
    return {ParameterSpec{"weight", Shape(in.cols()), Init::constant(1), false}};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const std::size_t cols = call.x.cols();
    const auto weight = detail::as_array(call.params[0].data(), cols);
    T* const reciprocals = detail::elements<T>(call.aux);
    detail::for_each_row(cpu, call.x.rows(), cols, [&](std::size_t row) {
      const auto in = detail::as_array(call.x.data() + row * cols, cols);
      const T mean_square = in.square().sum() / static_cast<T>(cols);
      const T r = 1 / std::sqrt(mean_square + static_cast<T>(epsilon));
      detail::as_array(call.y.data() + row * cols, cols) = in * r * weight;
      reciprocals[row] = r;
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    const std::size_t cols = call.x.cols();
    const auto weight = detail::as_array(call.params[0].data(), cols);
    const T* const reciprocals = detail::elements<T>(call.aux);
    const bool sums_weight = !call.dparams[0].empty();
    const auto sums_of_chunk = [&](std::size_t first, std::size_t last, T* partial) {
      auto dweight = detail::as_array(partial, cols);
      for (std::size_t row = first; row < last; ++row) {
        const auto in = detail::as_array(call.x.data() + row * cols, cols);
        const auto up = detail::as_array(call.dy.data() + row * cols, cols);
        const T r = reciprocals[row];
        if (sums_weight) dweight += up * (in * r);
        if (call.dx.empty()) continue;
        const T mean_gx = (up * weight * in).sum() * r * r / static_cast<T>(cols);
        // dy is read for the last time here, element by element: dx may be the same memory.
        detail::as_array(call.dx.data() + row * cols, cols) = (up * weight - in * mean_gx) * r;
      }
    };
    detail::sum_over_rows(cpu, call.x.rows(), cols, detail::elements<T>(call.workspace),
                          sums_of_chunk, [&](const T* partials, std::size_t count) {
                            if (sums_weight)
                              detail::add_partials(cpu, partials, count, cols, call.dparams[0]);
                          });
  }

 private:
  constexpr std::size_t workspace_bytes(Shape in, Dtype scalar, Pass pass) const {
    if (pass == Pass::forward) return 0;
    return detail::RowChunks(in.rows()).partials() * in.cols() * bytes_of(scalar);
  }
};

}}  // namespace adacc::v0_1
