/// What the patterns of a segment cost, as moves from one boundary between segments to the next.
///
/// At a boundary the activation is either at hand (stored in whatever form; how, the segment behind
/// it decides) or part of a run of recomputation. Its error then depends on the lossy codecs that
/// the run is made from, so there is one such state for each set of codecs. Moves between the same
/// two states that are no better in anything are dropped: of a transformer's half block about a
/// hundred remain.
#pragma once

#include <cstddef>

#include "../../cost/evaluate.hpp"
#include "patterns.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// One pattern between two states. State 0: at hand; state 1 + m: in a run with lossy codecs m.
struct Move {
  PatternBytes bytes;
  double seconds = 0;  ///< beyond a step that retains everything
  double error = 0;
  /// The least that it needs on top of `stored`, wherever the run it takes begins.
  double row_need = 0;
  int pattern = 0;
  std::uint8_t from = 0;
  std::uint8_t to = 0;
};

/// What counts of a move wherever its need does not.
struct StoringMove {
  double seconds = 0, bytes = 0, error = 0;
};

/// The moves of all segments of one cost class, by `to`, then `from`.
struct SegmentMoves {
  int states = 1;
  Array<Move> moves;                 ///< of each (to, from) in the order of their seconds
  Array<std::size_t> first;          ///< of (to, from), at to * states + from; one more at the end
  Array<StoringMove> storing;        ///< without those that others dominate
  Array<std::size_t> first_storing;  ///< as `first`
  /// Where patterns were left out: per activation alone, what none of them can go below.
  bool complete = true;

  struct Range {
    const Move* first;
    const Move* last;
    const Move* begin() const { return first; }
    const Move* end() const { return last; }
  };
  Range between(int from, int to) const {
    const auto at = static_cast<std::size_t>(to * states + from);
    return {moves.data() + first[at], moves.data() + first[at + 1]};
  }
  Range into(int to) const {
    const auto at = static_cast<std::size_t>(to * states);
    return {moves.data() + first[at], moves.data() + first[at + static_cast<std::size_t>(states)]};
  }

  /// Fills `storing`, once the moves are complete.
  void list_storing() {
    storing.clear();
    first_storing.clear();
    for (std::size_t at = 0; at + 1 < first.size(); ++at) {
      const std::size_t begin = storing.size();
      first_storing.push_back(begin);
      for (std::size_t i = first[at]; i < first[at + 1]; ++i) {
        const auto bytes = static_cast<double>(moves[i].bytes.stored);
        bool best = true;
        for (std::size_t k = begin; k < storing.size() && best; ++k)
          best = storing[k].bytes > bytes || storing[k].error > moves[i].error;
        if (best) storing.push_back({moves[i].seconds, bytes, moves[i].error});
      }
    }
    first_storing.push_back(storing.size());
  }
};

/// Whether `a` is at least as good as `b` in everything but time.
inline bool dominates_but_for_time(const Move& a, const Move& b) {
  if (a.error > b.error) return false;
  const PatternBytes& x = a.bytes;
  const PatternBytes& y = b.bytes;
  return x.need <= y.need && x.stored <= y.stored && x.keeps_run == y.keeps_run &&
         x.need_on_run <= y.need_on_run && x.need_on_making <= y.need_on_making && x.run <= y.run &&
         x.making_on_stored <= y.making_on_stored && x.making_on_run <= y.making_on_run &&
         x.making_on_making <= y.making_on_making;
}

/// Whether `a` is at least as good as `b` in everything that matters.
inline bool dominates(const Move& a, const Move& b) {
  return a.seconds <= b.seconds && dominates_but_for_time(a, b);
}

/// Puts seconds and errors to the patterns of a form.
class MoveMaker {
 public:
  /// `masks` tells the codecs behind a run apart; without, errors carried into a segment count as
  /// 0.
  MoveMaker(const Graph& graph, const CostProfile& profile, const LossyBits& bits, bool masks)
      : graph_(graph), profile_(profile), bits_(bits),
        masks_(masks ? std::size_t{1} << bits.count() : 1) {}

  int states() const { return 1 + static_cast<int>(masks_); }

  SegmentMoves make(const FormPatterns& form, const Segment& segment) {
    price(form, segment);
    SegmentMoves out;
    out.states = states();
    out.complete = form.complete;
    const auto states = static_cast<std::size_t>(out.states);
    Array<Array<Move>> groups(states * states);
    for (std::size_t p = 0; p < form.patterns.size(); ++p) {
      const SegmentPattern& pattern = form.patterns[p];
      Move move;
      move.bytes = pattern.bytes;
      move.pattern = static_cast<int>(p);
      for (std::size_t k = 0; k < nodes_; ++k)
        if (const Choice& choice = form.choice(pattern, k); choice.needed)
          move.seconds += options_[first_option_[k] + choice.option].seconds;
      const std::size_t outgoing = form.segment.has_output ? nodes_ - 1 : nodes_;
      for (std::size_t m = 0; m < (pattern.takes_run ? masks_ : 1); ++m) {
        move.from = static_cast<std::uint8_t>(pattern.takes_run ? 1 + m : 0);
        move.error = 0;
        for (std::size_t k = 0; k < outgoing; ++k) {
          const Choice& choice = form.choice(pattern, k);
          const Option& option = options_[first_option_[k] + choice.option];
          move.error += option.recompute ? carried_[k * 16 + behind(choice, m)] : option.error;
        }
        move.to = 0;
        if (pattern.gives_run)
          move.to = static_cast<std::uint8_t>(
              1 + (masks_ > 1 ? behind(form.choice(pattern, outgoing), m) : 0));
        groups[move.to * states + move.from].push_back(move);
      }
    }
    for (Array<Move>& group : groups) {
      out.first.push_back(out.moves.size());
      keep_best(group, out.moves);
    }
    out.first.push_back(out.moves.size());
    out.list_storing();
    return out;
  }

  /// The sum over a segment's activations of the least that seconds + error_price * error +
  /// byte_price * stored bytes can be: below every pattern, listed or not.
  double relaxed(const FormPatterns& form, const Segment& segment, double byte_price,
                 double error_price) {
    price(form, segment);
    double sum = 0;
    for (int k = segment.first > 0 ? segment.first - 1 : 0; k <= segment.last; ++k) {
      sum += byte_price *
             static_cast<double>(k < segment.first ? 0 : align_up(graph_.node(k).aux_bytes));
      const bool outgoing = k == segment.last && form.segment.has_output;
      if (outgoing || !graph_.node(k).read_in_backward) continue;
      double least = -1;
      for (const Policy& policy : policies_of(graph_, k)) {
        const bool incoming = k < segment.first && policy.recomputes();
        const double seconds = incoming ? 0 : seconds_of(graph_, profile_, k, policy);
        const double cost = seconds + error_price * error_of_option(k, policy) +
                            byte_price * static_cast<double>(stored_bytes(graph_, k, policy));
        if (least < 0 || cost < least) least = cost;
      }
      sum += least;
    }
    return sum;
  }

 private:
  struct Option {
    double seconds = 0;
    double error = 0;
    bool recompute = false;
  };

  static std::size_t behind(const Choice& choice, std::size_t incoming) {
    return choice.lossy | (choice.carries ? incoming : 0);
  }

  double error_of_option(int node, const Policy& policy) const {
    if (!policy.keeps() || policy.form().lossless() || !graph_.node(node).read_in_backward)
      return 0;
    return profile_.codec_cost(node, profile_.column(policy.codec())).error;
  }

  void price(const FormPatterns& form, const Segment& segment) {
    nodes_ = form.nodes() - (form.segment.has_output ? 1 : 0);
    const int offset = segment.first - (form.segment.has_input ? 1 : 0);
    options_.clear();
    first_option_.clear();
    carried_.clear();
    carried_.resize(nodes_ * 16);
    for (std::size_t k = 0; k < nodes_; ++k) {
      const int node = offset + static_cast<int>(k);
      const bool incoming = k == 0 && form.segment.has_input;
      first_option_.push_back(options_.size());
      for (const Policy& policy : form.options[k]) {
        Option option;
        option.recompute = policy.recomputes();
        if (!(incoming && option.recompute))  // the segment in front makes it again
          option.seconds = seconds_of(graph_, profile_, node, policy);
        option.error = error_of_option(node, policy);
        options_.push_back(option);
      }
      if (!graph_.node(node).read_in_backward) continue;
      double by_bit[LossyBits::most] = {-1, -1, -1, -1};
      for (std::size_t c = 0; c < profile_.codecs.size(); ++c) {
        const int bit = bits_.of_column(static_cast<int>(c));
        if (bit < 0) continue;
        const double error = profile_.codec_cost(node, static_cast<int>(c)).carried_error;
        if (by_bit[bit] < 0 || error < by_bit[bit]) by_bit[bit] = error;
      }
      for (std::size_t m = 0; m < 16; ++m)
        for (int bit = 0; bit < LossyBits::most; ++bit)
          if ((m >> bit & 1) != 0 && by_bit[bit] > 0) carried_[k * 16 + m] += by_bit[bit];
    }
  }

  /// Appends the moves of `group` that no other dominates, the fastest first.
  void keep_best(Array<Move>& group, Array<Move>& out) {
    order_.clear();
    for (std::size_t i = 0; i < group.size(); ++i) order_.push_back(i);
    sort(order_, [&](std::size_t a, std::size_t b) {
      const Move& x = group[a];
      const Move& y = group[b];
      if (x.seconds != y.seconds) return x.seconds < y.seconds;
      if (x.bytes.stored != y.bytes.stored) return x.bytes.stored < y.bytes.stored;
      if (x.error != y.error) return x.error < y.error;
      return a < b;
    });
    const std::size_t first = out.size();
    for (const std::size_t i : order_) {
      bool best = true;
      for (std::size_t j = first; j < out.size() && best; ++j) best = !dominates(out[j], group[i]);
      if (best) out.push_back(group[i]);
    }
  }

  const Graph& graph_;
  const CostProfile& profile_;
  const LossyBits& bits_;
  std::size_t masks_;
  std::size_t nodes_ = 0;
  Array<Option> options_;
  Array<std::size_t> first_option_;
  Array<double> carried_;  ///< 16 per node: of each set of lossy codecs
  Array<std::size_t> order_;
};

}}}  // namespace adacc::v0_1::detail
