// SPDX-License-Identifier: MIT
/// The functions of adacc.h. To be compiled once, as C++20, in any program.
///
/// A trainer in C is often built with -Ofast, which core/config.hpp refuses: this file must do without, and
/// its copies of the library's inline functions must not be merged with copies of other files. Hence the
/// other name of the namespace. Nor may anything here abort: mistakes are told in words.

#define v0_1 v0_1_for_c
#define ADACC_ASSERT(holds, text) static_cast<void>(0)

#include <cstdio>
#include <cstdlib>

#include "adacc_c.hpp"
#include "adacc_tape.hpp"

using namespace adacc;
using namespace adacc::c;

extern "C" {

const char* adacc_error(void) { return last_error.text(); }

void adacc_on_error(void (*handler)(void* user, const char* error), void* user) {
  on_error = {handler, user};
}

void adacc_stop(void*, const char* error) {
  for (const char* text : {"adacc: ", error, "\n"}) std::fputs(text, stderr);
  std::exit(1);
}

adacc_stash* adacc_create(void) {
  return guarded<adacc_stash*>(nullptr, [] { return new adacc_stash; });
}

void adacc_destroy(adacc_stash* stash) {
  if (stash != nullptr && !stash->busy()) delete stash;
}

int adacc_add(adacc_stash* stash, const char* name, size_t rows, size_t columns, const int* stages,
              size_t stage_count) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_add")) return misuse(why);
    if (name == nullptr) return misuse(Error::say("adacc_add: the name is null"));
    if (const Error why = check_list("adacc_add", "stages", stages, stage_count))
      return misuse(why);
    stash->names.emplace_back(name);
    return change(stash, [&](StashModel<>& model) {
      return model.add(stash->names.back().c_str(), Shape(rows, columns), {stages, stage_count});
    });
  });
}

int adacc_add_bytes(adacc_stash* stash, const char* name, size_t bytes, const int* stages,
                    size_t stage_count) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_add_bytes")) return misuse(why);
    if (name == nullptr) return misuse(Error::say("adacc_add_bytes: the name is null"));
    if (const Error why = check_list("adacc_add_bytes", "stages", stages, stage_count))
      return misuse(why);
    stash->names.emplace_back(name);
    return change(stash, [&](StashModel<>& model) {
      return model.add_bytes(stash->names.back().c_str(), bytes, {stages, stage_count});
    });
  });
}

int adacc_add_kernel(adacc_stash* stash, int stage, const adacc_kernel_call* call) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_add_kernel")) return misuse(why);
    if (const Error why = check_call(call)) return misuse(why);
    const std::size_t names = stash->names.size();
    stash->kernels.push_back({call->kernel, call->user, std::vector<const void*>(call->reads.count),
                              std::vector<void*>(call->writes.count)});
    const int code = change(stash, [&](StashModel<>& model) {
      const StashRecompute<float> none, again = stash->kernels.back().again();
      const int first = model.kernel_by(described(stage, *call, stash->names),
                                        call->kernel == nullptr ? none : again);
      return first < 0 ? int{ADACC_OK} : first;
    });
    if (code < 0) stash->kernels.pop_back(), stash->names.resize(names);
    return code;
  });
}

int adacc_recompute(adacc_stash* stash, const int* ids, size_t count, const int* sources,
                    size_t source_count, adacc_kernel kernel, void* user, size_t workspace_bytes) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_recompute")) return misuse(why);
    if (kernel == nullptr) return misuse(Error::say("adacc_recompute: the kernel is null"));
    if (const Error why = check_list("adacc_recompute", "ids", ids, count)) return misuse(why);
    if (const Error why = check_list("adacc_recompute", "sources", sources, source_count))
      return misuse(why);
    stash->kernels.push_back(
        {kernel, user, std::vector<const void*>(source_count), std::vector<void*>(count)});
    const int code = change(stash, [&](StashModel<>& model) {
      model.recompute_by({ids, count}, {sources, source_count}, stash->kernels.back().again(),
                         {.workspace_bytes = workspace_bytes});
      return int{ADACC_OK};
    });
    if (code < 0) stash->kernels.pop_back();
    return code;
  });
}

int adacc_allow(adacc_stash* stash, int id, int codec, double error) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_allow")) return misuse(why);
    if (const Error why = check_id(stash, "adacc_allow", id)) return misuse(why);
    if (codec_of(codec) == nullptr)
      return misuse(Error::say("adacc_allow: there is no codec ", codec));
    return change(stash, [&](StashModel<>& model) {
      const StashCodec<StashModel<>> chosen = allowed(codec, error);
      chosen.allow(model, id, chosen);
      return int{ADACC_OK};
    });
  });
}

int adacc_fix(adacc_stash* stash, int id, int how) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_fix")) return misuse(why);
    if (const Error why = check_id(stash, "adacc_fix", id)) return misuse(why);
    const CodecInfo* codec = codec_of(how);
    if (how != 0 && how != -1 && codec == nullptr)
      return misuse(Error::say("adacc_fix: there is no codec ", how));
    return change(stash, [&](StashModel<>& model) {
      model.fix(id, how == 0 ? retain() : how == -1 ? recompute() : compress(codec));
      return int{ADACC_OK};
    });
  });
}

int adacc_hold(adacc_stash* stash, int id) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_hold")) return misuse(why);
    if (const Error why = check_id(stash, "adacc_hold", id)) return misuse(why);
    return change(stash, [&](StashModel<>& model) {
      model.hold(id);
      return int{ADACC_OK};
    });
  });
}

int adacc_made_from(adacc_stash* stash, int id, const int* sources, size_t source_count) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_made_from")) return misuse(why);
    if (const Error why = check_id(stash, "adacc_made_from", id)) return misuse(why);
    if (const Error why = check_list("adacc_made_from", "sources", sources, source_count))
      return misuse(why);
    return change(stash, [&](StashModel<>& model) {
      model.made_from(id, {sources, source_count});
      return int{ADACC_OK};
    });
  });
}

int adacc_stage_bytes(adacc_stash* stash, int stage, size_t bytes) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_stage_bytes")) return misuse(why);
    return change(stash, [&](StashModel<>& model) {
      model.stage_bytes(stage, bytes);
      return int{ADACC_OK};
    });
  });
}

int adacc_carry(adacc_stash* stash, const char* name, size_t bytes, int from_backward_of,
                int to_backward_of) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_open(stash, "adacc_carry")) return misuse(why);
    if (name == nullptr) return misuse(Error::say("adacc_carry: the name is null"));
    stash->names.emplace_back(name);
    const int code = change(stash, [&](StashModel<>& model) {
      return model.carry(stash->names.back().c_str(), StashBytes{bytes}, from_backward_of,
                         to_backward_of);
    });
    if (code < 0) stash->names.pop_back();
    return code;
  });
}

int adacc_measure(adacc_stash* stash, double step_seconds) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_measure")) return misuse(why);
    if (!(step_seconds >= 0 && step_seconds < 1e9))
      return misuse(Error::say("adacc_measure: the seconds of a step are negative, or no number"));
    if (const int code = close(stash); code < 0) return code;
    auto scratch =
        Block<std::byte>::make(stash_measure_bytes(stash->graph), "adacc_measure's scratch");
    if (!scratch) return failed(scratch.error);
    Result<CostProfile> profile =
        measure_stash(stash->model, stash->cpu, scratch->view(),
                      {.clock = stash->measuring_clock(), .step_seconds = step_seconds});
    if (!profile) return failed(profile.error);
    stash->profile = static_cast<CostProfile&&>(*profile);
    stash->errors.write(stash->graph, stash->profile);  // probed errors stay
    stash->measured = true;
    return int{ADACC_OK};
  });
}

int adacc_probe(adacc_stash* stash, adacc_step step, void* user, const adacc_gradient* gradients,
                size_t gradient_count) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_probe")) return misuse(why);
    if (!stash->measured) return misuse(Error::say("adacc_probe: adacc_measure has to come first"));
    if (const Error why = check_step("adacc_probe", step, gradients, gradient_count))
      return misuse(why);
    const std::size_t bytes = stash_probing_bytes(stash->model);
    if (bytes == 0) return int{ADACC_OK};  // every error is known
    auto arena = Block<std::byte>::make(bytes, "adacc_probe's arena");
    if (!arena) return failed(arena.error);
    const auto run = [&](Stash<>& probed) {
      stash->probed = &probed;
      Result<Array<View<const float>>> parts = run_step(step, user, gradients, gradient_count);
      stash->probed = nullptr;
      return parts;
    };
    GradientErrors errors = stash->errors;
    CostProfile profile = stash->profile;
    if (const Error why =
            probe_stash(stash->model, stash->cpu, arena->view(), run, errors, profile))
      return failed(why);
    stash->errors = static_cast<GradientErrors&&>(errors);
    if (stash->planned) stash->stash.observe_errors(stash->errors);
    stash->profile = static_cast<CostProfile&&>(profile);
    return int{ADACC_OK};
  });
}

int adacc_check(adacc_stash* stash, adacc_step step, void* user, const adacc_gradient* gradients,
                size_t gradient_count) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_check")) return misuse(why);
    if (const Error why = check_step("adacc_check", step, gradients, gradient_count))
      return misuse(why);
    if (const int code = close(stash); code < 0) return code;
    const auto run = [&](Checked& checked) {
      stash->checked = &checked;
      Result<Array<View<const float>>> parts = run_step(step, user, gradients, gradient_count);
      stash->checked = nullptr;
      return parts;
    };
    if (const Error why = testing::check_stash(stash->model, run)) return misuse(why);
    return int{ADACC_OK};
  });
}

int adacc_plan(adacc_stash* stash, size_t budget_bytes, double tolerance, adacc_outcome* outcome) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_plan")) return misuse(why);
    if (!stash->measured) return misuse(Error::say("adacc_plan: adacc_measure has to come first"));
    if (budget_bytes == 0 || !(tolerance >= 0))
      return misuse(Error::say("adacc_plan: the budget is 0, or the tolerance is negative or NaN"));
    EvolvingStashOptions options{.evolving = stash->evolving};
    if (stash->clock.function != nullptr) options.clock = stash->clock;
    Result<EvolvingStash<>> planned =
        EvolvingStash<>::make(stash->model, stash->profile,
                              {.budget_bytes = budget_bytes,
                               .tolerance = tolerance,
                               .most_runs = stash->most_runs,
                               .clock = steady_seconds,
                               .deadline_seconds = stash->planning_seconds},
                              make_plan, options);
    if (!planned) return failed(planned.error);
    stash->stash = static_cast<EvolvingStash<>&&>(*planned);
    stash->planned = true;
    // Memory that is too small stays unbound: adacc_begin says so.
    if (stash->memory.data() != nullptr) static_cast<void>(lend(stash->stash, stash->memory));
    tell(stash->stash.outcome(), outcome);
    return int{ADACC_OK};
  });
}

int adacc_set_deadline(adacc_stash* stash, double seconds) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_set_deadline")) return misuse(why);
    if (!(seconds >= 0))
      return misuse(Error::say(
          "adacc_set_deadline: the seconds are negative or not a number; expected 0 or more"));
    stash->planning_seconds = seconds;
    if (stash->planned) stash->stash.set_deadline(seconds);
    return int{ADACC_OK};
  });
}

int adacc_set_most_runs(adacc_stash* stash, int runs) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_set_most_runs")) return misuse(why);
    if (const Error why = check_most_runs(runs))
      return misuse(Error::say("adacc_set_most_runs: ", why.text()));
    stash->most_runs = runs;
    if (stash->planned) stash->stash.set_most_runs(runs);
    return int{ADACC_OK};
  });
}

int adacc_evolve(adacc_stash* stash, adacc_clock clock, void* user) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_idle(stash, "adacc_evolve")) return misuse(why);
    if (stash->measured)
      return misuse(Error::say("adacc_evolve: adacc_measure has looked at another clock already"));
    stash->evolving = true;
    stash->clock = {clock, user};
    return int{ADACC_OK};
  });
}

int adacc_set_budget(adacc_stash* stash, size_t budget_bytes, adacc_outcome* outcome) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_set_budget")) return misuse(why);
    if (const Error why = check_planned(stash, "adacc_set_budget")) return misuse(why);
    if (const Error why = stash->stash.set_budget(budget_bytes)) return failed(why);
    tell(stash->stash.outcome(), outcome);
    return int{ADACC_OK};
  });
}

const char* adacc_changes(adacc_stash* stash) {
  return guarded<const char*>(nullptr, [&]() -> const char* {
    if (const Error why = check_idle(stash, "adacc_changes")) return misuse(why), nullptr;
    if (const Error why = check_planned(stash, "adacc_changes")) return misuse(why), nullptr;
    const EvolutionUpdate& update = stash->stash.boundary().update;
    stash->changes.clear();
    for (const PlanChange& change : update.changes)
      stash->changes +=
          Error::say(ActivationName(stash->graph, change.activation), ": ", name_of(change.to),
                     ", not ", name_of(change.from), " (", name_of(change.reason), ")\n")
              .text();
    if (update.failed) stash->changes += std::string(update.failed.text()) + "\n";
    return stash->changes.c_str();
  });
}

const char* adacc_declined(adacc_stash* stash) {
  return guarded<const char*>(nullptr, [&]() -> const char* {
    if (const Error why = check_idle(stash, "adacc_declined")) return misuse(why), nullptr;
    if (const Error why = check_planned(stash, "adacc_declined")) return misuse(why), nullptr;
    stash->declined = declined_text(stash->stash.program());
    return stash->declined.c_str();
  });
}

size_t adacc_smallest_budget(adacc_stash* stash, double tolerance) {
  return guarded(std::size_t{0}, [&]() -> std::size_t {
    if (const Error why = check_idle(stash, "adacc_smallest_budget")) return misuse(why), 0U;
    if (!stash->measured)
      return misuse(Error::say("adacc_smallest_budget: adacc_measure has to come first")), 0U;
    const Result<std::size_t> smallest =
        smallest_peak(stash->graph, stash->profile,
                      {.budget_bytes = 1,
                       .tolerance = tolerance,
                       .most_runs = stash->most_runs,
                       .clock = steady_seconds,
                       .deadline_seconds = stash->planning_seconds});
    if (!smallest) return misuse(smallest.error), 0U;
    return *smallest;
  });
}

const char* adacc_policy(const adacc_stash* stash, int id) {
  if (stash == nullptr) return misuse(no_stash("adacc_policy")), nullptr;
  if (!stash->planned) return misuse(Error::say("adacc_policy: there is no plan yet")), nullptr;
  if (const Error why = check_id(stash, "adacc_policy", id)) return misuse(why), nullptr;
  return name_of(stash->stash.plan()[id]);
}

size_t adacc_arena_bytes(const adacc_stash* stash) {
  if (stash == nullptr) return misuse(no_stash("adacc_arena_bytes")), 0U;
  return stash->planned ? stash->stash.arena_bytes() : 0;
}

int adacc_bind(adacc_stash* stash, void* memory, size_t bytes) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_between_steps(stash, "adacc_bind")) return misuse(why);
    if (const Error why = check_planned(stash, "adacc_bind")) return misuse(why);
    if (memory == nullptr) return misuse(Error::say("adacc_bind: the memory is null"));
    const Bytes lent(static_cast<std::byte*>(memory), Shape(bytes));
    if (const Error why = lend(stash->stash, lent)) return misuse(why);
    stash->memory = lent;
    return int{ADACC_OK};
  });
}

int adacc_begin(adacc_stash* stash) {
  return in_step(stash, "adacc_begin", [&](auto& any) { return any.begin(stash->cpu); });
}

void* adacc_place(adacc_stash* stash, int id, void* scratch) {
  return guarded(scratch, [&]() -> void* {
    if (const Error why = check_planned(stash, "adacc_place")) return misuse(why), nullptr;
    if (const Error why = check_id(stash, "adacc_place", id)) return misuse(why), nullptr;
    void* const there = with_stash(stash, [&](auto& any) -> void* {
      if (stash->model.is_raw(id))
        return any.place_bytes(id, {static_cast<std::byte*>(scratch), Shape(std::size_t{1})})
            .data();
      return any.place(id, {static_cast<float*>(scratch), Shape(std::size_t{1})}).data();
    });
    if (there == nullptr)
      misuse(Error::say("adacc_place: ", ActivationName(stash->graph, id),
                        " has no place now: it is not held, or not the next to be put"));
    return there;
  });
}

void* adacc_workspace(adacc_stash* stash, int id) {
  return guarded<void*>(nullptr, [&]() -> void* {
    if (const Error why = check_planned(stash, "adacc_workspace")) return misuse(why), nullptr;
    if (const Error why = check_id(stash, "adacc_workspace", id)) return misuse(why), nullptr;
    const Bytes memory = with_stash(stash, [&](auto& any) { return any.workspace(id); });
    if (memory.empty())
      misuse(Error::say("adacc_workspace: ", ActivationName(stash->graph, id),
                        " has none now: it is not held, not the next to be put, or needs none"));
    return memory.data();
  });
}

int adacc_end(adacc_stash* stash) {
  return in_step(stash, "adacc_end", [&](auto& any) -> Error { return any.end(); });
}

int adacc_put(adacc_stash* stash, int id, const void* values) {
  return in_step(stash, "adacc_put", [&](auto& any) -> Error {
    if (const Error why = check_id(stash, "adacc_put", id)) return why;
    const Node& node = stash->graph.node(id);
    if (values == nullptr)
      return Error::say("adacc_put of ", ActivationName(stash->graph, id), ": the values are null");
    if (stash->model.is_raw(id))
      return any.put_bytes(id, {static_cast<const std::byte*>(values), node.output});
    return any.put(id, {static_cast<const float*>(values), node.output});
  });
}

int adacc_enter(adacc_stash* stash, int stage) {
  return in_step(stash, "adacc_enter", [&](auto& any) { return any.enter(stage); });
}

int adacc_leave(adacc_stash* stash, int stage) {
  return in_step(stash, "adacc_leave", [&](auto& any) { return any.leave(stage); });
}

const void* adacc_get(adacc_stash* stash, int id) {
  return guarded<const void*>(nullptr, [&]() -> const void* {
    if (const Error why = check_planned(stash, "adacc_get")) return misuse(why), nullptr;
    const Result<ConstBytes> got =
        with_stash(stash, [&](auto& any) -> Result<ConstBytes> { return any.get_bytes(id); });
    if (!got) return misuse(got.error), nullptr;
    return got->data();
  });
}

void* adacc_backward_workspace(adacc_stash* stash) {
  return guarded<void*>(nullptr, [&]() -> void* {
    if (const Error why = check_planned(stash, "adacc_backward_workspace"))
      return misuse(why), nullptr;
    const Result<Bytes> memory =
        with_stash(stash, [](auto& any) -> Result<Bytes> { return any.backward_workspace(); });
    if (!memory) return misuse(memory.error), nullptr;
    if (memory->data() == nullptr || memory->size() == 0)
      return misuse(Error::say(
                 "adacc_backward_workspace: adacc_stage_bytes gave the stage that is on none")),
             nullptr;
    return memory->data();
  });
}

void* adacc_carried(adacc_stash* stash, int id) {
  return guarded<void*>(nullptr, [&]() -> void* {
    if (const Error why = check_planned(stash, "adacc_carried")) return misuse(why), nullptr;
    const Result<Bytes> memory =
        with_stash(stash, [&](auto& any) -> Result<Bytes> { return any.carried_bytes(id); });
    if (!memory) return misuse(memory.error), nullptr;
    return memory->data();
  });
}

adacc_tape* adacc_tape_create(void) {
  return guarded<adacc_tape*>(nullptr, [] { return new adacc_tape; });
}

void adacc_tape_destroy(adacc_tape* tape) {
  if (tape != nullptr && !tape->starting) delete tape;
}

int adacc_tape_kernel(adacc_tape* tape, const adacc_tape_call* call) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_tape_call(tape, call)) return misuse(why);
    return add_to(*tape, *call);
  });
}

int adacc_tape_watch(adacc_tape* tape, const char* name, const void* memory, size_t bytes) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (tape == nullptr) return misuse(no_tape("adacc_tape_watch"));
    if (name == nullptr || memory == nullptr)
      return misuse(Error::say("adacc_tape_watch: the name or the memory is null"));
    tape->tape.watch(tape->names.emplace_back(name).c_str(),
                     {static_cast<const std::byte*>(memory), Shape(bytes)});
    return int{ADACC_OK};
  });
}

int adacc_tape_kernels(const adacc_tape* tape) {
  if (tape == nullptr) return misuse(no_tape("adacc_tape_kernels"));
  return tape->tape.kernels();
}

int adacc_tape_kernel_of(const adacc_tape* tape, int id) {
  if (tape == nullptr) return misuse(no_tape("adacc_tape_kernel_of"));
  const int kernel = tape->tape.kernel_of(id - 1);
  if (kernel >= 0) return kernel + 1;
  return misuse(Error::say("adacc_tape_kernel_of: there is no activation ", id,
                           "; kernels make 1 to ", tape->activations));
}

int adacc_tape_start(adacc_tape* tape, const adacc_tape_request* request) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_request(tape, request)) return misuse(why);
    if (const Error why = start(*tape, *request)) return failed(why);
    return int{ADACC_OK};
  });
}

int adacc_tape_set_budget(adacc_tape* tape, size_t budget_bytes) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (tape == nullptr) return misuse(no_tape("adacc_tape_set_budget"));
    if (!tape->started)
      return misuse(Error::say("adacc_tape_set_budget comes after adacc_tape_start"));
    if (const Error why = tape->tape.set_budget(budget_bytes)) return failed(why);
    tape->report = tape_report(tape->tape.outcome(), tape->tape.stash().program());
    return int{ADACC_OK};
  });
}

size_t adacc_tape_arena_bytes(const adacc_tape* tape) {
  if (tape == nullptr) return misuse(no_tape("adacc_tape_arena_bytes")), 0U;
  return tape->started ? tape->tape.arena_bytes() : 0;
}

const char* adacc_tape_report(adacc_tape* tape) {
  if (tape == nullptr) return misuse(no_tape("adacc_tape_report")), nullptr;
  return tape->report.c_str();
}

const char* adacc_tape_policy(const adacc_tape* tape, int id) {
  if (tape == nullptr) return misuse(no_tape("adacc_tape_policy")), nullptr;
  if (!tape->started)
    return misuse(Error::say("adacc_tape_policy comes after adacc_tape_start")), nullptr;
  if (id < 1 || id > tape->activations)
    return misuse(Error::say("adacc_tape_policy: there is no activation ", id,
                             "; kernels make 1 to ", tape->activations)),
           nullptr;
  return tape->tape.policy_of(id - 1);
}

int adacc_tape_begin(adacc_tape* tape) {
  return on_tape(tape, "adacc_tape_begin", [&] { return tape->tape.begin(tape->cpu); });
}

int adacc_tape_begin_items(adacc_tape* tape, int items) {
  return on_tape(tape, "adacc_tape_begin_items", [&]() -> Error {
    if (items < 1) return Error::say("adacc_tape_begin_items of ", items, " items");
    return tape->tape.begin(tape->cpu, items);
  });
}

int adacc_tape_run(adacc_tape* tape, int first, int last) {
  return on_tape(tape, "adacc_tape_run", [&] { return tape->tape.run(first - 1, last); });
}

int adacc_tape_forward(adacc_tape* tape) {
  return on_tape(tape, "adacc_tape_forward", [&] {
    const Error why = tape->tape.begin(tape->cpu);
    return why ? why : tape->tape.run();
  });
}

int adacc_tape_backward_of(adacc_tape* tape, int id) {
  return on_tape(tape, "adacc_tape_backward_of", [&] { return tape->tape.backward_of(id - 1); });
}

int adacc_tape_backward(adacc_tape* tape, int k) {
  return on_tape(tape, "adacc_tape_backward", [&] { return tape->tape.backward(k - 1); });
}

const void* adacc_tape_value(adacc_tape* tape, int id) {
  return guarded<const void*>(nullptr, [&]() -> const void* {
    if (tape == nullptr) return misuse(no_tape("adacc_tape_value")), nullptr;
    const void* const there = tape->tape.value(id - 1).data();
    if (there == nullptr) misuse(tape->tape.error());
    return there;
  });
}

void* adacc_tape_take(adacc_tape* tape, int id) {
  return guarded<void*>(nullptr, [&]() -> void* {
    if (tape == nullptr) return misuse(no_tape("adacc_tape_take")), nullptr;
    void* const there = tape->tape.take(id - 1).data();
    if (there == nullptr) misuse(tape->tape.error());
    return there;
  });
}

float* adacc_tape_grad(adacc_tape* tape, int id) {
  return gradient_on_tape(tape, "adacc_tape_grad", [&] { return tape->tape.grad(id - 1); });
}

float* adacc_tape_grad_to_write(adacc_tape* tape, int id) {
  return gradient_on_tape(tape, "adacc_tape_grad_to_write",
                          [&] { return tape->tape.grad_to_write(id - 1); });
}

void* adacc_tape_backward_workspace(adacc_tape* tape) {
  return guarded<void*>(nullptr, [&]() -> void* {
    if (tape == nullptr) return misuse(no_tape("adacc_tape_backward_workspace")), nullptr;
    void* const there = tape->tape.backward_workspace().data();
    if (there == nullptr) misuse(tape->tape.error());
    return there;
  });
}

int adacc_tape_end(adacc_tape* tape) {
  return on_tape(tape, "adacc_tape_end", [&] { return tape->tape.end(); });
}

}  // extern "C"
