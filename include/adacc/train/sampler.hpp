// SPDX-License-Identifier: MIT
/// The choice of a token by its logits: the likeliest, or one drawn by temperature and top-p.
///
/// Top-p, or nucleus sampling: Holtzman, Buys, Du, Forbes, Choi, arXiv 1904.09751.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/error.hpp"
#include "../core/random.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

struct Sampling {
  double temperature = 0;  ///< 0: the likeliest token, the first of several
  double top_p = 1;        ///< draws from the likeliest tokens that have this probability together
  std::uint64_t seed = 1;
};

/// Draws the same tokens from the same logits: choice i is a function of the seed and i.
class Sampler {
 public:
  explicit Sampler(const Sampling& how = {}) : how_(how) {}

  /// An error if options or logits are no such numbers.
  Result<std::int32_t> next(View<const float> logits) {
    if (!(how_.temperature >= 0) || !std::isfinite(how_.temperature) ||
        !(how_.top_p > 0 && how_.top_p <= 1))
      return Error::say(
          "tokens are drawn with a temperature of 0 or more and a top_p above 0 and up to 1");
    if (logits.empty()) return Error::misuse("a token is drawn from at least 1 logit");
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!std::isfinite(logits[i]))
        return Error::say("the logit of token ", i,
                          " is no finite number: the parameters are not those of a model");
      if (logits[i] > logits[best]) best = i;
    }
    const std::uint64_t choice = choices_++;
    if (how_.temperature == 0) return static_cast<std::int32_t>(best);
    candidates_.clear();
    double sum = 0;
    const double top = static_cast<double>(logits[best]);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double weight = std::exp((static_cast<double>(logits[i]) - top) / how_.temperature);
      if (weight == 0) continue;
      sum += weight;
      candidates_.push_back({weight, static_cast<std::int32_t>(i)});
    }
    if (how_.top_p < 1) sum = keep_likeliest(how_.top_p * sum);
    const RandomKey key{how_.seed, 0, 0, 0, Purpose::sampling};
    double left = sum * static_cast<double>(unit_float(random_word(key, choice)));
    for (const Candidate& candidate : candidates_) {
      left -= candidate.weight;
      if (left < 0) return candidate.token;
    }
    return candidates_.back().token;
  }

 private:
  struct Candidate {
    double weight;
    std::int32_t token;
    /// A heap's order: the likeliest comes first, of like ones the first token.
    bool operator<(const Candidate& other) const {
      return weight != other.weight ? weight < other.weight : token > other.token;
    }
  };

  /// Keeps the fewest likeliest candidates with weights of `enough` together; the sum of these weights.
  double keep_likeliest(double enough) {
    std::make_heap(candidates_.begin(), candidates_.end());
    auto rest = candidates_.end();
    double sum = 0;
    while (rest != candidates_.begin() && sum < enough) {
      std::pop_heap(candidates_.begin(), rest);
      sum += (--rest)->weight;
    }
    candidates_.erase(candidates_.begin(), rest);
    std::reverse(candidates_.begin(), candidates_.end());
    return sum;
  }

  Sampling how_;
  std::uint64_t choices_ = 0;
  std::vector<Candidate> candidates_;
};

}}  // namespace adacc::v0_1
