// SPDX-License-Identifier: MIT
/// What one codec does to one activation, as its statistics show it between two probes.
///
/// A probed error is scaled by the noise that the codec measures of itself, relative to the signal,
/// now over then. Both are sums over a sample of the tensor, one element in a thousand: of a tensor
/// with few elements the chance of what was drawn must not pass for the codec's doing. So what
/// stays within three standard errors is no change, and a check with few samples takes more from
/// the checks before, to be seen all the same if the change is large: with 8 samples a check
/// from a factor of 5 on, with 384 from 1.7 on.
#pragma once

#include <cmath>

#include "../codec/statistics.hpp"

namespace adacc { inline namespace v0_1 {

class CodecWatch {
 public:
  double failed_error = 0;  ///< the error planned for it when it failed
  bool failed = false;      ///< not to be used

  /// What the codec saw in a step.
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

  /// Its error was probed: the noise that belongs to it is what is seen next.
  void probed() { now_ = then_ = {}; }

  /// visit(name, field) for all that it remembers.
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

  /// A codec that keeps few values met others, or lost rows.
  bool misfit() const { return misfit_; }

  /// How many times the probed error there is now, beyond what chance explains.
  double scale() const {
    if (!(then_.noise > 0)) return 1;
    const double mean = now_.ratio() / then_.ratio(), last = last_ratio_ / then_.ratio();
    const double change = std::log(mean);
    const double variance = variance_of_one / then_.samples + variance_of_one / now_.samples;
    if (!(change * change > 9 * variance)) return 1;
    // One check with more noise is remembered by those that follow; they must have it, too.
    if (mean > 1) return last > mean ? mean : last > 1 ? last : 1;
    return last < mean ? mean : last < 1 ? last : 1;
  }

 private:
  /// Samples that sums over several checks tend to, if a single one has fewer.
  static constexpr double remembered = 64;
  /// Of the logarithm of noise over signal, by the delta method: the squared error of rounding,
  /// uniform over a step, has the relative variance 0.8, the square of a Laplacian value 5, of a
  /// Gaussian 2.
  static constexpr double variance_of_one = 6;

  /// Sums over samples, of which the older ones count for less.
  struct Sums {
    double noise = 0, signal = 0, samples = 0;
    double ratio() const { return noise / signal; }
  };
  Sums then_;  ///< the first since the probe; none: all zero
  Sums now_;
  double last_ratio_ = 0;  ///< of the last check alone
  bool misfit_ = false;
};

}}  // namespace adacc::v0_1
