// SPDX-License-Identifier: MIT
/// Parameters for products on a CUDA device: in place, or, if activations are in bfloat16, in copies in bfloat16, made
/// by a layer in its workspace for each call.
///
/// A copy lives as long as the call, is counted in the step's peak, and is never older than the fp32 values: 6 bytes of
/// traffic for each parameter and pass, beside a product whose operations for each parameter are as many as the rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/cuda.cuh"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Stored numbers are rounded to the nearest.
struct NarrowBody {
  __device__ float operator()(float x) const { return x; }
};

/// Bytes of workspace for a copy of `elems` parameters.
constexpr std::size_t cuda_copy_bytes(std::size_t elems, Dtype scalar) {
  return scalar == Dtype::bf16 ? elems * bytes_of(scalar) : 0;
}
/// Rows of a weight in products: in bfloat16 a multiple of 64, of which those behind the weight's own `rows` are zeros.
/// Kernels of tensor cores read 16 bytes at a time: every dimension along which a matrix lies in memory has to be a
/// multiple of 8 numbers; one of 64 leaves no part of a tile over as well. Kernels of fp32 read numbers one by one.
constexpr std::size_t cuda_padded_rows(std::size_t rows, Dtype scalar) {
  return scalar == Dtype::bf16 ? div_up(rows, 64) * 64 : rows;
}
/// Bytes of workspace for `more` bytes behind `bytes`.
constexpr std::size_t bytes_behind(std::size_t bytes, std::size_t more) {
  return more == 0 ? bytes : align_up(bytes) + more;
}

/// `parameter` in the type of the activations, T; a copy, if needed, is taken from the front of `workspace`.
template <class T>
const T* in_activation_type(Cuda& cuda, const char* name, View<const Wide<T>> parameter,
                            Bytes& workspace) {
  if constexpr (dtype_of<T> == Dtype::bf16) {
    bfloat16* const to = carve<bfloat16>(workspace, parameter.size()).data();
    cuda.map(name, View<bfloat16>(to, parameter.shape()), NarrowBody{}, parameter.data());
    return to;
  } else {
    return parameter.data();
  }
}

/// in_activation_type() of a weight; rows of zeros lie behind a copy's own, cuda_padded_rows() of them in all.
template <class T>
const T* padded_in_activation_type(Cuda& cuda, const char* name, View<const Wide<T>> weight,
                                   Bytes& workspace) {
  const std::size_t rows = cuda_padded_rows(weight.rows(), dtype_of<T>), elems = weight.size();
  if (rows == weight.rows()) return in_activation_type<T>(cuda, name, weight, workspace);
  View<T> copy = carve<T>(workspace, rows * weight.cols());
  const auto bytes = reinterpret_cast<std::byte*>(copy.data());
  Bytes own(bytes, Shape(elems * sizeof(T)));
  in_activation_type<T>(cuda, name, weight, own);
  cuda.set_bytes(name, Bytes(bytes + elems * sizeof(T), Shape((copy.size() - elems) * sizeof(T))),
                 0);
  return copy.data();
}

}}}  // namespace adacc::v0_1::detail
