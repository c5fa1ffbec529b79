// SPDX-License-Identifier: MIT
/// The CPU's side of codec_run.

// Bytes are the same at every level (tests/codec/quant_bytes_test.cpp), so one is compiled.
#define ADACC_INSTRUCTION_LEVEL plain
#include <support/cuda/codec_cases_cpu.hpp>

#define ADACC_ONCE(Case)                     \
  ADACC_CASE(Case);                          \
  ADACC_CASE_ENCODES(Case, float);           \
  ADACC_CASE_ENCODES(Case, adacc::bfloat16); \
  ADACC_CASE_DECODES(Case, float);           \
  ADACC_CASE_DECODES(Case, adacc::bfloat16); \
  ADACC_CASE_JUDGES(Case, float);            \
  ADACC_CASE_JUDGES(Case, adacc::bfloat16)
#define ADACC_BOTH_WAYS(Case)       \
  ADACC_ONCE(Case);                 \
  ADACC_CASE_ENCODES(Case, double); \
  ADACC_CASE_DECODES(Case, double); \
  ADACC_CASE_JUDGES(Case, double)

ADACC_BOTH_WAYS(Int8Default);
ADACC_BOTH_WAYS(Int4Stochastic);
ADACC_BOTH_WAYS(Int8Group32);
ADACC_BOTH_WAYS(Int8Symmetric);
ADACC_BOTH_WAYS(Int4Channels);
ADACC_BOTH_WAYS(Int8Rows);
ADACC_BOTH_WAYS(Bf16);
ADACC_BOTH_WAYS(Mask);
ADACC_BOTH_WAYS(Index11);

ADACC_ONCE(Int8NoOutliers);
ADACC_ONCE(Int8Stochastic);
ADACC_ONCE(Int8Group128);
ADACC_ONCE(Int8Group256);
ADACC_ONCE(Int8Channels);
ADACC_ONCE(Int4Default);
ADACC_ONCE(Int4NoOutliers);
ADACC_ONCE(Int4Symmetric);
ADACC_ONCE(Int4Group32);
ADACC_ONCE(Int4Group128);
ADACC_ONCE(Int4Group256);
ADACC_ONCE(Int4Rows);
ADACC_ONCE(Index4);
