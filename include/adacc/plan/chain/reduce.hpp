// SPDX-License-Identifier: MIT
/// Leaves out the arcs that no plan close to the bound takes.
///
/// The reduced cost of an arc is the length by which the shortest path through the arc exceeds the
/// shortest path. Under prices, every plan with the arc is at least as slow as the bound plus the reduced
/// cost. So leaving out arcs beyond a limit loses only plans slower than the limit, and a search over the
/// few remaining arcs, under bounds for these alone, is many times faster.
#pragma once

#include <cstddef>

#include "../tuning.hpp"
#include "prices.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class ChainReducer {
 public:
  /// `chain` must outlive the reducer.
  [[gnu::noinline]] ChainReducer(const Chain& chain, const Prices& prices,
                                 const ChainTuning& tuning)
      : chain_(chain), tuning_(tuning), priced_(chain) {
    priced_.set(prices);
    const Array<double> ahead = priced_.ahead(), behind = priced_.behind();
    shortest_ = behind[0];
    Array<std::size_t> known(chain.arcs.size());  // by class: the group plus 1
    for (std::size_t j = 0; j < chain.size(); ++j) {
      std::size_t late = 0;
      std::size_t& group = j + most_rows >= chain.size() ? late : known[chain.classes[j]];
      if (group == 0) {
        members_.push_back(j);
        group = members_.size();
        around_.resize(group * states * states);
        for (std::size_t i = around_.size() - states * states; i < around_.size(); ++i)
          around_[i] = infinite;
      }
      group_of_.push_back(group - 1);
      double* around = around_.data() + (group - 1) * states * states;
      for (std::size_t to = 0; to < states; ++to)
        for (std::size_t from = 0; from < states; ++from)
          lower(around[to * states + from],
                ahead[j * states + from] + behind[(j + 1) * states + to]);
    }
  }

  /// The chain with only the arcs of reduced cost `reach` or less, about `most_arcs` per segment at most.
  /// Plans with a missing arc are longer than the shortest path by `left_out` or more.
  [[gnu::noinline]] Chain reduce(double reach, std::size_t most_arcs, double& left_out) const {
    const double most = limit(reach, most_arcs);
    left_out = infinite;
    Chain out;
    out.base_seconds = chain_.base_seconds;
    out.used_states = chain_.used_states;
    out.classes = group_of_;
    out.structures = chain_.structures;
    for (std::size_t g = 0; g < members_.size(); ++g) {
      const ArcSet& all = chain_.arcs_of(members_[g]);
      ArcSet arcs;
      arcs.complete = all.complete;
      arcs.loose = all.loose;
      for (std::size_t pair = 0; pair + 1 < all.first.size(); ++pair) {
        arcs.first.push_back(arcs.arcs.size());
        for (std::size_t i = all.first[pair]; i < all.first[pair + 1]; ++i) {
          const double cost = reduced(g, pair, all.arcs[i]);
          if (cost <= most) arcs.arcs.push_back(all.arcs[i]);
          else lower(left_out, cost);
        }
      }
      arcs.first.push_back(arcs.arcs.size());
      out.arcs.push_back(static_cast<ArcSet&&>(arcs));
    }
    return out;
  }

 private:
  double reduced(std::size_t group, std::size_t pair, const Arc& arc) const {
    const double around = around_[group * states * states + pair];
    return around >= infinite ? infinite
                              : around + priced_.length(members_[group], arc) - shortest_;
  }

  /// The reduced cost below which sampled groups have about `most_arcs` arcs per segment; at most `reach`.
  double limit(double reach, std::size_t most_arcs) const {
    const std::size_t end = members_.size();
    const std::size_t stride = (end + tuning_.groups_sampled - 1) / tuning_.groups_sampled;
    std::size_t left = 0;
    Array<double> costs;
    for (std::size_t g = 0; g < end; g += stride) {
      left += most_arcs;
      const ArcSet& all = chain_.arcs_of(members_[g]);
      for (std::size_t pair = 0; pair + 1 < all.first.size(); ++pair)
        for (std::size_t i = all.first[pair]; i < all.first[pair + 1]; ++i)
          if (const double cost = reduced(g, pair, all.arcs[i]); cost <= reach)
            costs.push_back(cost);
    }
    if (costs.size() <= left) return reach;
    sort(costs, [](double a, double b) { return a < b; });
    return larger(costs[left], 1e-12 * chain_.base_seconds);  // for the path's own, if rounded
  }

  const Chain& chain_;
  const ChainTuning& tuning_;
  PricedChain priced_;
  double shortest_ = 0;
  Array<std::size_t> members_;   ///< the first segment of each group priced alike
  Array<std::size_t> group_of_;  ///< by segment
  Array<double> around_;  ///< by group, to, from: the shortest path without the arc between them
};

}}}  // namespace adacc::v0_1::detail
