/// What one codec does to one activation, as its statistics show it between two probes.
///
/// A probed error is scaled by the noise that the codec measures of itself, relative to the signal,
/// now over then. Both are sums over samples: a tensor with few rows gives few, and their noise
/// must not pass for the codec's.
#pragma once

#include <cstdint>

#include "../codec/statistics.hpp"

namespace adacc::inline v0_1 {

class CodecWatch {
 public:
  double failed_error = 0;  ///< the error planned for it when it failed
  bool failed = false;      ///< not to be used

  /// What the codec saw in a step.
  void observe(const CodecStatistics& seen) {
    misfit_ = seen.samples == 0 && seen.unplaced > 0;
    const double noise = seen.bulk_noise, signal = seen.bulk_signal;
    if (!(signal > 0 && signal < 1e9 && noise >= 0 && noise < 1e9)) return;
    now_ = {noise / signal, seen.samples};
    if (at_probe_.ratio <= 0) at_probe_ = now_;
  }

  /// The noise seen last is the one that belongs to the error; none seen: what is seen next.
  void probed() { at_probe_ = now_; }
  /// The codec was not in use: what was seen of it, if ever, was long ago.
  void forget() { now_ = {}; }

  /// A codec that keeps few values met others.
  bool misfit() const { return misfit_; }

  /// How many times the probed error there is now.
  double scale() const { return at_probe_.ratio > 0 ? now_.ratio / at_probe_.ratio : 1; }

 private:
  struct Noise {
    double ratio = 0;  ///< bulk noise over bulk signal; 0: not seen
    std::uint64_t samples = 0;
  };
  Noise at_probe_, now_;
  bool misfit_ = false;
};

}  // namespace adacc::inline v0_1
