// SPDX-License-Identifier: MIT
/// Softmax cross-entropy of logits in plain loops.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "../../model/contract.hpp"
#include "../math/shapes.hpp"

namespace adacc { inline namespace v0_1 { namespace plain {

/// Mean over counted rows of -log softmax(logits)[target]. Logits (…, classes), targets (…) in [0, classes) or ignored
/// (class_targets.hpp); any other target makes the loss NaN. The gradient, (softmax - one-hot) / counted rows, may
/// overwrite the logits.
struct SoftmaxCrossEntropy {
  using target_type = std::int32_t;
  static constexpr const char* name = "plain_softmax_cross_entropy";
  static constexpr LayerFacts facts{.dx_overwrites_x = true};
  static constexpr auto split = Split::rows;

  constexpr Shape target_shape(Shape in) const { return detail::without_cols(in); }
  constexpr std::size_t target_classes(Shape in) const { return in.cols(); }
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    return {.error = detail::check_loss_rows(name, in)};
  }

  template <class Context, class T>
  double forward(Context&, const LossCall<T, std::int32_t>& call) const {
    return run(call);
  }

  template <class Context, class T>
  double forward_backward(Context&, const LossCall<T, std::int32_t>& call) const {
    return run(call);
  }

 private:
  template <class T>
  double run(const LossCall<T, std::int32_t>& call) const {
    const std::size_t classes = call.x.cols(), divisor = detail::loss_divisor(call);
    double total = 0;
    for (std::size_t r = 0; r < call.x.rows(); ++r) {
      if (call.targets[r] == ignored_target) {
        if (!call.dx.empty())
          for (std::size_t c = 0; c < classes; ++c) call.dx.row(r)[c] = T{};
        continue;
      }
      const T* const logits = call.x.row(r);
      // exp never overflows: no logit is above the largest.
      T top = logits[0];
      for (std::size_t c = 1; c < classes; ++c) top = top < logits[c] ? logits[c] : top;
      T sum = 0;
      for (std::size_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - top);
      const auto target = static_cast<std::size_t>(call.targets[r]);
      const T chosen = target < classes ? logits[target] : std::numeric_limits<T>::quiet_NaN();
      total += static_cast<double>(std::log(sum) - (chosen - top));
      if (call.dx.empty()) continue;
      T* const to = call.dx.row(r);
      for (std::size_t c = 0; c < classes; ++c)
        to[c] = std::exp(logits[c] - top) / sum / static_cast<T>(divisor);
      if (target < classes) to[target] -= 1 / static_cast<T>(divisor);
    }
    return total / static_cast<double>(divisor);
  }
};

}}}  // namespace adacc::v0_1::plain
