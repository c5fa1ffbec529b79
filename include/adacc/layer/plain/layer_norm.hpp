// SPDX-License-Identifier: MIT
/// Layer normalization in plain loops: each row to mean 0 and variance 1, then scaled and shifted.
///
/// Ba, Kiros, Hinton, "Layer Normalization", 2016. With xhat = (x - mean) * rstd:
///
///     y  = xhat * weight + bias
///     g  = dy * weight
///     dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "../../model/contract.hpp"
#include "../math/shapes.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// (..., C) -> (..., C). Parameters: weight (C), bias (C). Nothing is saved beside the input:
/// backward computes mean and variance again, which on a small device is cheaper than memory.
struct LayerNorm {
  float epsilon = 1e-5F;  ///< added to the variance

  static constexpr const char* name = "plain_layer_norm";
  static constexpr double input_sensitivity = 0.065;
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};

  constexpr Reads reads_when(Wanted wanted) const {
    return wanted.dx || wanted.parameter(0) ? reads::input : reads::none;
  }

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (!(epsilon > 0)) return {.error = Error::say(name, ": epsilon must be a number above 0")};
    return {.error = detail::check_rows(name, in)};
  }

  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    return {ParameterSpec{"weight", Shape(in.cols()), Init::constant(1), false},
            ParameterSpec{"bias", Shape(in.cols()), Init::zeros(), false}};
  }

  template <class Context, class T>
  void forward(Context&, const ForwardCall<T>& call) const {
    for (std::size_t r = 0; r < call.x.rows(); ++r) {
      const T* const row = call.x.row(r);
      const Moments<T> of = moments(row, call.x.cols());
      for (std::size_t i = 0; i < call.x.cols(); ++i)
        call.y.row(r)[i] = (row[i] - of.mean) * of.rstd * call.params[0][i] + call.params[1][i];
    }
  }

  template <class Context, class T>
  void backward(Context&, const BackwardCall<T>& call) const {
    const std::size_t cols = call.dy.cols();
    const View<T> dweight = call.dparams[0], dbias = call.dparams[1];
    for (std::size_t r = 0; r < call.dy.rows(); ++r) {
      const T* const up = call.dy.row(r);
      for (std::size_t i = 0; i < cols && !dbias.empty(); ++i) dbias[i] += up[i];
      if (call.x.empty()) continue;
      const T* const row = call.x.row(r);
      const Moments<T> of = moments(row, cols);
      T mean_g = 0, mean_gx = 0;
      for (std::size_t i = 0; i < cols; ++i) {
        const T xhat = (row[i] - of.mean) * of.rstd;
        mean_g += up[i] * call.params[0][i];
        mean_gx += up[i] * call.params[0][i] * xhat;
        if (!dweight.empty()) dweight[i] += up[i] * xhat;
      }
      if (call.dx.empty()) continue;
      mean_g /= static_cast<T>(cols);
      mean_gx /= static_cast<T>(cols);
      for (std::size_t i = 0; i < cols; ++i)
        call.dx.row(r)[i] =
            of.rstd * (up[i] * call.params[0][i] - mean_g - (row[i] - of.mean) * of.rstd * mean_gx);
    }
  }

 private:
  template <class T>
  struct Moments {
    T mean, rstd;
  };

  /// The variance is taken around the mean: E[x^2] - mean^2 would cancel.
  template <class T>
  Moments<T> moments(const T* row, std::size_t cols) const {
    T sum = 0, squares = 0;
    for (std::size_t i = 0; i < cols; ++i) sum += row[i];
    const T mean = sum / static_cast<T>(cols);
    for (std::size_t i = 0; i < cols; ++i) squares += (row[i] - mean) * (row[i] - mean);
    return {mean, 1 / std::sqrt(squares / static_cast<T>(cols) + static_cast<T>(epsilon))};
  }
};

}}}  // namespace adacc::v0_1::plain
