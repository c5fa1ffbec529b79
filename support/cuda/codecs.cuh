// SPDX-License-Identifier: MIT
/// Kernels of Int8Outlier and Int4Outlier on a CUDA device, compiled once for several programs: who
/// includes this links codec_int8.cu and codec_int4.cu. All cases but groups of 256, which only a
/// benchmark has.
#pragma once

#include <adacc/adacc.cuh>

#include "codec_cases.hpp"

#define ADACC_CODEC_KERNELS_OF(how, Case, T)                                                       \
  how template adacc::Error adacc::codec_kernel<codec_cases::Case::Codec, adacc::Cuda>::encode<T>( \
      adacc::Cuda&, adacc::View<const T>, adacc::Bytes);                                           \
  how template adacc::Error adacc::codec_kernel<codec_cases::Case::Codec, adacc::Cuda>::decode<T>( \
      adacc::Cuda&, adacc::ConstBytes, adacc::View<T>);                                            \
  how template adacc::Error                                                                        \
  adacc::codec_kernel<codec_cases::Case::Codec, adacc::Cuda>::queue_row_errors<T>(                 \
      adacc::Cuda&, adacc::View<const T>, adacc::ConstBytes, adacc::RowErrors*)
#define ADACC_CODEC_KERNELS(how, Case)      \
  ADACC_CODEC_KERNELS_OF(how, Case, float); \
  ADACC_CODEC_KERNELS_OF(how, Case, adacc::bfloat16)

#define ADACC_INT_KERNELS(how, Int)          \
  ADACC_CODEC_KERNELS(how, Int##Default);    \
  ADACC_CODEC_KERNELS(how, Int##NoOutliers); \
  ADACC_CODEC_KERNELS(how, Int##Symmetric);  \
  ADACC_CODEC_KERNELS(how, Int##Stochastic); \
  ADACC_CODEC_KERNELS(how, Int##Group32);    \
  ADACC_CODEC_KERNELS(how, Int##Group128);   \
  ADACC_CODEC_KERNELS(how, Int##Channels);   \
  ADACC_CODEC_KERNELS(how, Int##Rows)

#if !defined(ADACC_COMPILES_CODECS)
ADACC_INT_KERNELS(extern, Int8);
ADACC_INT_KERNELS(extern, Int4);
#endif
