// SPDX-License-Identifier: MIT
/// The stash behind the functions of adacc.h, with the functions' common parts: errors in words and codes,
/// checks of arguments. For adacc.cpp alone, which renames the namespace.
#pragma once

#include "adacc.h"

#include <cstdint>
#include <deque>
#include <new>
#include <string>
#include <vector>

#include "codec/bf16.hpp"
#include "codec/int4_outlier.hpp"
#include "codec/int8_outlier.hpp"
#include "core/block.hpp"
#include "core/steady_clock.hpp"
#include "io/declined_text.hpp"
#include "plan/make_plan.hpp"
#include "stash/check.hpp"
#include "stash/evolving_stash.hpp"
#include "stash/probe.hpp"

namespace adacc { inline namespace v0_1 { namespace c {

inline thread_local Error last_error;

/// The handler of adacc_on_error.
struct OnError {
  void (*call)(void* user, const char* error) = nullptr;
  void* user = nullptr;
};
inline thread_local OnError on_error;

inline int fail(int code, const char* text) {
  last_error = Error::say(text);
  if (on_error.call != nullptr) on_error.call(on_error.user, last_error.text());
  return code;
}
inline int misuse(const Error& why) { return fail(ADACC_MISUSE, why.text()); }
inline int failed(const Error& why) { return fail(ADACC_FAILED, why.text()); }

/// A kernel in C, and the pointers for a call.
struct Kernel {
  adacc_kernel function = nullptr;
  void* user = nullptr;
  std::vector<const void*> sources;
  std::vector<void*> outputs;

  static void call(const void* self, const View<const float>* sources, const View<float>* outputs,
                   Bytes workspace) {
    Kernel& kernel = *static_cast<Kernel*>(const_cast<void*>(self));  // not const originally
    for (std::size_t i = 0; i < kernel.sources.size(); ++i) kernel.sources[i] = sources[i].data();
    for (std::size_t i = 0; i < kernel.outputs.size(); ++i) kernel.outputs[i] = outputs[i].data();
    kernel.function(kernel.user, kernel.sources.data(), kernel.outputs.data(), workspace.data());
  }

  StashRecompute<float> again() const {
    // Any function pointer can hold any other; this one is compared, never called.
    return {this, &call, reinterpret_cast<void (*)()>(function)};
  }
};

/// A clock in C.
struct Clock {
  adacc_clock function = nullptr;
  void* user = nullptr;
  double operator()() const { return function(user); }
};

using Checked = testing::CheckedStash<>;

struct State {
  StashModel<> model;
  std::deque<std::string> names;  // a deque does not move strings
  std::deque<Kernel> kernels;
  Cpu cpu;
  // From the first measuring on:
  bool closed = false;
  Graph graph;
  CostProfile profile;
  bool measured = false;
  GradientErrors errors;
  bool evolving = false;
  Clock clock;
  double planning_seconds = PlanRequest().deadline_seconds;
  int most_runs = 1;
  bool planned = false;
  EvolvingStash<> stash;
  Bytes memory;
  std::string changes;   // told by the last adacc_changes
  std::string declined;  // told by the last adacc_declined
  // While adacc_probe or adacc_check run a step, the stash in use is one of these.
  Stash<>* probed = nullptr;
  Checked* checked = nullptr;

  ClockRef measuring_clock() {
    return clock.function == nullptr ? ClockRef(steady_seconds) : ClockRef(clock);
  }
  bool busy() const { return probed != nullptr || checked != nullptr; }
};

}}}  // namespace adacc::v0_1::c

struct adacc_stash : adacc::c::State {};

namespace adacc { inline namespace v0_1 { namespace c {

/// Runs `call`, with the C function's result: no exception gets out.
template <class Value, class Call>
Value guarded(Value otherwise, const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    fail(ADACC_FAILED, "there is not enough memory");
  } catch (...) {
    fail(ADACC_FAILED, "a C++ exception came out of a callback");
  }
  return otherwise;
}

inline Error no_stash(const char* function) { return Error::say(function, ": the stash is null"); }

/// The fault of a registering call; empty if there is none.
inline Error check_open(const adacc_stash* stash, const char* function) {
  if (stash == nullptr) return no_stash(function);
  if (stash->closed)
    return Error::say(function,
                      ": the stash is measured or planned already, and what it has is fixed");
  return {};
}

/// The fault of a list; empty if there is none.
inline Error check_list(const char* function, const char* what, const int* first,
                        std::size_t count) {
  if (first == nullptr && count > 0) return Error::say(function, ": the ", what, " are null");
  if (count > Graph::most_nodes)
    return Error::say(function, ": ", count, " ", what, " are too many");
  return {};
}

inline Error check_id(const adacc_stash* stash, const char* function, int id) {
  const int count = stash->model.activation_count();
  if (id >= 0 && id < count) return {};
  if (count == 0) return Error::say(function, ": activation ", id, ", and none is registered");
  return Error::say(function, ": there is no activation ", id, "; there are 0 to ", count - 1);
}

/// Changes a copy of the model, and takes the copy if the change makes sense.
template <class Change>
int change(adacc_stash* stash, const Change& change) {
  StashModel<> changed = stash->model;
  const int result = change(changed);
  if (changed.error()) return misuse(changed.error());
  stash->model = static_cast<StashModel<>&&>(changed);
  return result;
}

/// From now on the graph is fixed.
inline int close(adacc_stash* stash) {
  if (stash->closed) return ADACC_OK;
  Result<Graph> graph = stash->model.graph();
  if (!graph) return misuse(graph.error);
  stash->graph = static_cast<Graph&&>(*graph);
  stash->closed = true;
  return ADACC_OK;
}

inline Error check_idle(const adacc_stash* stash, const char* function) {
  if (stash == nullptr) return no_stash(function);
  if (stash->busy())
    return Error::say(function, ": adacc_probe or adacc_check is running a step of this stash");
  return {};
}

/// The fault of a call that has to come between steps; empty if there is none.
inline Error check_between_steps(const adacc_stash* stash, const char* function) {
  if (const Error why = check_idle(stash, function)) return why;
  if (stash->stash.in_step())
    return Error::say(function,
                      " inside of a step: it comes between steps, the last of which adacc_leave of "
                      "stage 0, or adacc_end, ends");
  return {};
}

/// The fault of a call between adacc_plan and the end; empty if there is none.
inline Error check_planned(const adacc_stash* stash, const char* function) {
  if (stash == nullptr) return no_stash(function);
  if (!stash->planned && !stash->busy())
    return Error::say(function, ": there is no plan yet; adacc_plan makes one");
  return {};
}

/// use(stash), with the stash in use.
template <class Use>
auto with_stash(adacc_stash* stash, const Use& use) {
  if (stash->checked != nullptr) return use(*stash->checked);
  if (stash->probed != nullptr) return use(*stash->probed);
  return use(stash->stash);
}

/// Passes on an error of a Stash: each is a mistake, except for errors of a codec or a store, and
/// there is no store here.
template <class Use>
int in_step(adacc_stash* stash, const char* function, const Use& use) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (const Error why = check_planned(stash, function)) return misuse(why);
    const Error why = with_stash(stash, use);
    return why ? misuse(why) : int{ADACC_OK};
  });
}

/// Runs a step of the trainer; the gradients.
inline Result<Array<View<const float>>> run_step(adacc_step step, void* user,
                                                 const adacc_gradient* gradients,
                                                 std::size_t count) {
  last_error = {};
  if (const int code = step(user); code != 0)
    return Error::say("the step that was to be run returned ", code,
                      last_error ? "; before that: " : "", last_error.text());
  Array<View<const float>> views;
  for (std::size_t i = 0; i < count; ++i)
    views.push_back({gradients[i].values, Shape(gradients[i].count)});
  return views;
}

inline Error check_step(const char* function, adacc_step step, const adacc_gradient* gradients,
                        std::size_t count) {
  if (step == nullptr) return Error::say(function, ": the step is null");
  if (gradients == nullptr || count == 0) return Error::say(function, ": there are no gradients");
  for (std::size_t i = 0; i < count; ++i)
    if (gradients[i].values == nullptr || gradients[i].count == 0)
      return Error::say(function, ": gradient ", i, " is null or empty");
  return {};
}

/// Lends the stash `memory`, from the first 64-byte aligned byte on.
inline Error lend(EvolvingStash<>& stash, Bytes memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::size_t skip = (alignment - address % alignment) % alignment;
  const std::size_t needed = stash.arena_bytes() + skip;
  if (memory.size() < needed)
    return Error::say("the plan needs ", shown(stash.arena_bytes()), ", which with ", skip,
                      " bytes in front to be aligned are ", shown(needed), ", and the memory has ",
                      shown(memory.size()));
  return stash.bind({memory.data() + skip, Shape(memory.size() - skip)});
}

inline void tell(const PlanOutcome& found, adacc_outcome* outcome) {
  if (outcome == nullptr) return;
  *outcome = {
      found.peak_bytes, found.retain_peak_bytes, found.seconds, found.retain_seconds, found.error,
      found.gap,        found.solve_seconds};
}

inline const CodecInfo* codec_of(int codec) {
  switch (codec) {
    case ADACC_BF16: return &codec_info<Bf16>;
    case ADACC_INT8: return &codec_info<Int8Outlier>;
    case ADACC_INT4: return &codec_info<Int4Outlier>;
    default: return nullptr;
  }
}

template <class Codec>
StashCodecError<Codec> with_error(double error) {
  return error < 0 ? stash_codec<Codec>() : stash_codec<Codec>(error);
}
/// A codec known to codec_of(), for a description; a negative error is yet to be probed.
inline StashCodec<StashModel<>> allowed(int codec, double error) {
  if (codec == ADACC_BF16) return with_error<Bf16>(error);
  if (codec == ADACC_INT8) return with_error<Int8Outlier>(error);
  return with_error<Int4Outlier>(error);
}

/// The fault of a description of a kernel, except for ids and sizes; empty if there is none.
inline Error check_call(const adacc_kernel_call* call) {
  const char* const function = "adacc_add_kernel";
  if (call == nullptr) return Error::say(function, ": the call is null");
  const auto examine = [&](const char* what, const auto& list) {
    if (list.first == nullptr && list.count > 0)
      return Error::say(function, ": the ", what, " are null");
    if (list.count > Graph::most_nodes)
      return Error::say(function, ": ", list.count, " ", what, " are too many");
    return Error();
  };
  if (const Error why = examine("activations that it reads", call->reads)) return why;
  if (const Error why = examine("outputs", call->writes)) return why;
  if (const Error why = examine("activations that its backward reads", call->backward_reads))
    return why;
  for (std::size_t i = 0; i < call->writes.count; ++i) {
    const adacc_output& output = call->writes.first[i];
    if (output.name == nullptr) return Error::say(function, ": the name of output ", i, " is null");
    if (output.bytes > 0 && (output.rows > 0 || output.columns > 0))
      return Error::say(function, ": output ", i, " (", output.name,
                        ") has rows or columns, and bytes instead of them");
    for (const int codec : output.codecs)
      if (codec != 0 && codec_of(codec) == nullptr)
        return Error::say(function, ": there is no codec ", codec, ", which output ", i, " (",
                          output.name, ") is to have");
  }
  return {};
}

/// The call, described to the model; names of outputs are copied to `names`.
inline StashKernel<StashModel<>> described(int stage, const adacc_kernel_call& call,
                                           std::deque<std::string>& names) {
  StashKernel<StashModel<>> kernel{.reads = {call.reads.first, call.reads.count},
                                   .stage = stage,
                                   .backward_bytes = call.backward_bytes,
                                   .needs = {.workspace_bytes = call.workspace_bytes},
                                   .hold = call.hold != 0};
  for (std::size_t i = 0; i < call.writes.count; ++i) {
    const adacc_output& from = call.writes.first[i];
    const char* const name = names.emplace_back(from.name).c_str();
    StashOutput<StashModel<>> output = {name, Shape(from.rows, from.columns)};
    if (from.bytes > 0) output = {name, StashBytes{from.bytes}};
    for (const int codec : from.codecs) {
      if (codec == 0) break;
      output.codecs.push_back(allowed(codec, StashModel<>::unknown));  // refused for bytes
    }
    kernel.writes.push_back(output);
  }
  for (std::size_t i = 0; i < call.backward_reads.count; ++i) {
    const int id = call.backward_reads.first[i];
    const bool own = id >= ADACC_OUTPUT(0) && id < ADACC_OUTPUT(1 << 24);
    kernel.backward_reads.push_back(own ? StashRead::nth_output(id - ADACC_OUTPUT(0)) : id);
  }
  return kernel;
}

}}}  // namespace adacc::v0_1::c
