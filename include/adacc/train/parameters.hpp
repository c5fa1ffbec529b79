// SPDX-License-Identifier: MIT
/// The parameters of a training: one block in whatever form it holds them, lent to steps, read and written.
#pragma once

#include <cstddef>
#include <utility>

#include "../core/block.hpp"
#include "../model/graph.hpp"
#include "../optimizer/update_table.hpp"
#include "memory.hpp"

namespace adacc { inline namespace v0_1 {

/// With activations of T; the block is Context's memory.
template <class T, class Context>
class Parameters {
  using Number = Wide<T>;
  template <class Element>
  using Block = typename TrainingMemory<Context>::template Block<Element>;

 public:
  /// Takes the memory for all of `graph`, in its form.
  void take(const Graph& graph, Error& error) {
    form_ = graph.parameter_form;
    if (in_bf16()) detail::take(held_, graph.parameter_elems, "parameters", error);
    else detail::take(full_, graph.parameter_elems, "parameters", error);
  }

  bool in_bf16() const { return form_ == ParameterForm::bf16; }
  /// The block, in the form that it has; the other one is empty.
  View<Number> full() { return {full_.data(), Shape(full_.size())}; }
  View<const Number> full() const { return {full_.data(), Shape(full_.size())}; }
  View<bfloat16> held() { return {held_.data(), Shape(held_.size())}; }
  View<const bfloat16> held() const { return {held_.data(), Shape(held_.size())}; }

  /// To steps.
  ParameterBlock<Number> lend() const {
    if (in_bf16()) return held();
    return full();
  }
  /// To updates, with the gradients that mirror them.
  UpdateMemory<Number> lend(View<Number> gradients) { return {full(), gradients, {}, held()}; }

  /// use(View) of the block in its form.
  template <class Use>
  Error each_form(const Use& use) {
    if constexpr (!context_traits<Context>::own_memory)
      if (in_bf16()) return use(held());
    return use(full());
  }
  template <class Use>
  Error each_form(const Use& use) const {
    if constexpr (!context_traits<Context>::own_memory)
      if (in_bf16()) return use(held());
    return use(full());
  }

  /// use(View<const Number>) of all of them, in memory of the host's: a copy if they are elsewhere, or in
  /// bfloat16.
  template <class Use>
  Error read(const TrainingMemory<Context>& memory, const Use& use) const {
    if (!in_bf16()) return memory.read(full(), use);
    auto copy = adacc::Block<Number>::make(held_.size(), "parameters in full");
    if (!copy) return copy.error;
    for (std::size_t i = 0; i < held_.size(); ++i)
      (*copy)[i] = static_cast<Number>(to_float(held().data()[i]));
    return use(std::as_const(*copy).view());
  }
  /// fill(View<Number>) of all of them, in memory of the host's, which on the host holds their values before.
  /// Parameters in bfloat16 become the nearest numbers to those that it leaves.
  template <class Fill>
  Error write(const TrainingMemory<Context>& memory, const Fill& fill) {
    if (!in_bf16()) return memory.write(full(), fill);
    return read(memory, [&](View<const Number> copy) {
      const View<Number> numbers(const_cast<Number*>(copy.data()), copy.shape());  // read() made it
      if (const Error why = fill(numbers)) return why;
      for (std::size_t i = 0; i < numbers.size(); ++i)
        held_.data()[i] = to_bfloat16(static_cast<float>(numbers[i]));
      return Error();
    });
  }

 private:
  ParameterForm form_ = ParameterForm::full;
  Block<Number> full_;
  Block<bfloat16> held_;
};

}}  // namespace adacc::v0_1
