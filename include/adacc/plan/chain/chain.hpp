/// A graph as a chain of segments, with the moves of each.
#pragma once

#include <cstddef>

#include "moves.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr double unreachable = 1e300;

inline void lower(double& least, double value) {
  if (value < least) least = value;
}

/// A plan's segments and their moves.
struct Chain {
  Array<Segment> segments;
  Array<FormPatterns> forms;
  Array<SegmentMoves> moves;  ///< by cost class
  int states = 1;
  double base_seconds = 0;  ///< of a step that retains everything

  std::size_t size() const { return segments.size(); }
  const SegmentMoves& moves_of(std::size_t segment) const {
    return moves[static_cast<std::size_t>(segments[segment].cost)];
  }
  const FormPatterns& form_of(std::size_t segment) const {
    return forms[static_cast<std::size_t>(segments[segment].form)];
  }

  /// Fills Move::row_need: a run in front of a segment holds, and needs while it is made, at least
  /// as much as the least of all runs.
  void settle_needs() {
    struct Least {
      double run = unreachable, making = unreachable;
    };
    const auto count = static_cast<std::size_t>(states);
    Array<Least> here(count), next(count), least(count);
    for (std::size_t j = 0; j < size(); ++j) {
      for (Least& state : next) state = {};
      for (const Move& move : moves_of(j).moves) {
        if (move.to == 0) continue;
        const PatternBytes& bytes = move.bytes;
        const Least from = move.from > 0 ? here[move.from] : Least{};
        const auto stored = static_cast<double>(bytes.stored);
        lower(next[move.to].run,
              (bytes.keeps_run ? from.run : 0) + static_cast<double>(bytes.run) - stored);
        double making = static_cast<double>(bytes.making_on_stored);
        if (move.from > 0) {
          const double on_run = from.run + static_cast<double>(bytes.making_on_run);
          const double on_making = from.making + static_cast<double>(bytes.making_on_making);
          making = on_run > making ? on_run : making;
          making = on_making > making ? on_making : making;
        }
        lower(next[move.to].making, making - stored);
      }
      for (std::size_t s = 0; s < count; ++s) {
        here[s] = next[s];
        lower(least[s].run, here[s].run);
        lower(least[s].making, here[s].making);
      }
    }
    for (SegmentMoves& segment : moves)
      for (Move& move : segment.moves) {
        move.row_need = static_cast<double>(move.bytes.need);
        if (move.from == 0) continue;
        const double on_run = least[move.from].run + static_cast<double>(move.bytes.need_on_run);
        const double on_making =
            least[move.from].making + static_cast<double>(move.bytes.need_on_making);
        if (move.bytes.need_on_run > no_bytes / 2 && on_run > move.row_need) move.row_need = on_run;
        if (move.bytes.need_on_making > no_bytes / 2 && on_making > move.row_need)
          move.row_need = on_making;
      }
  }
};

}}}  // namespace adacc::v0_1::detail
