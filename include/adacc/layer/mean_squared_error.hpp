/// Mean squared error.
#pragma once

#include <cstddef>

#include "../model/contract.hpp"
#include "packet.hpp"
#include "rows.hpp"

namespace adacc { inline namespace v0_1 {

/// Mean over all elements of (x - target)^2; targets have the shape of x. The gradient,
/// 2 (x - target) / elements, may overwrite x.
struct MeanSquaredError {
  static constexpr const char* name = "mean_squared_error";
  static constexpr bool dx_overwrites_x = true;
  static constexpr auto split = Split::rows;

  constexpr Error validate(Shape in) const { return detail::check_rows(name, in); }

  /// One partial sum per tile, so that they add up in order.
  constexpr std::size_t workspace_bytes(Shape in, Dtype, int, Pass) const {
    return sizeof(double) * div_up(in.elems(), detail::tile_elems);
  }

  template <class T>
  double forward(Cpu& ctx, Params<const T>, View<const T> x, View<const T> targets,
                 Bytes workspace) const {
    return run(ctx, x, targets, View<T>(), workspace);
  }

  template <class T>
  double forward_backward(Cpu& ctx, Params<const T>, View<const T> x, View<const T> targets,
                          View<T> dx, Params<T>, Bytes workspace) const {
    return run(ctx, x, targets, dx, workspace);
  }

 private:
  template <class T>
  double run(Cpu& ctx, View<const T> x, View<const T> targets, View<T> dx, Bytes workspace) const {
    const View<double> sums = carve<double>(workspace, div_up(x.size(), detail::tile_elems));
    for (double& sum : sums) sum = 0;
    const std::size_t elems = detail::mean_rows(ctx, x.rows()) * x.cols();
    const T factor = T(2) / static_cast<T>(elems);
    // Pieces are short, so that a sum in T loses nothing that matters; they add up in double.
    detail::for_each_piece(ctx, x.size(), detail::stack_elems,
                           [&](std::size_t first, std::size_t n) {
                             const T* const a = x.data() + first;
                             const T* const b = targets.data() + first;
                             sums[first / detail::tile_elems] += squared_distance(a, b, n);
                             if (dx.empty()) return;
                             detail::as_array(dx.data() + first, n) =
                                 factor * (detail::as_array(a, n) - detail::as_array(b, n));
                           });
    double total = 0;
    for (const double sum : sums) total += sum;
    return total / static_cast<double>(elems);
  }

  template <class T>
  static double squared_distance(const T* a, const T* b, std::size_t n) {
    using V = detail::Widest<T>;
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
