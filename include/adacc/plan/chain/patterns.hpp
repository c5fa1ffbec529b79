// SPDX-License-Identifier: MIT
/// All ways to treat one segment's activations, and the bytes of each way in a step.
///
/// Bytes are not modelled: every pattern is scheduled on the segment's own graph, and the live bytes are
/// read off. Only a recomputed incoming activation needs care: activations before it must then be
/// computed first, and some of them stay until their own backward steps.
/// Together they are a replay. A finished replay holds some bytes, and takes more on the way, up to a
/// peak. So a pattern has a need on top of
///   stored  the bytes stored by the segments before,
///   held    stored bytes and those held by the replay before the segment,
///   peak    stored bytes and those of the replay at its peak,
/// and how these three go on behind the segment. They are sums and maxima, hence exact: the largest
/// need over all segments is the step's peak of live bytes. A pair of segments is in one loop in
/// backward (program/passes/loops.hpp): the replay lives in the loop part by part, and buffers that live whole
/// in one segment are there beside the other one's need. With fused updates, gradients of shared
/// parameters may live through many segments, and so may gradients that a caller's backward hands from stage
/// to stage: each segment counts them among its own needs, and none as stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/bytes.hpp"
#include "../../core/clock.hpp"
#include "../../program/liveness.hpp"
#include "../../program/schedule.hpp"
#include "../choices.hpp"
#include "segments.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

using SignedBytes = std::int64_t;
inline constexpr SignedBytes no_bytes = -(SignedBytes{1} << 60);  ///< in place of minus infinity

/// Bytes of a pattern, as described above. Names a_on_b: bytes of a on top of b.
struct PatternBytes {
  SignedBytes stored = 0;       ///< from forward to backward, the incoming activation included
  SignedBytes need = no_bytes;  ///< highest, on top of the bytes stored before
  SignedBytes need_on_held = no_bytes;
  SignedBytes need_on_peak = no_bytes;
  bool keeps_replay = false;    ///< the outgoing replay goes on from the incoming one
  SignedBytes held = no_bytes;  ///< by the outgoing replay, on top of the incoming or `stored`
  SignedBytes peak_on_stored = no_bytes;
  SignedBytes peak_on_held = no_bytes;
  SignedBytes peak_on_peak = no_bytes;
  /// With several steps in flight, waiting buffers keep their places from end to end: their bytes in all steps.
  /// `stored`, `need` and the others count these bytes, and segments in front need them on top. 0 with one step.
  SignedBytes waiting = 0;
  // For half of a pair: bytes of buffers that live whole while the loop runs (in the first half with its
  // stored bytes), and the half's need on top of the other's `beside`, before any of the replay is there.
  SignedBytes beside = 0;
  SignedBytes need_beside = no_bytes;
};

/// How the activation at a boundary comes to the segment behind it.
enum State : std::uint8_t {
  at_hand,   ///< kept, in a form decided by the segment behind
  replayed,  ///< recomputed
  paired,    ///< recomputed in a loop of the two segments
  /// Only at a shared cut: the segment behind keeps the activation, also for backward of the segment in front.
  /// (`at_hand` there: the segment behind does not need it in backward, and leaves it to the one in front.)
  kept,
};
inline constexpr std::size_t states = 4;

constexpr bool is_replay(std::size_t state) { return state == replayed || state == paired; }

struct Pattern {
  State from = at_hand;  ///< the incoming activation
  State to = at_hand;    ///< the outgoing one
  PatternBytes bytes;
  std::size_t first_choice = 0;  ///< into Patterns::choices, one per node of the segment
};

/// The option taken for one activation.
struct Choice {
  std::uint8_t option = 0;  ///< into Patterns::options of its node
  bool needed = false;      ///< by backward
  std::uint64_t lossy = 0;  ///< columns of the lossy codecs inside the segment behind its value
};

/// The patterns of all segments of one structure.
struct Patterns {
  Segment segment;               ///< one of them
  Array<Array<Policy>> options;  ///< by node; for outgoing ones, those left to this segment
  Array<Pattern> all;
  Array<Choice> choices;
  bool complete = true;  ///< false if there are too many, and some were left out

  std::size_t nodes() const { return options.size(); }
  /// The i-th node that goes out.
  std::size_t outgoing(std::size_t i = 0) const {
    return static_cast<std::size_t>(segment.local(segment.outputs[i]));
  }
  bool is_outgoing(std::size_t node) const {
    for (std::size_t i = 0; i < segment.outputs.size(); ++i)
      if (outgoing(i) == node) return true;
    return false;
  }
  const Choice& choice(const Pattern& pattern, std::size_t node) const {
    return choices[pattern.first_choice + node];
  }
};

/// Lists the patterns of one segment.
class PatternLister {
 public:
  /// `own` is the segment's own graph. If time is up, patterns are missing.
  PatternLister(const Graph& graph, const CostProfile& profile, const Segment& segment, Graph own,
                std::size_t most, int in_flight = 1, PacerRef time = {})
      : whole_(graph), profile_(profile), most_(most), in_flight_(in_flight), time_(time),
        own_(static_cast<Graph&&>(own)) {
    out_.segment = segment;
    out_.options.resize(own_.nodes.size() - (segment.has_reader ? 1 : 0));
    for (std::size_t k = 0; k < out_.nodes(); ++k)
      out_.options[k] = policies_of(own_, static_cast<int>(k));
  }

  [[gnu::noinline]] Patterns list() {
    const Segment& segment = out_.segment;
    const bool shared = segment.shares_output;
    bool keeps = true, recomputes = segment.has_output;
    for (std::size_t i = 0; i < segment.outputs.size(); ++i) {
      Array<Policy>& options =
          out_.options[out_.outgoing(i)];  // the next segment decides in which form it is kept
      keeps = keeps && (!shared || !options[0].recomputes());
      recomputes = recomputes && options.back().recomputes();
      const Policy fixed = options.size() == 1 && !shared ? options[0] : retain();
      options.clear();
      options.push_back(fixed);
    }
    for (const int id : segment.standing) {
      Array<Policy>& options = out_.options[static_cast<std::size_t>(segment.local(id))];
      options.clear();
      options.push_back(retain());
    }
    while (product() > most_ && combinations(keeps, recomputes) > most_) thin_out();
    plan_.policies.resize(own_.nodes.size());
    if (out_.segment.has_reader) plan_.policies[out_.nodes()] = retain();
    if (keeps) list_all(shared ? kept : at_hand);
    if (recomputes) {
      for (std::size_t i = 0; i < segment.outputs.size(); ++i)
        out_.options[out_.outgoing(i)].push_back(recompute());
      list_all(replayed);
      if (shared && segment.outputs.size() == 1) list_all(at_hand);
    }
    return static_cast<Patterns&&>(out_);
  }

 private:
  std::size_t product() const {
    std::size_t product = out_.segment.shares_output ? 3 : out_.segment.has_output ? 2 : 1;
    for (const Array<Policy>& options : out_.options)
      if (product <= most_) product *= options.size();
    return product;
  }

  /// The number of different combinations: an activation not needed in backward has one option. Counting ends
  /// at one more than are listed.
  std::size_t combinations(bool keeps, bool recomputes) const {
    if (own_.nodes.size() > 64) return most_ + 1;
    const auto bits = [&](IdSpan list) {
      std::uint64_t set = 0;
      for (const int id : list)
        if (id != step_input) set |= std::uint64_t{1} << id;
      return set;
    };
    Array<std::uint64_t> reads;
    std::uint64_t needed = 0, outgoing = 0;
    for (std::size_t k = 0; k < out_.nodes(); ++k) {
      const int node = static_cast<int>(k);
      reads.push_back(bits(own_.sources(node)) | bits(own_.adds(node)));
      needed |= bits(own_.backward_reads(node));
      if (out_.is_outgoing(k)) outgoing |= std::uint64_t{1} << k;
    }
    for (const int id : out_.segment.standing) needed |= std::uint64_t{1} << out_.segment.local(id);
    std::uint64_t again = needed;
    for (std::size_t k = 0; k < out_.nodes(); ++k)
      if ((outgoing >> k & 1) != 0) again |= reads[k];
    std::size_t count = 0;
    if (keeps) count += count_from(out_.nodes(), needed, reads);
    if (recomputes && count <= most_)
      count += (out_.segment.shares_output ? 2 : 1) * count_from(out_.nodes(), again, reads);
    return count;
  }

  /// Combinations of the first `count` nodes, where the nodes of `needed` are known to be needed.
  std::size_t count_from(std::size_t count, std::uint64_t needed,
                         const Array<std::uint64_t>& reads) const {
    for (std::size_t k = count; k-- > 0;) {
      const Array<Policy>& options = out_.options[k];
      if ((needed >> k & 1) == 0 || out_.is_outgoing(k)) continue;
      const bool again = options[options.size() - 1].recomputes();
      const std::size_t kept = options.size() - (again ? 1 : 0);
      if (kept == 0) {
        needed |= reads[k];
        continue;
      }
      if (!again && kept == 1) continue;
      std::size_t sum = kept * count_from(k, needed, reads);
      if (again && sum <= most_) sum += count_from(k, needed | reads[k], reads);
      return sum <= most_ ? sum : most_ + 1;
    }
    return 1;
  }

  /// Drops one option of the activation with the most options: one no better than another, or else one in
  /// the middle.
  void thin_out() {
    std::size_t widest = 0;
    for (std::size_t k = 0; k < out_.nodes(); ++k)
      if (out_.options[k].size() > out_.options[widest].size()) widest = k;
    Array<Policy>& options = out_.options[widest];
    std::size_t worst = options.size() > 3 ? options.size() - 2 : options.size() > 2 ? 1 : 0;
    for (std::size_t i = 0; i < options.size(); ++i)
      for (std::size_t j = 0; j < options.size(); ++j)
        if (i != j &&
            as_good(out_.segment.original(static_cast<int>(widest)), options[j], options[i]))
          worst = i;
    options.erase(worst);
    out_.complete = false;
  }

  /// Whether keeping activation `id` under `a` is as good as under `b`, by the costs of the structure's first
  /// segment.
  bool as_good(int id, const Policy& a, const Policy& b) const {
    if (!a.keeps() || !b.keeps() || (b.form().keeps_values() && !a.form().keeps_values()))
      return false;
    const auto carried = [&](const Policy& policy) {
      return policy.form().lossless()
                 ? 0
                 : profile_.codec_cost(id, profile_.column(policy.codec())).carried_error;
    };
    return stored_bytes(whole_, id, a) <= stored_bytes(whole_, id, b) &&
           seconds_of(whole_, profile_, id, a) <= seconds_of(whole_, profile_, id, b) &&
           error_of(whole_, profile_, id, a) <= error_of(whole_, profile_, id, b) &&
           carried(a) <= carried(b);
  }

  /// Lists every combination of options, counted up like digits, with the outgoing activations in state `to`.
  void list_all(State to) {
    const Segment& segment = out_.segment;
    if (segment.has_reader) {
      Node& reader = own_.nodes.back();
      const std::size_t read =
          segment.standing.size() + (to == at_hand ? 0 : segment.outputs.size());
      reader.reads = read == 0 ? Reads::none : Reads::input;
      reader.backward_reads.count = static_cast<std::uint32_t>(read);
    }
    const LoopRules rules(own_);
    Array<std::uint8_t> digits(out_.nodes());
    const bool again = to == replayed || (to == at_hand && segment.shares_output);
    for (std::size_t i = 0; i < segment.outputs.size(); ++i)
      digits[out_.outgoing(i)] = again ? 1 : 0;
    for (bool more = true; more && !time_.spend(work_a_node * own_.nodes.size());) {
      const int needless = add(digits, to, rules);
      more = false;
      for (int k = 0; k < needless; ++k)  // options of earlier nodes change nothing here
        if (!out_.is_outgoing(static_cast<std::size_t>(k))) digits[static_cast<std::size_t>(k)] = 0;
      std::size_t k = 0;
      if (needless >= 0) k = static_cast<std::size_t>(needless);
      if (needless >= 0) digits[k] = static_cast<std::uint8_t>(out_.options[k].size() - 1);
      for (; k < digits.size() && !more; ++k) {
        if (out_.is_outgoing(k)) continue;
        more = ++digits[k] < out_.options[k].size();
        if (!more) digits[k] = 0;
      }
    }
  }

  /// Lists the combination `digits` if it differs from those listed, and returns -1. If not, returns the last
  /// activation not needed and without its first option.
  int add(const Array<std::uint8_t>& digits, State to, const LoopRules& rules) {
    const Segment& segment = out_.segment;
    const std::size_t begin = segment.standing_inputs.size(), end = begin + segment.inputs.size();
    const bool shared = segment.shares_input;
    for (std::size_t k = 0; k < digits.size(); ++k) plan_.policies[k] = out_.options[k][digits[k]];
    for (std::size_t k = begin; k < end && shared; ++k) own_.nodes[k].backward_reads.count = 0;
    Array<bool> needed = needed_in_backward(own_, plan_);
    for (std::size_t k = digits.size(); k-- > 0;)
      if (!needed[k] && digits[k] != 0 && !(shared && begin <= k && k < end))
        return static_cast<int>(k);
    Pattern pattern;
    pattern.to = to;
    std::size_t again = 0;
    for (std::size_t k = begin; k < end; ++k) again += plan_.policies[k].recomputes();
    if (again != 0 && again != segment.inputs.size()) return -1;  // all or none
    if (again != 0 && needed[begin]) pattern.from = replayed;
    if (shared && again == 0) {
      if (!needed[begin] && plan_.policies[begin].encodes())
        return -1;  // encoded activations, if needed, make no shared cut
      pattern.from = kept;
    }
    for (std::size_t k = begin; k < end && shared && pattern.from != at_hand; ++k)
      own_.nodes[k].backward_reads.count = 1, needed[k] = true;
    pattern.first_choice = out_.choices.size();
    for (std::size_t k = 0; k < digits.size(); ++k) {
      Choice choice;
      choice.option = digits[k];
      choice.needed = needed[k];
      const Policy& policy = plan_.policies[k];
      if (!policy.form().lossless())
        choice.lossy = std::uint64_t{1} << profile_.column(policy.codec());
      if (policy.recomputes() && !inherit(static_cast<int>(k), pattern, choice)) {
        out_.choices.resize(pattern.first_choice);
        return -1;
      }
      out_.choices.push_back(choice);
    }
    pattern.bytes = measure(pattern, rules);
    out_.all.push_back(pattern);
    const bool takes = pattern.from == replayed, gives = pattern.to == replayed;
    if (takes && !gives && out_.segment.pairs_before) pattern.from = paired;
    else if (gives && !takes && out_.segment.pairs_behind) pattern.to = paired;
    else return -1;
    pattern.bytes = measure(pattern, rules);
    out_.all.push_back(pattern);
    return -1;
  }

  /// Adds the lossy codecs of the values for recomputing node `k`. False if one is kept without values.
  bool inherit(int k, const Pattern& pattern, Choice& choice) const {
    for (const IdSpan list : {own_.sources(k), own_.adds(k)})
      for (const int id : list) {
        if (id == step_input) continue;
        const Choice& from = out_.choices[pattern.first_choice + static_cast<std::size_t>(id)];
        choice.lossy |= from.lossy;
        if (plan_[id].keeps() && !plan_[id].form().keeps_values()) return false;
      }
    return true;
  }

  /// The segment's instructions under plan_.
  Schedule schedule_of(const Pattern& pattern, const LoopRules& rules) const {
    const std::size_t own_place = out_.segment.has_input ? 1 : 0;
    Array<bool> pairs(own_place + 2);
    if (pattern.from == paired) pairs[own_place - 1] = true;
    if (pattern.to == paired) pairs[own_place] = true;
    return detail::make_schedule(own_, plan_, Mode::train, rules, pairs, LoopPass::Pairs::always);
  }

  /// Where the two halves of a pair meet in the schedule of one half.
  struct Joint {
    int value = -1, gradient = -1;  ///< buffers of the activation between them
    Loop loop{-1, -1, 0};           ///< the pair's
  };

  Joint joint_of(const Pattern& pattern, const Schedule& schedule) const {
    Joint joint;
    const int reader = static_cast<int>(out_.nodes());
    const int between = pattern.to == paired ? static_cast<int>(out_.outgoing()) : 0;
    for (const Instruction& inst : schedule.instructions) {
      if (inst.op == Op::forward && inst.again && inst.node == between) joint.value = inst.y;
      if (inst.op != Op::backward || inst.node != (pattern.to == paired ? reader : 0)) continue;
      joint.gradient = pattern.to == paired ? inst.dx : inst.dy;
      if (inst.loop >= 0) joint.loop = schedule.loops[static_cast<std::size_t>(inst.loop)];
    }
    return joint;
  }

  /// Schedules the segment under plan_ and reads the pattern's bytes off the schedule.
  PatternBytes measure(const Pattern& pattern, const LoopRules& rules) const {
    const Segment& segment = out_.segment;
    Schedule schedule = schedule_of(pattern, rules);
    const bool lends =
        pattern.to == kept || (in_flight_ > 1 && pattern.to == at_hand && !segment.shares_output);
    const Array<int> lent = lends ? values_of_outgoing(schedule) : Array<int>();
    const SignedBytes held = in_flight_ > 1 ? hold(schedule, lent) : 0;
    const SignedBytes others = (in_flight_ - 1) * held;
    const LiveBytes live_bytes = live_bytes_of(schedule);
    const auto bytes_of_node = [&](std::size_t k) {
      return static_cast<SignedBytes>(align_up(own_.nodes[k].output_bytes));
    };
    const int reader = static_cast<int>(out_.nodes());
    Joint joint;
    if (pattern.from == paired || pattern.to == paired) joint = joint_of(pattern, schedule);
    const auto room = [&](int id) {
      return id < 0
                 ? 0
                 : static_cast<SignedBytes>(schedule.buffers[static_cast<std::size_t>(id)].room());
    };
    // Bytes at instruction i of the gradient between a pair's halves, counted to its end by the right half.
    const auto gradient_at = [&](int i) {
      if (joint.gradient < 0) return SignedBytes{0};
      const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(joint.gradient)];
      return buffer.first <= i && i <= buffer.last ? room(joint.gradient) : SignedBytes{0};
    };
    const auto in_loop = [&](int i) { return joint.loop.first <= i && i <= joint.loop.last; };
    PatternBytes out;
    out.waiting = held + others;
    bool replaying = false, on_replay = false, read = false, forward = true;
    const auto lives_at = [&](int id, int i) {
      const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(id)];
      return buffer.first <= i && i <= buffer.last ? room(id) : SignedBytes{0};
    };
    // Bytes of outgoing activations at instruction i, if counted as stored by the next segment: all at the
    // loss's gradient or with several steps in flight; else, before backward, those a caller wrote elsewhere.
    const auto lent_at = [&](int i, bool all) {
      SignedBytes bytes = 0;
      for (const int id : lent) {
        const auto node =
            static_cast<std::size_t>(schedule.buffers[static_cast<std::size_t>(id)].activation);
        if (all || in_flight_ > 1 || (forward && own_.nodes[node].value_outside))
          bytes += lives_at(id, i);
      }
      return bytes;
    };
    Array<int> replayed_values;  // buffers of incoming activations
    const int in_front = segment.in_front();
    for (std::size_t i = static_cast<std::size_t>(in_front); i < live_bytes.size(); ++i) {
      const Instruction& inst = schedule.instructions[i];
      const int at = static_cast<int>(i);
      auto live = static_cast<SignedBytes>(live_bytes[i]) + others;
      const bool of_input = inst.node < in_front;
      live -= lent_at(at, inst.op == Op::loss_gradient);
      if (pattern.to == paired && !read && in_loop(at))
        live -= gradient_at(at) + of_lasting(schedule, i, reader);
      if (inst.op == Op::loss_gradient || inst.op == Op::hand_over) {
        replaying = is_replay(pattern.to);
        forward = false;
        if (segment.has_reader) out.stored = live - of_lasting(schedule, i, reader);
        else raise(out.need, live);
      } else if (segment.has_reader && inst.op == Op::backward && inst.node == reader) {
        // The next segment has counted this moment, in which the outgoing activation is read and its
        // gradient there.
        read = true;
        if (pattern.to == paired) {
          out.held = live - room(joint.value);
          out.beside = out.stored + begun_with(joint, schedule, reader);
        } else if (replaying) {
          const bool gradient = !own_.nodes[out_.nodes()].gradient_outside &&
                                own_.nodes[out_.outgoing()].runs_backward;
          out.keeps_replay = on_replay;
          out.held = live - of_lasting(schedule, i, reader);
          for (std::size_t o = 0; o < segment.outputs.size(); ++o)
            out.held -= (gradient ? 2 : 1) * bytes_of_node(out_.outgoing(o));
        }
        replaying = false;
      } else if (of_input && inst.op == Op::backward) {  // belongs to the segment in front
        if (pattern.from == paired)
          out.beside = live - held - others - gradient_at(at) - of_lasting(schedule, i, -1);
        break;
      } else if (of_input && inst.op == Op::forward && inst.again) {
        SignedBytes value = room(joint.value);
        if (pattern.from != paired) {
          replayed_values.push_back(inst.y);
          value = 0;
          for (const int id : replayed_values) value += lives_at(id, at);
        }
        raise(replaying ? out.peak_on_peak : out.need_on_peak, live - value);
        on_replay = true;
      } else if (replaying) {
        raise(on_replay ? out.peak_on_held : out.peak_on_stored, live);
      } else if (in_loop(at) && !on_replay) {
        raise(out.need_beside, live);
      } else {
        raise(on_replay ? out.need_on_held : out.need, live);
      }
    }
    return out;
  }

  /// The buffers in the arena to which forward writes outgoing activations.
  Array<int> values_of_outgoing(const Schedule& schedule) const {
    Array<int> values;
    for (const Instruction& inst : schedule.instructions)
      if (inst.op == Op::forward && !inst.again && inst.y >= 0 &&
          out_.is_outgoing(static_cast<std::size_t>(inst.node)))
        values.push_back(inst.y);
    return values;
  }

  /// Bytes of buffers living from a pair's loop's beginning to its end, without those of the right half.
  SignedBytes begun_with(const Joint& joint, const Schedule& schedule, int reader) const {
    SignedBytes bytes = 0;
    for (std::size_t id = 0; id < schedule.buffers.size(); ++id) {
      const Buffer& buffer = schedule.buffers[id];
      if (buffer.part_buffer || buffer.first != joint.loop.first || buffer.last < joint.loop.last)
        continue;
      if (static_cast<int>(id) != joint.gradient && !counted_elsewhere(schedule, id, reader))
        bytes += static_cast<SignedBytes>(buffer.room());
    }
    return bytes;
  }

  /// Whether a buffer is a lasting gradient begun by the reader, `node`, or, if `node` is -1, completed in front
  /// of the segment.
  bool counted_elsewhere(const Schedule& schedule, std::size_t id, int node) const {
    if (schedule.buffers[id].kind != BufferKind::lasting_gradient) return false;
    const LastingGradient& gradient = own_.gradients[id];  // these buffers come first
    return node < 0 ? gradient.complete < 0 : gradient.begun >= node;
  }

  /// Bytes of the buffers waiting from forward to backward, without those of `lent`. They are made to live
  /// from end to end of `schedule`: each step in flight has a place for them.
  SignedBytes hold(Schedule& schedule, const Array<int>& lent) const {
    const int count = static_cast<int>(schedule.instructions.size());
    int wait = 0;
    while (wait < count && schedule.instructions[static_cast<std::size_t>(wait)].op !=
                               (out_.segment.has_reader ? Op::loss_gradient : Op::hand_over))
      ++wait;
    SignedBytes bytes = 0;
    for (std::size_t id = 0; id < schedule.buffers.size(); ++id) {
      Buffer& buffer = schedule.buffers[id];
      if (IdSpan(lent.data(), lent.size()).contains(static_cast<int>(id))) continue;
      if (!(0 <= buffer.first && buffer.first < wait && wait < buffer.last)) continue;
      bytes += static_cast<SignedBytes>(buffer.room());
      buffer.first = 0, buffer.last = count - 1;
    }
    return bytes;
  }

  /// Bytes of lasting gradients at instruction i counted by another segment: the segment behind the reader,
  /// `node`, or, if `node` is -1, the one in front.
  SignedBytes of_lasting(const Schedule& schedule, std::size_t i, int node) const {
    const int at = static_cast<int>(i);
    SignedBytes bytes = 0;
    for (std::size_t id = 0; id < own_.gradients.size() && id < schedule.buffers.size(); ++id) {
      const Buffer& buffer = schedule.buffers[id];
      if (counted_elsewhere(schedule, id, node) && buffer.first >= 0 && buffer.first <= at &&
          at <= buffer.last)
        bytes += static_cast<SignedBytes>(buffer.room());
    }
    return bytes;
  }

  const Graph& whole_;
  const CostProfile& profile_;
  std::size_t most_;
  int in_flight_;
  PacerRef time_;
  static constexpr std::size_t work_a_node = 100;  ///< work to schedule a node in one pattern
  Graph own_;
  Patterns out_;
  Plan plan_;
};

}}}  // namespace adacc::v0_1::detail
