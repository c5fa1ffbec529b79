// SPDX-License-Identifier: MIT
#define ADACC_COMPILES_CODECS
#include "codecs.cuh"

ADACC_INT_KERNELS(, Int8);
