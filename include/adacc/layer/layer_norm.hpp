// SPDX-License-Identifier: MIT
/// Layer normalization: each row to mean 0 and variance 1, then scaled and shifted per channel.
///
/// Ba, Kiros, Hinton, "Layer Normalization", 2016. With xhat = (x - mean) * rstd:
///
///     y  = xhat * weight + bias
///     g  = dy * weight
///     dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
///
/// All passes over a row happen while it is in the first-level cache, so memory sees each element
/// once. The variance is taken around the mean in a second such pass: E[x^2] - mean^2 would cancel.
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

/// (..., C) -> (..., C). Parameters: weight (C), bias (C). aux: the rows' means, then their
/// reciprocal standard deviations.
struct LayerNorm {
  float epsilon = 1e-5F;  ///< added to the variance

  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The input enters through xhat alone, scaled by exact statistics, and only its part along dy
  /// reaches dx.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.065;
  static constexpr bool normalizes_rows = true;
  static constexpr const char* name = "layer_norm";
  static constexpr bool dx_overwrites_dy = true;

  /// The bias's gradient is made of dy alone.
  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.dx || wanted.parameter(0) ? reads::input : reads::none;
  }

  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (!(epsilon > 0))
      return {.error = Error::say("layer_norm: epsilon must be a number above 0")};
    if (const Error why = detail::check_rows(name, in)) return {.error = why};
    return {.aux = 2 * in.rows() * bytes_of(wide(query.scalar)),
            .workspace = workspace_bytes(in, query.scalar, query.pass)};
  }

  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    return {ParameterSpec{"weight", Shape(in.cols()), Init::constant(1), false},
            ParameterSpec{"bias", Shape(in.cols()), Init::zeros(), false}};
  }

  template <class T>
  void forward(Cpu& cpu, const ForwardCall<T>& call) const {
    const std::size_t rows = call.x.rows(), cols = call.x.cols();
    const auto weight = detail::as_array(call.params[0].data(), cols);
    const auto bias = detail::as_array(call.params[1].data(), cols);
    T* const means = detail::elements<T>(call.aux);
    detail::for_each_row(cpu, rows, cols, [&](std::size_t r) {
      const auto in = detail::as_array(call.x.data() + r * cols, cols);
      const T mean = in.sum() / static_cast<T>(cols);
      const T variance = (in - mean).square().sum() / static_cast<T>(cols);
      const T rstd = 1 / std::sqrt(variance + static_cast<T>(epsilon));
      detail::as_array(call.y.data() + r * cols, cols) = (in - mean) * rstd * weight + bias;
      means[r] = mean;
      means[rows + r] = rstd;
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    const std::size_t rows = call.dy.rows(), cols = call.dy.cols();
    const bool sums_weight = !call.dparams[0].empty(), sums_bias = !call.dparams[1].empty();
    const auto weight = detail::as_array(call.params[0].data(), cols);
    const T* const means = detail::elements<T>(call.aux);
    const auto sums_of_chunk = [&](std::size_t first, std::size_t last, T* partial) {
      auto dweight = detail::as_array(partial, cols);
      auto dbias = detail::as_array(partial + cols, cols);
      for (std::size_t r = first; r < last; ++r) {
        const auto up = detail::as_array(call.dy.data() + r * cols, cols);
        if (sums_bias) dbias += up;
        if (call.x.empty()) continue;
        const auto in = detail::as_array(call.x.data() + r * cols, cols);
        const T mean = means[r], rstd = means[rows + r];
        if (sums_weight) dweight += up * ((in - mean) * rstd);
        if (call.dx.empty()) continue;
        const T mean_g = (up * weight).sum() / static_cast<T>(cols);
        const T mean_gx = (up * weight * (in - mean)).sum() * rstd / static_cast<T>(cols);
        // dy is read for the last time here, element by element: dx may be the same memory.
        detail::as_array(call.dx.data() + r * cols, cols) =
            (up * weight - mean_g - (in - mean) * (rstd * mean_gx)) * rstd;
      }
    };
    detail::sum_over_rows(cpu, rows, 2 * cols, detail::elements<T>(call.workspace), sums_of_chunk,
                          [&](const T* partials, std::size_t count) {
                            const std::size_t stride = 2 * cols;
                            if (sums_weight)
                              detail::add_partials(cpu, partials, count, stride, call.dparams[0]);
                            if (sums_bias)
                              detail::add_partials(cpu, partials + cols, count, stride,
                                                   call.dparams[1]);
                          });
  }

 private:
  constexpr std::size_t workspace_bytes(Shape in, Dtype scalar, Pass pass) const {
    if (pass == Pass::forward) return 0;
    return detail::RowChunks(in.rows()).partials() * 2 * in.cols() * bytes_of(scalar);
  }
};

}}  // namespace adacc::v0_1
