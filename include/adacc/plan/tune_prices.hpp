/// The prices of bytes and of error at which the bound for all plans is highest.
#pragma once

#include <cstddef>

#include "prefix.hpp"

namespace adacc::inline v0_1::detail {

struct TunedPrices {
  Prices prices;
  std::size_t row = 0;          ///< the segment whose need is priced
  double bound = -unreachable;  ///< for the seconds of every plan, beyond the chain's base
};

/// Maximizes the dual function, which is concave: bisection for the price of a byte inside one for
/// the price of error. The price goes up where the shortest path uses too much. Bytes are priced in
/// one row, that of the segment where it bounds most: often the last one with large gradients.
class PriceTuner {
 public:
  /// `relaxed(prices)` gives values per cost class below patterns that are not listed; may be
  /// empty.
  PriceTuner(const Chain& chain, double budget, double tolerance)
      : priced_(chain), segments_(chain.size()), budget_(budget), tolerance_(tolerance) {
    // A price at which a whole step's time buys a thousandth of the budget is high enough.
    highest_byte_ = 1e3 * chain.base_seconds / budget;
    highest_error_ = 1e3 * chain.base_seconds / (tolerance > 1e-6 ? tolerance : 1e-6);
  }

  template <class Relaxed>
  TunedPrices run(const Relaxed& relaxed) {
    // Averages over many segments leave little to the choice of a row.
    const std::size_t rows_tried = segments_ < 500 ? 8 : 4;
    TunedPrices best;
    for (std::size_t i = 0; i < rows_tried && i < segments_; ++i) {
      row_ = segments_ - 1 - i;
      tune_byte(0, best, relaxed);
    }
    row_ = best.row;
    PricedPath path = tune_byte(0, best, relaxed);
    if (path.error <= tolerance_) return best;
    double low = highest_error_ * 1e-9, high = highest_error_;
    for (int i = 0; i < 24 && high > low * 1.02; ++i) {
      const double price = middle(low, high);
      path = tune_byte(price, best, relaxed);
      (path.error > tolerance_ ? low : high) = price;
    }
    return best;
  }

 private:
  template <class Relaxed>
  PricedPath tune_byte(double error_price, TunedPrices& best, const Relaxed& relaxed) {
    PricedPath path = evaluate({0, error_price}, best, relaxed);
    if (path.bytes <= budget_) return path;
    double low = highest_byte_ * 1e-7, high = highest_byte_;
    if (near_ > 0) {  // the last one's neighbourhood first
      if (evaluate({near_ / 2, error_price}, best, relaxed).bytes > budget_) low = near_ / 2;
      if (evaluate({near_ * 2, error_price}, best, relaxed).bytes <= budget_) high = near_ * 2;
    }
    for (int i = 0; i < 32 && high > low * 1.01; ++i) {
      const double price = middle(low, high);
      const PricedPath tried = evaluate({price, error_price}, best, relaxed);
      if (tried.bytes > budget_) {
        low = price;
      } else {
        high = price;
        path = tried;
      }
    }
    near_ = high;
    return path;
  }

  template <class Relaxed>
  PricedPath evaluate(Prices prices, TunedPrices& best, const Relaxed& relaxed) {
    priced_.set(prices, row_, relaxed(prices));
    const PricedPath path = priced_.path();
    const double bound = path.length - prices.byte * budget_ - prices.error * tolerance_;
    if (path.length < unreachable && bound > best.bound) best = {prices, row_, bound};
    return path;
  }

  /// The geometric mean, near enough, without <cmath>.
  static double middle(double low, double high) {
    double root = low < high / 16 ? low * 4 : (low + high) / 2;
    for (int i = 0; i < 40; ++i) root = (root + low * high / root) / 2;
    return root;
  }

  PricedMoves priced_;
  std::size_t segments_;
  std::size_t row_ = 0;
  double budget_;
  double tolerance_;
  double highest_byte_ = 0, highest_error_ = 0;
  double near_ = 0;
};

}  // namespace adacc::inline v0_1::detail
