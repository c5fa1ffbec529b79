// SPDX-License-Identifier: MIT
/// A program and the memory that its steps were lent: where the operands of an instruction lie.
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

  /// Buffer `id`; nothing if it is -1.
  Bytes bytes(int id) const {
    if (id < 0) return {};
    const auto i = static_cast<std::size_t>(id);
    return {arena.data() + program.layout.offsets[i], Shape(program.schedule.buffers[i].bytes)};
  }

  /// A buffer as a tensor of `shape`, for part `part`. Of one that holds a part at a time the
  /// tensor begins where it would begin if it were all there: the part has its own place in it.
  View<T> tensor(int id, Shape shape, std::size_t part = 0) const {
    if (id < 0) return {};
    const Buffer& buffer = program.schedule.buffer(id);
    auto place = reinterpret_cast<std::uintptr_t>(bytes(id).data());
    if (Abilities::parts && buffer.tile) place -= part * buffer.bytes;
    return {reinterpret_cast<T*>(place), shape};
  }
  View<T> matrix(int node, int id, std::size_t part) const {
    const Shape shape = program.graph.node(node).output;
    return tensor(id, Shape(shape.rows(), shape.cols()), part);
  }

  /// The arguments of forward: part `part` of a layer's work.
  KernelArgs<T> of_forward(const Instruction& inst, std::size_t part) const {
    const Node& node = program.graph.node(inst.node);
    KernelArgs<T> args = of_layer(inst, node, part);
    args.out = cut_view(node.cut, tensor(inst.y, node.output, part), part);
    return args;
  }

  /// Those of backward.
  KernelArgs<T> of_backward(const Instruction& inst, std::size_t part) const {
    const Node& node = program.graph.node(inst.node);
    KernelArgs<T> args = of_layer(inst, node, part);
    if (!reads_input(node.reads)) args.x = nullptr, args.x_shape = {};
    args.y = cut_view(node.cut, tensor(inst.y, node.output, part), part);
    args.dy = cut_view(node.cut, tensor(inst.dy, node.output, part), part);
    args.out = cut_view(node.cut, tensor(inst.dx, node.input, part), part);
    return args;
  }

  /// Gradient i of Graph::gradients.
  View<Wide<T>> parameter_gradient(std::size_t i) const {
    const Parameter& parameter =
        program.graph.parameters[static_cast<std::size_t>(program.graph.gradients[i].parameter)];
    if (Abilities::updates && program.graph.fuses_updates())
      return {static_cast<Wide<T>*>(static_cast<void*>(bytes(static_cast<int>(i)).data())),
              parameter.shape};
    return {gradients.data() + parameter.offset, parameter.shape};
  }

  /// What a residual sum adds, and to what.
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

  /// Those of the loss, with its gradient or without.
  KernelArgs<T> of_loss(const Instruction& inst, std::size_t part) const {
    const LossNode& node = program.graph.loss;
    const Cut& cut = node.cut;
    const Shape output = program.graph.output();
    KernelArgs<T> args;
    args.workspace = bytes(inst.workspace);
    set_parameters(args, node, inst.op == Op::loss_gradient);
    const View<T> x = cut_view(cut, tensor(inst.x, output, part), part);
    args.x = x.data();
    args.x_shape = x.shape();
    args.out = cut_view(cut, tensor(inst.dx, output, part), part);
    const std::size_t elems = node.targets.elems();
    args.targets = static_cast<const std::byte*>(targets) +
                   cut.offset(elems, cut.first(part)) * bytes_of(node.target_dtype);
    args.targets_shape =
        cut.parts() == 1 ? node.targets : Shape(elems / cut.items * cut.count(part));
    return args;
  }

 private:
  /// Those of a node, or of the loss. In backward the end of the workspace is for gradients that
  /// nobody reads; behind it are copies of parameters that are held in bfloat16.
  template <class AnyNode>
  void set_parameters(KernelArgs<T>& args, const AnyNode& node, bool backward) const {
    const Parameter* table = program.graph.parameters.data() + node.parameters.first;
    const std::size_t count = node.parameters.count;
    Wide<T>* scratch = nullptr;
    const auto take_end = [&](std::size_t bytes) {
      if (bytes == 0) return static_cast<Wide<T>*>(nullptr);
      const std::size_t own = (args.workspace.size() - bytes) / alignment * alignment;
      auto* const end = reinterpret_cast<Wide<T>*>(args.workspace.data() + own);
      args.workspace = {args.workspace.data(), Shape(own)};
      return end;
    };
    if (Abilities::bf16_parameters && params.form() == ParameterForm::bf16)
      args.params = {take_end(backward ? node.window.backward : node.window.forward),
                     params.in_bf16(), table, count};
    else args.params = {params.full(), table, count};
    if (backward) scratch = take_end(node.discarded_bytes);
    if (Abilities::updates && program.graph.fuses_updates())
      args.dparams = {reinterpret_cast<Wide<T>*>(arena.data()), table, count, scratch,
                      program.layout.offsets.data()};
    else args.dparams = {gradients.data(), table, count, scratch};
  }

  /// The items of part `part` of a tensor that holds `whole`.
  template <class U>
  static View<U> cut_view(const Cut& cut, View<U> whole, std::size_t part) {
    if (!Abilities::parts || whole.data() == nullptr || cut.parts() == 1) return whole;
    return {whole.data() + cut.offset(whole.size(), cut.first(part)),
            cut.shape(whole.shape(), cut.count(part))};
  }

  KernelArgs<T> of_layer(const Instruction& inst, const Node& node, std::size_t part) const {
    KernelArgs<T> args;
    args.workspace = bytes(inst.workspace);
    set_parameters(args, node, inst.op == Op::backward);
    const Cut& cut = node.cut;
    args.x_shape = Abilities::parts ? cut.shape(node.input, cut.count(part)) : node.input;
    const bool reads_step_input = program.graph.input_of(inst.node) == step_input;
    const void* x = inst.x >= 0        ? tensor(inst.x, node.input, part).data()
                    : reads_step_input ? input
                                       : nullptr;
    const std::size_t x_bytes = reads_step_input ? bytes_of(program.graph.input_dtype) : sizeof(T);
    const std::size_t first =
        Abilities::parts ? cut.offset(node.input.elems(), cut.first(part)) : 0;
    if (x != nullptr) args.x = static_cast<const std::byte*>(x) + first * x_bytes;
    args.aux = bytes(inst.aux);
    if (Abilities::parts && cut.parts() > 1 && node.part_aux_bytes != 0) {
      const std::size_t begin = part * align_up(node.part_aux_bytes);
      const bool last = part + 1 == cut.parts();
      args.aux = {args.aux.data() + begin,
                  Shape(last ? node.aux_bytes - begin : node.part_aux_bytes)};
    }
    return args;
  }
};

}}}  // namespace adacc::v0_1::detail
