// SPDX-License-Identifier: MIT
/// The order of calls in a stash's step, and the fault of a call out of order: mistakes of the
/// calling code, told in the words of the activation or the stage.
#pragma once

#include <cstddef>

#include "../core/same_text.hpp"
#include "../model/graph.hpp"
#include "registry.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Where a step stands.
struct StashProgress {
  static constexpr int none = -1;

  bool under_way = false;
  int next = 0;        ///< the next activation to be put
  int made = 1 << 30;  ///< activations from this one on were not made: forward stopped before
  int stage = none;    ///< the current backward stage, or the last one
  bool left = false;   ///< this stage is over
  Error failed;        ///< the error by which the step ended early

  bool was_made(int id) const { return id < made; }
  bool stage_is_on() const { return under_way && stage != none && !left; }
  bool goes_on() const { return under_way && !(stage == 0 && left) && !failed; }
};

/// A backward stage in errors: "backward stage 3", and "backward stage 3 (gelu)" if its kernel has a name.
class StageName {
 public:
  constexpr StageName(const Graph& graph, int activations, int stage)
      : name_(graph.node(activations + stage).name), stage_(stage) {}

  constexpr void append_to(Error& error) const {
    error.append("backward stage ");
    error.append(stage_);
    if (detail::same_text(name_, "stage")) return;
    error.append(" (");
    error.append(name_);
    error.append(")");
  }

 private:
  const char* name_;
  int stage_;
};

/// Checks calls of a step that stands at `at`. The first nodes of `graph` are activations, the
/// others backward stages.
class StashCalls {
 public:
  StashCalls(const Graph& graph, int activations, const StashProgress& at)
      : graph_(graph), activations_(activations), at_(at) {}

  Error check_put(int id) const {
    if (const Error why = check_known("put", id)) return why;
    if (!at_.was_made(id))
      return Error::misuse("put of ", name(id), ": forward was said to end before ",
                           name(at_.made));
    if (id < at_.next)
      return Error::misuse("put of ", name(id), ": it was put already in this step");
    if (id > at_.next)
      return Error::misuse("put of ", name(id), " before ", name(at_.next),
                           ": activations are put in the order in which they were registered");
    return {};
  }

  Error check_stop() const {
    if (at_.failed) return at_.failed;
    if (!at_.under_way)
      return Error::misuse("forward cannot end before begin(): no step is under way");
    if (at_.stage != none)
      return Error::misuse("forward cannot end: ", stage_name(at_.stage), " was entered already");
    return {};
  }

  Error check_enter(int stage) const {
    const int stages = stage_count();
    if (at_.failed) return at_.failed;
    if (!at_.under_way)
      return Error::misuse("backward stage ", stage, " before begin(): no step is under way");
    if (stage < 0 || stage >= stages)
      return Error::misuse("there is no backward stage ", stage,
                           ": those that activations were registered with are 0 to ", stages - 1);
    if (at_.next < activations_)
      return Error::misuse(stage_name(stage), " begins, and forward is not over: ", name(at_.next),
                           " was not put");
    if (at_.stage != none && stage > at_.stage)
      return Error::misuse(stage_name(stage), " comes before ", stage_name(at_.stage),
                           at_.left ? ", which is over" : ", which is on",
                           ": they go from the highest number to the lowest");
    if (at_.left && stage == at_.stage)
      return Error::misuse(stage_name(stage), " is over already in this step");
    for (const int id : graph_.backward_reads(activations_ + stage))
      if (!at_.was_made(id))
        return Error::misuse(stage_name(stage), " reads ", name(id),
                             ", which forward did not make in this step: it ended before ",
                             name(at_.made));
    return {};
  }

  Error check_leave(int stage) const {
    if (at_.failed) return at_.failed;
    if (!at_.stage_is_on())
      return Error::misuse("backward stage ", stage, " cannot end: no stage is on");
    if (stage != at_.stage)
      return Error::misuse("backward stage ", stage, " cannot end: ", stage_name(at_.stage),
                           " is on");
    return {};
  }

  Error check_get(int id) const {
    if (const Error why = check_known("get", id)) return why;
    const bool on = at_.stage_is_on();
    if (on && reads(at_.stage, id)) return {};
    const int last = at_.stage == none ? stage_count() : at_.stage;
    int stage = last - 1;
    while (stage >= 0 && !reads(stage, id)) --stage;
    if (stage < 0)
      return Error::misuse("get of ", name(id), ": none of the backward stages that are left was ",
                           "registered to read it");
    if (!on)
      return Error::misuse("get of ", name(id), ": no backward stage is on; enter(", stage,
                           ") begins ", stage_name(stage), ", the first that reads it");
    return Error::misuse("get of ", name(id), ": ", stage_name(at_.stage),
                         " is on, and was not registered to read it; enter(", stage,
                         ") begins the next that was, ", stage_name(stage),
                         ", and ends what this stage got");
  }

  /// `last_runs`: of the graph.
  Error check_take(const Array<int>& last_runs, int id) const {
    if (const Error why = check_get(id)) return why;
    const auto refuse = [&](const auto&... why) {
      return Error::misuse("take of ", name(id), " in ", stage_name(at_.stage), ": ", why...,
                           "; only the last reader may overwrite an activation");
    };
    for (int stage = at_.stage - 1; stage >= 0; --stage)
      if (reads(stage, id)) return refuse(stage_name(stage), " reads it later");
    for (int other = id + 1; other < activations_; ++other) {
      const int maker = graph_.maker_of(other);
      const int last = last_runs[static_cast<std::size_t>(maker)];
      if (graph_.node(maker).recomputable && last >= 0 && last < at_.stage &&
          graph_.sources(maker).contains(id))
        return refuse("a plan may read it to recompute ", name(maker), " for ", stage_name(last));
    }
    return {};
  }

  Error check_carried(const Array<StashCarried>& carried, int id) const {
    if (at_.failed) return at_.failed;
    if (!at_.under_way)
      return Error::misuse("carried gradient ", id, " before begin(): no step is under way");
    const int count = static_cast<int>(carried.size());
    if (count == 0)
      return Error::misuse("there is no carried gradient ", id, ": the model has none (carry)");
    if (id < 0 || id >= count)
      return Error::misuse("there is no carried gradient ", id, ": the model has 0 to ", count - 1);
    const StashCarried& of = carried[static_cast<std::size_t>(id)];
    if (at_.stage == none || at_.stage > of.first_stage)
      return Error::misuse("carried gradient ", id, " (", of.name, ") begins with ",
                           stage_name(of.first_stage), ", and ",
                           at_.stage == none ? "none was entered" : "that is yet to come",
                           ": enter(", of.first_stage, ") is the first that has it");
    if (at_.stage < of.last_stage || (at_.stage == of.last_stage && at_.left))
      return Error::misuse("carried gradient ", id, " (", of.name,
                           ") is gone: ", stage_name(of.last_stage),
                           ", which is over, was the last that had it");
    return {};
  }

 private:
  static constexpr int none = StashProgress::none;

  int stage_count() const { return graph_.node_count() - activations_; }
  ActivationName name(int id) const { return {graph_, id}; }
  StageName stage_name(int stage) const { return {graph_, activations_, stage}; }

  bool reads(int stage, int id) const {
    return graph_.backward_reads(activations_ + stage).contains(id);
  }

  Error check_known(const char* what, int id) const {
    if (!at_.under_way)
      return Error::misuse(what, " of activation ", id, " before begin(): no step is under way");
    if (id < 0 || id >= activations_)
      return Error::misuse(what, " of activation ", id, ": the stash has activations 0 to ",
                           activations_ - 1);
    return at_.failed;
  }

  const Graph& graph_;
  int activations_;
  const StashProgress& at_;
};

}}}  // namespace adacc::v0_1::detail
