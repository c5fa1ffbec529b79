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
#include "math/numbers.hpp"
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
  static constexpr bool runs_in_bf16 = true;
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
    using W = Wide<T>;
    const std::size_t rows = call.x.rows(), cols = call.x.cols();
    const W* const weight = call.params[0].data();
    const W* const bias = call.params[1].data();
    W* const means = detail::elements<W>(call.aux);
    detail::for_each_row(cpu, rows, cols, [&](std::size_t r) {
      const T* const row = call.x.data() + r * cols;
      const W mean = detail::sum_of_spans<T>(cols,
                                             [&](std::size_t first, std::size_t n) {
                                               return detail::Numbers(row + first, n).array().sum();
                                             }) /
                     static_cast<W>(cols);
      const W variance =
          detail::sum_of_spans<T>(
              cols,
              [&](std::size_t first, std::size_t n) {
                return (detail::Numbers(row + first, n).array() - mean).square().sum();
              }) /
          static_cast<W>(cols);
      const W rstd = 1 / std::sqrt(variance + static_cast<W>(epsilon));
      detail::for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
        const detail::Numbers in(row + first, n);
        detail::store(call.y.data() + r * cols + first, n,
                      (in.array() - mean) * rstd * detail::as_array(weight + first, n) +
                          detail::as_array(bias + first, n));
      });
      means[r] = mean;
      means[rows + r] = rstd;
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    using W = Wide<T>;
    const std::size_t rows = call.dy.rows(), cols = call.dy.cols();
    const bool sums_weight = !call.dparams[0].empty(), sums_bias = !call.dparams[1].empty();
    const W* const weights = call.params[0].data();
    const W* const means = detail::elements<W>(call.aux);
    const auto sums_of_chunk = [&](std::size_t begin, std::size_t end, W* partial) {
      for (std::size_t r = begin; r < end; ++r) {
        const T* const ups = call.dy.data() + r * cols;
        const T* const ins = call.x.empty() ? nullptr : call.x.data() + r * cols;
        const W mean = ins == nullptr ? 0 : means[r], rstd = ins == nullptr ? 0 : means[rows + r];
        W mean_g = 0, mean_gx = 0;
        detail::for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
          const detail::Numbers up(ups + first, n);
          if (sums_bias) detail::as_array(partial + cols + first, n) += up.array();
          if (ins == nullptr) return;
          const detail::Numbers in(ins + first, n);
          if (sums_weight)
            detail::as_array(partial + first, n) += up.array() * ((in.array() - mean) * rstd);
          if (call.dx.empty()) return;
          const auto weight = detail::as_array(weights + first, n);
          const W g = (up.array() * weight).sum();
          const W gx = (up.array() * weight * (in.array() - mean)).sum();
          mean_g = first == 0 ? g : mean_g + g;
          mean_gx = first == 0 ? gx : mean_gx + gx;
        });
        if (ins == nullptr || call.dx.empty()) continue;
        mean_g = mean_g / static_cast<W>(cols);
        mean_gx = mean_gx * rstd / static_cast<W>(cols);
        // dy is read for the last time here, element by element: dx may be the same memory.
        detail::for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
          const detail::Numbers up(ups + first, n), in(ins + first, n);
          detail::store(call.dx.data() + r * cols + first, n,
                        (up.array() * detail::as_array(weights + first, n) - mean_g -
                         (in.array() - mean) * (rstd * mean_gx)) *
                            rstd);
        });
      }
    };
    detail::sum_over_rows(cpu, rows, 2 * cols, detail::elements<W>(call.workspace), sums_of_chunk,
                          [&](const W* partials, std::size_t count) {
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
    return detail::RowChunks(in.rows()).partials() * 2 * in.cols() * bytes_of(wide(scalar));
  }
};

}}  // namespace adacc::v0_1
