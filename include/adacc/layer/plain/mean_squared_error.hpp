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
  static constexpr LayerFacts facts{.dx_overwrites_x = true};
  static constexpr auto split = Split::rows;

  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_rows(name, in)};
  }

  template <class Context, class T>
  double forward(Context&, const LossCall<T>& call) const {
    return run(call);
  }

  template <class Context, class T>
  double forward_backward(Context&, const LossCall<T>& call) const {
    return run(call);
  }

 private:
  template <class T>
  double run(const LossCall<T>& call) const {
    const std::size_t elems = call.part.of(call.x.rows()).whole * call.x.cols();
    double sum = 0;
    for (std::size_t i = 0; i < call.x.size(); ++i) {
      const T distance = call.x[i] - call.targets[i];
      sum += static_cast<double>(distance) * static_cast<double>(distance);
      if (!call.dx.empty()) call.dx[i] = 2 * distance / static_cast<T>(elems);
    }
    return sum / static_cast<double>(elems);
  }
};

}}}  // namespace adacc::v0_1::plain
