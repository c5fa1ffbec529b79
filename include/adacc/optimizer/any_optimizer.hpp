// SPDX-License-Identifier: MIT
/// An optimizer chosen at run time, in a fixed type: Training<float, Cpu, AnyOptimizer> is compiled once for all
/// optimizers.
///
///     options.optimizer = AdamWWith<Bf16Moments>{.weight_decay = 0.1F};
///
/// A range costs one virtual call.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "adamw.hpp"
#include "optimizer.hpp"

namespace adacc { inline namespace v0_1 {

class AnyOptimizer {
 public:
  const char* name;
  std::size_t state_count;
  int passes;
  bool elementwise;

  AnyOptimizer() : AnyOptimizer(AdamW{}) {}
  AnyOptimizer(const AnyOptimizer&) = default;  // a move is a copy, and leaves an optimizer
  AnyOptimizer& operator=(const AnyOptimizer&) = default;

  /// Any optimizer that meets the contract of optimizer.hpp.
  template <class Optimizer>
    requires(!std::is_base_of_v<AnyOptimizer, Optimizer>)
  AnyOptimizer(Optimizer optimizer)  // an optimizer is one; NOLINT(google-explicit-constructor)
      : name(optimizer.name), state_count(optimizer.state_count),
        passes(detail::passes_of(optimizer)), elementwise(detail::is_elementwise(optimizer)),
        held_(std::make_shared<const Held<Optimizer>>(std::move(optimizer))) {}

  StateSpec state(std::size_t i, const ParameterSpec& parameter) const {
    return held_->state(i, parameter);
  }
  UpdateCut cut(const ParameterSpec& parameter, int pass) const {
    return held_->cut(parameter, pass);
  }
  template <class Visit>
  void each_option(const Visit& visit) const {
    held_->each_option([](const void* to, const char* option,
                          double value) { (*static_cast<const Visit*>(to))(option, value); },
                       &visit);
  }
  const char* mistake() const { return held_->mistake(); }
  void update(const ParameterRange<float>& range, const UpdateTerms& terms) const {
    held_->update(range, terms);
  }
  void update(const ParameterRange<double>& range, const UpdateTerms& terms) const {
    held_->update(range, terms);
  }

  /// The optimizer that was chosen, if it is an Optimizer; else null.
  template <class Optimizer>
  const Optimizer* get() const {
    return static_cast<const Optimizer*>(held_->held_as(&type<Optimizer>));
  }

 private:
  template <class Optimizer>
  static constexpr char type{};  ///< its address names the type
  using VisitOption = void (*)(const void* to, const char* name, double value);

  struct Interface {
    virtual ~Interface() = default;
    virtual const void* held_as(const char* type_wanted) const = 0;
    virtual void each_option(VisitOption visit, const void* to) const = 0;
    virtual const char* mistake() const = 0;
    virtual StateSpec state(std::size_t i, const ParameterSpec&) const = 0;
    virtual UpdateCut cut(const ParameterSpec&, int pass) const = 0;
    virtual void update(const ParameterRange<float>&, const UpdateTerms&) const = 0;
    virtual void update(const ParameterRange<double>&, const UpdateTerms&) const = 0;
  };

  template <class Optimizer>
  struct Held final : Interface {
    explicit Held(Optimizer held) : optimizer(std::move(held)) {}
    const void* held_as(const char* type_wanted) const override {
      return type_wanted == &type<Optimizer> ? &optimizer : nullptr;
    }
    void each_option(VisitOption visit, const void* to) const override {
      detail::each_option(optimizer,
                          [&](const char* option, double value) { visit(to, option, value); });
    }
    const char* mistake() const override { return detail::mistake_of(optimizer); }
    StateSpec state(std::size_t i, const ParameterSpec& parameter) const override {
      return detail::state_of(optimizer, i, parameter);
    }
    UpdateCut cut(const ParameterSpec& parameter, int pass) const override {
      return detail::cut_of(optimizer, parameter, pass);
    }
    void update(const ParameterRange<float>& range, const UpdateTerms& terms) const override {
      detail::update_at_level(optimizer, range, terms);
    }
    void update(const ParameterRange<double>& range, const UpdateTerms& terms) const override {
      detail::update_at_level(optimizer, range, terms);
    }
    Optimizer optimizer;
  };

  std::shared_ptr<const Interface> held_;
};

}}  // namespace adacc::v0_1
