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
#include "math/lanes.hpp"
#include "math/shapes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// What the rows of a LayerNorm, or of its gradient, have in common.
template <class T>
struct LayerNormRow {
  std::size_t cols;
  const Wide<T>* weight;
  const Wide<T>* bias;
  Wide<T> epsilon;
};

ADACC_TARGET_CODE_BEGIN
/// y of one row, its mean, and its reciprocal standard deviation.
template <class T, class Target>
void layer_norm(const LayerNormRow<T>& row, const T* x, T* y, Wide<T>& mean_of, Wide<T>& rstd_of) {
  using W = Wide<T>;
  const std::size_t cols = row.cols;
  const W mean = sum_of_spans<T>(cols,
                                 [&](std::size_t first, std::size_t n) {
                                   return sum_vectors<W, Target>(n, [&]<class V>(std::size_t i) {
                                     return load_lanes<V>(x + first + i);
                                   });
                                 }) /
                 static_cast<W>(cols);
  const W variance =
      sum_of_spans<T>(cols,
                      [&](std::size_t first, std::size_t n) {
                        return sum_vectors<W, Target>(n, [&]<class V>(std::size_t i) {
                          const V d = load_lanes<V>(x + first + i) - V::all(mean);
                          return d * d;
                        });
                      }) /
      static_cast<W>(cols);
  const W rstd = 1 / std::sqrt(variance + row.epsilon);
  each_vector<W, Target>(cols, [&]<class V>(std::size_t i) {
    const V xhat = (load_lanes<V>(x + i) - V::all(mean)) * V::all(rstd);
    store_lanes(xhat * V::load(row.weight + i) + V::load(row.bias + i), y + i);
  });
  mean_of = mean, rstd_of = rstd;
}

/// Adds a row's part of the gradients of weight and bias to these sums, which may be null. x is null if the weight's
/// gradient is not wanted, nor dx.
template <class T, class Target>
void layer_norm_sums(std::size_t cols, const T* x, const T* dy, Wide<T> mean, Wide<T> rstd,
                     Wide<T>* dweight, Wide<T>* dbias) {
  each_vector<Wide<T>, Target>(cols, [&]<class V>(std::size_t i) {
    const V up = load_lanes<V>(dy + i);
    if (dbias != nullptr) (V::load(dbias + i) + up).store(dbias + i);
    if (dweight == nullptr) return;
    const V xhat = (load_lanes<V>(x + i) - V::all(mean)) * V::all(rstd);
    (V::load(dweight + i) + up * xhat).store(dweight + i);
  });
}

/// dx of one row; dx may be dy.
template <class T, class Target>
void layer_norm_gradient(std::size_t cols, const T* x, const T* dy, const Wide<T>* weight,
                         Wide<T> mean, Wide<T> rstd, T* dx) {
  using W = Wide<T>;
  W mean_g = 0, mean_gx = 0;
  for_each_span<T>(cols, [&](std::size_t first, std::size_t n) {
    const W g = sum_vectors<W, Target>(n, [&]<class V>(std::size_t i) {
      return load_lanes<V>(dy + first + i) * V::load(weight + first + i);
    });
    const W gx = sum_vectors<W, Target>(n, [&]<class V>(std::size_t i) {
      return load_lanes<V>(dy + first + i) * V::load(weight + first + i) *
             (load_lanes<V>(x + first + i) - V::all(mean));
    });
    mean_g = first == 0 ? g : mean_g + g;
    mean_gx = first == 0 ? gx : mean_gx + gx;
  });
  mean_g = mean_g / static_cast<W>(cols);
  mean_gx = mean_gx * rstd / static_cast<W>(cols);
  // dy is read for the last time here, vector by vector.
  each_vector<W, Target>(cols, [&]<class V>(std::size_t i) {
    const V g = load_lanes<V>(dy + i) * V::load(weight + i) - V::all(mean_g);
    const V d = load_lanes<V>(x + i) - V::all(mean);
    store_lanes((g - d * V::all(rstd * mean_gx)) * V::all(rstd), dx + i);
  });
}
ADACC_TARGET_CODE_END

}  // namespace detail

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
  static constexpr LayerFacts facts{
      .dx_overwrites_dy = true, .normalizes_rows = true, .runs_in_bf16 = true};
  static constexpr const char* name = "layer_norm";

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
    const detail::LayerNormRow<T> row{cols, weight, bias, static_cast<W>(epsilon)};
    const InstructionLevel level = detail::target_level();
    detail::for_each_row(cpu, rows, cols, [&](std::size_t r) {
      detail::with_target(level, [&]<class Target>(Target) {
        Target::template call<detail::layer_norm<T, Target>>(
            row, call.x.data() + r * cols, call.y.data() + r * cols, means[r], means[rows + r]);
      });
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    using W = Wide<T>;
    const std::size_t rows = call.dy.rows(), cols = call.dy.cols();
    const bool sums_weight = !call.dparams[0].empty(), sums_bias = !call.dparams[1].empty();
    const W* const weights = call.params[0].data();
    const W* const means = detail::elements<W>(call.aux);
    const InstructionLevel level = detail::target_level();
    const auto sums_of_chunk = [&](std::size_t begin, std::size_t end, W* partial) {
      for (std::size_t r = begin; r < end; ++r) {
        const T* const ups = call.dy.data() + r * cols;
        const T* const ins = call.x.empty() ? nullptr : call.x.data() + r * cols;
        const W mean = ins == nullptr ? 0 : means[r], rstd = ins == nullptr ? 0 : means[rows + r];
        detail::with_target(level, [&]<class Target>(Target) {
          if (sums_weight || sums_bias)
            Target::template call<detail::layer_norm_sums<T, Target>>(
                cols, ins, ups, mean, rstd, sums_weight ? partial : nullptr,
                sums_bias ? partial + cols : nullptr);
          if (!call.dx.empty())
            Target::template call<detail::layer_norm_gradient<T, Target>>(
                cols, ins, ups, weights, mean, rstd, call.dx.data() + r * cols);
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
