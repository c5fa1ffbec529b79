// SPDX-License-Identifier: MIT
/// A gradient checker for layers and losses: finite differences, and the rest of the contract.
///
/// A layer that passes has the right gradients in double precision and keeps the promises of the contract: dx
/// overwritten, parameter gradients accumulated, the same bits from a second forward, for any number of workers and
/// whatever memory held before, in place and in parts if declared, nothing read beyond the declared tensors and nothing
/// written outside the declared sizes.
///
///     const auto result = adacc::testing::gradient_check(MyLayer{}, adacc::Shape{5, 7});
///     CHECK_MESSAGE(result.passed, result.text());
#pragma once

#include "layer_check.hpp"
#include "loss_check.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

/// Checks a layer functor in double precision on an input of shape `in`. Random are x (or the
/// tokens), the parameters and dy. Allocates; the shape should be small: every compared element
/// costs two forwards for each step size.
template <class Functor>
GradientCheckResult gradient_check(const Functor& functor, Shape in,
                                   const GradientCheckOptions& options = {}) {
  return detail::LayerCheck<Functor>(functor, in, options).run();
}

/// Checks a loss. `targets` are the targets of training, target_shape(in).elems() in number.
template <class Loss>
GradientCheckResult gradient_check_loss(const Loss& loss, Shape in,
                                        View<const target_type_of<Loss, double>> targets,
                                        const GradientCheckOptions& options = {}) {
  return detail::LossCheck<Loss>(loss, in, targets, options).run();
}

}}}  // namespace adacc::v0_1::testing
