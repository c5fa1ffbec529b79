// SPDX-License-Identifier: MIT
/// The one evolving plan of several ranks: rank 0 plans, and the others follow.
///
/// All ranks meet before the same updates: behind each update with watched codecs
/// (EvolutionOptions::check_every), if gradient errors are to be probed, and after a call that needs all
/// ranks (a budget, a checkpoint, the first update). Each rank sends its observations since the last meeting in
/// one message: the time of every update, and the statistics of codecs over all micro-batches of the update.
/// The longest time and the largest error of all ranks count. So observations do not depend on
/// the number of ranks. Then rank 0 acts as train/evolving.hpp does on one rank. Rank 0 broadcasts each action
/// that needs all ranks, until the last message:
///
///     measure   each rank measures costs on its own batch; those of the slowest count
///     run       all ranks run this plan from now on, or none does
///     done      the outcome, for boundary()
///
/// Rank 0 probes gradient errors, with the first shard, which is rank 0's for any number of ranks.
///
/// On other ranks, evolution() is updated only at changes of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/read_number.hpp"
#include "../../io/plan_text.hpp"
#include "../../train/evolving.hpp"
#include "../collectives.hpp"
#include "slowest_costs.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Whether a codec does worse by `a` than by `b`: the worst of many does not depend on the order of ranks and
/// micro-batches.
inline bool is_worse(const CodecStatistics& a, const CodecStatistics& b) {
  // Statistics that a CodecWatch refuses must not displace another rank's.
  const auto noise = [](const CodecStatistics& s) {
    const double ratio = s.bulk_noise / s.bulk_signal;
    return s.samples > 0 && s.bulk_signal > 0 && ratio >= 0 && ratio < 1e9 ? ratio : -1;
  };
  if (a.misfit() != b.misfit()) return a.misfit();
  if (noise(a) != noise(b)) return noise(a) > noise(b);
  if (a.samples != b.samples) return a.samples > b.samples;
  return noise(a) >= 0 && a.bulk_noise > b.bulk_noise;
}

template <class T, class Context, class Optimizer>
class RankedPlan final : public EvolvingPlan<T, Context, Optimizer> {
  using Base = EvolvingPlan<T, Context, Optimizer>;

 public:
  using typename Base::Options;
  using typename Base::Owner;

  /// `evolution`: the same on all ranks.
  /// `costs_known`: each rank brought a profile. `room`: bytes for this rank's arena.
  RankedPlan(GroupRef group, Evolution evolution, const Options& options, bool costs_known,
             std::size_t room)
      : Base(std::move(evolution), options), group_(group), model_(options.model), room_(room) {
    costs_known_ = costs_known;
  }

  Error prepare(Owner&, PlanBoundary&, AnyView, AnyView) override {
    return Error::misuse("several ranks measure costs together, before their first update");
  }

  /// Whether all ranks meet before the next micro-batch.
  bool meets(const Owner& training) const { return !looked_ && meets(training.updates()); }

  Error before(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) override {
    if (broken_) return broken_;
    if (!looked_) {
      looked_ = true;
      boundary_ = {};
      Error why;
      if (meets(training.updates())) {
        asked_ = false;
        gather();
        why = meet(training, boundary_, input, targets,
                   [&] { return Base::decide(training, boundary_, input, targets); });
      }
      // Changes by set_budget() belong to this boundary, too.
      pending_.add(boundary_.update);
      boundary_.update = std::exchange(pending_, {});
      if (why) return broken_ = why;
      seen_.clear();
      this->watch(training);
    }
    boundary = boundary_;
    return {};
  }

  /// Behind each micro-batch: notes the statistics of codecs.
  void note_codecs(const Owner& training) {
    if (!watched_) return;
    seen_.resize(training.compiled_step().graph().nodes.size());
    for (std::size_t k = 0; k < seen_.size(); ++k) {
      const CodecStatistics now = training.compiled_step().statistics(static_cast<int>(k));
      if (now.elements != 0 && (seen_[k].elements == 0 || is_worse(now, seen_[k]))) seen_[k] = now;
    }
  }

  void after(Owner& training, double seconds) override {
    if (watched_) told_ = std::move(seen_);
    else if (evolving_ && watch_times_) seconds_.push_back(seconds);
    this->stop_watching(training);
  }

  /// Ends the update on all ranks, made or not: a boundary comes before the next.
  void next() { looked_ = false; }

  /// All ranks call set_budget(), between updates; all get the same error.
  Error set_budget(Owner& training, std::size_t bytes) {
    if (broken_) return broken_;
    std::vector<std::uint64_t> all;
    if (const Error why = all_gather(group_, std::uint64_t{bytes}, all)) return broken_ = why;
    std::size_t least = 0;
    for (std::size_t r = 1; r < all.size(); ++r)
      if (all[r] < all[least]) least = r;
    const std::size_t before = room_, budget = static_cast<std::size_t>(all[least]);
    room_ = bytes;
    looked_ = false;
    asked_ = true;  // from now on measuring costs may be worth the time
    if (group_.rank() == 0) evolution_.set_budget(budget);
    PlanBoundary boundary;
    if (const Error why = meet(training, boundary, {}, {}, [&] {
          this->advance(training, boundary);
          return Error();
        }))
      return why;
    if (!boundary.update.failed) {
      pending_.add(boundary.update);
      return {};
    }
    room_ = before;
    return Error::say("a budget of ", shown(budget), ", the smallest, which rank ", least,
                      " has: ", boundary.update.failed.text());
  }

  /// Restores the state of a checkpoint; each rank calls restore() with the same arguments.
  Error restore(Owner& training, Plan plan, const std::string& text) override {
    forget();
    return Base::restore(training, std::move(plan), text);
  }

  /// Forgets observations, since the run goes on from another update.
  void forget() {
    seen_.clear();
    told_.clear();
    seconds_.clear();
    pending_ = {};
    looked_ = false;
    asked_ = true;
  }

  /// Why ranks do not meet any more.
  const Error& broken() const { return broken_; }

 private:
  using Base::costs_known_;
  using Base::evolution_;
  using Base::evolving_;
  using Base::watch_times_;
  using Base::watched_;

  static constexpr std::size_t numbers = 6;  ///< sent for each CodecStatistics

  bool meets(std::uint64_t update) const {
    if (asked_) return true;
    if (!evolving_) return false;
    return evolution_.wants_probe(update) ||
           (update > 0 && evolution_.wants_statistics(update - 1));
  }

  /// Passes the observations of all ranks to rank 0's evolution.
  void gather() {
    const std::size_t nodes = told_.size(), updates = seconds_.size();
    if (nodes + updates == 0) return;
    std::vector<double> own, all;
    for (const double seconds : seconds_) own.push_back(seconds);
    for (const CodecStatistics& seen : told_)
      for (const double number :
           {static_cast<double>(seen.elements), static_cast<double>(seen.samples),
            static_cast<double>(seen.unplaced), seen.bulk_noise, seen.bulk_signal,
            static_cast<double>(seen.rows_over)})
        own.push_back(number);
    all.resize(own.size() * static_cast<std::size_t>(group_.size()));
    const auto bytes = [](std::vector<double>& of) {
      return Bytes(reinterpret_cast<std::byte*>(of.data()), Shape(of.size() * sizeof(double)));
    };
    broken_ = all_gather(group_, bytes(own), bytes(all));
    told_.clear();
    seconds_.clear();
    if (broken_ || group_.rank() != 0) return;
    for (std::size_t u = 0; u < updates; ++u) {
      double longest = 0, shortest = all[u];
      for (std::size_t at = u; at < all.size(); at += own.size()) {
        longest = all[at] > longest ? all[at] : longest;
        shortest = all[at] < shortest ? all[at] : shortest;
      }
      if (shortest > 0) evolution_.observe_seconds(longest);  // all ranks know the time
    }
    for (std::size_t k = 0; k < nodes; ++k) {
      CodecStatistics worst;
      for (std::size_t at = updates + numbers * k; at < all.size(); at += own.size()) {
        CodecStatistics seen;
        seen.elements = static_cast<std::uint64_t>(all[at]);
        seen.samples = static_cast<std::uint64_t>(all[at + 1]);
        seen.unplaced = static_cast<std::uint64_t>(all[at + 2]);
        seen.bulk_noise = all[at + 3];
        seen.bulk_signal = all[at + 4];
        seen.rows_over = static_cast<std::uint64_t>(all[at + 5]);
        if (seen.elements != 0 && (worst.elements == 0 || is_worse(seen, worst))) worst = seen;
      }
      const int id = static_cast<int>(k);
      if (evolution_.plan()[id].codec() != nullptr) evolution_.observe_statistics(id, worst);
    }
  }

  /// Rank 0 calls `decide`, and the others follow its messages. An error on one rank is an error on all.
  template <class Decide>
  Error meet(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets,
             const Decide& decide) {
    if (broken_) return broken_;
    if (group_.rank() != 0) return follow(training, boundary, input, targets);
    const Error why = decide();
    tell_done(boundary, why);
    return broken_ ? broken_ : why;
  }

  Error follow(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) {
    Plan from = training.plan();
    for (std::string told;;) {
      if (const Error why = broadcast(group_, told)) return broken_ = why;
      const std::string what = told.substr(0, told.find('\n') + 1);
      const std::string_view rest = std::string_view(told).substr(what.size());
      if (what == "measure\n" || what == "measure at the start\n") {
        boundary.looked = true;
        static_cast<void>(measure_together(training, input, targets, what != "measure\n"));
      } else if (what == "run\n") {
        from = training.plan();
        run_told(training, rest);
      } else if (what == "done\n") {
        return hear_done(boundary, from, rest);
      } else {
        return broken_ = Error::say("rank 0 tells of its plan what nobody understands: ",
                                    one_line(told, 60).c_str());
      }
      if (broken_) return broken_;
    }
  }

  void tell(std::string what) {
    if (!broken_) broken_ = broadcast(group_, what);
  }

  Result<CostProfile> measure_costs(Owner& training, AnyView input, AnyView targets,
                                    bool at_start) override {
    tell(at_start ? "measure at the start\n" : "measure\n");
    return measure_together(training, input, targets, at_start);
  }
  Result<CostProfile> measure_together(Owner& training, AnyView input, AnyView targets,
                                       bool at_start) {
    if (broken_) return broken_;
    return slowest_costs(group_, evolution_.graph(),
                         Base::measured(training, input, targets, at_start), model_);
  }

  /// Rank 0 changes the plan.
  Error run_plan(Owner& training, const Evolution& evolution) override {
    const std::string plan = plan_text(evolution.graph(), evolution.plan());
    tell("run\n" + std::to_string(evolution.budget_bytes()) + ' ' + std::to_string(plan.size()) +
         '\n' + plan + Base::text_of(evolution));
    return run_together(training, &evolution, {});
  }

  /// The others change the plan as told by rank 0.
  void run_told(Owner& training, std::string_view told) {
    const std::size_t line = told.find('\n') + 1;
    std::string_view sizes = told.substr(0, line);
    std::size_t budget = 0, plan_bytes = 0;
    Error why = Error::say("rank 0 tells of its plan what nobody understands");
    bool joined = false;
    if (take_number(sizes, budget) && take_word(sizes, " ") && take_number(sizes, plan_bytes)) {
      Array<const CodecInfo*> codecs;
      for (const auto& codec : training.compiled_step().dispatch().codecs)
        codecs.push_back(codec.info);
      const Graph& graph = evolution_.graph();
      Result<Plan> plan =
          parse_plan(std::string(told.substr(line, plan_bytes)), graph, codecs, graph.fingerprint);
      why = plan.error;
      PlanRequest request = evolution_.request();
      request.budget_bytes = budget;
      if (plan)
        why = Base::become(std::string(told.substr(line + plan_bytes)), std::move(*plan), request,
                           [&](const Evolution& evolution) {
                             joined = true;
                             return run_together(training, &evolution, {});
                           });
    }
    if (!joined) static_cast<void>(run_together(training, nullptr, why));
  }

  /// All ranks run the plan of `evolution`; if one rank cannot (`failed`, or no memory), all keep the plan
  /// before.
  Error run_together(Owner& training, const Evolution* evolution, Error failed) {
    if (broken_) return broken_;
    const Plan before = training.plan();
    Result<Program> program =
        failed ? Result<Program>(failed) : make_program(evolution->graph(), evolution->plan());
    if (!program) failed = program.error;
    else if (program->peak_bytes() > room_)
      failed = Error::say("steps under the plan would take ", shown(program->peak_bytes()),
                          " here, of the ", shown(room_), " that there are");
    if (const Error why = share_error(group_, failed)) return why;
    failed = training.switch_to(std::move(*program));
    const Error why = share_error(group_, failed);
    if (!why || failed) return why;
    Result<Program> back = make_program(evolution->graph(), before);
    failed = back ? training.switch_to(std::move(*back)) : back.error;
    if (failed) broken_ = failed;
    return why;
  }

  void tell_done(const PlanBoundary& boundary, const Error& why) {
    FieldWriter writer;
    const EvolutionUpdate& update = boundary.update;
    writer("measured", boundary.measured);
    writer("looked", boundary.looked);
    writer("changed", update.changed);
    writer("changes", static_cast<std::uint64_t>(update.changes.size()));
    for (const PlanChange& change : update.changes) {
      writer("step", change.step);
      writer("activation", change.activation);
      writer("reason", static_cast<int>(change.reason));
    }
    writer("failed", !why && update.failed);
    const Error& said = why ? why : update.failed;
    tell("done\n" + writer.take() + said.text());
  }

  Error hear_done(PlanBoundary& boundary, const Plan& from, std::string_view told) {
    const FieldReader reader(told);
    std::uint64_t count = 0;
    bool failed = false;
    reader("measured", boundary.measured);
    reader("looked", boundary.looked);
    reader("changed", boundary.update.changed);
    reader("changes", count);
    for (std::uint64_t i = 0; i < count && !reader.error(); ++i) {
      PlanChange change;
      int reason = 0;
      reader("step", change.step);
      reader("activation", change.activation);
      reader("reason", reason);
      if (reader.error()) break;
      change.reason = static_cast<ChangeReason>(reason);
      change.from = from[change.activation];
      change.to = evolution_.plan()[change.activation];
      boundary.update.changes.push_back(change);
    }
    reader("failed", failed);
    if (reader.error()) return broken_ = Error::say("what rank 0 did ", reader.error().text());
    const std::string said(reader.line());
    if (failed) boundary.update.failed = Error::say(said.c_str());
    else if (!said.empty()) return Error::say("rank 0: ", said.c_str());
    return {};
  }

  GroupRef group_;
  std::string model_;
  std::size_t room_ = 0;         ///< bytes that the arena may have here
  bool looked_ = false;          ///< the boundary before this update is behind us
  bool asked_ = true;            ///< ranks meet before the next update, whatever the number
  Array<CodecStatistics> seen_;  ///< by activation: the worst in this update, if watched
  Array<CodecStatistics> told_;  ///< by activation: the worst in an update before, not sent yet
  Array<double> seconds_;        ///< times of the updates since ranks met
  PlanBoundary boundary_;        ///< before this update
  EvolutionUpdate pending_;      ///< changes by set_budget() since the update before
  Error broken_;
};

}}}  // namespace adacc::v0_1::detail
