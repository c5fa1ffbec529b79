// SPDX-License-Identifier: MIT
/// A training step of other code, as seen by the store of saved tensors: which storages were saved and read when, and
/// the bytes in use by the process all along.
///
/// No libtorch in this file: the step under another plan is a function of this record (step_memory.hpp,
/// step_plan.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "../../codec/codec.hpp"
#include "../../core/shape.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A moment at which a storage was saved, read or freed, or a block began or ended. Bytes are above those in use at
/// the step's beginning.
struct StepEvent {
  std::ptrdiff_t peak = 0;                 ///< the most in use since the event before
  std::ptrdiff_t live = 0;                 ///< bytes in use at the event
  int reads = -1;                          ///< the storage that backward reads here
  double seconds = 0;                      ///< since the step began
  std::ptrdiff_t parameter_gradients = 0;  ///< bytes made by backward until then
  int mark = -1;  ///< the device's moment (step_times.hpp); -1: there is none
};

/// From the event at which backward reads a storage to the first event without the storage's reader.
struct StepReading {
  int first = 0, last = 0;
};

/// The form without bytes of a storage that an operator makes again, of sources that are saved anyway.
inline constexpr CodecInfo operator_again{
    .name = "again",
    .encoded_bytes = [](std::size_t, std::size_t, Dtype) { return std::size_t{0}; },
    .lossless = true,
    .keeps_values = true,
    .id = fnv1a("again")};

/// A storage of which an operator makes another one again.
struct StepSource {
  enum class Form : unsigned char {
    retained,
    exact,  ///< retained, or in a form without loss
    any,    ///< with the loss that the other storage's readers tolerate
  };
  int storage;
  Form least;  ///< that the source may wait in
};

/// A possible form of a storage, and the costs.
struct StepForm {
  const CodecInfo* codec = nullptr;
  std::size_t bytes = 0;
  double encode = 0, decode = 0;  ///< seconds
  std::size_t work_bytes = 0;     ///< beside form and elements, while encoding or decoding

  bool runs_again() const { return codec == &operator_again; }
};

/// A storage held by autograd from forward to backward.
struct StepStorage {
  std::string name;                 ///< the first saver
  std::string module;               ///< the first saver's module; empty if unknown
  std::size_t bytes = 0;            ///< before encoding
  std::size_t saved_bytes = 0;      ///< of the saved part, which alone is encoded; 0: all are
  Shape shape;                      ///< for a codec
  std::vector<StepForm> forms;      ///< tolerated by all readers, the largest first
  std::vector<StepSource> sources;  ///< saved before, for the form `operator_again`
  /// Masks and integers: bytes without loss, their form under every plan; 0: as they are.
  StepForm packed;
  int block = -1;           ///< the block of all savers; -1: there is none
  bool saved = true;        ///< false: a block's input that no operator saves
  bool opaque = false;      ///< an operator's workspace, which no codec takes
  bool may_travel = false;  ///< a store can read and write the memory
  int released = -1;        ///< the event from which autograd is the only owner; -1: never
  int freed = -1;           ///< the event at which the last saver let go
  int unpacked = -1;        ///< the event from which decoded elements stay, and no form; -1: never
  std::vector<StepReading> readings;

  std::size_t decoded_bytes() const { return saved_bytes > 0 ? saved_bytes : bytes; }
  /// How often a form is decoded, as far as a plan counts: at least once.
  double decodings() const {
    return static_cast<double>(std::max<std::size_t>(1, readings.size()));
  }
};

/// A part of forward that can run again in backward.
struct StepBlock {
  int first = 0, end = 0;   ///< the storages first saved here
  std::vector<int> inputs;  ///< the storages read
  int begin_event = 0, end_event = 0;
  int forgotten = -1;  ///< the event freeing the inputs of a second run; -1: unknown
  /// Of a run: of the shorter, where the block ran again in the recorded step. The first run is longer by the hooks, and a
  /// device may have to wait for them.
  double seconds = 0;
  std::vector<int> saved_inputs = {};  ///< of the inputs, those that operators of the block save
  double second_run = 0;               ///< its seconds; 0: there was none
  int second_mark = -1;                ///< StepEvent::mark of the end of the second run
};

/// An operator saves a storage that another block has saved first.
struct StepOutput {
  int storage;
  int next;           ///< the number of the storage saved first thereafter
  std::string saver;  ///< the operator
};

struct StepRecord {
  std::vector<StepEvent> events;
  std::vector<StepStorage> storages;
  std::vector<StepBlock> blocks;
  /// In the order of saving. Where that block runs again in backward, such an operator is the first to save the storage.
  std::vector<StepOutput> outputs;
  /// Storages saved before the first parameter without a gradient; -1: all had one. Backward makes the missing
  /// gradients, so a step with them is of another kind.
  int before_missing_gradient = -1;
  /// Bytes kept by a block besides inputs, to run again unchanged: the state of random numbers.
  std::size_t surroundings_bytes = 0;
  /// Forms of fewer bytes stay under every plan: no store can read and write them.
  std::size_t least_sent_bytes = 0;
  double seconds = 0;  ///< forward and backward

  /// The form that storage `source` may wait in for storage `id`; `otherwise` if no operator makes `id` of `source`.
  StepSource::Form least_form(int id, int source, StepSource::Form otherwise) const {
    auto least = StepSource::Form::any;
    bool any = false;
    if (static_cast<std::size_t>(id) < storages.size())
      for (const StepSource& each : storages[static_cast<std::size_t>(id)].sources)
        if (each.storage == source) any = true, least = std::min(least, each.least);
    return any ? least : otherwise;
  }

  std::size_t peak() const {
    std::ptrdiff_t most = 0;
    for (const StepEvent& event : events) most = event.peak > most ? event.peak : most;
    return static_cast<std::size_t>(most);
  }
};

}}}  // namespace adacc::v0_1::torch
