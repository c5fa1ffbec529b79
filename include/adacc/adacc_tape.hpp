// SPDX-License-Identifier: MIT
/// The tape behind the functions of adacc.h. For adacc.cpp alone, behind adacc_c.hpp.
#pragma once

#include "adacc_c.hpp"
#include "stash/tape_start.hpp"

namespace adacc { inline namespace v0_1 { namespace c {

/// A kernel in C as a callable of a Tape.
struct TapeFunction {
  adacc_kernel function;
  void* user;
  std::size_t inputs, outputs;

  void operator()(const TapeCall<float>& call) const {
    const void* from[ADACC_MOST_READS] = {};
    void* to[ADACC_MOST_WRITES] = {};
    for (std::size_t i = 0; i < inputs; ++i) from[i] = call.in(i).data();
    for (std::size_t i = 0; i < outputs; ++i) to[i] = call.out(i).data();
    function(user, from, to, call.workspace().data());
  }
  /// Tells kernels apart by their functions, for all callables have this type.
  void (*kind() const)() { return reinterpret_cast<void (*)()>(function); }
};

struct TapeState {
  Tape<> tape{1};
  std::deque<std::string> names;
  Cpu cpu;
  bool started = false;
  bool starting = false;
  int activations = 0;
  std::string report;
};

}}}  // namespace adacc::v0_1::c

struct adacc_tape : adacc::c::TapeState {};

namespace adacc { inline namespace v0_1 { namespace c {

inline Error no_tape(const char* function) { return Error::say(function, ": the tape is null"); }

inline std::size_t listed(const int (&list)[ADACC_MOST_READS]) {
  std::size_t count = 0;
  while (count < ADACC_MOST_READS && list[count] != 0) ++count;
  return count;
}

/// The fault of a description, except for faults told by the tape; empty if there is none.
inline Error check_tape_call(const adacc_tape* tape, const adacc_tape_call* call) {
  const char* const function = "adacc_tape_kernel";
  if (tape == nullptr) return no_tape(function);
  if (tape->started || tape->starting)
    return Error::say(function, " comes before adacc_tape_start");
  if (call == nullptr) return Error::say(function, ": the call is null");
  if (call->name == nullptr) return Error::say(function, ": the kernel has no name");
  const auto where = [&](const auto&... why) {
    return Error::say(function, ": ", call->name, " ", why...);
  };
  if (call->kernel == nullptr) return where("has no function");
  for (std::size_t i = 0; i < listed(call->reads); ++i)
    if (call->reads[i] < 1 || call->reads[i] > tape->activations)
      return where("reads activation ", call->reads[i], ", and kernels before it make 1 to ",
                   tape->activations);
  std::size_t writes = 0;
  while (writes < ADACC_MOST_WRITES && call->writes[writes].name != nullptr) ++writes;
  for (std::size_t i = 0; i < writes; ++i) {
    const adacc_tape_output& output = call->writes[i];
    if (output.bytes > 0 && (output.rows > 0 || output.columns > 0))
      return where("writes ", output.name, " of rows or columns, and of bytes instead of them");
    if (output.type < ADACC_TYPE_FLOAT || output.type > ADACC_TYPE_BYTE)
      return where("writes ", output.name, " of type ", output.type, ": there is none");
    const int input = output.in_place_of;
    if (input < 0 || input > tape->activations)
      return where("writes ", output.name, " in place of activation ", input,
                   ", and kernels before it make 1 to ", tape->activations);
    if (input > 0 && (output.bytes > 0 || output.rows > 0 || output.columns > 0 ||
                      output.type != 0 || output.per_item != 0))
      return where("writes ", output.name, " in place of activation ", input,
                   ", which says its size and type");
    for (const int codec : output.codecs)
      if (codec != 0 && codec_of(codec) == nullptr)
        return where("writes ", output.name, ", which codec ", codec, " may encode: there is none");
  }
  for (std::size_t i = 0; i < listed(call->saves); ++i) {
    const int id = call->saves[i];
    if (id > tape->activations)
      return where("saves activation ", id, ", and kernels before it make 1 to ",
                   tape->activations);
    if (id < 0 && static_cast<std::size_t>(ADACC_OWN(id)) >= writes)
      return where("saves its output ", ADACC_OWN(id), ", and writes ", writes, ", counted from 0");
  }
  return {};
}

inline TapeType type_of(int type) {
  constexpr TapeType types[] = {TapeType::own,  TapeType::f64, TapeType::i32,
                                TapeType::bf16, TapeType::f16, TapeType::bytes};
  return types[type];
}

/// Adds a kernel without faults (check_tape_call()); the number of the first output.
inline int add_to(adacc_tape& tape, const adacc_tape_call& call) {
  TapeKernel<float, Cpu> said{.name = tape.names.emplace_back(call.name).c_str(),
                              .workspace_bytes = call.workspace_bytes,
                              .backward_bytes = call.backward_bytes,
                              .once = call.once != 0,
                              .gradients = call.gradients != 0};
  const std::size_t reads = listed(call.reads);
  for (std::size_t i = 0; i < reads; ++i) said.reads.push_back(call.reads[i] - 1);
  for (std::size_t i = 0; i < listed(call.saves); ++i) {
    const int id = call.saves[i];
    said.saves.push_back(id < 0 ? StashRead::nth_output(ADACC_OWN(id)) : StashRead(id - 1));
  }
  for (const adacc_tape_output& from : call.writes) {
    if (from.name == nullptr) break;
    const char* const name = tape.names.emplace_back(from.name).c_str();
    TapeOutputs options = TapeOutputs::plain;
    if (from.gradient != 0) options = options | TapeOutputs::gradient;
    if (from.zeroed != 0) options = options | TapeOutputs::zeroed;
    if (from.per_item != 0) options = options | TapeOutputs::per_item;
    TapeOutput<float, Cpu> output(name, StashBytes{from.bytes}, options);
    if (from.in_place_of > 0) output = {name, TapeInPlace{from.in_place_of - 1}, options};
    else if (from.bytes == 0)
      output = {name, Shape(from.rows, from.columns), type_of(from.type), options};
    for (const int codec : from.codecs) {
      if (codec == 0) break;
      output.described.codecs.push_back(
          allowed(codec, StashModel<>::unknown));  // refused for bytes
    }
    said.writes.push_back(output);
  }
  const int first = tape.tape.kernel_of_any(
      said, TapeFunction{call.kernel, call.user, reads, said.writes.size()});
  tape.activations += static_cast<int>(said.writes.size());
  return first + 1;
}

/// Passes on an error of a step, as in_step() does for a stash.
template <class Use>
int on_tape(adacc_tape* tape, const char* function, const Use& use) {
  return guarded(int{ADACC_FAILED}, [&] {
    if (tape == nullptr) return misuse(no_tape(function));
    const Error why = use();
    return why ? misuse(why) : int{ADACC_OK};
  });
}

/// The gradient by use(); null after an error.
template <class Use>
float* gradient_on_tape(adacc_tape* tape, const char* function, const Use& use) {
  return guarded<float*>(nullptr, [&]() -> float* {
    if (tape == nullptr) return misuse(no_tape(function)), nullptr;
    float* const there = use().data();
    if (there == nullptr) misuse(tape->tape.error());
    return there;
  });
}

inline Error check_request(const adacc_tape* tape, const adacc_tape_request* request) {
  const char* const function = "adacc_tape_start";
  if (tape == nullptr) return no_tape(function);
  if (tape->starting) return Error::say(function, " is running a step of this tape");
  if (request == nullptr) return Error::say(function, ": the request is null");
  if (request->memory == nullptr && request->memory_bytes != 0)
    return Error::say(function, ": memory of ", request->memory_bytes,
                      " bytes is lent, and it is null");
  return check_step(function, request->step, request->gradients, request->gradient_count);
}

inline Error start(adacc_tape& tape, const adacc_tape_request& request) {
  TapeStart how{.percent = request.percent,
                .budget_bytes = request.budget_bytes,
                .tolerance = request.tolerance,
                .check = request.check != 0,
                .items = request.items,
                .most_runs = request.most_runs == 0 ? 1 : request.most_runs,
                .evolving = request.evolving != 0,
                .log = request.log,
                .user = request.log_user};
  if (request.setup_seconds != 0) how.setup_seconds = request.setup_seconds;
  if (request.memory != nullptr)
    how.memory = Bytes(static_cast<std::byte*>(request.memory), Shape(request.memory_bytes));
  struct Starting {  // also where a callback throws
    bool& starting;
    ~Starting() { starting = false; }
  } const starting{tape.starting = true};
  const Error why = tape.tape.start(tape.cpu, how, [&] {
    return run_step(request.step, request.user, request.gradients, request.gradient_count);
  });
  if (why) return why;
  tape.started = true;
  tape.report = tape_report(tape.tape.outcome(), tape.tape.stash().program());
  return {};
}

}}}  // namespace adacc::v0_1::c
