// SPDX-License-Identifier: MIT
/// Softmax cross-entropy of logits, and its row kernels, shared with the vocabulary head.
///
/// Loss and gradient are one pass over a row: the gradient, probabilities minus one-hot target, costs nothing beside
/// the loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "../model/contract.hpp"
#include "math/lanes.hpp"
#include "math/rows.hpp"

namespace adacc { inline namespace v0_1 {
namespace detail {

ADACC_TARGET_CODE_BEGIN
/// The maximum, and the sum of exp(logit - maximum), go on to include `n` logits.
template <class T, class Target>
void include_logits(const T* logits, std::size_t n, T& maximum, T& sum) {
  using V = Widest<T, Target>;
  const std::size_t whole = n / V::lanes * V::lanes;
  V tops = V::all(maximum);
  for (std::size_t i = 0; i < whole; i += V::lanes) tops = larger(tops, V::load(logits + i));
  T top = tops.maximum();
  for (std::size_t i = whole; i < n; ++i) top = top < logits[i] ? logits[i] : top;

  V sums = V::all(0);
  for (std::size_t i = 0; i < whole; i += V::lanes)
    sums = sums + exp(V::load(logits + i) - V::all(top));
  T added = sums.sum();
  for (std::size_t i = whole; i < n; ++i) added += Eigen::numext::exp(logits[i] - top);
  sum = sum * Eigen::numext::exp(maximum - top) + added;
  maximum = top;
}

/// out[i] = exp(logits[i] - maximum) * scale.
template <class T, class Target>
void scaled_exponentials(const T* logits, std::size_t n, T maximum, T scale, T* out) {
  each_vector<T, Target>(n, [&]<class V>(std::size_t i) {
    (exp(V::load(logits + i) - V::all(maximum)) * V::all(scale)).store(out + i);
  });
}
ADACC_TARGET_CODE_END

/// The softmax's state: the maximum of the logits seen so far, and the sum of exp(logit - maximum). More logits can
/// join. exp never overflows; a NaN or plus infinity among the logits makes the sum NaN.
template <class T>
struct SoftmaxSum {
  T maximum = -std::numeric_limits<T>::infinity();
  T sum = 0;

  void include(const T* logits, std::size_t n) {
    with_target(target_level(), [&]<class Target>(Target) {
      Target::template call<include_logits<T, Target>>(logits, n, maximum, sum);
    });
  }

  /// Minus the logarithm of the probability of a logit.
  double loss(T logit) const {
    return Eigen::numext::log(static_cast<double>(sum)) +
           (static_cast<double>(maximum) - static_cast<double>(logit));
  }

  /// out = factor * probabilities; may overwrite the logits.
  void probabilities(const T* logits, std::size_t n, T factor, T* out) const {
    const T scale = factor / sum;
    with_target(target_level(), [&]<class Target>(Target) {
      Target::template call<scaled_exponentials<T, Target>>(logits, n, maximum, scale, out);
    });
  }
};

/// Minus the logarithm of the softmax of `n` logits at `target`. A target beyond them gives NaN: it must neither read
/// foreign memory nor go unseen. Unless `out` is null, `share` times the gradient goes there; `out` may be the logits.
template <class T>
double softmax_loss(const T* logits, std::size_t n, std::size_t target, Wide<T> share, T* out) {
  SoftmaxSum<Wide<T>> softmax;
  for_each_span<T>(n, [&](std::size_t first, std::size_t count) {
    softmax.include(Numbers(logits + first, count).data(), count);
  });
  const double loss =
      softmax.loss(target < n ? number(logits[target]) : std::numeric_limits<Wide<T>>::quiet_NaN());
  if (out == nullptr) return loss;
  for_each_span<T>(n, [&](std::size_t first, std::size_t count) {
    Draft gradient(out + first, count);
    softmax.probabilities(Numbers(logits + first, count).data(), count, share, gradient.data());
    if (target - first < count) gradient.data()[target - first] -= share;
    gradient.store();
  });
  return loss;
}

}  // namespace detail

/// Mean over counted rows of -log softmax(logits)[target]. Logits (…, classes), targets (…) in [0, classes), which steps
/// check, or ignored (class_targets.hpp). The gradient, (softmax - one-hot) / counted rows, zeros in ignored ones, may
/// overwrite the logits.
struct SoftmaxCrossEntropy {
  using target_type = std::int32_t;
  static constexpr const char* name = "softmax_cross_entropy";
  static constexpr LayerFacts facts{.dx_overwrites_x = true, .runs_in_bf16 = true};
  static constexpr auto split = Split::rows;

  constexpr Shape target_shape(Shape in) const { return detail::without_cols(in); }
  constexpr std::size_t target_classes(Shape in) const { return in.cols(); }

  /// One partial sum per row: sums are added in order.
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const {
    if (const Error why = detail::check_loss_rows(name, in)) return {.error = why};
    return {.workspace = sizeof(double) * in.rows()};
  }

  template <class T>
  void forward(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

  template <class T>
  void forward_backward(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    run(cpu, call, loss);
  }

 private:
  template <class T>
  void run(Cpu& cpu, const LossCall<T, std::int32_t>& call, Cpu::Loss& loss) const {
    Bytes workspace = call.workspace;
    const std::size_t rows = call.x.rows(), classes = call.x.cols();
    const View<double> losses = carve<double>(workspace, rows);
    const std::size_t divisor = detail::loss_divisor(call);
    const Wide<T> share = Wide<T>(1) / static_cast<Wide<T>>(divisor);
    detail::for_each_row(cpu, rows, classes, [&](std::size_t r) {
      T* const dx = call.dx.empty() ? nullptr : call.dx.data() + r * classes;
      if (call.targets[r] == ignored_target) {
        losses[r] = 0;
        for (std::size_t c = 0; dx != nullptr && c < classes; ++c) dx[c] = T{};
        return;
      }
      losses[r] = detail::softmax_loss(call.x.data() + r * classes, classes,
                                       static_cast<std::size_t>(call.targets[r]), share, dx);
    });
    for (const double row : losses) loss.add(row / static_cast<double>(divisor));
  }
};

}}  // namespace adacc::v0_1
