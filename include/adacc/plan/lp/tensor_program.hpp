/// The direct linear program of a graph: one binary for every policy of every activation.
///
/// For graphs where nothing repeats; equal blocks make it symmetric, and then it defeats solvers.
/// What it sums of memory is what every plan holds for certain at an instruction: fixed bytes, and
/// the stored bytes of whatever is read later. That is a bound, and rows of instructions are added
/// only once a plan passes them. What recomputation holds for a while is no sum of terms; a plan
/// that overflows there is cut off by a cover: choices that cannot all be made together, each
/// widened to all policies that would overflow as well.
#pragma once

#include <cstddef>

#include "../exhaustive/partial.hpp"
#include "linear_program.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class TensorProgram {
 public:
  /// Plans whose schedule holds more than `live_budget` bytes are to be cut off.
  TensorProgram(const Graph& graph, const CostProfile& profile, std::size_t live_budget,
                double tolerance)
      : graph_(graph), profile_(profile), partial_(graph, profile), live_budget_(live_budget),
        tolerance_(tolerance), stage_bytes_(partial_.stage_bytes()), choices_(graph.nodes.size()),
        sets_(graph.nodes.size()) {
    const int count = graph.node_count();
    for (int k = 0; k < count; ++k) {
      first_column_.push_back(static_cast<int>(program_.columns.size()));
      for (std::size_t i = 0; i < partial_.option_count(k); ++i)
        program_.add_binary(partial_.option(k, i).seconds);
    }
    for (int k = 0; k < count; ++k) add_choice(k);
    add_error_rows(tolerance);
    partial_.open_to(count - 1);
    add_stage_row(count, partial_.cost().window_bytes);
  }

  const LinearProgram& program() const { return program_; }
  /// Seconds of a step that no policy changes; the program leaves them out.
  double base_seconds() const { return partial_.base_seconds(); }

  /// The plan that `values` choose, which the members below speak of.
  Plan choose(const Array<double>& values) {
    partial_.open_to(graph_.node_count() - 1);
    for (int k = graph_.node_count() - 1; k >= 0; --k) {
      std::size_t choice = 0;
      if (partial_.needed(k))
        for (std::size_t i = 1; i < partial_.option_count(k); ++i)
          if (values[at(k, i)] > values[at(k, choice)]) choice = i;
      choices_[static_cast<std::size_t>(k)] = choice;
      partial_.decide(choice);
    }
    return partial_.plan();
  }

  /// Adds what cuts off the chosen plan, whose schedule passes the budget, and no plan that fits.
  void cut_overflow(const Array<double>& values) {
    for (int k = graph_.node_count() - 1; k > 1; --k)
      if (passes_stage_row(k, values)) return add_stage_row(k, stage_bytes_[index(k)]);
    add_cover(true);
  }

  /// Adds what cuts off the chosen plan alone: one that fits, but whose layout does not.
  void cut_plan() { add_cover(false); }

 private:
  using Sense = LinearProgram::Sense;

  static std::size_t index(int k) { return static_cast<std::size_t>(k); }
  int column(int k, std::size_t option) const {
    return first_column_[index(k)] + static_cast<int>(option);
  }
  std::size_t at(int k, std::size_t option) const { return index(column(k, option)); }
  /// The option that recomputes activation `k`; its number of options where there is none.
  std::size_t recompute_option(int k) const {
    std::size_t i = 0;
    while (i < partial_.option_count(k) &&
           partial_.option(k, i).policy.kind != PolicyKind::recompute)
      ++i;
    return i;
  }

  template <class Visit>
  void sources(int k, const Visit& visit) const {
    if (k > 0) visit(k - 1);
    const Node& node = graph_.node(k);
    for (std::size_t i = 0; i < node.add_count; ++i) {
      const int source = graph_.add_source(node, i);
      bool first = source >= 0 && source != k - 1;
      for (std::size_t j = 0; j < i; ++j) first = first && graph_.add_source(node, j) != source;
      if (first) visit(source);
    }
  }

  /// One policy where backward reads it, at most one elsewhere; and what is recomputed needs its
  /// sources, with their values.
  void add_choice(int k) {
    program_.add_row(partial_.read(k) ? Sense::equal : Sense::at_most, 1);
    for (std::size_t i = 0; i < partial_.option_count(k); ++i) program_.add_term(column(k, i), 1);
    const std::size_t again = recompute_option(k);
    if (again == partial_.option_count(k)) return;
    sources(k, [&](int source) {
      if (!partial_.read(source)) {
        program_.add_row(Sense::at_least, 0);
        for (std::size_t i = 0; i < partial_.option_count(source); ++i)
          program_.add_term(column(source, i), 1);
        program_.add_term(column(k, again), -1);
      }
      for (std::size_t i = 0; i < partial_.option_count(source); ++i) {
        const CodecInfo* codec = partial_.option(source, i).policy.codec;
        if (codec == nullptr || codec->keeps_values) continue;
        program_.add_row(Sense::at_most, 1);
        program_.add_term(column(source, i), 1);
        program_.add_term(column(k, again), 1);
        if (partial_.option_count(k) == 1) program_.columns[at(source, i)].upper = 0;
      }
    });
  }

  /// carried_[k * codecs + c]: whether activation k, recomputed, has codec c behind it.
  void add_error_rows(double tolerance) {
    const std::size_t codecs = profile_.codecs.size();
    carried_.resize(graph_.nodes.size() * codecs);
    for (int k = 0; k < graph_.node_count(); ++k)
      for (std::size_t c = 0; c < codecs; ++c) carried_[index(k) * codecs + c] = carry(k, c);
    program_.add_row(Sense::at_most, tolerance);
    for (int k = 0; k < graph_.node_count(); ++k) {
      if (!partial_.read(k)) continue;
      for (std::size_t i = 0; i < partial_.option_count(k); ++i)
        if (const int c = partial_.option(k, i).column; c >= 0)
          program_.add_term(column(k, i), profile_.codec_cost(k, c).error);
      for (std::size_t c = 0; c < codecs; ++c)
        if (const int carried = carried_[index(k) * codecs + c]; carried >= 0)
          program_.add_term(carried, profile_.codec_cost(k, static_cast<int>(c)).carried_error);
    }
  }

  /// The column that says whether `k` carries codec `c`; -1 where it never does.
  int carry(int k, std::size_t c) {
    const std::size_t again = recompute_option(k);
    if (again == partial_.option_count(k)) return -1;
    int carried = -1;
    sources(k, [&](int source) {
      const int behind = carried_[index(source) * profile_.codecs.size() + c];
      bool may = behind >= 0;
      for (std::size_t i = 0; i < partial_.option_count(source); ++i)
        may = may || partial_.option(source, i).column == static_cast<int>(c);
      if (!may) return;
      if (carried < 0) carried = program_.add_column(0, 0, 1);
      program_.add_row(Sense::at_most, 1);  // again + behind - 1 <= carried
      program_.add_term(carried, -1);
      program_.add_term(column(k, again), 1);
      if (behind >= 0) program_.add_term(behind, 1);
      for (std::size_t i = 0; i < partial_.option_count(source); ++i)
        if (partial_.option(source, i).column == static_cast<int>(c))
          program_.add_term(column(source, i), 1);
    });
    return carried;
  }

  /// Beside the `held` bytes of backward of node k, everything below activation k - 1 that is read
  /// later is stored. For k = node_count(): beside those of the loss, everything but the last.
  void add_stage_row(int k, std::size_t held) {
    program_.add_row(Sense::at_most, static_cast<double>(live_budget_) - static_cast<double>(held));
    stored_terms(k, [&](int of, double bytes) { program_.add_term(of, bytes); });
  }

  bool passes_stage_row(int k, const Array<double>& values) const {
    double sum = static_cast<double>(stage_bytes_[index(k)]);
    stored_terms(k, [&](int of, double bytes) { sum += bytes * values[index(of)]; });
    return sum > static_cast<double>(live_budget_) + 0.5;
  }

  template <class Visit>
  void stored_terms(int k, const Visit& visit) const {
    for (int below = 0; below < k - 1; ++below) {
      if (!partial_.read(below)) continue;
      for (std::size_t i = 0; i < partial_.option_count(below); ++i)
        visit(column(below, i), static_cast<double>(partial_.option(below, i).stored));
    }
  }

  /// Not all of the chosen policies, or, where `widen`, of any that overflow in their stead.
  void add_cover(bool widen) {
    const int count = graph_.node_count();
    const int first = widen ? first_overflow() : 0;
    for (int k = 0; k < count; ++k) sets_[index(k)].clear();
    partial_.open_to(count - 1);
    for (int k = count - 1; k >= first; --k) {
      if (partial_.needed(k)) sets_[index(k)].push_back(choices_[index(k)]);
      partial_.decide(choices_[index(k)]);
    }
    if (widen)
      for (int k = first; k < count; ++k) widen_set(k);
    int members = 0;
    for (int k = first; k < count; ++k)
      if (cuts(k)) ++members;
    program_.add_row(Sense::at_most, members - 1);
    for (int k = first; k < count; ++k)
      if (cuts(k))
        for (const std::size_t option : sets_[index(k)]) program_.add_term(column(k, option), 1);
  }

  /// Whether the choice of `k` is part of the cover: there are others.
  bool cuts(int k) const {
    const std::size_t size = sets_[index(k)].size();
    return size > 0 && (size < partial_.option_count(k) || !partial_.read(k));
  }

  /// The last activation from which on the chosen policies overflow, whatever the others are.
  int first_overflow() {
    partial_.open_to(graph_.node_count() - 1);
    int k = graph_.node_count();
    while (k > 0) {
      --k;
      partial_.decide(choices_[index(k)]);
      if (partial_.cost().live_bytes > live_budget_) break;
    }
    return k;
  }

  void widen_set(int k) {
    Array<std::size_t>& set = sets_[index(k)];
    if (set.empty()) return;
    const std::size_t chosen = set[0];
    for (std::size_t i = 0; i < partial_.option_count(k); ++i) {
      if (i == chosen) continue;
      set.push_back(i);
      visits_ = 0;
      partial_.open_to(graph_.node_count() - 1);
      if (!all_overflow()) set.pop_back();
    }
  }

  /// Whether every plan that takes policies of sets_, and any where they are empty, overflows or
  /// passes the tolerance.
  bool all_overflow() {
    constexpr int most_visits = 2000;
    if (++visits_ > most_visits) return false;
    if (partial_.first_open() < graph_.node_count()) {
      const PartialCost cost = partial_.cost();
      if (cost.live_bytes > live_budget_ || cost.error > tolerance_) return true;
    }
    if (partial_.first_open() == 0) return false;
    const int k = partial_.first_open() - 1;
    const bool needed = partial_.needed(k);
    const Array<std::size_t>& set = sets_[index(k)];
    const std::size_t count = !needed ? 1 : set.empty() ? partial_.option_count(k) : set.size();
    bool all = true;
    for (std::size_t i = 0; all && i < count; ++i) {
      const std::size_t option = !needed || set.empty() ? i : set[i];
      if (!partial_.allowed(option)) continue;
      partial_.decide(option);
      all = all_overflow();
      partial_.open_to(k);
    }
    return all;
  }

  const Graph& graph_;
  const CostProfile& profile_;
  PartialPlan partial_;
  std::size_t live_budget_;
  double tolerance_;
  Array<std::size_t> stage_bytes_;
  LinearProgram program_;
  Array<int> first_column_;
  Array<int> carried_;
  Array<std::size_t> choices_;
  Array<Array<std::size_t>> sets_;
  int visits_ = 0;
};

}}}  // namespace adacc::v0_1::detail
