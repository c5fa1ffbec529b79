// SPDX-License-Identifier: MIT
/// The error of one codec at one activation, followed by statistics between two probes.
///
/// A probed error is scaled by the noise that the codec measures, relative to the signal, now over then. Both are
/// sums over a sample of the tensor, one element in a thousand: with few elements, chance must not pass for a change.
/// So a difference within three standard errors is no change, and a check with few samples adds samples of earlier
/// checks. A large change is still seen: with 8 samples by a check from a factor of 5 on, with 384 from 1.7 on.
/// from a factor of 5 on, with 384 from 1.7 on.
#pragma once

#include <cmath>

#include "../codec/statistics.hpp"

namespace adacc { inline namespace v0_1 {

class CodecWatch {
 public:
  double failed_error = 0;  ///< the planned error of the codec when it failed
  bool failed = false;      ///< not to be used

  /// The codec's statistics of a step.
  void observe(const CodecStatistics& seen) {
    misfit_ = seen.misfit();
    const double noise = seen.bulk_noise, signal = seen.bulk_signal;
    const auto samples = static_cast<double>(seen.samples);
    if (!(samples > 0 && signal > 0 && signal < 1e9 && noise >= 0 && noise < 1e9)) return;
    const double kept = samples < remembered ? 1 - samples / remembered : 0;
    now_ = {kept * now_.noise + noise, kept * now_.signal + signal, kept * now_.samples + samples};
    last_ratio_ = noise / signal;
    if (then_.samples <= 0 && now_.samples >= remembered / 2) then_ = now_;
  }

  /// The error was probed: the next noise belongs to it.
  void probed() { now_ = then_ = {}; }

  /// Calls visit(name, field) for each remembered field.
  template <class Self, class Visit>
  static void each_field(Self& self, const Visit& visit) {
    visit("failed", self.failed);
    visit("failed_error", self.failed_error);
    visit("misfit", self.misfit_);
    visit("last_ratio", self.last_ratio_);
    for (auto* sums : {&self.then_, &self.now_}) {
      visit("noise", sums->noise);
      visit("signal", sums->signal);
      visit("samples", sums->samples);
    }
  }

  /// Whether a codec for few values met others, or lost rows.
  bool misfit() const { return misfit_; }

  /// The error now over the probed error, beyond chance; 1 without a change.
  double scale() const {
    if (!(then_.noise > 0)) return 1;
    const double mean = now_.ratio() / then_.ratio(), last = last_ratio_ / then_.ratio();
    const double change = std::log(mean);
    const double variance = variance_of_one / then_.samples + variance_of_one / now_.samples;
    if (!(change * change > 9 * variance)) return 1;
    // A single check with more noise stays in the sums of later checks; these must show more noise, too.
    if (mean > 1) return last > mean ? mean : last > 1 ? last : 1;
    return last < mean ? mean : last < 1 ? last : 1;
  }

 private:
  /// Samples to which sums over several checks tend, if a single check has fewer.
  static constexpr double remembered = 64;
  /// The variance of log(noise / signal), by the delta method: the squared error of rounding, uniform over a step,
  /// has the relative variance 0.8, the square of a Laplacian value 5, of a Gaussian 2.
  static constexpr double variance_of_one = 6;

  /// Sums over samples; older samples count for less.
  struct Sums {
    double noise = 0, signal = 0, samples = 0;
    double ratio() const { return noise / signal; }
  };
  Sums then_;  ///< the first sums since the probe; all zero if none
  Sums now_;
  double last_ratio_ = 0;  ///< in the last check only
  bool misfit_ = false;
};

}}  // namespace adacc::v0_1
