// SPDX-License-Identifier: MIT
/// Targets that are numbers of classes (token ids): which of them count in a loss, and which are mistakes.
///
/// A loss over classes is the mean over counted targets. A target of -100 is ignored: its row adds nothing to the loss,
/// and its gradient is zeros. A batch is often cut into micro-batches, shards or parts, and each has another number of
/// counted targets: the mean of their means would weigh targets unequally. Trainers therefore divide the losses of each
/// piece by the number of all its targets, which is the same for all pieces, add up, and divide by the counted share
/// at the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/error.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// The target of a row without one: padding, or a prompt that is not to be learned.
inline constexpr std::int32_t ignored_target = -100;

/// The targets of a batch.
struct TargetCount {
  std::size_t counted = 0;  ///< not ignored
  std::size_t all = 0;

  /// Divides losses and gradients summed over `batches` equal micro-batches, each divided by all its targets: their
  /// number, if all targets count.
  constexpr double weight(std::size_t batches) const {
    return static_cast<double>(counted) / (static_cast<double>(all) / static_cast<double>(batches));
  }
  /// `loss`, divided by all targets, divided by the counted ones instead; 0 if none counted.
  constexpr double mean(double loss) const { return counted == 0 ? 0 : loss / weight(1); }

  friend constexpr TargetCount operator+(const TargetCount& a, const TargetCount& b) {
    return {a.counted + b.counted, a.all + b.all};
  }
  friend constexpr bool operator==(const TargetCount&, const TargetCount&) = default;
};

constexpr TargetCount count_targets(View<const std::int32_t> targets) {
  TargetCount count{0, targets.size()};
  for (const std::int32_t target : targets)
    if (target != ignored_target) ++count.counted;
  return count;
}

namespace detail {

/// The error of target `id`, number `at` of targets of shape `shape`, of a loss over `classes` classes.
inline Error target_error(const char* loss, std::int64_t id, std::size_t at, Shape shape,
                          std::size_t classes) {
  const std::size_t length = shape.rank() < 2 ? shape.elems() : shape.cols();
  return Error::say(loss, ": target ", id, " at position ", at % length, " of row ", at / length,
                    " is no class from 0 to ", classes - 1, ", and not ignored (-100)");
}

/// The error of the first target that is neither a class nor ignored, if there is one.
inline Error check_targets(const char* loss, View<const std::int32_t> targets,
                           std::size_t classes) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::int32_t id = targets[i];
    if (id == ignored_target || (id >= 0 && static_cast<std::size_t>(id) < classes)) continue;
    return target_error(loss, id, i, targets.shape(), classes);
  }
  return {};
}

/// The divisor of a loss's sum over the rows of `call`: the runner's, or else the number of counted targets.
template <class Call>
constexpr std::size_t loss_divisor(const Call& call) {
  if (call.divisor != 0) return call.divisor;
  if (call.part.whole != 0) return call.part.whole;
  const std::size_t counted = count_targets(call.targets).counted;
  return counted == 0 ? 1 : counted;
}

}  // namespace detail

}}  // namespace adacc::v0_1
