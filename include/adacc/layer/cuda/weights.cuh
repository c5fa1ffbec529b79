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

}}}  // namespace adacc::v0_1::detail
