// SPDX-License-Identifier: MIT
/// The extents of a tensor, row-major, up to four dimensions.
///
/// Most kernels see a tensor as a matrix: `cols` is the last extent (the channels), `rows` the
/// product of the others (the batch, or batch times time).
#pragma once

#include <cstddef>

#include "bytes.hpp"
#include "config.hpp"

namespace adacc { inline namespace v0_1 {

class Shape {
 public:
  static constexpr int max_rank = 4;

  constexpr Shape() = default;

  /// Shape{batch, time, channels}: one to four extents, all integers.
  template <class... Extents>
  ADACC_HD constexpr explicit(sizeof...(Extents) == 0) Shape(std::size_t first, Extents... others)
      : extents_{first, static_cast<std::size_t>(others)...},
        rank_(1 + static_cast<int>(sizeof...(others))) {
    static_assert(sizeof...(Extents) < max_rank, "adacc: a Shape has at most four extents");
  }

  ADACC_HD constexpr int rank() const { return rank_; }
  ADACC_HD constexpr std::size_t operator[](int i) const { return extents_[i]; }

  /// Elements; 0 for the empty shape, and if the product does not fit std::size_t.
  ADACC_HD constexpr std::size_t elems() const {
    std::size_t product = rank_ == 0 ? 0 : 1;
    for (int i = 0; i < rank_; ++i)
      if (!multiply(product, extents_[i], product)) return 0;
    return product;
  }

  ADACC_HD constexpr std::size_t cols() const { return rank_ == 0 ? 0 : extents_[rank_ - 1]; }
  ADACC_HD constexpr std::size_t rows() const { return cols() == 0 ? 0 : elems() / cols(); }

  /// This shape with another last extent.
  ADACC_HD constexpr Shape with_cols(std::size_t cols) const {
    Shape shape = *this;
    if (rank_ > 0) shape.extents_[rank_ - 1] = cols;
    return shape;
  }

  /// This shape with another first extent.
  ADACC_HD constexpr Shape with_first(std::size_t first) const {
    Shape shape = *this;
    if (rank_ > 0) shape.extents_[0] = first;
    return shape;
  }

  /// This shape with another extent at `axis`, one of its own.
  ADACC_HD constexpr Shape with_extent(int axis, std::size_t extent) const {
    Shape shape = *this;
    if (axis >= 0 && axis < rank_) shape.extents_[axis] = extent;
    return shape;
  }

  /// This shape with one more, last, extent.
  ADACC_HD constexpr Shape append(std::size_t cols) const {
    Shape shape = *this;
    if (rank_ < max_rank) shape.extents_[shape.rank_++] = cols;
    return shape;
  }

  ADACC_HD friend constexpr bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.extents_[i] != b.extents_[i]) return false;
    return true;
  }

 private:
  std::size_t extents_[max_rank] = {};
  int rank_ = 0;
};

}}  // namespace adacc::v0_1
