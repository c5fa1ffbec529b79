// SPDX-License-Identifier: MIT
/// A step as data: instructions over named buffers, each of which lives for a part of the step.
///
/// Schedules are made by make_schedule (schedule.hpp), placed by make_layout (layout.hpp), run by Step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/array.hpp"
#include "../core/bytes.hpp"

namespace adacc { inline namespace v0_1 {

enum class Op : std::uint8_t {
  forward,        ///< y = layer(x), writes aux; y += added, if it adds
  add,            ///< y += x, the sum of a Residual
  encode,         ///< blob = codec(x)
  decode,         ///< y = codec^-1(blob)
  loss,           ///< mean loss of x
  loss_gradient,  ///< mean loss of x, and its gradient dx
  hand_over,      ///< the caller reads x, the last activation, and writes its gradient dx
  backward,       ///< dx from dy, x, y, aux; dx += added, if it adds
  add_gradient,   ///< dx += dy, where the branches of a Residual meet
  update,         ///< gradients of parameters are complete, for the caller's update
  write_begin,    ///< blob, a value or an encoded one, begins to travel to the store
  write_wait,     ///< blob has arrived there: its place in the arena is free
  read_begin,     ///< blob begins to travel back
  read_wait,      ///< blob is back
};

constexpr const char* name_of(Op op) {
  constexpr const char* names[] = {"forward",      "add",           "encode",      "decode",
                                   "loss",         "loss_gradient", "hand_over",   "backward",
                                   "add_gradient", "update",        "write_begin", "write_wait",
                                   "read_begin",   "read_wait"};
  return names[static_cast<int>(op)];
}

/// Buffers are indices into Schedule::buffers; -1 if there is none. An x of -1 in forward, add or
/// backward is the step's own input if node (or, for add, the source) is the first. So is an `added` of -1. If one forward
/// makes several activations, each has an instruction, and the last of them runs the forward.
struct Instruction {
  Op op = Op::forward;
  bool again = false;  ///< part of a recomputation
  int node = 0;        ///< the node of the activation; for the loss the last node
  int parts = 1;       ///< calls in the instruction, one after the other
  int x = -1, y = -1, dx = -1, dy = -1;
  int aux = -1, workspace = -1, blob = -1;
  bool adds = false;  ///< forward or backward forms a residual sum, too, with
  int added = -1;
  int packed = -1;    ///< packed operands shared by all parts of a layer's call (packed.hpp)
  int transfer = -1;  ///< into Schedule::transfers: the transfer of a write_ or read_ instruction
  int loop = -1;      ///< into Schedule::loops: the loop around the instruction; -1: none
  /// For an update, into Graph::gradients: the first of the complete gradients. All others
  /// completed by the node follow there.
  int gradient = -1;
};

constexpr bool is_transfer(Op op) {
  return op == Op::write_begin || op == Op::write_wait || op == Op::read_begin ||
         op == Op::read_wait;
}

/// Alignment, in bytes, of transferred memory and of its place in the store: enough for direct
/// access to any disk.
inline constexpr std::size_t transfer_alignment = 4096;

enum class BufferKind : std::uint8_t {
  activation,
  gradient,  ///< belongs to an activation, or to the step's input
  encoded,
  aux,
  workspace,
  packed,            ///< operands made of parameters once for all parts of an instruction
  lasting_gradient,  ///< if the graph has_lasting_gradients(): buffer i is Graph::gradients[i]
};

constexpr const char* name_of(BufferKind kind) {
  constexpr const char* names[] = {"activation", "gradient", "encoded",         "aux",
                                   "workspace",  "packed",   "lasting_gradient"};
  return names[static_cast<int>(kind)];
}

/// A tensor of a step. Lives from instruction `first` to instruction `last`, both included.
struct Buffer {
  BufferKind kind = BufferKind::activation;
  bool travels = false;      ///< goes to a store, or comes from there
  bool part_buffer = false;  ///< a part buffer: one part of the tensor, within a loop
  int activation = 0;        ///< a lasting gradient has none: 0
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;

  /// Alignment in the arena, in bytes.
  constexpr std::size_t unit() const { return travels ? transfer_alignment : alignment; }
  /// Bytes taken in the arena.
  constexpr std::size_t room() const { return (bytes + unit() - 1) / unit() * unit(); }
};

/// An activation on its way to the store and back.
struct Transfer {
  int activation = 0;
  std::size_t offset = 0;  ///< in the store
  std::size_t bytes = 0;   ///< a multiple of transfer_alignment
};

/// Instructions first..last, run part by part: all of them for the first part of their rows, then
/// all of them for the second. A buffer used only in between needs the bytes of one part
/// (Buffer::tile); every other buffer of the instructions lives as long as the loop.
struct Loop {
  int first = 0, last = 0;
  int parts = 1;
};

/// The place of a step in its schedule: a part of an instruction.
struct Position {
  std::size_t instruction = 0;
  std::size_t part = 0;
};

struct Schedule {
  Array<Instruction> instructions;
  Array<Buffer> buffers;
  Array<Transfer> transfers;
  Array<Loop> loops;            ///< one behind the other
  std::size_t store_bytes = 0;  ///< room needed in the store
  /// The buffer with the last activation: in Mode::infer at the end, and in a training step without
  /// a loss at Op::hand_over; -1 otherwise.
  int output = -1;
  int output_gradient = -1;  ///< without a loss: of the gradient from outside
  int input_gradient = -1;   ///< the buffer of the gradient of the step's input, at the end

  constexpr const Buffer& buffer(int id) const { return buffers[static_cast<std::size_t>(id)]; }

  /// The position behind `at`. A step begins at {0, 0}, ends at the number of instructions, and may
  /// run in no other order.
  constexpr Position next(Position at) const {
    const Instruction& inst = instructions[at.instruction];
    if (inst.loop < 0) {
      if (at.part + 1 < static_cast<std::size_t>(inst.parts)) return {at.instruction, at.part + 1};
      return {at.instruction + 1, 0};
    }
    const Loop& loop = loops[static_cast<std::size_t>(inst.loop)];
    if (at.instruction < static_cast<std::size_t>(loop.last)) return {at.instruction + 1, at.part};
    if (at.part + 1 < static_cast<std::size_t>(loop.parts))
      return {static_cast<std::size_t>(loop.first), at.part + 1};
    return {at.instruction + 1, 0};
  }
};

/// train: forward, loss and backward. evaluate: forward and loss (without a loss, infer). infer:
/// forward alone, keeping the last activation.
enum class Mode : std::uint8_t { train, evaluate, infer };

}}  // namespace adacc::v0_1
