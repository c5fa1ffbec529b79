// SPDX-License-Identifier: MIT
/// A plan for a recorded step: a form for each storage, and the blocks to run again, for the least time with the
/// step's peak within a budget.
///
/// The record becomes a graph like a stash's (stash/model.hpp): storages are activations; storages read together in
/// backward are a stage; a stage's workspace is the memory in use beside storages; and a block makes its storages
/// together. make_plan() searches this graph. The graph keeps some storages longer than hooks do and does not know
/// forward's own peaks, so each plan is checked as the step would run it (step_memory.hpp). A plan above the budget
/// is made again with less, and the rest of the budget is spent on milder forms one by one.
///
/// With a store, plans for more bytes than the budget are made as well, as in plan/offload.hpp. Their storages go to
/// the store, those needed last first, until the budget is met, and the step is simulated in two lanes
/// (step_transfers.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "../../core/steady_clock.hpp"
#include "../../cost/estimate.hpp"
#include "../../cost/nearest_sources.hpp"
#include "../../plan/make_plan.hpp"
#include "step_memory.hpp"
#include "step_transfers.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

struct StepPlan {
  StepChoice choice;
  StepPeak peak;
  double seconds = 0;  ///< added to the recorded step's; among them:
  double stall_seconds = 0;
  std::size_t sent_bytes = 0;  ///< to the store and back
};

struct StepPlans {
  StepPlan best;   ///< within the budget, if `fits`
  StepPlan least;  ///< the plan of least peak found
  bool fits = false;
};

/// A store for storages: speed, and room in bytes.
struct StepStore {
  LinkCost link;
  std::size_t room_bytes = static_cast<std::size_t>(-1);
};

/// The blocks that a search may run again.
enum class Again : unsigned char { any, none, all };

namespace detail {

/// A record as a graph, with a profile.
class StepGraph {
 public:
  StepGraph(const StepMemory& memory, Again again) : memory_(memory), record_(memory.record()) {
    graph_.has_loss = false;
    node_of_.assign(record_.storages.size(), -1);
    add_storages(again);
    if (graph_.nodes.empty()) return;
    add_stages();
    graph_.fingerprint = fingerprint_of(graph_);
    add_costs();
  }

  bool empty() const { return graph_.nodes.empty(); }
  const Graph& graph() const { return graph_; }
  const CostProfile& profile() const { return profile_; }

  StepChoice choice_of(const Plan& plan) const {
    StepChoice choice(record_);
    for (std::size_t id = 0; id < record_.storages.size(); ++id) {
      const StepStorage& storage = record_.storages[id];
      if (node_of_[id] < 0) continue;
      const auto& policy = plan[node_of_[id]];
      // A block runs whole: keeping more storages would cost bytes and save no time.
      if (policy.recomputes()) choice.again[static_cast<std::size_t>(storage.block)] = 1;
      for (std::size_t f = 0; f < storage.forms.size(); ++f)
        if (policy.keeps() && policy.codec() == storage.forms[f].codec && policy.codec() != nullptr)
          choice.form[id] = static_cast<int>(f);
    }
    return choice;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  int storage_count() const { return static_cast<int>(record_.storages.size()); }

  void add_storages(Again again) {
    int next = 0;
    for (std::size_t b = 0; b < record_.blocks.size(); ++b) {
      const StepBlock& block = record_.blocks[b];
      for (; next < block.first; ++next) add_storage(next, -1, Again::none);
      // The outputs of one forward stand together.
      for (int id = block.first; id < block.end; ++id)
        if (!memory_.member(id)) add_storage(id, -1, Again::none);
      int maker = -1;
      const bool repeats = again != Again::none && memory_.repeats(static_cast<int>(b));
      for (int id = block.first; id < block.end; ++id)
        if (memory_.member(id))
          maker = add_storage(id, repeats ? static_cast<int>(b) : -1, again, maker);
      next = std::max(next, block.end);
    }
    for (; next < storage_count(); ++next) add_storage(next, -1, Again::none);
  }

  /// Returns the node that makes the storages of the block.
  int add_storage(int id, int block, Again again, int maker = -1) {
    const StepStorage& storage = record_.storages[index(id)];
    if (storage.released < 0) return maker;  // has the same bytes under every plan
    Node node;
    node.name = storage.name.c_str();
    node.layer = graph_.node_count();
    node.output = storage.shape;
    node.output_bytes = storage.packed.bytes > 0 ? storage.packed.bytes : storage.bytes;
    node.value_outside = node.gradient_outside = true;
    node.recomputable = block >= 0;
    const std::size_t begin = graph_.candidates.size();
    if (storage.packed.bytes == 0)
      for (const StepForm& form : storage.forms) graph_.candidates.push_back(form.codec);
    node.candidates = {begin, graph_.candidates.size()};
    Array<int> sources;
    if (block >= 0) {
      if (again == Again::all) node.policy = recompute();
      node.made_by = maker;
      std::ptrdiff_t scratch = static_cast<std::ptrdiff_t>(memory_.growth(block));
      const StepBlock& of = record_.blocks[index(block)];
      for (int k = of.first; k < of.end; ++k)
        if (memory_.member(k))
          scratch -= static_cast<std::ptrdiff_t>(record_.storages[index(k)].bytes);
      if (maker < 0 && scratch > 0) node.forward_workspace = static_cast<std::size_t>(scratch);
      for (const int input : of.inputs)
        if (node_of_[index(input)] >= 0) sources.push_back(node_of_[index(input)]);
    }
    node_of_[index(id)] = graph_.node_count();
    graph_.append(node, {sources.data(), sources.size()});
    return maker < 0 && block >= 0 ? node_of_[index(id)] : maker;
  }

  void add_stages() {
    struct Stage {
      int first = 0;  // the first event of the stage
      std::vector<int> reads;
    };
    std::vector<Stage> stages;
    int open_until = -1;
    const int events = static_cast<int>(record_.events.size());
    for (int e = 0; e < events; ++e) {
      const int id = record_.events[index(e)].reads;
      if (id < 0) continue;
      if (e >= open_until) stages.push_back({e, {}});
      for (const StepReading& reading : record_.storages[index(id)].readings)
        if (reading.first == e) open_until = std::max(open_until, reading.last);
      if (node_of_[index(id)] >= 0) stages.back().reads.push_back(node_of_[index(id)]);
    }
    for (std::size_t s = stages.size(); s-- > 0;) {  // the last to run is the first node
      Node node;
      node.name = "backward";
      node.layer = graph_.node_count();
      node.policy = retain();
      node.recomputable = false;
      node.value_outside = node.gradient_outside = true;
      const int end = s + 1 < stages.size() ? stages[s + 1].first : events - 1;
      std::ptrdiff_t most = 0;
      for (int e = stages[s].first + 1; e <= end; ++e) {
        std::ptrdiff_t bytes = record_.events[index(e)].peak;
        for (int id = 0; id < storage_count(); ++id)
          if (node_of_[index(id)] >= 0) bytes -= memory_.recorded_bytes(id, e);
        most = std::max(most, bytes);
      }
      for (int id = 0; id < storage_count(); ++id)  // unpacked beside the packed bytes
        if (record_.storages[index(id)].packed.bytes > 0 && reads(stages[s].reads, id))
          most += static_cast<std::ptrdiff_t>(record_.storages[index(id)].bytes);
      node.backward_workspace = static_cast<std::size_t>(most);
      graph_.append(node, {});
      graph_.set_backward_reads(graph_.node_count() - 1,
                                {stages[s].reads.data(), stages[s].reads.size()});
    }
  }

  bool reads(const std::vector<int>& nodes, int id) const {
    return std::find(nodes.begin(), nodes.end(), node_of_[index(id)]) != nodes.end();
  }

  void add_costs() {
    profile_ = empty_profile(graph_);
    double known_seconds = 0;
    for (int id = 0; id < storage_count(); ++id) {
      const StepStorage& storage = record_.storages[index(id)];
      const int k = node_of_[index(id)];
      if (k < 0) continue;
      const Node& node = graph_.node(k);
      if (node.recomputable && node.made_by < 0) {
        NodeCost& cost = profile_.nodes[index(k)];
        cost.forward = std::max(1e-9, record_.blocks[index(storage.block)].seconds);
        known_seconds += cost.forward;
      }
      if (node.candidates.count == 0) continue;
      const std::size_t reads = std::max<std::size_t>(1, storage.readings.size());
      for (const StepForm& form : storage.forms) {
        CodecCost& cost = profile_.codec_cost(k, profile_.column(form.codec));
        cost.encode = form.encode;
        cost.decode = form.decode * static_cast<double>(reads);
        // All tolerated forms are allowed: this only ranks two equally fast ones.
        cost.error = form.codec->lossless
                         ? 0
                         : estimated_error(*form.codec, storage.shape, Dtype::f32) /
                               static_cast<double>(storage_count());
      }
    }
    estimate_carried_errors(graph_, profile_);
    profile_.rest = std::max(1e-9, record_.seconds - known_seconds);
  }

  const StepMemory& memory_;
  const StepRecord& record_;
  Graph graph_;
  CostProfile profile_;
  std::vector<int> node_of_;
};

/// Looks for plans of one record.
class StepSearch {
 public:
  StepSearch(const StepMemory& memory, std::size_t budget, double seconds, const StepStore& store)
      : memory_(memory), transfers_(memory, store.link), store_bytes_(store.room_bytes),
        budget_(budget),
        deadline_(&steady_seconds, seconds), plans_{StepPlan{StepChoice(memory.record()), {}},
                                                    StepPlan{StepChoice(memory.record()), {}}} {}

  StepPlans run() {
    const StepRecord& record = memory_.record();
    consider(StepChoice(record));
    if (plans_.fits) return plans_;
    StepChoice smallest(record);
    memory_.make_smallest(smallest);
    StepChoice strongest(record);
    strongest.form = smallest.form;
    consider(strongest);
    const bool blocks =
        std::find(smallest.again.begin(), smallest.again.end(), 1) != smallest.again.end();
    consider(smallest);
    const StepChoice encoded = without_operators(smallest);
    consider(encoded);
    const bool stores = transfers_.link().exists();
    if (stores) send(StepChoice(record), strongest, smallest);
    if (blocks) {
      search(Again::any, 0.5, budget_);
      search(Again::all, 0.4, budget_);
    }
    search(Again::none, 0.5, budget_);
    if (stores) search_beyond(blocks);
    if (!plans_.fits) lessen(smallest);
    if (!plans_.fits) lessen(strongest);
    if (!plans_.fits) lessen(encoded);
    if (!plans_.fits) lessen(StepChoice(plans_.least.choice));
    if (plans_.fits) soften();
    return plans_;
  }

 private:
  /// Looks for a plan within `budget`; beyond the step's own budget, sends the surplus away.
  void search(Again again, double share, std::size_t budget) {
    const Deadline own_deadline = deadline_.part(share);
    const StepGraph step(memory_, again);
    if (step.empty()) return;
    PlanRequest request;
    request.tolerance = 1e9;
    request.least_error = true;
    request.clock = deadline_.clock();
    request.budget_bytes = budget;
    for (int i = 0; i < 10 && !own_deadline.passed(); ++i) {
      request.deadline_seconds = std::max(0.02, 0.5 * own_deadline.left());
      const Result<PlanOutcome> found = make_plan(step.graph(), step.profile(), request);
      if (!found) return consider_smallest(step, request);
      const StepChoice choice = step.choice_of((*found).plan);
      if (transfers_.link().exists()) send(choice);
      const std::size_t peak = consider(choice);
      if (peak <= budget) return;
      const std::size_t less = std::max(peak - budget, request.budget_bytes / 200);
      if (less >= request.budget_bytes) return;
      request.budget_bytes -= less;
    }
  }

  void consider_smallest(const StepGraph& step, PlanRequest request) {
    const Result<std::size_t> least = smallest_peak(step.graph(), step.profile(), request);
    if (!least) return;
    request.budget_bytes = *least;
    const Result<PlanOutcome> found = make_plan(step.graph(), step.profile(), request);
    if (found) consider(step.choice_of((*found).plan));
  }

  /// Plans for more than the budget, up to the peak of a plain step.
  void search_beyond(bool blocks) {
    const std::size_t most = memory_.record().peak();
    for (const std::size_t part : {16U, 8U, 4U, 2U}) {
      const std::size_t budget = budget_ + (most - std::min(most, budget_)) / part;
      search(blocks ? Again::any : Again::none, 0.3, budget);
    }
  }

  template <class... Choices>
  void send(const Choices&... choices) {
    (send_away(choices), ...);
  }
  /// Sends storages present at the peak, those needed last first, until the step fits.
  void send_away(StepChoice choice) {
    const int count = static_cast<int>(memory_.record().storages.size());
    std::size_t room = store_bytes_;
    for (StepPeak peak = memory_.peak(choice); peak.bytes > budget_; peak = memory_.peak(choice)) {
      int chosen = -1, use = -1;
      for (int id = 0; id < count; ++id) {
        if (choice.travel[static_cast<std::size_t>(id)].sent || !memory_.may_be_sent(id, choice) ||
            memory_.released(id, choice) >= peak.event || transfers_.store_bytes(id, choice) > room)
          continue;
        const int next_use = memory_.first_use(id, choice);
        if (next_use >= peak.event && next_use > use) chosen = id, use = next_use;
      }
      if (chosen < 0 || deadline_.passed()) break;
      room -= transfers_.store_bytes(chosen, choice);
      choice.travel[static_cast<std::size_t>(chosen)].sent = true;
      transfers_.at_once(choice);
    }
    consider(choice);
  }

  /// Returns the peak of the choice.
  std::size_t consider(StepChoice choice) {
    StepPlan plan{choice, {}};
    if (choice.sends()) {
      transfers_.at_once(choice);
      if (memory_.peak(choice).bytes <= budget_) transfers_.spread(choice, budget_);
      const StepCourse course = transfers_.course(choice);
      if (course.sent_bytes > store_bytes_) return static_cast<std::size_t>(-1);
      plan = {choice, {}, course.seconds, course.stall_seconds, course.sent_bytes};
    } else {
      plan.seconds = memory_.seconds(choice);
    }
    plan.peak = memory_.peak(choice);
    if (none_ || plan.peak.bytes < plans_.least.peak.bytes) plans_.least = plan;
    none_ = false;
    if (plan.peak.bytes <= budget_ && (!plans_.fits || plan.seconds < plans_.best.seconds))
      plans_.best = plan, plans_.fits = true;
    return plan.peak.bytes;
  }

  /// `choice` without operators that run again.
  StepChoice without_operators(StepChoice choice) const {
    const std::vector<StepStorage>& storages = memory_.record().storages;
    for (std::size_t id = 0; id < storages.size(); ++id)
      if (int& form = choice.form[id];
          form >= 0 && storages[id].forms[static_cast<std::size_t>(form)].runs_again())
        --form;
    return choice;
  }

  /// Retains the sources of storage `id` if the operator is to run again. False: they are, or it is not.
  bool retain_sources(std::size_t id, StepChoice& choice) const {
    const StepStorage& storage = memory_.record().storages[id];
    const int form = choice.form[id];
    bool any = false;
    if (form < 0 || !storage.forms[static_cast<std::size_t>(form)].runs_again()) return any;
    for (const StepSource& source : storage.sources) {
      const auto place = static_cast<std::size_t>(source.storage);
      any |= std::exchange(choice.form[place], -1) >= 0;
      any |= std::exchange(choice.travel[place].sent, false);
    }
    return any;
  }

  /// Lowers the peak by single changes, as long as one does: a storage read at the peak takes fewer bytes retained
  /// than decoded beside a form.
  void lessen(StepChoice choice) {
    const StepRecord& record = memory_.record();
    std::size_t peak = consider(choice);
    const auto keep_if_lower = [&](const StepChoice& other) {
      const std::size_t bytes = consider(other);
      if (bytes >= peak) return false;
      choice = other, peak = bytes;
      return true;
    };
    for (bool lower = true; lower && !plans_.fits && !deadline_.passed();) {
      lower = false;
      for (std::size_t b = 0; b < choice.again.size() && !deadline_.passed(); ++b) {
        if (!memory_.repeats(static_cast<int>(b))) continue;
        StepChoice other = choice;
        other.again[b] ^= 1;
        lower |= keep_if_lower(other);
      }
      for (std::size_t id = 0; id < record.storages.size() && !deadline_.passed(); ++id) {
        const auto strongest = static_cast<int>(record.storages[id].forms.size()) - 1;
        if (strongest < 0) continue;
        const bool again = !record.storages[id].sources.empty();
        for (int form = again ? 0 : strongest; form <= strongest; ++form) {
          StepChoice other = choice;
          other.form[id] = choice.form[id] == form ? -1 : form;
          lower |= keep_if_lower(other);
          if (retain_sources(id, other)) lower |= keep_if_lower(other);
        }
      }
    }
  }

  /// Spends the rest of the budget: blocks that need not run again, storages that stay, milder forms.
  void soften() {
    const StepRecord& record = memory_.record();
    for (bool better = true; better && !deadline_.passed();) {
      const double before = plans_.best.seconds;
      for (std::size_t b = 0; b < record.blocks.size() && !deadline_.passed(); ++b) {
        if (plans_.best.choice.again[b] == 0) continue;
        StepChoice choice = plans_.best.choice;
        choice.again[b] = 0;
        consider(choice);
      }
      for (std::size_t id = 0; id < record.storages.size() && !deadline_.passed(); ++id) {
        if (!plans_.best.choice.travel[id].sent) continue;
        StepChoice choice = plans_.best.choice;
        choice.travel[id].sent = false;
        consider(choice);
      }
      for (std::size_t id = 0; id < record.storages.size() && !deadline_.passed(); ++id) {
        const StepStorage& storage = record.storages[id];
        if (storage.released < 0 || storage.packed.bytes > 0) continue;
        for (int form = -1; form < static_cast<int>(storage.forms.size()); ++form) {
          if (form == plans_.best.choice.form[id]) continue;
          StepChoice choice = plans_.best.choice;
          choice.form[id] = form;
          if (choice.sends() || memory_.seconds(choice) < plans_.best.seconds) consider(choice);
          if (retain_sources(id, choice) &&
              (choice.sends() || memory_.seconds(choice) < plans_.best.seconds))
            consider(choice);
        }
      }
      better = plans_.best.seconds < before;
    }
  }

  const StepMemory& memory_;
  const StepTransfers transfers_;
  const std::size_t store_bytes_;
  const std::size_t budget_;
  const Deadline deadline_;
  StepPlans plans_;
  bool none_ = true;
};

}  // namespace detail

/// The fastest plan found within `seconds` whose peak is at most `budget` bytes, and the plan of least peak. Without
/// a link in `store`, nothing is sent.
inline StepPlans plan_step(const StepMemory& memory, std::size_t budget, double seconds = 2,
                           const StepStore& store = {}) {
  return detail::StepSearch(memory, budget, seconds, store).run();
}

}}}  // namespace adacc::v0_1::torch
