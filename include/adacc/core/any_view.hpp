// SPDX-License-Identifier: MIT
/// A read-only tensor whose element type is a run-time value: the input and targets of a step.
///
/// Steps take tokens, floats or doubles and check the type at set-up. Cursors, measuring and training only pass the
/// tensors on, so they need not be templates over element types.
#pragma once

#include <cstddef>
#include <type_traits>

#include "dtype.hpp"
#include "view.hpp"

namespace adacc { inline namespace v0_1 {

class AnyView {
 public:
  constexpr AnyView() = default;

  template <class T>
    requires requires { DtypeOf<std::remove_const_t<T>>::value; }
  constexpr AnyView(View<T> view)  // implicit: a parameter type
      : data_(view.data()), shape_(view.shape()), dtype_(dtype_of<std::remove_const_t<T>>) {}

  constexpr AnyView(const void* data, Shape shape, Dtype dtype)
      : data_(data), shape_(shape), dtype_(dtype) {}

  constexpr const void* data() const { return data_; }
  constexpr Shape shape() const { return shape_; }
  constexpr Dtype dtype() const { return dtype_; }
  constexpr std::size_t bytes() const { return shape_.elems() * bytes_of(dtype_); }

 private:
  const void* data_ = nullptr;
  Shape shape_;
  Dtype dtype_ = Dtype::f32;
};

}}  // namespace adacc::v0_1
