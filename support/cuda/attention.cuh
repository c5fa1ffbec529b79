// SPDX-License-Identifier: MIT
/// Attention's kernels on a CUDA device, compiled once for several programs: who includes this links
/// attention.cu. They take longer to compile than those of all other layers.
#pragma once

#include <adacc/layer/attention.cuh>

#define ADACC_ATTENTION_KERNELS(how, T)                                                     \
  how template void adacc::detail::cuda_attention_forward<T>(                               \
      const adacc::detail::AttentionSizes&, adacc::Cuda&, const T*, T*, adacc::Wide<T>*);   \
  how template void adacc::detail::cuda_attention_backward<T>(                              \
      const adacc::detail::AttentionSizes&, adacc::Cuda&, const T*, const T*, const T*, T*, \
      const adacc::Wide<T>*, adacc::Wide<T>*)

#if !defined(ADACC_COMPILES_ATTENTION)
ADACC_ATTENTION_KERNELS(extern, float);
ADACC_ATTENTION_KERNELS(extern, adacc::bfloat16);
#endif
