// SPDX-License-Identifier: MIT
/// Parameters for products on a CUDA device: in place, or, if activations are in bfloat16, in copies in bfloat16. Copies
/// come from the block (Params::copy), which may itself be in bfloat16; where the block has none, a layer makes copies in
/// the workspace for each call.
///
/// A copy in the workspace lives as long as the call, is counted in the step's peak, and is never older than the fp32
/// values: 6 bytes of traffic for each parameter and pass, and a launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/cuda.cuh"
#include "../../model/contract.hpp"
#include "../../model/parameter.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Bytes of workspace for a copy of `elems` parameters.
constexpr std::size_t cuda_copy_bytes(std::size_t elems, Dtype scalar) {
  return scalar == Dtype::bf16 ? elems * bytes_of(scalar) : 0;
}
/// LayerNeeds::decode_room of a layer whose products alone read parameters: products of bfloat16 read a block in bfloat16
/// where it is.
constexpr std::size_t cuda_decode_room(Dtype scalar) {
  return scalar == Dtype::bf16 ? 0 : LayerNeeds::all_parameters;
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
    const View<bfloat16> to = carve<bfloat16>(workspace, parameter.size());
    cuda.narrow(name, parameter, to);
    return to.data();
  } else {
    return parameter.data();
  }
}
/// The first elements of parameter i, as many as `shape` has, in the type of the activations: the block's copy, if there
/// is one.
template <class T>
const T* in_activation_type(Cuda& cuda, const char* name, const Params<const Wide<T>>& params,
                            std::size_t i, Shape shape, Bytes& workspace) {
  if constexpr (dtype_of<T> == Dtype::bf16)
    if (const bfloat16* const copy = params.copy(i)) return copy;
  return in_activation_type<T>(cuda, name, View<const Wide<T>>(params[i].data(), shape), workspace);
}
/// All of parameter i.
template <class T>
const T* in_activation_type(Cuda& cuda, const char* name, const Params<const Wide<T>>& params,
                            std::size_t i, Bytes& workspace) {
  return in_activation_type<T>(cuda, name, params, i, params.shape(i), workspace);
}

/// in_activation_type() of the first rows of a weight, as many as `shape` has; cuda_padded_rows() of them can be read.
/// Those behind are zeros, or, if the copy is the block's, finite: they are to be multiplied by zeros.
template <class T>
const T* padded_in_activation_type(Cuda& cuda, const char* name,
                                   const Params<const Wide<T>>& params, std::size_t i, Shape shape,
                                   Bytes& workspace) {
  const std::size_t rows = cuda_padded_rows(shape.rows(), dtype_of<T>), elems = shape.elems();
  if (rows == shape.rows() || params.copy(i) != nullptr)
    return in_activation_type<T>(cuda, name, params, i, shape, workspace);
  View<T> copy = carve<T>(workspace, rows * shape.cols());
  const auto bytes = reinterpret_cast<std::byte*>(copy.data());
  Bytes own(bytes, Shape(elems * sizeof(T)));
  in_activation_type<T>(cuda, name, params, i, shape, own);
  cuda.set_bytes(name, Bytes(bytes + elems * sizeof(T), Shape((copy.size() - elems) * sizeof(T))),
                 0);
  return copy.data();
}

}}}  // namespace adacc::v0_1::detail
