// SPDX-License-Identifier: MIT
/// The prices of bytes and of error at which the bound for all plans is highest.
///
/// The dual function is concave, and each shortest path gives a plane above it: the cost of the path at
/// other prices. The lowest of the known planes is highest at the next prices to try. The end is reached
/// when that height is little more than the best bound found (Kelley's cutting planes). Two prices
/// need some ten to twenty paths.
#pragma once

#include <cstddef>

#include "../../core/clock.hpp"
#include "../tuning.hpp"
#include "prices.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct TunedPrices {
  Prices prices;
  double bound = -infinite;  ///< for the seconds of every plan, beyond the chain's base
};

/// The lowest of some planes over two prices, each between 0 and a limit.
class PricePlanes {
 public:
  struct Top {
    double byte = 0, error = 0;  ///< the prices
    double value = -infinite;
    double error_slope = 0;  ///< how the best value grows with the price of error
  };

  PricePlanes(double highest_byte, double highest_error)
      : highest_byte_(highest_byte), highest_error_(highest_error) {}

  void clear() { planes_.clear(); }
  void add(double value, double byte_slope, double error_slope) {
    planes_.push_back({value, byte_slope, error_slope});
  }

  /// The point where the lowest plane is highest.
  Top top() const {
    Top low = top_at(0), high = top_at(highest_error_);
    if (low.error_slope <= 0) return low;
    if (high.error_slope >= 0) return high;
    Top best = low.value > high.value ? low : high;
    for (int i = 0; i < ChainTuning::most_cuts; ++i) {
      const double from = low.error, to = high.error;
      const double cut = (high.value - low.value + low.error_slope * from - high.error_slope * to) /
                         (low.error_slope - high.error_slope);
      if (!(cut > from && cut < to)) break;
      const Top middle = top_at(cut);
      if (middle.value > best.value) best = middle;
      if (middle.value >= low.value + low.error_slope * (cut - from) - rounding(middle.value) ||
          middle.error_slope == 0)
        break;
      (middle.error_slope > 0 ? low : high) = middle;
    }
    return best;
  }

 private:
  struct Plane {
    double value = 0, byte = 0, error = 0;

    double at(double byte_price, double error_price) const {
      return value + byte_price * byte + error_price * error;
    }
  };

  static double rounding(double value) { return 1e-12 * (value > 0 ? value : -value); }

  /// The lowest plane at these prices; of several, the one lowest at higher (`rising`) or lower prices of a byte.
  [[gnu::noinline]] const Plane& lowest(double byte, double error, bool rising) const {
    const Plane* best = nullptr;
    double least = 0;
    for (const Plane& plane : planes_) {
      const double value = plane.at(byte, error);
      if (best != nullptr &&
          !(value < least || (value == least && (plane.byte < best->byte) == rising)))
        continue;
      least = value, best = &plane;
    }
    return *best;
  }

  /// The point where the lowest plane is highest at one price of error.
  [[gnu::noinline]] Top top_at(double error) const {
    const Plane *left = &lowest(0, error, true), *right = &lowest(highest_byte_, error, false);
    if (left->byte <= 0) return {0, error, left->at(0, error), left->error};
    if (right->byte >= 0)
      return {highest_byte_, error, right->at(highest_byte_, error), right->error};
    double cut = 0;
    for (int i = 0; i < ChainTuning::most_cuts; ++i) {
      cut = (right->at(0, error) - left->at(0, error)) / (left->byte - right->byte);
      const Plane* middle = &lowest(cut, error, true);
      if (middle->at(cut, error) >= left->at(cut, error) - rounding(left->at(cut, error))) break;
      (middle->byte > 0 ? left : right) = middle;
    }
    const double share = left->byte / (left->byte - right->byte);
    return {cut, error, left->at(cut, error), left->error + share * (right->error - left->error)};
  }

  double highest_byte_, highest_error_;
  Array<Plane> planes_;
};

/// Bytes are priced in one row, for the segment where this gives the highest bound: often the last segment
/// with large gradients.
class PriceTuner {
 public:
  /// If time is up, the best prices so far are the result.
  PriceTuner(const Chain& chain, double budget, double tolerance, const ChainTuning& tuning,
             PacerRef time = {})
      : chain_(chain), tuning_(tuning), priced_(chain), budget_(budget), tolerance_(tolerance),
        time_(time), work_a_path_(work_a_path(chain)),
        // A price at which a whole step's time buys a thousandth of a limit is high enough.
        planes_(1e3 * chain.base_seconds / budget,
                1e3 * chain.base_seconds / larger(tolerance, 1e-6)) {}

  [[gnu::noinline]] TunedPrices run() {
    std::size_t tuned = 0;
    tune(tuned);
    const TunedPrices first = best_;
    std::size_t best = tuned;
    for (std::size_t row = 1;
         row < tuning_.rows_tried && row < chain_.size() && !time_.spend(work_a_path_); ++row) {
      const double before = best_.bound;
      static_cast<void>(evaluate(first.prices.byte(), first.prices.error, row));
      if (best_.bound > before) best = row;
    }
    if (best != tuned) tune(best);
    return best_;
  }

 private:
  static std::size_t work_a_path(const Chain& chain) {
    std::size_t work = 10 * chain.size();
    for (const ArcSet& arcs : chain.arcs) work += arcs.storing.size();
    return work;
  }

  void tune(std::size_t row) {
    planes_.clear();
    double byte = best_.prices.byte(), error = best_.prices.error, highest = -infinite;
    for (int i = 0; i < tuning_.most_paths && !time_.spend(work_a_path_); ++i) {
      const double bound = evaluate(byte, error, row);
      if (bound >= infinite / 2) break;
      raise(highest, bound);
      if (i == 0 && byte + error > 0) raise(highest, evaluate(0, 0, row));
      const PricePlanes::Top top = planes_.top();
      if (top.value - highest <= tuning_.price_tolerance * chain_.base_seconds) break;
      byte = top.byte, error = top.error;
    }
  }

  /// The bound at these prices.
  double evaluate(double byte, double error, std::size_t row) {
    Prices prices;
    prices.error = error;
    prices.rows[row] = byte;
    priced_.set(prices);
    const Array<double> ahead = priced_.ahead();
    const Array<const Arc*> path = priced_.path(ahead);
    if (path.empty()) return infinite;
    double bytes = 0, errors = 0;
    for (std::size_t j = 0; j < path.size() - row; ++j)
      bytes += j + 1 + row < path.size() ? static_cast<double>(path[j]->bytes.stored)
                                         : chain_.need(j, *path[j]);
    for (const Arc* arc : path) errors += arc->error;
    const double length = ahead[chain_.size() * states];
    const double bound = length - byte * budget_ - error * tolerance_;
    if (bound > best_.bound) best_ = {prices, bound};
    planes_.add(length - byte * bytes - error * errors, bytes - budget_, errors - tolerance_);
    return bound;
  }

  const Chain& chain_;
  const ChainTuning& tuning_;
  PricedChain priced_;
  double budget_, tolerance_;
  PacerRef time_;
  std::size_t work_a_path_;
  TunedPrices best_;
  PricePlanes planes_;
};

}}}  // namespace adacc::v0_1::detail
