// SPDX-License-Identifier: MIT
/// How a Tape (stash/tape.hpp) gets from descriptions of kernels to a plan in memory: one call.
///
///   1. a timed step under a plan to retain everything;
///   2. if asked (and in debug builds), steps to check callables and backward: two by stash/check.hpp, on a device four
///      by stash/compare_steps.hpp;
///   3. kernels and codecs are timed, on made-up values;
///   4. if a tolerance is given, gradient errors of codecs are probed by steps, for `setup_seconds` at most;
///   5. the plan within the budget, and memory for it.
#pragma once

#include <string>

#include "../core/number_text.hpp"
#include "../core/same_text.hpp"
#include "../core/steady_clock.hpp"
#include "../plan/make_plan.hpp"
#include "../program/fullest.hpp"
#include "measure.hpp"
#include "probe.hpp"
#include "tape.hpp"

namespace adacc { inline namespace v0_1 {

/// Options of Tape::start(). One of `percent` and `budget_bytes` is given.
struct TapeStart {
  double percent = 0;            ///< percentage of the arena for retaining everything
  std::size_t budget_bytes = 0;  ///< for the arena: values, kept activations, gradients, workspaces
  double tolerance = 0;          ///< relative squared error of the gradient; 0: the bits of no tape
  double setup_seconds = 10;     ///< for probing, and then for planning
  Bytes memory = {};  ///< lent, 64-byte aligned; none: the tape takes memory (on the host)
  /// Times kernels. On a device a clock that waits for the stream (cost/measure.cuh); else it times later plans, too,
  /// and outlives the tape.
  ClockRef clock = steady_seconds;
  bool check = ADACC_POISONS;  ///< steps to look for mistakes of the trainer
  int items = 0;               ///< in the batch of step(); a step may begin with fewer
  int most_runs = 1;  ///< of an activation again in backward, if no other plan fits (PlanRequest)
  bool evolving = false;  ///< the plan follows times and errors of later steps
  void (*log)(void* user,
              const char* line) = nullptr;  ///< gets progress, and the report as the last line
  void* user = nullptr;
};

namespace detail {

/// The instruction with the most live bytes, and its buffers, in words: "backward of gelu: 2 activations fc
/// 1.0 MiB, ...".
inline std::string fullest_place(const Program& program) {
  const auto worst = static_cast<int>(live_bytes_of(program.schedule).worst());
  const Instruction& inst = program.schedule.instructions[static_cast<std::size_t>(worst)];
  const Array<LiveKind> kinds = live_kinds(program.graph, program.schedule, worst);
  std::string text =
      std::string(name_of(inst.op)) + " of " + program.graph.node(inst.node).name + ":";
  constexpr std::size_t named = 5;
  for (std::size_t i = 0; i < kinds.size() && i < named; ++i)
    text += std::string(i == 0 ? " " : ", ") + Error::say(kinds[i]).text();
  return kinds.size() > named ? text + ", and others" : text;
}

}  // namespace detail

/// A plan in a line: bytes, share of retaining, time, policies by number, and where the arena is fullest.
inline std::string tape_report(const PlanOutcome& outcome, const Program& program) {
  const auto percent = [](double share) {
    return std::string(NumberText::fixed(100 * share, 1).c_str()) + " %";
  };
  const double whole = static_cast<double>(outcome.retain_peak_bytes);
  std::string text = Error::say("tape: ", shown(program.peak_bytes())).text();
  text += ", " + percent(whole > 0 ? static_cast<double>(program.peak_bytes()) / whole : 1) +
          " of retaining everything; ";
  text +=
      std::string(NumberText::fixed(
                      outcome.retain_seconds > 0 ? outcome.seconds / outcome.retain_seconds : 1, 3)
                      .c_str()) +
      " of its time predicted, within " + percent(outcome.gap) + " of the best;";
  Array<const char*> names;
  Array<int> counts;
  for (int id = 0; id < program.graph.node_count(); ++id) {
    if (program.graph.node(id).is_backward_stage()) continue;
    const char* const name = name_of(program.plan[id]);
    std::size_t i = 0;
    while (i < names.size() && !detail::same_text(names[i], name)) ++i;
    if (i == names.size()) names.push_back(name), counts.push_back(0);
    ++counts[i];
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    text += std::string(i == 0 ? " " : ", ") + names[i] + " " + std::to_string(counts[i]);
  return text + "; fullest at the " + detail::fullest_place(program);
}

template <class T, class Context>
template <class TrainStep>
Error Tape<T, Context>::start(Context& context, const TapeStart& how, const TrainStep& step) {
  const auto told = [&](const char* line) {
    if (how.log != nullptr) how.log(how.user, line);
  };
  if (started_)
    return Error::misuse("start() of a tape comes once; set_budget() changes its budget");
  if ((how.percent != 0) == (how.budget_bytes != 0) || !(how.percent >= 0 && how.percent <= 100))
    return Error::misuse(
        "start() of a tape takes a budget: percent, above 0 and at most 100, or budget_bytes");
  if (!(how.tolerance >= 0) || !(how.setup_seconds > 0) || !how.clock)
    return Error::misuse(
        "start() of a tape takes a tolerance of 0 or more, setup_seconds above 0, and a clock");
  if (!on_host && how.memory.data() == nullptr)
    return Error::misuse("start() of a tape on a device takes memory of the device");
  if (const Error why = check_most_runs(how.most_runs)) return Error::misuse(why.text());
  if (how.items < 0) return Error::misuse("start() of a tape takes 1 item or more, or 0");
  if (const Error why = close(how.items)) return Error::misuse(why.text());
  StashModel<T, Context>& model = sizes_[0]->model;
  EvolvingStash<T, Context>& stash = sizes_[0]->stash;
  Result<Graph> graph = model.graph();
  if (!graph) return graph.error;

  // A step of the trainer on `stash`, with all the memory wanted. An exception in a step leaves no trace.
  struct Lent {
    Tape& tape;
    ~Lent() {
      tape.started_ = false;
      tape.plain_ = nullptr, tape.checked_ = nullptr;
    }
  };
  const auto run_on = [&](auto*& place, auto& in_use) -> Result<Array<View<const Wide<T>>>> {
    const Lent lent{*this};
    place = &in_use;
    started_ = true;
    Result<Array<View<const Wide<T>>>> gradients = step();
    if (gradients && ran_ < kernels())
      return Error::misuse("the step of start() runs ", ran_, " of ", kernels(),
                           " kernels: it has to run all");
    return gradients;
  };
  const double began = how.clock();
  auto plain = Stash<T, Context>::make(model, retain_all(*graph));
  if (!plain) return plain.error;
  const std::size_t whole = plain->arena_bytes();
  // Memory for set-up: the lent memory or, if that is too small and on the host, a block of its own.
  Block<std::byte> block;
  Bytes memory = how.memory;
  const auto have = [&](std::size_t bytes, const char* what) -> Error {
    if (!on_host || memory.size() >= bytes) return {};
    block = {};
    auto taken = Block<std::byte>::make(bytes, what);
    if (!taken) return taken.error;
    block = std::move(*taken);
    memory = block.view();
    return {};
  };
  if (Error why = have(whole, "a step that retains everything, for start() of a tape")) return why;
  if (Error why = plain->bind(memory)) return why;
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {  // the first pays for cold memory
    const double start = how.clock();
    if (const auto gradients = run_on(plain_, *plain); !gradients) return gradients.error;
    seconds = how.clock() - start;
  }
  if (how.check) {
    told("tape: checking callables and backward");
    Error why;
    if constexpr (on_host)
      why =
          testing::check_stash(model, [&](Checked& checked) { return run_on(checked_, checked); });
    else
      why = testing::compare_steps(model, context, memory, [&](Stash<T, Context>& compared) {
        return run_on(plain_, compared);
      });
    if (why) return why;
  }

  if (Error why = have(stash_measure_bytes(*graph), "measuring the kernels of a tape")) return why;
  now_.context = &context;  // the context for filling zeroed outputs
  Result<CostProfile> profile =
      measure_stash(model, context, memory, {.clock = how.clock, .step_seconds = seconds});
  now_.context = nullptr;
  if (!profile) return profile.error;

  GradientErrors errors;
  if (const std::size_t bytes = how.tolerance > 0 ? stash_probing_bytes(model) : 0; bytes > 0) {
    if (Error why = have(bytes, "probing the codecs of a tape")) return why;
    struct Progress {
      const TapeStart& how;
      int probed = 0, of = 0;
    } progress{how};
    const auto note = [](void* user, int probed, int of) {
      Progress& so_far = *static_cast<Progress*>(user);
      so_far.probed = probed, so_far.of = of;
      if (so_far.how.log != nullptr && probed > 0)
        so_far.how.log(so_far.how.user, Error::say("tape: probed ", probed, " of ", of,
                                                   " kinds of activations and codecs")
                                            .text());
    };
    const auto probing_step = [&](Stash<T, Context>& probed) { return run_on(plain_, probed); };
    if (Error why = probe_stash(model, context, memory, probing_step, errors, *profile, {},
                                {.clock = how.clock,
                                 .most_seconds = how.setup_seconds,
                                 .progress = note,
                                 .user = &progress}))
      return why;
    if (progress.probed < progress.of)
      told(Error::say("tape: setup_seconds ended probing: the errors of ",
                      progress.of - progress.probed, " of ", progress.of,
                      " kinds are estimates, on the safe side")
               .text());
  }

  // Plans are made on the host, also later, when a device's clock may be gone.
  request_ = {.tolerance = how.tolerance,
              .most_runs = how.most_runs,
              .clock = on_host ? how.clock : ClockRef(steady_seconds),
              .deadline_seconds = how.setup_seconds};
  request_.budget_bytes = how.budget_bytes;
  if (how.percent > 0)
    request_.budget_bytes =
        static_cast<std::size_t>(how.percent / 100 * static_cast<double>(whole));
  if (how.memory.data() != nullptr && how.memory.size() < request_.budget_bytes)
    request_.budget_bytes = how.memory.size();
  options_ = {.evolving = how.evolving};
  if (how.evolving && on_host) options_.clock = how.clock;
  auto planned = EvolvingStash<T, Context>::make(model, static_cast<CostProfile&&>(*profile),
                                                 request_, make_plan, options_);
  if (!planned) return planned.error;
  block = {};
  lent_ = how.memory;
  if (lent_.data() == nullptr) {
    const std::size_t bytes = request_.budget_bytes < whole ? request_.budget_bytes : whole;
    auto taken = Block<std::byte>::make(
        bytes > planned->arena_bytes() ? bytes : planned->arena_bytes(), "the memory of a tape");
    if (!taken) return taken.error;
    memory_ = std::move(*taken);
  }
  stash = static_cast<EvolvingStash<T, Context>&&>(*planned);
  if (Error why = stash.bind(lent_.data() != nullptr ? lent_ : memory_.view())) return why;
  started_ = true;
  log_ = how.log, log_user_ = how.user;
  plan_size_ = [](Tape& tape, int items) { return tape.plan_size(items); };
  if (how.log != nullptr)
    told((tape_report(stash.outcome(), stash.program()) + "; set up in " +
          NumberText::fixed(how.clock() - began, 2).c_str() + " s")
             .c_str());
  return {};
}

template <class T, class Context>
Error Tape<T, Context>::plan_size(int items) {
  Result<std::unique_ptr<Size>> size = Description::describe(items);
  if (!size) return size.error;
  const Result<Graph> graph = (*size)->model.graph();
  if (!graph) return graph.error;
  const EvolvingStash<T, Context>& whole = sizes_[0]->stash;
  const double share = static_cast<double>(items) / items_;
  CostProfile profile = whole.evolution().profile();
  scale(profile, share);
  profile.rest *= share;
  profile.made_for = graph->fingerprint;
  request_.budget_bytes = whole.budget_bytes();
  auto planned = EvolvingStash<T, Context>::make(
      (*size)->model, static_cast<CostProfile&&>(profile), request_, make_plan, options_);
  if (!planned) return Error::say("for a step of ", items, " items ", planned.error.text());
  (*size)->stash = static_cast<EvolvingStash<T, Context>&&>(*planned);
  EvolvingStash<T, Context>& stash = (*size)->stash;
  if (Error why = stash.bind(lent_.data() != nullptr ? lent_ : memory_.view())) return why;
  sizes_.push_back(std::move(*size));
  use(*sizes_.back());
  if (log_ != nullptr)
    log_(log_user_, Error::say("for ", items, " of ", items_, " items, ",
                               tape_report(stash.outcome(), stash.program()).c_str())
                        .text());
  return {};
}

}}  // namespace adacc::v0_1
