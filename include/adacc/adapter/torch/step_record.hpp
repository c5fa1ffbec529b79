// SPDX-License-Identifier: MIT
/// A training step of somebody else's as it was seen by who keeps its saved tensors: which storages
/// were saved and read when, and how many bytes the process had in use all along.
///
/// Nothing of libtorch is here: what becomes of the step under another plan is a function of this
/// record (step_memory.hpp, step_plan.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../../codec/codec.hpp"
#include "../../core/shape.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A moment at which something was saved, read, freed, or a block began or ended. Bytes are above those
/// that were in use when the step began.
struct StepEvent {
  std::ptrdiff_t peak = 0;                 ///< the most that was in use since the event before
  std::ptrdiff_t live = 0;                 ///< what is in use at it
  int reads = -1;                          ///< the storage that backward reads here
  double seconds = 0;                      ///< since the step began
  std::ptrdiff_t parameter_gradients = 0;  ///< bytes of those that backward has made by then
};

/// From the event at which backward reads a storage to the first at which it has let go of it.
struct StepReading {
  int first = 0, last = 0;
};

/// A form in which a storage may wait, and what that costs.
struct StepForm {
  const CodecInfo* codec = nullptr;
  std::size_t bytes = 0;
  double encode = 0, decode = 0;  ///< seconds
};

/// A storage that autograd holds from forward to backward.
struct StepStorage {
  std::string name;             ///< who saved it first
  std::string module;           ///< and in which module; empty if nobody said so
  std::size_t bytes = 0;        ///< of the storage as it is
  Shape shape;                  ///< what a codec takes it for
  std::vector<StepForm> forms;  ///< those that its readers tolerate, the largest first
  /// Masks and integers: bytes without loss, which is how they wait under every plan; 0: as they are.
  StepForm packed;
  int block = -1;           ///< the block that has all who saved it; -1: there is none
  bool saved = true;        ///< false: a block's input that no operator saves
  bool opaque = false;      ///< an operator's workspace, which no codec takes
  bool may_travel = false;  ///< a store can read and write its memory
  int released =
      -1;          ///< the event at which autograd alone held it; -1: somebody else did all along
  int freed = -1;  ///< the event at which the last who saved it let go
  std::vector<StepReading> readings;
};

/// A part of forward that can run again in backward.
struct StepBlock {
  int first = 0, end = 0;   ///< the storages that were saved first in it
  std::vector<int> inputs;  ///< the storages that it is made from
  int begin_event = 0, end_event = 0;
  int forgotten =
      -1;  ///< the event at which what it takes to run again is freed; -1: none is known
  double seconds = 0;
};

struct StepRecord {
  std::vector<StepEvent> events;
  std::vector<StepStorage> storages;
  std::vector<StepBlock> blocks;
  /// How many storages were saved before the first parameter that had no gradient yet; -1: all had one.
  /// Backward makes the missing ones, so a step with them is of another kind.
  int before_missing_gradient = -1;
  /// What a block keeps besides its inputs, to run again as it ran: the state of the random numbers.
  std::size_t surroundings_bytes = 0;
  /// What waits in fewer bytes stays, whatever a plan wants: no store can read and write it.
  std::size_t least_sent_bytes = 0;
  double seconds = 0;  ///< of forward and backward

  std::size_t peak() const {
    std::ptrdiff_t most = 0;
    for (const StepEvent& event : events) most = event.peak > most ? event.peak : most;
    return static_cast<std::size_t>(most);
  }
};

}}}  // namespace adacc::v0_1::torch
