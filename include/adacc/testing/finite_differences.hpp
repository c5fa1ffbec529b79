// SPDX-License-Identifier: MIT
/// Gradients compared with central finite differences, for several step sizes.
///
/// A large step has truncation error, a small one rounding error, and the better one depends on the element. Each
/// element is judged by the step that agrees best, so that neither error decides; a wrong gradient agrees with none.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "../core/error.hpp"
#include "../core/number_text.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

struct GradientCheckOptions {
  /// The largest relative error |analytic - numeric| / max(|analytic|, |numeric|, floor).
  double tolerance = 1e-6;
  /// Gradients smaller than this are compared absolutely, to tolerance * floor.
  double floor = 1e-3;
  /// Steps of the differences, relative to max(1, |element|).
  std::vector<double> steps = {1e-3, 1e-4, 1e-5, 1e-6};
  /// Elements compared per tensor, spread evenly.
  std::size_t max_elements = 400;
  /// Leaves out elements whose slopes to the left and to the right differ (ReLU at 0).
  bool skip_kinks = false;
  /// Workers of the context whose bits are compared with a serial one's.
  int workers = 3;
  /// Selects all random numbers.
  std::uint64_t seed = 1;
  double input_scale = 1;        ///< standard deviation of the random input
  double parameter_scale = 0.5;  ///< standard deviation of the random parameters
  /// Random tokens are below this; 0: the layer's member `vocab`, or else 2.
  std::size_t vocab = 0;
  View<const double> x{};              ///< the input, instead of a random one
  View<const std::int32_t> tokens{};   ///< the input of layers that take tokens
  View<const std::int32_t> lengths{};  ///< real lengths of sequences (KernelCall::lengths)
};

struct GradientCheckResult {
  bool passed = true;
  Error failure;                  ///< the first fault
  double max_relative_error = 0;  ///< over all compared elements
  const char* tensor = "";        ///< the worst element's: "dx" or the parameter's name,
  std::size_t element = 0;        ///< number in the tensor,
  double analytic = 0;            ///< the layer's gradient there,
  double numeric = 0;             ///< and the best finite difference
  std::size_t compared = 0;       ///< elements compared
  std::size_t excluded = 0;       ///< elements left out at kinks
  std::string summary;

  explicit operator bool() const { return passed; }

  /// One readable sentence, for a test's message.
  const char* text() const { return summary.c_str(); }
};

namespace detail {

inline void summarize(GradientCheckResult& result) {
  std::string& text = result.summary;
  text = std::string(result.passed ? "passed" : "failed: ") + result.failure.text() + "; " +
         std::to_string(result.compared) + " gradients compared";
  if (result.excluded > 0) text += ", " + std::to_string(result.excluded) + " at kinks left out";
  if (result.compared > 0)
    text += std::string(", worst relative error ") +
            NumberText::significant(result.max_relative_error, 3).c_str() + " at " + result.tensor +
            "[" + std::to_string(result.element) + "]: analytic " +
            NumberText::significant(result.analytic, 12).c_str() + ", numeric " +
            NumberText::significant(result.numeric, 12).c_str();
}

/// The best agreement at one element.
struct Difference {
  double error = std::numeric_limits<double>::infinity();
  double numeric = std::numeric_limits<double>::quiet_NaN();
  bool kink = false;
};

/// `objective()` is the objective's change from its value at the unchanged values.
template <class Objective>
Difference best_difference(double& value, double analytic, const GradientCheckOptions& options,
                           const Objective& objective) {
  Difference best;
  const double kept = value;
  const double unit = std::fabs(kept) > 1 ? std::fabs(kept) : 1;
  for (const double step : options.steps) {
    const volatile double above = kept + step * unit, below = kept - step * unit;
    value = above;
    const double up = objective();
    value = below;
    const double down = objective();
    value = kept;
    const double numeric = (up - down) / (above - below);
    const double right = up / (above - kept), left = down / (below - kept);
    double scale = options.floor;
    if (std::fabs(analytic) > scale) scale = std::fabs(analytic);
    if (std::fabs(numeric) > scale) scale = std::fabs(numeric);
    const double error = std::fabs(analytic - numeric) / scale;
    if (error < best.error) best.error = error, best.numeric = numeric;
    // A smooth function's slopes approach each other with the step; a kink's do not. The steps
    // get smaller, so the last one decides.
    best.kink = std::fabs(right - left) > 1e-2 * (std::fabs(right) + std::fabs(left)) + 1e-4;
  }
  return best;
}

/// Compares `analytic` with differences of the objective in `values`, which are changed and restored.
template <class Objective>
void compare_with_differences(GradientCheckResult& result, const GradientCheckOptions& options,
                              const char* tensor, double* values, const double* analytic,
                              std::size_t size, const Objective& objective) {
  const std::size_t count = size < options.max_elements ? size : options.max_elements;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t element =
        count == size
            ? i
            : static_cast<std::size_t>(static_cast<double>(i) * static_cast<double>(size) /
                                       static_cast<double>(count));
    const Difference found =
        best_difference(values[element], analytic[element], options, objective);
    if (options.skip_kinks && found.kink) {
      ++result.excluded;
      continue;
    }
    ++result.compared;
    // An error of NaN is the worst.
    if (result.compared == 1 || !(found.error <= result.max_relative_error)) {
      result.max_relative_error = found.error;
      result.tensor = tensor;
      result.element = element;
      result.analytic = analytic[element];
      result.numeric = found.numeric;
    }
    if (!(found.error <= options.tolerance) && result.passed) {
      result.passed = false;
      result.failure = Error::say("the gradient of ", tensor, " disagrees with finite differences");
    }
  }
}

}  // namespace detail

}}}  // namespace adacc::v0_1::testing
