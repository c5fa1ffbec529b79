// SPDX-License-Identifier: MIT
/// A batch filled up to longer sequences: input, targets, and what the context says of its sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "../core/any_view.hpp"
#include "../core/block.hpp"
#include "../core/context.hpp"
#include "../model/class_targets.hpp"
#include "beginnings.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Memory for the largest batch, on the host.
class PaddedBatch {
 public:
  PaddedBatch() = default;

  /// `axis`: the extent of `input` that is a length: of sequences (1), or of the batch (0).
  /// `targets`: of the largest batch, if these are as many as the positions; else empty.
  static Result<PaddedBatch> make(Shape input, Dtype dtype, Shape targets, int axis) {
    const std::size_t positions = axis == 0 && input.rank() < 2 ? input[0] : input[0] * input[1];
    PaddedBatch batch;
    batch.axis_ = axis;
    Error error;
    take(batch.input_, input.elems() * bytes_of(dtype), "a padded input", error);
    take(batch.targets_, targets.elems(), "padded targets", error);
    take(batch.lengths_, input[0], "lengths of padded sequences", error);
    take(batch.positions_, positions, "positions of a padded batch", error);
    if (error) return error;
    return static_cast<PaddedBatch&&>(batch);
  }

  std::size_t bytes() const {
    return input_.size() +
           (targets_.size() + lengths_.size() + positions_.size()) * sizeof(std::int32_t);
  }

  /// `input`, with zeros behind it: the token 0, which every vocabulary has.
  AnyView pad_input(AnyView input, Shape whole) {
    std::memset(input_.data(), 0, whole.elems() * bytes_of(input.dtype()));
    copy_beginnings(input.data(), input.shape(), input_.data(), whole, bytes_of(input.dtype()));
    return {input_.data(), whole, input.dtype()};
  }

  /// `targets`, with ignored ones behind them.
  AnyView pad_targets(AnyView targets, Shape whole) {
    for (std::size_t i = 0; i < whole.elems(); ++i) targets_[i] = ignored_target;
    copy_beginnings(targets.data(), targets.shape(), targets_.data(), whole, sizeof(std::int32_t));
    return {targets_.data(), whole, targets.dtype()};
  }

  /// Lends the lengths and positions of a padded batch to `call`: `shape` before, and `whole` now. Padding is a document
  /// of its own.
  Error lend(KernelCall& call, Shape shape, Shape whole) {
    own_lengths_ = call.lengths;
    own_positions_ = call.positions;
    if (axis_ == 1) {
      for (std::size_t i = 0; i < shape[0]; ++i)
        lengths_[i] = static_cast<std::int32_t>(call.length_of(i, shape[1]));
      call.lengths = {lengths_.data(), Shape(shape[0])};
    }
    lent_ = true;
    if (call.positions.empty()) return {};
    const std::size_t time = shape.rank() < 2 ? 1 : shape[1];
    const std::size_t whole_time = whole.rank() < 2 ? 1 : whole[1];
    if (call.positions.size() != shape[0] * time)
      return Error::misuse("the context has ", call.positions.size(),
                           " positions of packed documents, and the input of shape ", shape,
                           " has another number of tokens (batch times time)");
    for (std::size_t b = 0; b < whole[0]; ++b)
      for (std::size_t t = 0; t < whole_time; ++t) {
        const std::size_t end = b < shape[0] ? time : 0;
        positions_[b * whole_time + t] =
            t < end ? call.positions[b * time + t] : static_cast<std::int32_t>(t - end);
      }
    call.positions = {positions_.data(), Shape(whole[0] * whole_time)};
    return {};
  }

  /// Gives `call` back the caller's lengths and positions.
  void release(KernelCall& call) {
    if (!lent_) return;
    call.lengths = own_lengths_;
    call.positions = own_positions_;
    lent_ = false;
  }

 private:
  int axis_ = 1;
  Block<std::byte> input_;
  Block<std::int32_t> targets_, lengths_, positions_;
  View<const std::int32_t> own_lengths_, own_positions_;  ///< the caller's, while ours are lent
  bool lent_ = false;
};

}}}  // namespace adacc::v0_1::detail
