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
#include "math/numbers.hpp"
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
  static constexpr bool runs_in_bf16 = true;
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
    using W = Wide<T>;
    const std::size_t cols = call.x.cols();
    const W* const weight = call.params[0].data();
    W* const reciprocals = detail::elements<W>(call.aux);
    detail::for_each_row(cpu, call.x.rows(), cols, [&](std::size_t row) {
      const T* const ins = call.x.data() + row * cols;
      const W mean_square =
          detail::sum_of_spans<T>(cols,
                                  [&](std::size_t first, std::size_t n) {
                                    return detail::Numbers(ins + first, n).array().square().sum();
                                  }) /
          static_cast<W>(cols);
      const W r = 1 / std::sqrt(mean_square + static_cast<W>(epsilon));
      detail::for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
        const detail::Numbers in(ins + first, n);
        detail::store(call.y.data() + row * cols + first, n,
                      in.array() * r * detail::as_array(weight + first, n));
      });
      reciprocals[row] = r;
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    using W = Wide<T>;
    const std::size_t cols = call.x.cols();
    const W* const weights = call.params[0].data();
    const W* const reciprocals = detail::elements<W>(call.aux);
    const bool sums_weight = !call.dparams[0].empty();
    const auto sums_of_chunk = [&](std::size_t begin, std::size_t end, W* partial) {
      for (std::size_t row = begin; row < end; ++row) {
        const T* const ins = call.x.data() + row * cols;
        const T* const ups = call.dy.data() + row * cols;
        const W r = reciprocals[row];
        if (sums_weight)
          detail::for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
            const detail::Numbers in(ins + first, n), up(ups + first, n);
            detail::as_array(partial + first, n) += up.array() * (in.array() * r);
          });
        if (call.dx.empty()) continue;
        const W sum_gx = detail::sum_of_spans<T>(cols, [&](std::size_t first, std::size_t n) {
          const detail::Numbers in(ins + first, n), up(ups + first, n);
          return (up.array() * detail::as_array(weights + first, n) * in.array()).sum();
        });
        const W mean_gx = sum_gx * r * r / static_cast<W>(cols);
        // dy is read for the last time here, element by element: dx may be the same memory.
        detail::for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
          const detail::Numbers in(ins + first, n), up(ups + first, n);
          detail::store(
              call.dx.data() + row * cols + first, n,
              (up.array() * detail::as_array(weights + first, n) - in.array() * mean_gx) * r);
        });
      }
    };
    detail::sum_over_rows(cpu, call.x.rows(), cols, detail::elements<W>(call.workspace),
                          sums_of_chunk, [&](const W* partials, std::size_t count) {
                            if (sums_weight)
                              detail::add_partials(cpu, partials, count, cols, call.dparams[0]);
                          });
  }

 private:
  constexpr std::size_t workspace_bytes(Shape in, Dtype scalar, Pass pass) const {
    if (pass == Pass::forward) return 0;
    return detail::RowChunks(in.rows()).partials() * in.cols() * bytes_of(wide(scalar));
  }
};

}}  // namespace adacc::v0_1
