/// All ways to treat one segment's activations, and what each means in bytes to the rest of a step.
///
/// Bytes are not modelled: every pattern is scheduled on the segment's own graph, and its live
/// bytes are read off. Only the incoming activation needs care where it is recomputed: others in
/// front of the segment must then be made before it, and some of them stay until their own backward
/// steps. Together they are a run. So a pattern says how many bytes it needs on top of
///   stored  what the segments before it store,
///   making  the same, at the worst moment of making the incoming activation again,
///   run     the same, from that moment on,
/// and how these three go on behind the segment. They are sums and maxima, hence exact: the largest
/// need over all segments is the step's peak of live bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/bytes.hpp"
#include "../../program/schedule.hpp"
#include "../options.hpp"
#include "segments.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

using SignedBytes = std::int64_t;
inline constexpr SignedBytes no_bytes = -(SignedBytes{1} << 60);  ///< in place of minus infinity

/// Bytes of a pattern, as described above. Names a_on_b: bytes that a takes on top of b.
struct PatternBytes {
  SignedBytes stored = 0;  ///< from forward to backward, the incoming activation included
  SignedBytes need = 0;    ///< highest, on top of `stored`
  SignedBytes need_on_run = no_bytes;
  SignedBytes need_on_making = no_bytes;
  bool keeps_run = false;      ///< the outgoing run goes on from the incoming one
  SignedBytes run = no_bytes;  ///< of the outgoing run, on top of the incoming run or `stored`
  SignedBytes making_on_stored = no_bytes;
  SignedBytes making_on_run = no_bytes;
  SignedBytes making_on_making = no_bytes;
};

struct SegmentPattern {
  bool takes_run = false;  ///< the incoming activation is recomputed
  bool gives_run = false;  ///< the outgoing one is
  PatternBytes bytes;
  std::size_t first_choice =
      0;  ///< into FormPatterns::choices, one per node of the segment's graph
};

/// One activation in a pattern.
struct Choice {
  std::uint8_t option = 0;  ///< into FormPatterns::options of its node
  bool needed = false;      ///< by backward
  bool carries = false;     ///< recomputed from the incoming activation, among others
  std::uint8_t lossy = 0;   ///< bits of the lossy codecs inside the segment behind its value
};

/// The patterns of all segments of one form.
struct FormPatterns {
  SegmentGraph segment;
  Array<Array<Policy>> options;  ///< of each node; of the outgoing activation, what is left of it
  Array<SegmentPattern> patterns;
  Array<Choice> choices;
  bool complete = true;  ///< false where there are too many, and some were left out

  std::size_t nodes() const { return segment.graph.nodes.size(); }
  const Choice& choice(const SegmentPattern& pattern, std::size_t node) const {
    return choices[pattern.first_choice + node];
  }
};

/// The lossy codecs of a profile as few bits; those beyond the last share it.
class LossyBits {
 public:
  static constexpr int most = 4;

  explicit LossyBits(const CostProfile& profile) : bit_(profile.codecs.size()) {
    for (std::size_t c = 0; c < bit_.size(); ++c) {
      bit_[c] = -1;
      if (!profile.codecs[c]->lossless) bit_[c] = count_ < most ? count_++ : most - 1;
    }
  }
  int count() const { return count_; }
  int of_column(int column) const {
    return column < 0 ? -1 : bit_[static_cast<std::size_t>(column)];
  }
  std::uint8_t mask(const CostProfile& profile, const Policy& policy) const {
    const int bit = policy.codec() == nullptr ? -1 : of_column(profile.column(policy.codec()));
    return bit < 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(1 << bit);
  }

 private:
  Array<int> bit_;
  int count_ = 0;
};

/// Lists the patterns of one segment.
class PatternLister {
 public:
  static constexpr std::size_t most_patterns = 6000;

  PatternLister(const Graph& graph, const CostProfile& profile, const Segment& segment,
                const LossyBits& bits)
      : whole_(graph), profile_(profile), bits_(bits) {
    form_.segment = segment_graph(graph, segment);
  }

  FormPatterns list() {
    const std::size_t nodes = form_.nodes();
    const bool output = form_.segment.has_output;
    inner_ = nodes - (output ? 1 : 0);
    form_.options.resize(nodes);
    for (std::size_t k = 0; k < inner_; ++k)
      form_.options[k] = policies_of(whole_, form_.segment.original(static_cast<int>(k)));
    if (output) {
      outgoing_ = form_.options[inner_ - 1];
      stand_in_ = retain();
      form_.options[inner_ - 1].clear();
      form_.options[nodes - 1].push_back(stand_in_);
    }
    thin_out();
    plan_.policies.resize(nodes);
    if (output) {
      plan_.policies[nodes - 1] = stand_in_;
      const bool fixed = outgoing_.size() == 1;
      form_.options[inner_ - 1].push_back(fixed ? outgoing_[0] : stand_in_);
      form_.options[inner_ - 1].push_back(recompute());
      list_all(false);
      for (const Policy& policy : outgoing_)
        if (policy.recomputes()) list_all(true);
    } else {
      list_all(false);
    }
    return static_cast<FormPatterns&&>(form_);
  }

 private:
  /// Where there are too many combinations, codecs between the first and the last go first.
  void thin_out() {
    const auto combinations = [&] {
      std::size_t product = form_.segment.has_output ? 2 : 1;
      for (std::size_t k = 0; k < inner_; ++k)
        if (const std::size_t n = form_.options[k].size(); n > 0 && product <= most_patterns)
          product *= n;
      return product;
    };
    while (combinations() > most_patterns) {
      std::size_t widest = 0;
      for (std::size_t k = 0; k < inner_; ++k)
        if (form_.options[k].size() > form_.options[widest].size()) widest = k;
      Array<Policy>& options = form_.options[widest];
      options.erase(options.size() > 3 ? options.size() - 2 : options.size() > 2 ? 1 : 0);
      form_.complete = false;
    }
  }

  /// Every combination of options of the inner nodes, like the digits of a number.
  void list_all(bool gives_run) {
    Array<std::uint8_t> digits(form_.nodes());
    if (form_.segment.has_output) {
      digits[inner_ - 1] = gives_run ? 1 : 0;
      Graph& graph = form_.segment.graph;
      graph.nodes.back().reads = gives_run ? Reads::input : Reads::none;
      graph.nodes.back().backward_reads.count = gives_run ? 1 : 0;
    }
    const std::size_t free = inner_ - (form_.segment.has_output ? 1 : 0);
    for (bool more = true; more;) {
      add(digits, gives_run);
      more = false;
      for (std::size_t k = 0; k < free && !more; ++k) {
        more = ++digits[k] < form_.options[k].size();
        if (!more) digits[k] = 0;
      }
    }
  }

  void add(const Array<std::uint8_t>& digits, bool gives_run) {
    const Graph& graph = form_.segment.graph;
    for (std::size_t k = 0; k < inner_; ++k) plan_.policies[k] = form_.options[k][digits[k]];
    const Array<bool> needed = needed_in_backward(graph, plan_);
    for (std::size_t k = 0; k < inner_; ++k)
      if (!needed[k] && digits[k] != 0) return;  // the same without it is on the list
    if (!values_kept()) return;
    SegmentPattern pattern;
    pattern.gives_run = gives_run;
    pattern.takes_run = form_.segment.has_input && needed[0] && plan_[0].recomputes();
    pattern.first_choice = form_.choices.size();
    pattern.bytes = measure(pattern);
    for (std::size_t k = 0; k < form_.nodes(); ++k) {
      Choice choice;
      choice.option = digits[k];
      choice.needed = needed[k];
      const Policy& policy = plan_.policies[k];
      choice.lossy = bits_.mask(profile_, policy);
      if (policy.recomputes()) {
        choice.carries = k == 0 && pattern.takes_run;
        const auto inherit = [&](int source) {
          const Choice& from =
              form_.choices[pattern.first_choice + static_cast<std::size_t>(source)];
          choice.carries |= from.carries;
          choice.lossy = static_cast<std::uint8_t>(choice.lossy | from.lossy);
        };
        graph.forward_reads(static_cast<int>(k), inherit);
      }
      form_.choices.push_back(choice);
    }
    form_.patterns.push_back(pattern);
  }

  /// Nothing is recomputed from what a codec does not keep.
  bool values_kept() const {
    const Graph& graph = form_.segment.graph;
    bool kept = true;
    for (int k = 0; k < static_cast<int>(inner_); ++k)
      if (plan_[k].recomputes())
        graph.forward_reads(k, [&](int source) {
          kept = kept && !(plan_[source].keeps() && !plan_[source].form().keeps_values());
        });
    return kept;
  }

  /// Schedules the segment under plan_ and reads the pattern's bytes off the schedule.
  PatternBytes measure(const SegmentPattern& pattern) {
    const Graph& graph = form_.segment.graph;
    const Schedule schedule = make_schedule(graph, plan_);
    const std::size_t count = schedule.instructions.size();
    const LiveBytes live_bytes = live_bytes_of(schedule);

    const bool input = form_.segment.has_input, output = form_.segment.has_output;
    const int reader = static_cast<int>(form_.nodes()) - 1;
    const auto incoming = static_cast<SignedBytes>(align_up(graph.nodes[0].output_bytes));
    const auto outgoing = static_cast<SignedBytes>(align_up(graph.nodes[inner_ - 1].output_bytes));
    PatternBytes out;
    out.need = no_bytes;
    const auto raise = [](SignedBytes& most, SignedBytes bytes) {
      if (bytes > most) most = bytes;
    };
    bool behind_loss = false, making = false, on_run = false;
    for (std::size_t i = input ? 1 : 0; i < count; ++i) {
      const Instruction& run = schedule.instructions[i];
      const auto live = static_cast<SignedBytes>(live_bytes[i]);
      if (run.op == Op::loss_gradient || run.op == Op::hand_over) {
        behind_loss = true;
        making = output && pattern.gives_run;
        if (output) out.stored = live;
        else raise(out.need, live);
      } else if (output && run.op == Op::backward && run.node == reader) {
        // The next segment has counted this moment: it reads the outgoing activation and has made
        // its gradient.
        if (making) {
          out.keeps_run = on_run;
          out.run = live - 2 * outgoing;
        }
        making = false;
      } else if (input && run.op == Op::backward && run.node == 0) {
        break;  // belongs to the segment in front
      } else if (input && behind_loss && run.op == Op::forward && run.node == 0) {
        raise(making ? out.making_on_making : out.need_on_making, live - incoming);
        on_run = true;
      } else if (making) {
        raise(on_run ? out.making_on_run : out.making_on_stored, live);
      } else {
        raise(on_run ? out.need_on_run : out.need, live);
      }
    }
    return out;
  }

  const Graph& whole_;
  const CostProfile& profile_;
  const LossyBits& bits_;
  FormPatterns form_;
  std::size_t inner_ = 0;  ///< nodes of the segment's graph but for the reader behind it
  Array<Policy> outgoing_;
  Policy stand_in_;
  Plan plan_;
};

}}}  // namespace adacc::v0_1::detail
