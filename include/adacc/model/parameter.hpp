// SPDX-License-Identifier: MIT
/// Parameters as layers declare them, and as kernels receive them.
///
/// All parameters of a model live in one block that the trainer owns; gradients and optimizer
/// moments mirror it. A layer never holds them: they are passed at every call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// The distribution a parameter is drawn from before training.
struct Init {
  enum class Kind : std::uint8_t { zeros, constant, normal, uniform };
  Kind kind = Kind::zeros;
  float scale = 0;  ///< the constant, the standard deviation, or the half width

  static constexpr Init zeros() { return {}; }
  static constexpr Init constant(float value) { return {Kind::constant, value}; }
  static constexpr Init normal(float stddev) { return {Kind::normal, stddev}; }
  static constexpr Init uniform(float half_width) { return {Kind::uniform, half_width}; }
};

/// A parameter as its layer declares it.
struct ParameterSpec {
  const char* name = "";
  Shape shape{};
  Init init{};
  bool decay = true;           ///< whether weight decay applies
  const char* tied = nullptr;  ///< layers that give the same non-null name share storage
};

/// A parameter in the model's block.
struct Parameter : ParameterSpec {
  std::size_t offset = 0;  ///< elements from the start of the block; 64-byte aligned
  int node = 0;            ///< the layer instance that uses it (-1: the loss)
  bool owner = true;       ///< false if an earlier layer brought this storage in
};

/// One layer's parameters (or their gradients): params[0], params[1], … in declaration order.
template <class T>
class Params {
 public:
  constexpr Params() = default;
  constexpr Params(T* block, const Parameter* first, std::size_t count)
      : block_(block), first_(first), count_(count) {}

  constexpr std::size_t size() const { return count_; }
  constexpr View<T> operator[](std::size_t i) const {
    return {block_ + first_[i].offset, first_[i].shape};
  }

 private:
  T* block_ = nullptr;
  const Parameter* first_ = nullptr;
  std::size_t count_ = 0;
};

}}  // namespace adacc::v0_1
