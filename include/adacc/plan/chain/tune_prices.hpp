/// The prices of bytes and of error at which the bound for all plans is highest.
///
/// The dual function is concave, and each shortest path gives a plane above it: what that path
/// costs at other prices. The next prices tried are those where the lowest of the planes known so
/// far is highest, until that is little more than the best bound found (Kelley's cutting planes).
/// Two prices need some ten to twenty paths.
#pragma once

#include <cstddef>

#include "priced_moves.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

struct TunedPrices {
  Prices prices;
  std::size_t row = 0;          ///< the segment whose need is priced
  double bound = -unreachable;  ///< for the seconds of every plan, beyond the chain's base
};

/// The lowest of some planes over two prices, each between 0 and a limit.
class PricePlanes {
 public:
  struct Top {
    Prices prices;
    double value = -unreachable;
    double error_slope = 0;  ///< of the best value as a function of the price of error
  };

  PricePlanes(double highest_byte, double highest_error)
      : highest_byte_(highest_byte), highest_error_(highest_error) {}

  void clear() { planes_.clear(); }
  void add(double value, double byte_slope, double error_slope) {
    planes_.push_back({value, byte_slope, error_slope});
  }

  /// Where it is highest.
  Top top() const {
    Top low = top_at(0), high = top_at(highest_error_);
    if (low.error_slope <= 0) return low;
    if (high.error_slope >= 0) return high;
    Top best = low.value > high.value ? low : high;
    for (int i = 0; i < most_steps_; ++i) {
      const double from = low.prices.error, to = high.prices.error;
      const double cut = (high.value - low.value + low.error_slope * from - high.error_slope * to) /
                         (low.error_slope - high.error_slope);
      if (!(cut > from && cut < to)) break;
      const Top middle = top_at(cut);
      if (middle.value > best.value) best = middle;
      if (middle.value >= low.value + low.error_slope * (cut - from) - rounding(middle.value))
        break;
      if (middle.error_slope == 0) break;
      (middle.error_slope > 0 ? low : high) = middle;
    }
    return best;
  }

 private:
  struct Plane {
    double value = 0, byte = 0, error = 0;
  };

  static constexpr int most_steps_ = 60;

  static double rounding(double value) { return 1e-12 * (value > 0 ? value : -value); }

  /// Where it is highest at one price of error.
  Top top_at(double error) const {
    const auto lowest = [&](double byte, bool rising) {
      std::size_t best = 0;
      double least = unreachable;
      for (std::size_t i = 0; i < planes_.size(); ++i) {
        const double value = planes_[i].value + byte * planes_[i].byte + error * planes_[i].error;
        // Of planes that meet here, the one that bounds what lies ahead.
        if (value < least || (value == least && (planes_[i].byte < planes_[best].byte) == rising))
          least = value, best = i;
      }
      return best;
    };
    const auto at = [&](std::size_t i, double byte) {
      return planes_[i].value + byte * planes_[i].byte + error * planes_[i].error;
    };
    std::size_t left = lowest(0, true), right = lowest(highest_byte_, false);
    if (planes_[left].byte <= 0) return {{0, error}, at(left, 0), planes_[left].error};
    if (planes_[right].byte >= 0)
      return {{highest_byte_, error}, at(right, highest_byte_), planes_[right].error};
    double cut = 0;
    for (int i = 0; i < most_steps_; ++i) {
      cut = (at(right, 0) - at(left, 0)) / (planes_[left].byte - planes_[right].byte);
      const std::size_t middle = lowest(cut, true);
      if (middle == left || middle == right ||
          at(middle, cut) >= at(left, cut) - rounding(at(left, cut)))
        break;
      (planes_[middle].byte > 0 ? left : right) = middle;
    }
    const double share = planes_[left].byte / (planes_[left].byte - planes_[right].byte);
    return {{cut, error},
            at(left, cut),
            planes_[left].error + share * (planes_[right].error - planes_[left].error)};
  }

  double highest_byte_, highest_error_;
  Array<Plane> planes_;
};

/// Bytes are priced in one row, that of the segment where it bounds most: often the last one with
/// large gradients.
class PriceTuner {
 public:
  PriceTuner(const Chain& chain, double budget, double tolerance)
      : priced_(chain), segments_(chain.size()), base_(chain.base_seconds), budget_(budget),
        tolerance_(tolerance),
        // A price at which a whole step's time buys a thousandth of a limit is high enough.
        planes_(1e3 * chain.base_seconds / budget,
                1e3 * chain.base_seconds / (tolerance > 1e-6 ? tolerance : 1e-6)) {}

  /// `relaxed(prices)` gives values per cost class below patterns that are not listed; may be
  /// empty.
  template <class Relaxed>
  TunedPrices run(const Relaxed& relaxed) {
    constexpr std::size_t rows_tried = 8;
    TunedPrices best;
    tune(segments_ - 1, best, relaxed);
    const Prices prices = best.prices;
    const std::size_t tuned = best.row;
    for (std::size_t i = 1; i < rows_tried && i < segments_; ++i)
      evaluate(prices, segments_ - 1 - i, best, relaxed);
    if (best.row != tuned) tune(best.row, best, relaxed);
    return best;
  }

 private:
  template <class Relaxed>
  void tune(std::size_t row, TunedPrices& best, const Relaxed& relaxed) {
    constexpr int most_paths = 48;
    planes_.clear();
    TunedPrices mine;
    Prices next = best.prices;
    for (int i = 0; i < most_paths; ++i) {
      const PricedPath path = evaluate(next, row, mine, relaxed);
      if (path.length >= unreachable) break;
      if (i == 0 && next.byte + next.error > 0) evaluate({}, row, mine, relaxed);
      const PricePlanes::Top top = planes_.top();
      if (top.value - mine.bound <= 2e-5 * base_) break;
      next = top.prices;
    }
    if (mine.bound > best.bound) best = mine;
  }

  template <class Relaxed>
  PricedPath evaluate(Prices prices, std::size_t row, TunedPrices& best, const Relaxed& relaxed) {
    priced_.set(prices, row, relaxed(prices));
    const PricedPath path = priced_.path();
    const double bound = path.length - prices.byte * budget_ - prices.error * tolerance_;
    if (path.length >= unreachable) return path;
    if (bound > best.bound) best = {prices, row, bound};
    planes_.add(path.length - prices.byte * path.bytes - prices.error * path.error,
                path.bytes - budget_, path.error - tolerance_);
    return path;
  }

  PricedMoves priced_;
  std::size_t segments_;
  double base_;
  double budget_;
  double tolerance_;
  PricePlanes planes_;
};

}}}  // namespace adacc::v0_1::detail
