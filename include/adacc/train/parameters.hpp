// SPDX-License-Identifier: MIT
/// The parameters of a training: one block, in full or in bfloat16, lent to steps, read and written; on a device also
/// with a block of copies in bfloat16.
#pragma once

#include <cstddef>
#include <utility>

#include "../core/block.hpp"
#include "../model/graph.hpp"
#include "../optimizer/update_table.hpp"
#include "memory.hpp"

namespace adacc { inline namespace v0_1 {

/// The form of a block that was asked for in `form`: in full, with copies where steps on activations of T read copies.
template <class T, class Context>
constexpr ParameterForm held_form(ParameterForm form) {
  if (form == ParameterForm::full && context_traits<Context>::template reads_copies<T>)
    return ParameterForm::with_copies;
  return form;
}

/// Parameters of a network with activations of T, in memory of Context.
template <class T, class Context>
class Parameters {
  using Number = Wide<T>;
  template <class Element>
  using Block = typename TrainingMemory<Context>::template Block<Element>;

 public:
  /// Takes the memory for all parameters of `graph`, in the graph's form.
  void take(const Graph& graph, Error& error) {
    form_ = graph.parameter_form;
    elems_ = graph.parameter_elems;
    if (in_bf16()) detail::take(held_, graph.block_elems(), "parameters", error);
    else detail::take(full_, graph.parameter_elems, "parameters", error);
    detail::take(copies_, graph.copy_elems(), "copies of parameters", error);
  }
  /// Makes copies, if there are any, of all parameters.
  Error make_copies(const TrainingMemory<Context>& memory) {
    if constexpr (context_traits<Context>::template reads_copies<T>)
      return memory.copy_parameters(View<const Number>(full()), copies());
    else return {};
  }
  /// Somebody else may write numbers in full from now on: steps no longer rely on the copies.
  void give_away() { kept_ = false; }

  bool in_bf16() const { return form_ == ParameterForm::bf16; }
  /// The block in full, and in bfloat16: one of them is empty.
  View<Number> full() { return {full_.data(), Shape(full_.size())}; }
  View<const Number> full() const { return {full_.data(), Shape(full_.size())}; }
  View<bfloat16> held() { return {held_.data(), Shape(in_bf16() ? elems_ : 0)}; }
  View<const bfloat16> held() const { return {held_.data(), Shape(in_bf16() ? elems_ : 0)}; }

  /// Lends the block to steps.
  ParameterBlock<Number> lend() const {
    if (in_bf16()) return View<const bfloat16>(held_.data(), Shape(held_.size()));
    if (copies_.size() != 0) return {full(), const_cast<bfloat16*>(copies_.data()), kept_};
    return full();
  }
  /// Lends the block to updates, with `gradients` at the same offsets.
  UpdateMemory<Number> lend(View<Number> gradients) {
    return {full(), gradients, {}, held(), copies()};
  }

  /// Calls use(View) with the block in its form.
  template <class Use>
  Error each_form(const Use& use) {
    if (in_bf16()) return use(held());
    return use(full());
  }
  template <class Use>
  Error each_form(const Use& use) const {
    if (in_bf16()) return use(held());
    return use(full());
  }

  /// Calls use(View<const Number>) with all parameters in the host's memory: a copy if they are elsewhere, or
  /// in bfloat16.
  template <class Use>
  Error read(const TrainingMemory<Context>& memory, const Use& use) const {
    if (!in_bf16()) return memory.read(full(), use);
    auto copy = adacc::Block<Number>::make(elems_, "parameters in full");
    if (!copy) return copy.error;
    const Error why = memory.read(held(), [&](View<const bfloat16> from) {
      for (std::size_t i = 0; i < elems_; ++i) (*copy)[i] = static_cast<Number>(to_float(from[i]));
      return Error();
    });
    return why ? why : use(std::as_const(*copy).view());
  }
  /// Calls fill(View<Number>) with memory of the host's for all parameters, which has their old values.
  /// Parameters in bfloat16 become the numbers nearest to the new values.
  template <class Fill>
  Error write(const TrainingMemory<Context>& memory, const Fill& fill) {
    if (!in_bf16()) {
      const Error why = memory.change(full(), fill);
      const Error copied = make_copies(memory);
      return why ? why : copied;
    }
    return read(memory, [&](View<const Number> copy) {
      const View<Number> numbers(const_cast<Number*>(copy.data()), copy.shape());  // read() made it
      if (const Error why = fill(numbers)) return why;
      return memory.write(held(), [&](View<bfloat16> to) {
        for (std::size_t i = 0; i < elems_; ++i)
          to.data()[i] = to_bfloat16(static_cast<float>(numbers[i]));
        return Error();
      });
    });
  }

 private:
  View<bfloat16> copies() { return {copies_.data(), Shape(copies_.size())}; }

  ParameterForm form_ = ParameterForm::full;
  std::size_t elems_ = 0;
  Block<Number> full_;
  Block<bfloat16> held_;
  Block<bfloat16> copies_;
  bool kept_ = true;  ///< nobody else writes parameters
};

}}  // namespace adacc::v0_1
