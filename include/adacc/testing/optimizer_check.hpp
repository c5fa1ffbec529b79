// SPDX-License-Identifier: MIT
/// Tests an optimizer's contract (optimizer/optimizer.hpp):
///
///     REQUIRE_FALSE(testing::check_optimizer(Mine{}));
///
/// Matrices, vectors and single numbers, with sizes not divisible by any vector's, a tied duplicate and a parameter
/// without decay, are updated a few times on random gradients: by ranges in different orders, in guarded memory, at the
/// rate 0 and, if the optimizer calls itself elementwise, in pieces. The formula needs a test of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../core/array.hpp"
#include "../core/cpu.hpp"
#include "../core/guarded.hpp"
#include "../optimizer/moment_turns.hpp"
#include "../optimizer/update_table.hpp"
#include "check_base.hpp"
#include "permuted_executor.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

namespace detail {

template <class Optimizer>
class OptimizerTrial {
 public:
  OptimizerTrial(const Optimizer& optimizer, std::uint64_t order)
      : optimizer_(optimizer), executor_(3, order), cpu_(ExecutorRef(executor_)) {
    add(Shape(300, 257));
    add(Shape(7)).decay = false;
    add(Shape(1, 129));
    add(Shape(1));
    Parameter tied = parameters_[0];
    tied.owner = false;
    parameters_.push_back(tied);
    params_ = GuardedBlock(elems_ * sizeof(float));
    gradients_ = GuardedBlock(elems_ * sizeof(float));
    std::vector<double> drawn(elems_);
    fill_normal(drawn.data(), elems_, 1, 0, 1);
    fill(params_, [&](std::size_t e) { return static_cast<float>(drawn[e]); });
  }

  Error make() {
    auto table = UpdateTable::make(optimizer_, parameters_, Dtype::f32);
    if (!table) return table.error;
    table_ = static_cast<UpdateTable&&>(*table);
    state_ = GuardedBlock(table_.bytes());
    if (table_.bytes() != 0) std::memset(state_.data(), 0, table_.bytes());
    return {};
  }

  /// An update on gradients drawn by `number`, or on zeros; in pieces, last one first, if told to.
  Error update(std::uint64_t number, double rate, bool zeros, bool pieces = false,
               std::uint64_t seed = 1) {
    std::vector<double> drawn(elems_);
    if (!zeros) fill_normal(drawn.data(), elems_, 2, static_cast<std::uint32_t>(number), 1e-2);
    fill(gradients_, [&](std::size_t e) { return static_cast<float>(drawn[e]); });
    const UpdateMemory<float> memory{{params_.as<float>(), Shape(elems_)},
                                     {gradients_.as<float>(), Shape(elems_)},
                                     {state_.data(), Shape(table_.bytes())}};
    const UpdateTerms terms{number, rate, 0.5, {seed, static_cast<std::uint32_t>(number)}};
    if (!pieces) table_.update(optimizer_, cpu_, parameters_, memory, terms);
    else if (const Error why = update_pieces(terms)) return why;
    for (const GuardedBlock* block : {&params_, &gradients_}) {
      std::size_t at = 0;
      for (const Parameter& parameter : parameters_) {
        if (!parameter.owner) continue;
        for (; at < parameter.offset * sizeof(float); ++at)
          if (block->data()[at] != std::byte{0xFF})
            return Error::say("padding before parameter ", &parameter - parameters_.begin(),
                              " was written to");
        at += parameter.shape.elems() * sizeof(float);
      }
      if (!block->intact()) return Error::say("memory beyond the parameters was written to");
    }
    if (!state_.intact()) return Error::say("memory beyond the state was written to");
    for (const Parameter& parameter : parameters_)
      for (std::size_t e = 0; e < parameter.shape.elems(); ++e)
        if (gradients_.as<float>()[parameter.offset + e] != 0)
          return Error::say("the gradient was not cleared: element ", e, " of parameter ",
                            &parameter - parameters_.begin());
    return {};
  }

  bool same_params(const OptimizerTrial& other) const { return params_ == other.params_; }
  bool same_state(const OptimizerTrial& other) const { return state_ == other.state_; }
  bool state_is_zero() const {
    for (std::size_t i = 0; i < table_.bytes(); ++i)
      if (state_.data()[i] != std::byte{0}) return false;
    return true;
  }

 private:
  /// Pieces as small as possible, each with its state in memory of its own.
  Error update_pieces(const UpdateTerms& terms) {
    using adacc::detail::update_tile;
    for (std::size_t o = table_.owners(); o-- > 0;) {
      const Parameter& parameter = parameters_[table_.owner(o)];
      const std::size_t all = parameter.shape.elems();
      for (std::size_t tile = div_up(all, update_tile); tile-- > 0;) {
        const std::size_t begin = tile * update_tile, left = all - begin;
        const std::size_t elems = left < update_tile ? left : update_tile;
        Array<std::size_t> at;
        std::size_t bytes = 0;
        for (std::size_t s = 0; s < table_.states(); ++s) {
          at.push_back(bytes);
          bytes += align_up(state_bytes(spec(s, parameter).form, elems, Dtype::f32));
        }
        GuardedBlock state(bytes);
        const auto copy = [&](bool in) {
          for (std::size_t s = 0; s < table_.states(); ++s)
            MomentTurns::each_run(
                spec(s, parameter), begin, spec(s, parameter).elems == 0 ? 0 : elems, Dtype::f32,
                [&](std::size_t in_piece, std::size_t in_tensor, std::size_t count) {
                  std::byte* const piece = state.data() + at[s] + in_piece;
                  std::byte* const whole = state_.data() + table_.begin(s, o) + in_tensor;
                  std::memcpy(in ? piece : whole, in ? whole : piece, count);
                });
        };
        copy(true);
        const std::size_t first = parameter.offset + begin;
        table_.update_piece(
            optimizer_, cpu_,
            ParameterPiece<float>{parameter, o, begin, elems, params_.as<float>() + first,
                                  gradients_.as<float>() + first, state.data(), at.data()},
            terms);
        if (!state.intact()) return Error::say("memory beyond a piece's state was written to");
        copy(false);
      }
    }
    return {};
  }
  StateSpec spec(std::size_t s, const Parameter& parameter) const {
    return adacc::detail::state_of(optimizer_, s, parameter);
  }

  Parameter& add(Shape shape) {
    Parameter parameter;
    parameter.shape = shape;
    parameter.offset = elems_;
    elems_ += padded_elems(shape, Dtype::f32) + 16;
    parameters_.push_back(parameter);
    return parameters_.back();
  }
  template <class Value>
  void fill(GuardedBlock& block, const Value& value) {
    for (const Parameter& parameter : parameters_)
      for (std::size_t e = 0; e < parameter.shape.elems(); ++e)
        block.as<float>()[parameter.offset + e] = value(parameter.offset + e);
  }

  const Optimizer& optimizer_;
  PermutedExecutor executor_;
  Cpu cpu_;
  Array<Parameter> parameters_;
  std::size_t elems_ = 0;
  UpdateTable table_;
  GuardedBlock params_{0}, gradients_{0}, state_{0};
};

}  // namespace detail

/// Breaches of the contract in words; no error if none was found.
template <class Optimizer>
Error check_optimizer(const Optimizer& optimizer) {
  detail::OptimizerTrial<Optimizer> one(optimizer, 1), other(optimizer, 2), still(optimizer, 3),
      moved(optimizer, 3), cut(optimizer, 4);
  for (auto* trial : {&one, &other, &still, &moved, &cut})
    if (const Error why = trial->make()) return why;
  if (const Error why = still.update(1, 0, true)) return why;
  if (!still.state_is_zero())
    return Error::say("gradients and state that are zero did not stay zero at the rate 0");
  for (std::uint64_t number = 1; number <= 3; ++number) {
    if (const Error why = one.update(number, 1e-2, false)) return why;
    if (const Error why = other.update(number, 1e-2, false)) return why;
    if (const Error why = still.update(number, 0, false)) return why;
    if (!one.same_params(other) || !one.same_state(other))
      return Error::say("update ", number, " gave other bits when its ranges ran in another order");
    if (!adacc::detail::is_elementwise(optimizer)) continue;
    if (const Error why = cut.update(number, 1e-2, false, true)) return why;
    if (!one.same_params(cut) || !one.same_state(cut))
      return Error::say("it is elementwise, and update ", number, " gave other bits in pieces");
  }
  if (!still.same_params(moved)) return Error::say("parameters were changed at the rate 0");
  if (one.same_params(moved)) return Error::say("three updates changed no parameter");
  return {};
}

}}}  // namespace adacc::v0_1::testing
