// SPDX-License-Identifier: MIT
/// Parameters as layers declare them, and as kernels receive them.
///
/// All parameters of a model live in one block that the trainer owns: first those that are trained,
/// then those that are frozen. Gradients and optimizer moments mirror the first part alone. A layer
/// never holds them: they are passed at every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/bytes.hpp"
#include "../core/dtype.hpp"
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
  /// It keeps its value: it has no gradient. Where several layers share storage, the first says so.
  bool frozen = false;
};

/// A parameter in the model's block.
struct Parameter : ParameterSpec {
  std::size_t offset = 0;  ///< elements from the start of the block; 64-byte aligned
  int node = 0;            ///< the layer instance that uses it (-1: the loss)
  bool owner = true;       ///< false if an earlier layer brought this storage in
  int gradient = -1;       ///< into Graph::gradients; -1: frozen, or the graph lists none
};

/// Elements that a parameter takes in a block in which each starts 64-byte aligned.
constexpr std::size_t padded_elems(Shape shape, Dtype scalar) {
  return align_up(shape.elems() * bytes_of(scalar)) / bytes_of(scalar);
}

/// Wanted::parameters (contract.hpp) of a layer with these: bit i is unset if parameter i is frozen; the
/// last bit, if all from the 64th on are.
constexpr std::uint64_t trained_bits(const Parameter* first, std::size_t count) {
  std::uint64_t bits = ~std::uint64_t{0};
  bool rest = count < 64;
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= 63) rest = rest || !first[i].frozen;
    else if (first[i].frozen) bits &= ~(std::uint64_t{1} << i);
  }
  return rest ? bits : bits & ~(std::uint64_t{1} << 63);
}

/// One layer's parameters (or their gradients): params[0], params[1], … in declaration order. The
/// gradient of a frozen one is empty; of layers that do not know that (no `reads_when`), it goes to
/// scratch that nobody reads.
template <class T>
class Params {
 public:
  constexpr Params() = default;
  /// `scratch` has room for the frozen ones, each 64-byte aligned; null: their gradients are empty.
  constexpr Params(T* block, const Parameter* first, std::size_t count, T* scratch = nullptr)
      : block_(block), scratch_(scratch), first_(first), count_(count) {}

  constexpr std::size_t size() const { return count_; }
  constexpr View<T> operator[](std::size_t i) const {
    if constexpr (!std::is_const_v<T>)
      if (first_[i].frozen) return of_frozen(i);
    return {block_ + first_[i].offset, first_[i].shape};
  }

 private:
  constexpr View<T> of_frozen(std::size_t i) const {
    if (scratch_ == nullptr) return {};
    std::size_t before = 0;
    for (std::size_t k = 0; k < i; ++k)
      if (first_[k].frozen) before += padded_elems(first_[k].shape, dtype_of<T>);
    return {scratch_ + before, first_[i].shape};
  }

  T* block_ = nullptr;
  T* scratch_ = nullptr;
  const Parameter* first_ = nullptr;
  std::size_t count_ = 0;
};

}}  // namespace adacc::v0_1
