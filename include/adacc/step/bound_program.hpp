// SPDX-License-Identifier: MIT
/// A program and the memory lent to its steps: places of the operands of an instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../program/abilities.hpp"
#include "../program/program.hpp"
#include "dispatch_table.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T, class Abilities = AllAbilities>
struct BoundProgram {
  Program program;
  Bytes arena;
  ParameterBlock<Wide<T>> params;
  View<Wide<T>> gradients;
  const void* input = nullptr;
  const void* targets = nullptr;
  std::size_t loss_divisor = 0;  ///< see LossCall

  /// Buffer `id`; nothing if `id` is -1.
  Bytes bytes(int id) const {
    if (id < 0) return {};
    const auto i = static_cast<std::size_t>(id);
    return {arena.data() + program.layout.offsets[i], Shape(program.schedule.buffers[i].bytes)};
  }

  /// A buffer as a tensor of `shape`, for part `part`. If the buffer holds a part at a time, the tensor begins where
  /// the whole would begin: the part has its own place inside.
  View<T> tensor(int id, Shape shape, std::size_t part = 0) const {
    if (id < 0) return {};
    const Buffer& buffer = program.schedule.buffer(id);
    auto place = reinterpret_cast<std::uintptr_t>(bytes(id).data());
    if (Abilities::parts && buffer.part_buffer) place -= part * buffer.bytes;
    return {reinterpret_cast<T*>(place), shape};  // NOLINT(performance-no-int-to-ptr)
  }
  View<T> matrix(int node, int id, std::size_t part) const {
    const Shape shape = program.graph.node(node).output;
    return tensor(id, Shape(shape.rows(), shape.cols()), part);
  }

  /// Part `part` of a layer's forward.
  ForwardCall<T> forward(const Instruction& inst, std::size_t part) const {
    const Node& node = program.graph.node(inst.node);
    ForwardCall<T> call;
    set_layer(call, inst, node, part);
    call.x = input_of(inst, node, part);
    call.y = cut_view(node.cut, tensor(inst.y, node.output, part), part);
    const int id = program.graph.input_of(inst.node);
    call.again = inst.again;
    call.aux_holds = inst.again && (id == step_input || exact(id));
    if (inst.adds) call.added = added(inst, node.output);
    return call;
  }

  /// Part `part` of the node's backward.
  BackwardCall<T> backward(const Instruction& inst, std::size_t part) const {
    const Node& node = program.graph.node(inst.node);
    BackwardCall<T> call;
    set_layer(call, inst, node, part);
    if (reads_input(node.reads)) call.x = input_of(inst, node, part);
    call.y = cut_view(node.cut, tensor(inst.y, node.output, part), part);
    call.dy = cut_view(node.cut, tensor(inst.dy, node.output, part), part);
    call.dx = cut_view(node.cut, tensor(inst.dx, node.input, part), part);
    // A layer that ran forward again ran on the input of backward, so all operands agree.
    const bool again = program.plan[inst.node].recomputes() && reads_output(node.reads);
    const int id = program.graph.input_of(inst.node);
    call.exact_input = again || id == step_input || exact(id);
    call.exact_output = again || exact(inst.node);
    if (inst.adds) call.added = added(inst, node.input);
    return call;
  }

  /// The operands of a residual sum.
  struct Sum {
    View<const T> from;
    View<T> to;
  };
  Sum of_sum(const Instruction& inst, std::size_t part) const {
    const int to = inst.op == Op::add ? inst.y : inst.dx,
              from = inst.op == Op::add ? inst.x : inst.dy;
    const Shape shape = detail::LoopRules::shape_of(program.graph, program.schedule.buffer(to));
    const Cut cut = sum_cut(program.graph, shape);
    const View<const T> whole = from < 0 ? View<const T>(static_cast<const T*>(input), shape)
                                         : View<const T>(tensor(from, shape, part));
    return {cut_view(cut, whole, part), cut_view(cut, tensor(to, shape, part), part)};
  }

  /// Part `part` of the loss, with or without gradients.
  LossCall<T> loss(const Instruction& inst, std::size_t part) const {
    const LossNode& node = program.graph.loss;
    const Cut& cut = node.cut;
    const Shape output = program.graph.output();
    LossCall<T> call;
    call.workspace = bytes(inst.workspace);
    set_parameters(call, node, inst.op == Op::loss_gradient);
    call.x = cut_view(cut, tensor(inst.x, output, part), part);
    call.dx = cut_view(cut, tensor(inst.dx, output, part), part);
    const std::size_t elems = node.targets.elems();
    call.targets = {static_cast<const T*>(behind(
                        targets, cut.offset(elems, cut.first(part)) * bytes_of(node.target_dtype))),
                    cut.parts() == 1 ? node.targets : Shape(elems / cut.items * cut.count(part))};
    call.part = part_of(cut, part);
    call.divisor = loss_divisor;
    return call;
  }

 private:
  View<const T> added(const Instruction& inst, Shape shape) const {
    if (inst.added >= 0) return tensor(inst.added, shape);
    return {static_cast<const T*>(input), shape};
  }

  /// Sets the parameters of a node, or of the loss. In backward the end of the workspace is for gradients that nobody
  /// reads; behind them are copies of parameters held in bfloat16, or stored in a file.
  template <class Call, class AnyNode>
  void set_parameters(Call& call, const AnyNode& node, bool backward) const {
    const Parameter* table = program.graph.parameters.data() + node.parameters.first;
    const std::size_t count = node.parameters.count;
    const auto take_end = [&](std::size_t bytes) {
      if (bytes == 0) return static_cast<Wide<T>*>(nullptr);
      const std::size_t own = (call.workspace.size() - bytes) / alignment * alignment;
      auto* const end = reinterpret_cast<Wide<T>*>(call.workspace.data() + own);
      call.workspace = {call.workspace.data(), Shape(own)};
      return end;
    };
    const std::size_t window = backward ? node.decode_room.backward : node.decode_room.forward;
    if (Abilities::decoded_parameters && params.form() == ParameterForm::bf16)
      call.params = {take_end(window), params.in_bf16(), table, count};
    else call.params = {params.full(), table, count};
    if (Abilities::decoded_parameters && has_stored(table, count))
      call.params.set_window(take_end(window), node.decode_room.tiles);
    if (Abilities::decoded_parameters &&
        program.graph.parameter_form == ParameterForm::with_copies)
      call.params.set_copies(params.copies());
    if constexpr (requires { call.dparams; }) {
      if (!backward) return;
      Wide<T>* const scratch = take_end(node.discarded_bytes);
      if (Abilities::updates && program.graph.fuses_updates())
        call.dparams = {reinterpret_cast<Wide<T>*>(arena.data()), table, count, scratch,
                        program.layout.offsets.data()};
      else call.dparams = {gradients.data(), table, count, scratch};
    }
  }

  /// The items of part `part` of the tensor `whole`.
  template <class U>
  static View<U> cut_view(const Cut& cut, View<U> whole, std::size_t part) {
    if (!Abilities::parts || whole.data() == nullptr || cut.parts() == 1) return whole;
    return {whole.data() + cut.offset(whole.size(), cut.first(part)),
            cut.shape(whole.shape(), cut.count(part))};
  }

  bool exact(int id) const { return program.exact[static_cast<std::size_t>(id)]; }

  static Part part_of(const Cut& cut, std::size_t part) {
    return {cut.first(part), cut.count(part), cut.items};
  }
  static const void* behind(const void* from, std::size_t bytes) {
    return static_cast<const std::byte*>(from) + bytes;
  }

  View<const T> input_of(const Instruction& inst, const Node& node, std::size_t part) const {
    const Cut& cut = node.cut;
    const bool reads_step_input = program.graph.input_of(inst.node) == step_input;
    const void* x = inst.x >= 0        ? tensor(inst.x, node.input, part).data()
                    : reads_step_input ? input
                                       : nullptr;
    const std::size_t x_bytes = reads_step_input ? bytes_of(program.graph.input_dtype) : sizeof(T);
    const std::size_t first =
        Abilities::parts ? cut.offset(node.input.elems(), cut.first(part)) : 0;
    if (x != nullptr) x = behind(x, first * x_bytes);
    return {static_cast<const T*>(x),
            Abilities::parts ? cut.shape(node.input, cut.count(part)) : node.input};
  }

  /// Arguments common to forward and backward.
  template <class Call>
  void set_layer(Call& call, const Instruction& inst, const Node& node, std::size_t part) const {
    call.workspace = bytes(inst.workspace);
    set_parameters(call, node, inst.op == Op::backward);
    const Cut& cut = node.cut;
    call.part = part_of(cut, part);
    call.packed = bytes(inst.packed);
    call.packed_holds = part > 0;
    Bytes aux = bytes(inst.aux);
    if (Abilities::parts && cut.parts() > 1 && node.part_aux_bytes != 0) {
      const std::size_t begin = part * align_up(node.part_aux_bytes);
      const bool last = part + 1 == cut.parts();
      aux = {aux.data() + begin, Shape(last ? node.aux_bytes - begin : node.part_aux_bytes)};
    }
    call.aux = aux;
  }
};

}}}  // namespace adacc::v0_1::detail
