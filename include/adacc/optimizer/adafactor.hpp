// SPDX-License-Identifier: MIT
/// Adafactor: the second moment of a matrix as one of its rows times one of its columns, and no first.
///
/// Adafactor keeps rows + columns numbers per matrix, AdamW two per element. Instead of a first moment, the update is
/// scaled down to a root mean square of at most `clip`. Rates are the caller's, as for AdamW; the relative rates of
/// the source are not here. Parameters of one dimension keep a second moment for each element.
///
/// Source: Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML
/// 2018, algorithms 4 and 5.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "gradient_norm.hpp"
#include "optimizer.hpp"
#include "square_root.hpp"

namespace adacc { inline namespace v0_1 {

ADACC_TARGET_CODE_BEGIN
struct Adafactor {
  float decay_power = 0.8F;  ///< beta2 of update t is 1 - t^-decay_power
  float clip = 1;            ///< the largest root mean square of an update
  float weight_decay = 0;    ///< applies if the parameter's spec says `decay`

  static constexpr const char* name = "Adafactor";
  static constexpr std::size_t state_count = 3;
  static constexpr int passes = 4;

  static constexpr StateSpec state(std::size_t i, const ParameterSpec& parameter) {
    const Shape shape = parameter.shape;
    if (i == 0)
      return {"second moment, rows", factors(shape) ? shape.rows() : shape.elems(), StateForm::full,
              true};
    if (i == 1)
      return {"second moment, columns", factors(shape) ? shape.cols() : 0, StateForm::full, true};
    return {"sums of the update", 1 + cut(parameter, squares).tiles(), StateForm::full, true};
  }

  template <class Visit>
  void each_option(const Visit& visit) const {
    visit("power of the decay", decay_power);
    visit("root mean square of an update", clip);
    visit("weight decay", weight_decay);
  }
  constexpr const char* mistake() const {
    return decay_power > 0 && clip > 0 ? nullptr : "decay_power and clip must be above 0";
  }

  static constexpr UpdateCut cut(const ParameterSpec& parameter, int pass) {
    const Shape shape = parameter.shape;
    if (pass == columns) return {factors(shape) ? shape.cols() : 0, 64};
    if (!factors(shape)) return {shape.elems(), detail::update_tile};
    return {shape.rows(), larger(detail::update_tile / shape.cols())};
  }

  /// With g = scale * gradient of a matrix, and b = 1 - t^-decay_power:
  ///
  ///     r_i = b r_i + (1 - b) mean over j of g_ij^2         c_j: the same over i
  ///     u_ij = g_ij / sqrt(r_i c_j / mean of r)
  ///     p -= rate (u / max(1, rms(u) / clip) + weight_decay p)
  template <class T>
  void update(const ParameterRange<T>& range, const UpdateTerms& terms) const {
    const double t = static_cast<double>(terms.number);
    const double fresh = std::pow(t, -static_cast<double>(decay_power));
    const Shape shape = range.parameter.shape;
    if (range.pass == rows) {
      if (factors(shape)) row_means(range, terms.scale, fresh);
      else elements(range, terms.scale, fresh);
    } else if (range.pass == columns) {
      column_means(range, terms.scale, fresh);
    } else if (range.pass == squares) {
      double sum = 0;
      each_direction(range, terms.scale, [&](std::size_t, std::size_t count, const T* u) {
        sum += detail::sum_of_squares(u, count);
      });
      range.numbers(2)[1 + range.first / cut(range.parameter, squares).tile] = static_cast<T>(sum);
    } else {
      apply(range, terms);
    }
  }

 private:
  enum Pass { rows, columns, squares, values };

  static constexpr bool factors(Shape shape) { return shape.rows() > 1 && shape.cols() > 1; }
  static std::size_t larger(std::size_t rows) { return rows < 1 ? 1 : rows; }

  template <class T>
  void row_means(const ParameterRange<T>& range, double scale, double fresh) const {
    const std::size_t cols = range.parameter.shape.cols();
    for (std::size_t r = range.first; r < range.first + range.count; ++r) {
      const double squares_sum = detail::sum_of_squares(range.gradient + r * cols, cols);
      const double mean = scale * scale * squares_sum / static_cast<double>(cols);
      T& moment = range.numbers(0)[r];
      moment = mixed(moment, mean, fresh);
    }
  }

  template <class T>
  void elements(const ParameterRange<T>& range, double scale, double fresh) const {
    for (std::size_t i = range.first; i < range.first + range.count; ++i) {
      const double gradient = scale * static_cast<double>(range.gradient[i]);
      T& moment = range.numbers(0)[i];
      moment = mixed(moment, gradient * gradient, fresh);
    }
  }

  template <class T>
  void column_means(const ParameterRange<T>& range, double scale, double fresh) const {
    const std::size_t cols = range.parameter.shape.cols(), count = range.parameter.shape.rows();
    double sum[64] = {};
    for (std::size_t r = 0; r < count; ++r)
      for (std::size_t j = 0; j < range.count; ++j) {
        const double gradient = static_cast<double>(range.gradient[r * cols + range.first + j]);
        sum[j] += gradient * gradient;
      }
    for (std::size_t j = 0; j < range.count; ++j) {
      T& moment = range.numbers(1)[range.first + j];
      moment = mixed(moment, scale * scale * sum[j] / static_cast<double>(count), fresh);
    }
    if (range.first != 0) return;
    double mean = 0;
    for (std::size_t r = 0; r < count; ++r) mean += static_cast<double>(range.numbers(0)[r]);
    range.numbers(2)[0] = static_cast<T>(mean / static_cast<double>(count));
  }

  template <class T>
  T mixed(T moment, double square, double fresh) const {
    return static_cast<T>((1 - fresh) * static_cast<double>(moment) + fresh * square);
  }

  /// Calls visit(first, count, u) for pieces of the range's elements. In a matrix, all rows of a piece of columns
  /// come before the next piece, so the roots of columns are taken once.
  template <class T, class Visit>
  void each_direction(const ParameterRange<T>& range, double scale, const Visit& visit) const {
    const Shape shape = range.parameter.shape;
    const bool matrix = factors(shape);
    const std::size_t lines = matrix ? range.count : 1, cols = matrix ? shape.cols() : range.count;
    const std::size_t begin = matrix ? range.first * cols : range.first;
    const T* const moments = matrix ? range.numbers(1) : range.numbers(0) + begin;
    alignas(64) T factor[moment_lanes], u[moment_lanes];
    for (std::size_t j = 0; j < cols; j += moment_lanes) {
      const std::size_t count = cols - j < moment_lanes ? cols - j : moment_lanes;
      for (std::size_t i = 0; i < count; ++i) factor[i] = moments[j + i];
      detail::square_roots(factor, count);
      for (std::size_t i = 0; i < count; ++i) factor[i] = reciprocal(factor[i]);
      for (std::size_t line = 0; line < lines; ++line) {
        T row = static_cast<T>(scale);
        if (matrix)
          row *= reciprocal(std::sqrt(range.numbers(0)[range.first + line] / range.numbers(2)[0]));
        const std::size_t first = begin + line * cols + j;
        for (std::size_t i = 0; i < count; ++i) u[i] = range.gradient[first + i] * row * factor[i];
        visit(first, count, u);
      }
    }
  }

  /// Without the source's epsilon, an element that never had a gradient has the moment 0 and is not moved.
  template <class T>
  static T reciprocal(T root) {
    return root > 0 ? 1 / root : T{0};
  }

  template <class T>
  void apply(const ParameterRange<T>& range, const UpdateTerms& terms) const {
    double sum = 0;
    const std::size_t tiles = cut(range.parameter, squares).tiles();
    for (std::size_t i = 0; i < tiles; ++i) sum += static_cast<double>(range.numbers(2)[1 + i]);
    const double rms = std::sqrt(sum / static_cast<double>(range.elems())), most = clip;
    const T factor = static_cast<T>(rms > most ? most / rms : 1.0);
    const T rate = static_cast<T>(terms.rate);
    const T decay = range.parameter.decay ? static_cast<T>(weight_decay) : T{0};
    each_direction(range, terms.scale, [&](std::size_t first, std::size_t count, const T* u) {
      T *const p = range.values + first, *const g = range.gradient + first;
      for (std::size_t i = 0; i < count; ++i) {
        p[i] -= rate * (factor * u[i] + decay * p[i]);
        g[i] = 0;
      }
    });
  }
};
ADACC_TARGET_CODE_END

}}  // namespace adacc::v0_1
