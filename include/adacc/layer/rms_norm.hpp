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
#include "math/lanes.hpp"
#include "math/shapes.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

ADACC_TARGET_CODE_BEGIN
/// The reciprocal root mean square of a row.
template <class T, class Target>
void rms_scale(std::size_t cols, const T* x, Wide<T> epsilon, Wide<T>& reciprocal) {
  using W = Wide<T>;
  const W mean_square =
      sum_of_spans<T>(cols,
                      [&](std::size_t first, std::size_t n) {
                        return sum_vectors<W, Target>(n, [&]<class V>(std::size_t i) {
                          const V in = load_lanes<V>(x + first + i);
                          return in * in;
                        });
                      }) /
      static_cast<W>(cols);
  reciprocal = 1 / std::sqrt(mean_square + epsilon);
}

/// y of one row, and its reciprocal root mean square; y may be x.
template <class T, class Target>
void rms_norm(std::size_t cols, const T* x, const Wide<T>* weight, Wide<T> epsilon, T* y,
              Wide<T>& reciprocal) {
  Wide<T> r;
  rms_scale<T, Target>(cols, x, epsilon, r);
  each_vector<Wide<T>, Target>(cols, [&]<class V>(std::size_t i) {
    store_lanes(load_lanes<V>(x + i) * V::all(r) * V::load(weight + i), y + i);
  });
  reciprocal = r;
}

/// Adds a row's part of the weight's gradient to `dweight`.
template <class T, class Target>
void rms_norm_sums(std::size_t cols, const T* x, const T* dy, Wide<T> r, Wide<T>* dweight) {
  each_vector<Wide<T>, Target>(cols, [&]<class V>(std::size_t i) {
    const V part = load_lanes<V>(dy + i) * (load_lanes<V>(x + i) * V::all(r));
    (V::load(dweight + i) + part).store(dweight + i);
  });
}

/// dx of one row; dx may be dy.
template <class T, class Target>
void rms_norm_gradient(std::size_t cols, const T* x, const T* dy, const Wide<T>* weight, Wide<T> r,
                       T* dx) {
  using W = Wide<T>;
  const W sum_gx = sum_of_spans<T>(cols, [&](std::size_t first, std::size_t n) {
    return sum_vectors<W, Target>(n, [&]<class V>(std::size_t i) {
      return load_lanes<V>(dy + first + i) * V::load(weight + first + i) *
             load_lanes<V>(x + first + i);
    });
  });
  const W mean_gx = sum_gx * r * r / static_cast<W>(cols);
  // dy is read for the last time here, vector by vector.
  each_vector<W, Target>(cols, [&]<class V>(std::size_t i) {
    const V shift = load_lanes<V>(x + i) * V::all(mean_gx);
    store_lanes((load_lanes<V>(dy + i) * V::load(weight + i) - shift) * V::all(r), dx + i);
  });
}
ADACC_TARGET_CODE_END

}  // namespace detail

/// (..., C) -> (..., C). Parameter: weight (C). aux: the rows' reciprocal root mean squares.
struct RmsNorm {
  float epsilon = 1e-5F;  ///< added to the mean square

  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::rows;
  /// The input enters through x / rms alone, scaled by exact statistics, and only its part along dy reaches dx.
  using input_codecs = CodecList<Int4Outlier, Int8Outlier, Bf16>;
  static constexpr double input_sensitivity = 0.065;
  static constexpr LayerFacts facts{
      .dx_overwrites_dy = true, .normalizes_rows = true, .runs_in_bf16 = true};
  static constexpr const char* name = "rms_norm";

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
    const InstructionLevel level = detail::target_level();
    detail::for_each_row(cpu, call.x.rows(), cols, [&](std::size_t row) {
      detail::with_target(level, [&]<class Target>(Target) {
        Target::template call<detail::rms_norm<T, Target>>(
            cols, call.x.data() + row * cols, weight, static_cast<W>(epsilon),
            call.y.data() + row * cols, reciprocals[row]);
      });
    });
  }

  template <class T>
  void backward(Cpu& cpu, const BackwardCall<T>& call) const {
    using W = Wide<T>;
    const std::size_t cols = call.x.cols();
    const W* const weights = call.params[0].data();
    const W* const reciprocals = detail::elements<W>(call.aux);
    const bool sums_weight = !call.dparams[0].empty();
    const InstructionLevel level = detail::target_level();
    const auto sums_of_chunk = [&](std::size_t begin, std::size_t end, W* partial) {
      for (std::size_t row = begin; row < end; ++row) {
        const T* const ins = call.x.data() + row * cols;
        const T* const ups = call.dy.data() + row * cols;
        const W r = reciprocals[row];
        detail::with_target(level, [&]<class Target>(Target) {
          if (sums_weight)
            Target::template call<detail::rms_norm_sums<T, Target>>(cols, ins, ups, r, partial);
          if (!call.dx.empty())
            Target::template call<detail::rms_norm_gradient<T, Target>>(
                cols, ins, ups, weights, r, call.dx.data() + row * cols);
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
