// SPDX-License-Identifier: MIT
/// Mean squared error.
#pragma once

#include <cstddef>

#include "../model/contract.hpp"
#include "math/numbers.hpp"
#include "math/packet.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {

/// Mean over all elements of (x - target)^2; targets have the shape of x. The gradient,
/// 2 (x - target) / elements, may overwrite x.
struct MeanSquaredError {
  static constexpr const char* name = "mean_squared_error";
  static constexpr LayerFacts facts{.dx_overwrites_x = true, .runs_in_bf16 = true};
  static constexpr auto split = Split::rows;

  /// One sum per row: sums are added in order.
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (const Error why = detail::check_rows(name, in)) return {.error = why};
    return {.workspace = sizeof(double) * in.rows()};
  }

  template <class T>
  void forward(Cpu& cpu, const LossCall<T>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

  template <class T>
  void forward_backward(Cpu& cpu, const LossCall<T>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

 private:
  template <class T>
  void run(Cpu& cpu, const LossCall<T>& call, Cpu::Loss& loss) const {
    Bytes workspace = call.workspace;
    const std::size_t cols = call.x.cols();
    const View<double> sums = carve<double>(workspace, call.x.rows());
    const std::size_t elems = call.part.of(call.x.rows()).whole * cols;
    const Wide<T> factor = Wide<T>(2) / static_cast<Wide<T>>(elems);
    detail::for_each_row(cpu, call.x.rows(), cols, [&](std::size_t r) {
      const T* const a = call.x.data() + r * cols;
      const T* const b = call.targets.data() + r * cols;
      sums[r] = 0;
      // Pieces are short: a sum in T is accurate enough for one. Their sums are added in double.
      for (std::size_t first = 0; first < cols; first += detail::stack_elems) {
        const std::size_t n =
            cols - first < detail::stack_elems ? cols - first : detail::stack_elems;
        const detail::Numbers found(a + first, n), wanted(b + first, n);
        sums[r] += squared_distance(found.data(), wanted.data(), n);
        if (call.dx.empty()) continue;
        detail::store(call.dx.data() + r * cols + first, n,
                      factor * (found.array() - wanted.array()));
      }
    });
    for (const double sum : sums) loss.add(sum / static_cast<double>(elems));
  }

  template <class T>
  static double squared_distance(const T* a, const T* b, std::size_t n) {
    using V = detail::Widest<T, detail::BuildTarget>;
    constexpr std::size_t lanes = detail::max_lanes<T>;
    V sums = V::all(0);
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const V difference = V::load(a + i) - V::load(b + i);
      sums = difference.times_plus(difference, sums);
    }
    T sum = sums.sum();
    for (; i < n; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return static_cast<double>(sum);
  }
};

}}  // namespace adacc::v0_1
