/// Lower bounds on what every completion of a partial plan costs, without building its schedule.
///
/// Activations are decided from the last to the first: whatever reads an activation, in backward
/// or to produce another again, comes after it, so when its turn comes it is known whether backward
/// needs it, when first and when last. What is still open is taken to be stored in no bytes and to
/// come back in no time. That relaxation can only be smaller, at every instruction, than any
/// completion; and when nothing is open its peak is live_bytes() of the very schedule. It follows
/// the rules of program/schedule.hpp over a handful of numbers per node, hundreds of times faster, so
/// that compilers can afford a search.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/array.hpp"
#include "../../core/bytes.hpp"
#include "../../cost/evaluate.hpp"
#include "../options.hpp"

namespace adacc { inline namespace v0_1 {

/// One policy of one activation, as numbers.
struct PlanOption {
  Policy policy;
  double seconds = 0;
  std::size_t blob = 0;    ///< bytes encoded
  std::size_t stored = 0;  ///< never more than it holds in any form between forward and backward
  int column = -1;         ///< of a lossy codec in the profile
};

struct PartialCost {
  std::size_t live_bytes = 0;  ///< at the worst instruction, open activations free of charge
  /// The same without the open activations, from the first decided one's forward to the second's
  /// backward: all that time, open ones that backward reads are stored beside it.
  std::size_t window_bytes = 0;
  double seconds = 0;
  double error = 0;
};

class PartialPlan {
  struct Fact {
    std::size_t value = 0;  ///< bytes, aligned as all here
    std::size_t aux = 0;
    std::size_t forward_workspace = 0;
    std::size_t backward_workspace = 0;
    std::size_t gradients_before = 0;  ///< alive while backward(k)'s inputs are made ready
    std::size_t gradients = 0;         ///< alive in backward(k)
    std::size_t first_option = 0;
    std::size_t option_count = 0;
    int last_forward_reader = 0;
    int own_reads = 0;  ///< backward steps that read it
    // What changes during the search:
    int choice = -1;
    bool needed = false;
  };
  /// Of the simulation.
  struct Held {
    int uses = 0;  ///< in backward, yet to come
    bool value = false;
  };

  constexpr Fact& fact(int k) { return facts_[static_cast<std::size_t>(k)]; }
  constexpr const Fact& fact(int k) const { return facts_[static_cast<std::size_t>(k)]; }
  constexpr Held& held(int k) { return held_[static_cast<std::size_t>(k)]; }
  constexpr const PlanOption& chosen(int k) const {
    return options_[fact(k).first_option + static_cast<std::size_t>(fact(k).choice)];
  }
  constexpr bool decided(int k) const { return fact(k).choice >= 0; }
  constexpr bool recomputed(int k) const {
    return decided(k) && chosen(k).policy.kind == PolicyKind::recompute;
  }

  /// Calls visit(node) for every node whose forward reads activation `k`; some twice.
  template <class Visit>
  constexpr void readers(int k, const Visit& visit) const {
    for (int reader = k + 1; reader <= fact(k).last_forward_reader; ++reader)
      graph_.forward_reads(reader, [&](int source) {
        if (source == k) visit(reader);
      });
  }

 public:
  constexpr PartialPlan(const Graph& graph, const CostProfile& profile)
      : graph_(graph), profile_(profile), facts_(graph.nodes.size()), held_(graph.nodes.size()),
        lossy_(graph.nodes.size()) {
    const int count = graph.node_count();
    for (int k = 0; k < count; ++k) {
      add_options(k);
      describe(k);
    }
    for (int k = 0; k < count; ++k) {
      graph.forward_reads(k, [&](int source) { retires(source, k); });
    }
    if (!graph.by_hand) trace_gradients();
    base_seconds_ = profile.rest + profile.loss;
    for (int k = 0; k < count; ++k) {
      const NodeCost& cost = profile.node(k);
      const Node& node = graph.node(k);
      if (!graph.by_hand || node.output_bytes > 0) base_seconds_ += cost.forward;
      if (!graph.by_hand || node.read_count > 0) base_seconds_ += cost.backward;
      for (std::size_t i = 0; i < node.add_count; ++i) {
        base_seconds_ += cost.add;
        if (const int source = graph.add_source(node, i); source >= 0)
          base_seconds_ += profile.node(source).add_gradient;
      }
    }
    first_open_ = count;
  }

  constexpr int node_count() const { return graph_.node_count(); }
  constexpr std::size_t option_count(int k) const { return fact(k).option_count; }
  constexpr const PlanOption& option(int k, std::size_t i) const {
    return options_[fact(k).first_option + i];
  }
  /// Whether some layer's backward reads activation `k`.
  constexpr bool read(int k) const { return fact(k).own_reads > 0; }
  constexpr double base_seconds() const { return base_seconds_; }

  /// Activations below this one are open.
  constexpr int first_open() const { return first_open_; }

  /// Opens all activations up to `k`.
  constexpr void open_to(int k) {
    while (first_open_ <= k) {
      fact(first_open_).choice = -1;
      ++first_open_;
    }
  }

  /// Decides the last open activation.
  constexpr void decide(std::size_t option) {
    --first_open_;
    fact(first_open_).needed = needed(first_open_);
    fact(first_open_).choice = static_cast<int>(option);
  }

  /// Whether backward needs `k`, all behind it being decided.
  constexpr bool needed(int k) const {
    if (fact(k).own_reads > 0) return true;
    bool is = false;
    readers(k, [&](int reader) { is = is || (recomputed(reader) && fact(reader).needed); });
    return is;
  }

  /// Whether `option` may govern the last open activation: nothing is recomputed from what keeps
  /// no values.
  constexpr bool allowed(std::size_t option_index) const {
    const int k = first_open_ - 1;
    const PlanOption& mine = option(k, option_index);
    if (mine.policy.codec == nullptr || mine.policy.codec->keeps_values) return true;
    bool good = true;
    readers(k, [&](int reader) { good = good && !recomputed(reader); });
    return good;
  }

  /// The plan, once nothing is open.
  constexpr Plan plan() const {
    Plan plan;
    plan.made_for = graph_.fingerprint;
    plan.policies.reserve(facts_.size());
    for (int k = 0; k < node_count(); ++k) plan.policies.push_back(chosen(k).policy);
    return plan;
  }
  constexpr int choice(int k) const { return fact(k).choice; }

  /// For every k, the bytes that live at the worst instruction of backward of node k, open
  /// activations that others than it read not counted.
  constexpr Array<std::size_t> stage_bytes() {
    Array<std::size_t> bytes(facts_.size());
    if (graph_.by_hand) return bytes;  // any stage may be the last reader of any activation
    cost_ = {};
    mark();
    forward();
    for (int k = node_count() - 1; k >= 0; --k) {
      cost_.live_bytes = 0;
      backward(k);
      bytes[static_cast<std::size_t>(k)] = cost_.live_bytes;
    }
    return bytes;
  }

  /// Lower bounds on what every completion costs.
  constexpr PartialCost cost() {
    cost_ = {};
    cost_.seconds = base_seconds_;
    mark();
    forward();
    for (int k = node_count() - 1; k >= 0; --k) backward(k);
    cost_.error = error();
    return cost_;
  }

 private:
  constexpr void add_options(int k) {
    fact(k).first_option = options_.size();
    for (const Policy& policy : policies_of(graph_, k)) {
      PlanOption option;
      option.policy = policy;
      option.seconds = seconds_of(graph_, profile_, k, policy);
      option.stored = stored_bytes(graph_, k, policy);
      if (policy.kind == PolicyKind::compress) option.blob = option.stored;
      const std::size_t value = align_up(graph_.node(k).output_bytes);
      if (option.stored > value) option.stored = value;
      if (policy.codec != nullptr && !policy.codec->lossless)
        option.column = profile_.column(policy.codec);
      options_.push_back(option);
    }
    fact(k).option_count = options_.size() - fact(k).first_option;
  }

  constexpr void describe(int k) {
    const Node& node = graph_.node(k);
    Fact& mine = fact(k);
    mine.value = align_up(node.output_bytes);
    mine.aux = align_up(node.aux_bytes);
    mine.forward_workspace = align_up(node.forward_workspace);
    mine.backward_workspace = align_up(node.backward_workspace);
    graph_.backward_reads(k, [&](int id) { ++fact(id).own_reads; });
  }

  constexpr void retires(int source, int reader) { fact(source).last_forward_reader = reader; }

  /// Which gradients live when does not depend on the plan.
  constexpr void trace_gradients() {
    const int last = node_count() - 1;
    Array<int> sums(facts_.size());  // residual gradients that each one still has to give
    for (int k = 0; k <= last; ++k)
      for (std::size_t i = 0; i < graph_.node(k).add_count; ++i)
        if (graph_.add_source(graph_.node(k), i) >= 0) ++sums[static_cast<std::size_t>(k)];
    std::size_t live = fact(last).value;
    loss_in_place_ = graph_.loss.dx_overwrites_x && !reads_output(graph_.node(last).reads);
    for (int k = last; k >= 0; --k) {
      const Node& node = graph_.node(k);
      Fact& mine = fact(k);
      mine.gradients_before = live;
      const bool wants_dx = !node.takes_tokens && !(k == 0 && node.accepts_empty_dx);
      const bool sums_wait = sums[static_cast<std::size_t>(k)] > 0;
      const bool in_place =
          wants_dx && node.dx_overwrites_dy && !sums_wait && node.input == node.output;
      if (wants_dx && !in_place) live += align_up(node.input.elems() * bytes_of(graph_.scalar));
      mine.gradients = live;
      if (!in_place && !sums_wait) live -= mine.value;
      if (k == 0) break;
      for (int reader = k; reader <= fact(k - 1).last_forward_reader; ++reader) {
        const Node& target = graph_.node(reader);
        for (std::size_t i = 0; i < target.add_count; ++i)
          if (graph_.add_source(target, i) == k - 1 &&
              --sums[static_cast<std::size_t>(reader)] == 0)
            live -= fact(reader).value;
      }
    }
  }

  /// Needs, uses and seconds.
  constexpr void mark() {
    const int count = node_count();
    for (int k = 0; k < count; ++k) {
      held(k) = {fact(k).own_reads, false};
      fact(k).needed = fact(k).own_reads > 0;
    }
    for (int k = count - 1; k >= first_open_; --k) {
      if (!fact(k).needed) continue;
      cost_.seconds += chosen(k).seconds;
      if (!recomputed(k)) continue;
      graph_.forward_reads(k, [&](int source) { use_again(source); });
    }
  }
  constexpr void use_again(int k) {
    fact(k).needed = true;
    ++held(k).uses;
  }

  constexpr void note(std::size_t transient) {
    const std::size_t live = live_ + transient;
    if (live > cost_.live_bytes) cost_.live_bytes = live;
    if (in_window_ && live - open_live_ > cost_.window_bytes)
      cost_.window_bytes = live - open_live_;
  }
  constexpr void take(int k) {
    held(k).value = true;
    live_ += fact(k).value;
    if (!decided(k)) open_live_ += fact(k).value;
  }
  constexpr void drop(int k) {
    held(k).value = false;
    live_ -= fact(k).value;
    if (!decided(k)) open_live_ -= fact(k).value;
  }

  constexpr void forward() {
    live_ = open_live_ = gradients_ = 0;
    if (graph_.by_hand) return take_over();
    for (int k = 0; k < node_count(); ++k) {
      in_window_ = k >= first_open_;
      take(k);
      live_ += fact(k).aux;
      note(fact(k).forward_workspace);
      retire_sources(k);
    }
    in_window_ = true;
    const int last = node_count() - 1;
    note(align_up(graph_.loss.backward_workspace) + (loss_in_place_ ? 0 : fact(last).value));
    gradients_ = fact(last).value;
    if (drops(last)) drop(last);
    else if (encodes(last)) encode(last);
    gradients_ = 0;
  }

  /// Forward values pass by outside, but for what is kept of them.
  constexpr void take_over() {
    for (int k = 0; k < node_count(); ++k) {
      in_window_ = k >= first_open_;
      if (!drops(k) && encodes(k)) live_ += chosen(k).blob;
      else if (!drops(k)) take(k);
      note(0);
    }
  }

  /// What no later forward step reads: dropped first, then encoded, in the schedule's order.
  constexpr void retire_sources(int k) {
    const Node& node = graph_.node(k);
    const auto each = [&](const auto& visit) {
      if (k > 0 && fact(k - 1).last_forward_reader == k) visit(k - 1);
      for (std::size_t i = 0; i < node.add_count; ++i)
        if (const int source = graph_.add_source(node, i);
            source >= 0 && source != k - 1 && fact(source).last_forward_reader == k)
          visit(source);
    };
    each([&](int source) {
      if (held(source).value && drops(source)) drop(source);
    });
    each([&](int source) {
      if (held(source).value && encodes(source)) encode(source);
    });
  }

  /// After forward: nothing is kept of it.
  constexpr bool drops(int k) const { return !fact(k).needed || !decided(k) || recomputed(k); }
  constexpr bool encodes(int k) const { return chosen(k).policy.kind == PolicyKind::compress; }
  constexpr void encode(int k) {
    live_ += chosen(k).blob;
    note(gradients_);
    drop(k);
  }

  constexpr void backward(int k) {
    Fact& mine = fact(k);
    in_window_ = k > first_open_ && !graph_.by_hand;  // by hand, any stage may be the last reader
    gradients_ = mine.gradients_before;
    graph_.backward_reads(k, [&](int id) { materialize(id); });
    note(mine.gradients + mine.backward_workspace);
    graph_.backward_reads(k, [&](int id) { used(id); });
    live_ -= mine.aux;
  }

  constexpr void used(int k) {
    if (--held(k).uses == 0) drop(k);
  }

  constexpr void materialize(int id) {
    stack_.push_back(id);
    while (!stack_.empty()) {
      const int top = stack_.back();
      if (held(top).value) {
        stack_.pop_back();
      } else if (!recomputed(top)) {
        take(top);
        note(gradients_);
        if (decided(top)) live_ -= chosen(top).blob;
        stack_.pop_back();
      } else if (!push_missing_sources(top)) {
        produce(top);
        stack_.pop_back();
      }
    }
  }

  constexpr bool push_missing_sources(int k) {
    const Node& node = graph_.node(k);
    const std::size_t before = stack_.size();
    for (std::size_t i = node.source_count; i-- > 0;)
      if (const int source = graph_.listed_source(node, i); !held(source).value)
        stack_.push_back(source);
    for (std::size_t i = node.add_count; i-- > 0;)
      if (const int source = graph_.add_source(node, i); source >= 0 && !held(source).value)
        stack_.push_back(source);
    if (k > 0 && !graph_.by_hand && !held(k - 1).value) stack_.push_back(k - 1);
    return stack_.size() != before;
  }

  constexpr void produce(int k) {
    take(k);
    note(gradients_ + fact(k).forward_workspace);
    graph_.forward_reads(k, [&](int source) { used(source); });
  }

  /// As error_of(); open activations carry nothing.
  constexpr double error() {
    double sum = 0;
    for (int k = first_open_; k < node_count(); ++k) {
      std::uint64_t& mine = lossy_[static_cast<std::size_t>(k)];
      const PlanOption& option = chosen(k);
      mine = option.column >= 0 ? std::uint64_t{1} << option.column : 0;
      if (option.column >= 0 && read(k)) sum += profile_.codec_cost(k, option.column).error;
      if (option.policy.kind != PolicyKind::recompute) continue;
      graph_.forward_reads(k, [&](int source) {
        if (source >= first_open_) mine |= lossy_[static_cast<std::size_t>(source)];
      });
      if (mine == 0 || !read(k)) continue;
      for (std::size_t c = 0; c < profile_.codecs.size(); ++c)
        if ((mine >> c & 1) != 0) sum += profile_.codec_cost(k, static_cast<int>(c)).carried_error;
    }
    return sum;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  Array<Fact> facts_;
  Array<PlanOption> options_;
  Array<Held> held_;
  Array<std::uint64_t> lossy_;
  Array<int> stack_;
  double base_seconds_ = 0;
  bool loss_in_place_ = false;
  int first_open_ = 0;
  // Of the simulation:
  PartialCost cost_;
  std::size_t live_ = 0;       ///< without gradients
  std::size_t open_live_ = 0;  ///< of it, values of open activations
  std::size_t gradients_ = 0;
  bool in_window_ = false;
};

}}  // namespace adacc::v0_1
