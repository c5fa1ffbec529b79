// SPDX-License-Identifier: MIT
/// adacc on CUDA devices: the host umbrella, the device context, and the codecs' device twins.
///
/// A codec C runs as codec_kernel<C, Cuda>::encode and ::decode on the caller's stream, with the
/// bytes of the host. Needs nvcc with C++20 and the CUB of the toolkit; link with cudart. Options
/// that loosen arithmetic (-use_fast_math, -ftz=true, -prec-div=false) would change bytes.
#pragma once

#include "adacc.hpp"

#include "core/cuda.cuh"

#include "store/pinned_host.cuh"

#include "codec/bf16.cuh"
#include "codec/bit_mask.cuh"
#include "codec/int4_outlier.cuh"
#include "codec/int8_outlier.cuh"
#include "codec/packed_index.cuh"
