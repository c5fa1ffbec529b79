// SPDX-License-Identifier: MIT
/// The CPU's side of codec_cuda_bench.
#include <support/cuda/codec_cases_cpu.hpp>

#define ADACC_ENCODES(Case)        \
  ADACC_CASE(Case);                \
  ADACC_CASE_ENCODES(Case, float); \
  ADACC_CASE_ENCODES(Case, adacc::bfloat16)

ADACC_ENCODES(Int8Default);
ADACC_ENCODES(Int8NoOutliers);
ADACC_ENCODES(Int8Symmetric);
ADACC_ENCODES(Int8Stochastic);
ADACC_ENCODES(Int8Group32);
ADACC_ENCODES(Int8Group128);
ADACC_ENCODES(Int8Group256);
ADACC_ENCODES(Int8Channels);
ADACC_ENCODES(Int8Rows);
ADACC_ENCODES(Int4Default);
ADACC_ENCODES(Int4NoOutliers);
ADACC_ENCODES(Int4Symmetric);
ADACC_ENCODES(Int4Stochastic);
ADACC_ENCODES(Int4Group32);
ADACC_ENCODES(Int4Group128);
ADACC_ENCODES(Int4Group256);
ADACC_ENCODES(Int4Channels);
ADACC_ENCODES(Int4Rows);
ADACC_ENCODES(Bf16);
ADACC_ENCODES(Mask);
ADACC_ENCODES(Index4);
ADACC_ENCODES(Index11);
