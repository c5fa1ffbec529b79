// SPDX-License-Identifier: MIT
/// Shortest paths through a chain under prices for bytes and error.
///
/// With prices (Lagrange multipliers), budget and tolerance leave the constraints and join the objective.
/// A shortest path over boundary states remains. At any prices of 0 or more, the path's length, less the
/// priced limits, bounds the time of every plan from below.
#pragma once

#include <cstddef>

#include "../../core/clock.hpp"
#include "../tuning.hpp"
#include "arcs.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The number of last segments, where most is stored, whose needs may be priced one by one.
inline constexpr std::size_t most_rows = ChainTuning::most_rows;

/// Prices in seconds. A byte is priced in rows. Row i is a limit: the i-th segment from the end needs some
/// bytes, the segments before store others, and both together shall fit into the budget.
struct Prices {
  double error = 0;  ///< per unit of relative squared gradient error
  double rows[most_rows] = {};

  double byte() const {
    double sum = 0;
    for (const double row : rows) sum += row;
    return sum;
  }
};

/// For every segment and pair of states, the best arc under some prices.
class PricedChain {
 public:
  struct Best {
    double length = infinite;
    const Arc* arc = nullptr;
  };

  explicit PricedChain(const Chain& chain)
      : chain_(chain), rows_(chain.size() < most_rows ? chain.size() : most_rows),
        table_((chain.arcs.size() + rows_) * pairs), loose_(chain.arcs.size() + rows_) {}

  void set(const Prices& prices) {
    prices_ = prices;
    double total = 0;
    for (std::size_t i = 0; i < rows_; ++i) total += prices.rows[i];
    for (std::size_t c = 0; c < chain_.arcs.size(); ++c) price(c, chain_.arcs[c], total, 0, 0);
    double after = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      stored_[i] = after;
      own_[i] = after < total;
      if (own_[i])
        price(chain_.arcs.size() + i, chain_.arcs_of(chain_.size() - 1 - i), after, prices.rows[i],
              chain_.size() - 1 - i);
      after += prices.rows[i];
    }
  }

  const Chain& chain() const { return chain_; }
  const Prices& prices() const { return prices_; }

  /// Whether rows of the last segments make the prices of `segment` differ from its class's.
  bool is_late(std::size_t segment) const {
    const std::size_t i = chain_.size() - 1 - segment;
    return i < rows_ && own_[i];
  }

  const Best& best(std::size_t segment, std::size_t from, std::size_t to) const {
    const std::size_t set = is_late(segment) ? chain_.arcs.size() + chain_.size() - 1 - segment
                                             : chain_.classes[segment];
    return table_[set * pairs + to * states + from];
  }

  double length(std::size_t segment, const Arc& arc) const {
    const auto stored = static_cast<double>(arc.bytes.stored);
    const double length = arc.seconds + prices_.error * arc.error;
    if (!is_late(segment)) return length + prices_.byte() * stored;
    const std::size_t i = chain_.size() - 1 - segment;
    return length + stored_[i] * stored + prices_.rows[i] * chain_.need(segment, arc);
  }

  /// Lengths of the shortest paths from the front to every state at every boundary, at
  /// [boundary * states + state]. Boundary j lies before segment j.
  Array<double> ahead() const {
    Array<double> lengths((chain_.size() + 1) * states);
    for (double& length : lengths) length = infinite;
    lengths[0] = 0;
    for (std::size_t j = 0; j < chain_.size(); ++j)
      for (std::size_t to = 0; to < chain_.used_states; ++to)
        for (std::size_t from = 0; from < chain_.used_states; ++from)
          lower(lengths[(j + 1) * states + to],
                lengths[j * states + from] + best(j, from, to).length);
    return lengths;
  }

  /// Lengths of the shortest paths from every state at every boundary to the end, indexed like ahead()'s.
  Array<double> behind() const {
    const std::size_t size = chain_.size();
    Array<double> lengths((size + 1) * states);
    for (double& length : lengths) length = infinite;
    lengths[size * states] = 0;
    for (std::size_t j = size; j-- > 0;)
      for (std::size_t to = 0; to < chain_.used_states; ++to)
        for (std::size_t from = 0; from < chain_.used_states; ++from)
          lower(lengths[j * states + from],
                best(j, from, to).length + lengths[(j + 1) * states + to]);
    return lengths;
  }

  /// The arcs of the shortest path, with the lengths of ahead(); empty if there is no path.
  Array<const Arc*> path(const Array<double>& ahead) const {
    Array<const Arc*> arcs;
    if (ahead[chain_.size() * states] >= infinite) return arcs;
    arcs.resize(chain_.size());
    for (std::size_t j = chain_.size(), to = 0; j-- > 0;) {
      std::size_t from = 0;
      while (ahead[j * states + from] + best(j, from, to).length > ahead[(j + 1) * states + to])
        ++from;
      arcs[j] = best(j, from, to).arc;
      to = from;
    }
    return arcs;
  }

 private:
  /// Fills one part of the table, with prices `stored` of a stored byte and `need` of a needed one.
  void price(std::size_t set, const ArcSet& arcs, double stored, double need, std::size_t segment) {
    Best* best = table_.data() + set * pairs;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      best[pair] = {};
      if (need == 0) {
        for (std::size_t i = arcs.first_storing[pair]; i < arcs.first_storing[pair + 1]; ++i) {
          const StoringArc& arc = arcs.storing[i];
          const double length = arc.seconds + stored * arc.bytes + prices_.error * arc.error;
          if (length < best[pair].length) best[pair] = {length, arcs.arcs.data() + arc.arc};
        }
      } else {
        for (std::size_t i = arcs.first[pair]; i < arcs.first[pair + 1]; ++i) {
          const Arc& arc = arcs.arcs[i];
          const double length = arc.seconds + stored * static_cast<double>(arc.bytes.stored) +
                                need * chain_.need(segment, arc) + prices_.error * arc.error;
          if (length < best[pair].length) best[pair] = {length, &arc};
        }
      }
    }
    if (arcs.complete) return;
    // A pattern left out needs at least its stored bytes.
    const LooseOption least = arcs.least(1, stored + need, prices_.error);
    Arc& loose = loose_[set];
    loose.seconds = least.seconds;
    loose.error = least.error;
    loose.bytes.stored = loose.bytes.need = static_cast<SignedBytes>(least.bytes);
    const double length =
        least.seconds + (stored + need) * least.bytes + prices_.error * least.error;
    for (std::size_t pair = 0; pair < pairs; ++pair)
      if (length < best[pair].length) best[pair] = {length, &loose};
  }

  static constexpr std::size_t pairs = states * states;

  const Chain& chain_;
  Prices prices_;
  std::size_t rows_;
  double stored_[most_rows] =
      {};  ///< the price of a byte that the i-th segment from the end stores
  bool own_[most_rows] = {};
  Array<Best> table_;  ///< by cost class, then by row; pairs as in ArcSet
  Array<Arc> loose_;   ///< by cost class, then by row
};

/// Lower bounds for the segments before a boundary, for several weights at once: the least sum of seconds,
/// error and bytes, each times its weight. Bytes are either stored, held by a replay, or a replay's
/// peak. Peaks inside the prefix are ignored: little is stored that early, so peaks rarely bind.
class PrefixBounds {
 public:
  struct Weights {
    double second = 0, byte = 0, error = 0;
  };
  enum Kind : std::size_t { stored, held, peak };

  /// If time is up, there are no bounds.
  [[gnu::noinline]] PrefixBounds(const Chain& chain, Array<Weights> weights, PacerRef time)
      : weights_(static_cast<Array<Weights>&&>(weights)) {
    values_.resize((chain.size() + 1) * states * 3 * count());
    for (double& value : values_) value = infinite;
    for (std::size_t i = 0; i < count(); ++i) at(0, 0, stored)[i] = 0;
    Array<double> loose(count());
    for (std::size_t j = 0; j + 1 < chain.size(); ++j) {
      const ArcSet& arcs = chain.arcs_of(j);
      if (time.spend(arcs.arcs.size() * (1 + count()))) return;
      for (const Arc& arc : arcs.arcs) extend(j, arc);
      if (arcs.complete) continue;
      for (std::size_t i = 0; i < count(); ++i) {
        const Weights& weight = weights_[i];
        const LooseOption least = arcs.least(weight.second, weight.byte, weight.error);
        const double length =
            weight.second * least.seconds + weight.byte * least.bytes + weight.error * least.error;
        for (std::size_t to = 0; to < states; ++to) {
          for (std::size_t from = 0; from < states; ++from)
            lower(at(j + 1, to, stored)[i], at(j, from, stored)[i] + length);
          if (is_replay(to)) at(j + 1, to, held)[i] = at(j + 1, to, peak)[i] = -infinite;
        }
      }
    }
  }

  std::size_t count() const { return weights_.size(); }
  const Weights& weights(std::size_t i) const { return weights_[i]; }
  /// The bounds for all weights, one after the other.
  const double* values(std::size_t boundary, std::size_t state, Kind kind) const {
    return values_.data() + ((boundary * states + state) * 3 + kind) * count();
  }

 private:
  double* at(std::size_t boundary, std::size_t state, Kind kind) {
    return values_.data() + ((boundary * states + state) * 3 + kind) * count();
  }

  void extend(std::size_t j, const Arc& arc) {
    const PatternBytes& bytes = arc.bytes;
    const double* from = at(j, arc.from, stored);  // then held and peak
    double* to = at(j + 1, arc.to, stored);
    const std::size_t n = count();
    for (std::size_t i = 0; i < n; ++i) {
      if (from[i] >= infinite) continue;
      const double length = weights_[i].second * arc.seconds + weights_[i].error * arc.error;
      const auto behind = [&](double start, SignedBytes added) {
        return start + weights_[i].byte * static_cast<double>(added) + length;
      };
      lower(to[i], behind(from[i], bytes.stored));
      if (!is_replay(arc.to)) continue;
      lower(to[n + i], behind(bytes.keeps_replay ? from[n + i] : from[i], bytes.held));
      double most = behind(from[i], bytes.peak_on_stored);
      if (is_replay(arc.from)) {
        if (bytes.peak_on_held > no_bytes) raise(most, behind(from[n + i], bytes.peak_on_held));
        if (bytes.peak_on_peak > no_bytes) raise(most, behind(from[2 * n + i], bytes.peak_on_peak));
      }
      lower(to[2 * n + i], most);
    }
  }

  Array<Weights> weights_;
  Array<double> values_;
};

}}}  // namespace adacc::v0_1::detail
