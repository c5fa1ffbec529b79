// SPDX-License-Identifier: MIT
/// Lower bounds on the costs of every completion of a partial plan.
///
/// Activations are decided from the last to the first. All readers of an activation, in backward or for
/// recomputing others, come after it. So when an activation is decided, it is known whether backward needs
/// the activation, when first and when last. Open activations cost no bytes and no time, by the scheduler's
/// own rule (program/scheduler.hpp); here lifetimes are summed. At every instruction, this relaxation has
/// no more bytes than any completion. With layers in parts, a buffer that may live within a loop
/// (program/passes/loops.hpp) takes one part's bytes. A completion has more instructions: these may end a
/// loop, but join no two of the relaxation's, if segments that may be a pair are taken for one.
#pragma once

#include <cstddef>

#include "../../core/array.hpp"
#include "../../cost/evaluate.hpp"
#include "../../program/lifetimes.hpp"
#include "../../program/liveness.hpp"
#include "../../program/scheduler.hpp"
#include "../choices.hpp"

namespace adacc { inline namespace v0_1 {

/// One option of one activation, as numbers.
struct PlanOption {
  Policy policy;
  double seconds = 0;
  std::size_t stored = 0;  ///< at most the value's, or one part's if it may live in a loop
  int column = -1;         ///< in the profile, if kept by a lossy codec
};

struct PartialCost {
  std::size_t live_bytes = 0;  ///< at the worst instruction, open activations free of charge
  /// Live bytes without open activations in the window, the time in which all open activations read in
  /// backward are stored: from forward of the first decided one to the first of the open ones' last readers.
  std::size_t window_bytes = 0;
  double seconds = 0;
  double error = 0;
};

class PartialPlan {
 public:
  constexpr PartialPlan(const Graph& graph, const CostProfile& profile)
      : graph_(graph), profile_(profile), facts_(graph.nodes.size()), loop_rules_(graph),
        scheduler_(graph, Mode::train, lifetimes_), first_decided_(graph.node_count()) {
    plan_.made_for = graph.fingerprint;
    plan_.policies.resize(graph.nodes.size());
    lifetimes_.plan = &plan_;
    lifetimes_.rules = &loop_rules_;
    for (int k = graph.node_count() - 1; k >= 0; --k)
      for (const int id : graph.backward_reads(k)) fact(id).last_reader = k;
    note_tiles();
    for (int k = 0; k < graph.node_count(); ++k) add_options(k);
    int latest = -1;
    for (Fact& node_fact : facts_) {
      node_fact.prefix_reader = latest;
      if (node_fact.last_reader > latest) latest = node_fact.last_reader;
    }
    base_seconds_ = evaluate(graph, profile, retain_all(graph)).seconds;
  }
  PartialPlan(const PartialPlan&) = delete;
  PartialPlan& operator=(const PartialPlan&) = delete;

  constexpr int node_count() const { return graph_.node_count(); }
  constexpr std::size_t option_count(int k) const { return fact(k).option_count; }
  constexpr const PlanOption& option(int k, std::size_t i) const {
    return options_[fact(k).first_option + i];
  }
  /// Whether some layer's backward reads activation `k`.
  constexpr bool read(int k) const { return graph_.node(k).read_in_backward; }
  constexpr double base_seconds() const { return base_seconds_; }

  /// Activations below this one are open.
  constexpr int first_decided() const { return first_decided_; }

  /// Opens all activations up to `k`.
  constexpr void open_to(int k) {
    for (; first_decided_ <= k; ++first_decided_) {
      plan_.policies[static_cast<std::size_t>(first_decided_)] = Policy{};
      fact(first_decided_).choice = -1;
    }
  }

  /// Decides the last open activation.
  constexpr void decide(std::size_t option_index) {
    --first_decided_;
    Fact& node_fact = fact(first_decided_);
    node_fact.needed = needed(first_decided_);
    node_fact.choice = static_cast<int>(option_index);
    plan_.policies[static_cast<std::size_t>(first_decided_)] =
        option(first_decided_, option_index).policy;
  }

  /// Whether backward needs activation `k`, if all behind `k` are decided.
  constexpr bool needed(int k) const {
    if (read(k)) return true;
    for (int reader = first_decided_; reader < node_count(); ++reader)
      if (reader > k && fact(reader).needed && plan_[reader].recomputes() && reads(reader, k))
        return true;
    return false;
  }

  /// Whether the last open activation may have the option: no activation is recomputed from one kept without
  /// values.
  constexpr bool allowed(std::size_t option_index) const {
    const int k = first_decided_ - 1;
    const Policy& policy = option(k, option_index).policy;
    if (!policy.keeps() || policy.form().keeps_values()) return true;
    for (int reader = first_decided_; reader < node_count(); ++reader)
      if (plan_[reader].recomputes() && reads(reader, k)) return false;
    return true;
  }

  /// The plan, once every activation is decided.
  constexpr const Plan& plan() const { return plan_; }

  /// For every k: live bytes while backward of node k runs, if all activations are open. The first `beside`
  /// activations are stored as well, as their last readers come later, and are not counted.
  struct Stage {
    std::size_t bytes = 0;
    int beside = 0;
  };
  constexpr Array<Stage> stages() {
    Array<Stage> stages(facts_.size());
    static_cast<void>(cost());
    for (int k = 0; k < node_count(); ++k) {
      Stage& stage = stages[static_cast<std::size_t>(k)];
      const int at = lifetimes_.backward_at[static_cast<std::size_t>(k)];
      if (at < 0) continue;
      while (stage.beside < k && fact(stage.beside + 1).prefix_reader < k) ++stage.beside;
      stage.bytes = live_[static_cast<std::size_t>(at)];
      for (const int id : lifetimes_.open) {
        const Buffer& buffer = lifetimes_.buffers[static_cast<std::size_t>(id)];
        if (buffer.first >= 0 && buffer.first <= at && at <= buffer.last &&
            buffer.activation < stage.beside)
          stage.bytes -= align_up(buffer.bytes);
      }
    }
    return stages;
  }

  /// Lower bounds on the costs of every completion.
  constexpr PartialCost cost() {
    run();
    PartialCost cost;
    live_.reset(static_cast<std::size_t>(lifetimes_.count));
    for (const Buffer& buffer : lifetimes_.buffers) live_.add(buffer);
    live_.sum();
    cost.live_bytes = live_.most();
    cost.window_bytes = first_decided_ == 0 ? cost.live_bytes : window_bytes();
    cost.seconds = base_seconds_;
    bool together = false;  // an earlier output of the same forward is recomputed
    for (int k = first_decided_; k < node_count(); ++k) {
      const bool needed = scheduler_.needed(k), again = needed && plan_[k].recomputes();
      if (needed) cost.seconds += option(k, static_cast<std::size_t>(fact(k).choice)).seconds;
      if (graph_.made_with_next(k)) {
        together = together || again;
        continue;
      }
      if (together && !again) cost.seconds += profile_.node(graph_.maker_of(k)).forward;
      together = false;
    }
    cost.error = error_of(graph_, profile_, plan_);
    return cost;
  }

 private:
  struct Fact {
    std::size_t first_option = 0;
    std::size_t option_count = 0;
    int last_reader = -1;  ///< the last node reading it in backward: the one with the lowest number
    int prefix_reader = -1;  ///< the earliest of the last readers of all activations before
    // Changing during the search:
    int choice = -1;
    bool needed = false;
  };

  /// Lifetimes, and at which instructions nodes run forward and backward.
  struct Trace : Lifetimes {
    const Plan* plan = nullptr;
    Array<int> open;  ///< buffers with values of open activations
    Array<int> forward_at, backward_at;
    int forward_end = 0;  ///< the first instruction behind forward and loss
    const detail::LoopRules* rules = nullptr;
    // By instruction, if there can be loops:
    Array<int> run_of;                ///< instructions with equal numbers may be in one loop
    Array<detail::PartRatio> shares;  ///< ratios of a part to the whole
    int segment = -1;

    constexpr int add_buffer(BufferKind kind, int activation, std::size_t bytes) {
      const int buffer = Lifetimes::add_buffer(kind, activation, bytes);
      if (kind == BufferKind::activation && (*plan)[activation].planned()) open.push_back(buffer);
      return buffer;
    }

    constexpr void append(const Instruction& inst) {
      Lifetimes::append(inst);
      if (rules->active()) note_run(inst);
      const auto k = static_cast<std::size_t>(inst.node);
      if (inst.op == Op::backward) backward_at[k] = count - 1;
      else if (inst.op == Op::loss_gradient || inst.op == Op::hand_over) forward_end = count;
      else if (inst.op == Op::forward && !inst.again)
        forward_at[k] = count - 1, forward_end = count;
    }

    constexpr void note_run(const Instruction& inst) {
      const detail::PartRatio share = rules->share(inst, *plan, buffers);
      const int own_segment = rules->segment(inst, segment);
      const bool joins = !shares.empty() && share == shares.back() &&
                         (own_segment == segment || rules->may_pair(own_segment, segment));
      run_of.push_back(run_of.empty() ? 0 : run_of.back() + (joins ? 0 : 1));
      shares.push_back(share);
      segment = own_segment;
    }

    /// Reduces buffers that may live within a loop to one part's bytes.
    constexpr void shrink_tiles() {
      for (Buffer& buffer : buffers) {
        if (buffer.first < 0 || !detail::LoopRules::can_be_tile(buffer)) continue;
        const auto first = static_cast<std::size_t>(buffer.first);
        if (shares[first] && run_of[first] == run_of[static_cast<std::size_t>(buffer.last)])
          buffer.bytes = shares[first].of(buffer.bytes);
      }
    }
  };

  constexpr Fact& fact(int k) { return facts_[static_cast<std::size_t>(k)]; }
  constexpr const Fact& fact(int k) const { return facts_[static_cast<std::size_t>(k)]; }

  constexpr bool reads(int node, int id) const {
    return graph_.sources(node).contains(id) || graph_.adds(node).contains(id);
  }
  constexpr void add_options(int k) {
    fact(k).first_option = options_.size();
    for (const Policy& policy : policies_of(graph_, k)) {
      PlanOption option;
      option.policy = policy;
      option.seconds = seconds_of(graph_, profile_, k, policy);
      option.stored = stored_bytes(graph_, k, policy);
      const std::size_t value = tile_bytes_[static_cast<std::size_t>(k)];
      if (option.stored > value) option.stored = value;
      if (policy.keeps() && !policy.form().lossless())
        option.column = profile_.column(policy.codec());
      options_.push_back(option);
    }
    fact(k).option_count = options_.size() - fact(k).first_option;
  }

  constexpr void run() {
    lifetimes_.clear();
    lifetimes_.open.clear();
    lifetimes_.run_of.clear();
    lifetimes_.shares.clear();
    lifetimes_.forward_at.resize(facts_.size());
    lifetimes_.backward_at.resize(facts_.size());
    for (int& at : lifetimes_.forward_at) at = -1;
    for (int& at : lifetimes_.backward_at) at = -1;
    scheduler_.run(plan_);
    if (loop_rules_.active()) lifetimes_.shrink_tiles();
  }

  /// Notes the fewest bytes of each activation: one part's if they may live within a loop up to backward.
  constexpr void note_tiles() {
    tile_bytes_.resize(facts_.size());
    for (int k = 0; k < node_count(); ++k)
      tile_bytes_[static_cast<std::size_t>(k)] = align_up(graph_.node(k).output_bytes);
    if (!loop_rules_.active()) return;
    run();  // all open: instructions in between are so in every plan
    for (int k = 0; k < node_count(); ++k) {
      const int reader = fact(k).last_reader;
      const int from = lifetimes_.forward_at[static_cast<std::size_t>(k)];
      const int to = reader < 0 ? -1 : lifetimes_.backward_at[static_cast<std::size_t>(reader)];
      if (from < 0 || to < 0) continue;
      const detail::PartRatio share = lifetimes_.shares[static_cast<std::size_t>(from)];
      if (share && lifetimes_.run_of[static_cast<std::size_t>(from)] ==
                       lifetimes_.run_of[static_cast<std::size_t>(to)])
        tile_bytes_[static_cast<std::size_t>(k)] = align_up(share.of(graph_.node(k).output_bytes));
    }
  }

  /// PartialCost::window_bytes, from `live_`, the sums over all buffers.
  constexpr std::size_t window_bytes() {
    if (first_decided_ == node_count()) return 0;
    int begin = lifetimes_.forward_end, end = lifetimes_.forward_end;
    for (int k = first_decided_; k < node_count(); ++k)
      if (const int at = lifetimes_.forward_at[static_cast<std::size_t>(k)]; at >= 0) {
        begin = at;
        break;
      }
    for (int k = fact(first_decided_).prefix_reader + 1; k < node_count(); ++k)
      if (const int at = lifetimes_.backward_at[static_cast<std::size_t>(k)]; at >= end)
        end = at + 1;
    open_live_.reset(static_cast<std::size_t>(lifetimes_.count));
    for (const int buffer : lifetimes_.open)
      open_live_.add(lifetimes_.buffers[static_cast<std::size_t>(buffer)]);
    open_live_.sum();
    std::size_t most = 0;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      if (live_[i] - open_live_[i] > most) most = live_[i] - open_live_[i];
    return most;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  Array<Fact> facts_;
  Array<PlanOption> options_;
  Plan plan_;
  detail::LoopRules loop_rules_;
  Trace lifetimes_;
  Scheduler<Trace> scheduler_;
  LiveBytes live_, open_live_;
  Array<std::size_t> tile_bytes_;  ///< by activation: the fewest bytes for the value
  double base_seconds_ = 0;
  int first_decided_ = 0;
};

}}  // namespace adacc::v0_1
