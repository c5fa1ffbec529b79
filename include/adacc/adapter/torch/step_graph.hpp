// SPDX-License-Identifier: MIT
/// A recorded step as a graph with costs, for make_plan().
///
/// The graph is like a stash's (stash/model.hpp): storages are activations; storages read together in backward are a stage;
/// a stage's workspace is the memory in use beside storages; and a block makes its storages together. The graph keeps some
/// storages longer than hooks do, and does not know forward's own peaks. No libtorch in this file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "../../cost/estimate.hpp"
#include "../../cost/nearest_sources.hpp"
#include "../../plan/make_plan.hpp"
#include "step_memory.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

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
      for (const StepForm& form : storage.forms) {
        CodecCost& cost = profile_.codec_cost(k, profile_.column(form.codec));
        cost.encode = form.encode;
        cost.decode = form.decode * storage.decodings();
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

}  // namespace detail

}}}  // namespace adacc::v0_1::torch
