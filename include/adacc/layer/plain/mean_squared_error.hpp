// SPDX-License-Identifier: MIT
/// Mean squared error in a plain loop.
#pragma once

#include <cstddef>

#include "../../model/contract.hpp"
#include "../math/shapes.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// Mean over all elements of (x - target)^2; targets have the shape of x. The gradient,
/// 2 (x - target) / elements, may overwrite x.
struct MeanSquaredError {
  static constexpr const char* name = "plain_mean_squared_error";
  static constexpr bool dx_overwrites_x = true;
  static constexpr auto split = Split::rows;

  constexpr Error validate(Shape in) const { return detail::check_rows(name, in); }

  template <class Context, class T>
  double forward(Context& context, Params<const T>, View<const T> x, View<const T> targets,
                 Bytes) const {
    return run(context, x, targets, View<T>());
  }

  template <class Context, class T>
  double forward_backward(Context& context, Params<const T>, View<const T> x, View<const T> targets,
                          View<T> dx, Params<T>, Bytes) const {
    return run(context, x, targets, dx);
  }

 private:
  template <class Context, class T>
  double run(Context& context, View<const T> x, View<const T> targets, View<T> dx) const {
    const std::size_t elems = detail::mean_rows(context, x.rows()) * x.cols();
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T distance = x[i] - targets[i];
      sum += static_cast<double>(distance) * static_cast<double>(distance);
      if (!dx.empty()) dx[i] = 2 * distance / static_cast<T>(elems);
    }
    return sum / static_cast<double>(elems);
  }
};

}}}  // namespace adacc::v0_1::plain
