// SPDX-License-Identifier: MIT
/// Plans for a recorded step by a price: the choice of least seconds where each byte held costs some seconds.
///
/// With a price, storages no longer compete for a budget: each takes its own cheapest form, and a block runs again where
/// this costs less than the forms of its storages. A higher price makes plans of fewer bytes, so a search over the price
/// finds a plan near a budget in a few dozen passes over the record, whatever its size (Lagrangian relaxation; Everett,
/// Operations Research 11, 1963). No libtorch in this file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "step_memory.hpp"

namespace adacc { inline namespace v0_1 { namespace torch { namespace detail {

class StepPrices {
 public:
  explicit StepPrices(const StepMemory& memory)
      : memory_(memory), record_(memory.record()), shares_(record_.storages.size(), 0) {}

  /// A byte is paid for at event `e`, too: all events share its price.
  void add(int e) {
    events_.push_back(e);
    for (std::size_t id = 0; id < shares_.size(); ++id) {
      const StepStorage& mine = record_.storages[id];
      double held = 0;
      for (const int each : events_)
        if (mine.released >= 0 && each > mine.released && each <= mine.freed) ++held;
      shares_[id] = held / static_cast<double>(events_.size());
    }
  }
  bool has(int e) const { return std::find(events_.begin(), events_.end(), e) != events_.end(); }

  /// The choice where a byte costs `price` seconds.
  StepChoice at(double price) const {
    StepChoice choice(record_);
    std::vector<double> costs(record_.storages.size(), 0);
    choose_forms(price, choice, costs);
    for (std::size_t b = 0; b < record_.blocks.size(); ++b)
      choice.again[b] = runs_again(b, price, costs) ? 1 : 0;
    choose_forms(price, choice, costs);  // without the storages gone by now, which bind no source
    return choice;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  const StepStorage& storage(int id) const { return record_.storages[index(id)]; }

  bool is_held(int id, const StepChoice& choice) const {
    return storage(id).released >= 0 && (storage(id).saved || memory_.feeds_again(id, choice));
  }

  /// The forms of all storages held, and the costs of these forms. Sources come before the storages made of them.
  void choose_forms(double price, StepChoice& choice, std::vector<double>& costs) const {
    for (int id = 0; id < static_cast<int>(record_.storages.size()); ++id) {
      if (!is_held(id, choice) || memory_.gone(id, choice)) continue;
      choose_form(id, price, choice, costs);
      make_again(id, price, choice, costs);
    }
  }
  /// The cheapest form by itself.
  void choose_form(int id, double price, StepChoice& choice, std::vector<double>& costs) const {
    const StepStorage& mine = storage(id);
    choice.form[index(id)] = -1;
    costs[index(id)] = cost(id, -1, price);
    if (mine.packed.bytes > 0) return;
    for (int form = 0; form < static_cast<int>(mine.forms.size()); ++form) {
      if (mine.forms[index(form)].runs_again()) continue;
      const double its = cost(id, form, price);
      if (its < costs[index(id)]) costs[index(id)] = its, choice.form[index(id)] = form;
    }
  }
  /// The operator runs again, if this costs less: with its sources as they are, without codecs, or retained.
  void make_again(int id, double price, StepChoice& choice, std::vector<double>& costs) const {
    const StepStorage& mine = storage(id);
    if (mine.forms.empty() || !mine.forms.back().runs_again() || mine.packed.bytes > 0) return;
    const auto try_with = [&](const auto& retains) {
      make_again(id, price, retains, choice, costs);
    };
    try_with([](const StepForm&) { return false; });
    try_with([](const StepForm& form) { return !form.runs_again(); });
    try_with([](const StepForm&) { return true; });
  }
  template <class Retains>
  void make_again(int id, double price, const Retains& retains, StepChoice& choice,
                  std::vector<double>& costs) const {
    const int form = static_cast<int>(storage(id).forms.size()) - 1;
    std::vector<std::pair<int, int>> before{{id, choice.form[index(id)]}};
    choice.form[index(id)] = form;
    double more = 0;
    for (const StepSource& source : storage(id).sources) {
      int& its = choice.form[index(source.storage)];
      if (its < 0 || !retains(storage(source.storage).forms[index(its)])) continue;
      before.emplace_back(source.storage, std::exchange(its, -1));
      more += cost(source.storage, -1, price) - costs[index(source.storage)];
    }
    if (memory_.form_number(id, choice) == form) {
      const double again = memory_.decode_seconds(id, choice) * storage(id).decodings();
      if (again + more < costs[index(id)]) {
        for (const auto& [changed, its] : before) costs[index(changed)] = cost(changed, -1, price);
        costs[index(id)] = again;
        return;
      }
    }
    for (const auto& [changed, its] : before) choice.form[index(changed)] = its;
  }

  /// Whether block `b` costs less than its storages.
  bool runs_again(std::size_t b, double price, const std::vector<double>& costs) const {
    const StepBlock& block = record_.blocks[b];
    if (!memory_.repeats(static_cast<int>(b))) return false;
    double kept = 0, again = block.seconds;
    for (int id = block.first; id < block.end; ++id)
      if (storage(id).block == static_cast<int>(b) && memory_.member(id)) kept += costs[index(id)];
    for (const int id : block.inputs)
      if (!storage(id).saved)
        again += price * shares_[index(id)] * static_cast<double>(storage(id).bytes);
    return again < kept;
  }

  double cost(int id, int form, double price) const {
    const StepStorage& mine = storage(id);
    const StepForm* const its = form >= 0               ? &mine.forms[index(form)]
                                : mine.packed.bytes > 0 ? &mine.packed
                                                        : nullptr;
    const double paid = price * shares_[index(id)];
    if (its == nullptr) return paid * static_cast<double>(mine.bytes);
    return its->encode + its->decode * mine.decodings() + paid * static_cast<double>(its->bytes);
  }

  const StepMemory& memory_;
  const StepRecord& record_;
  std::vector<int> events_;
  std::vector<double> shares_;  ///< of the events at which the storage is held
};

}}}}  // namespace adacc::v0_1::torch::detail
