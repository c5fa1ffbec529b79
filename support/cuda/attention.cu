// SPDX-License-Identifier: MIT
#define ADACC_COMPILES_ATTENTION
#include "attention.cuh"

ADACC_ATTENTION_KERNELS(, float);
ADACC_ATTENTION_KERNELS(, adacc::bfloat16);
