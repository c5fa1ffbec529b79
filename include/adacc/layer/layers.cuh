// SPDX-License-Identifier: MIT
/// All layers and losses that have a device twin.
#pragma once

#include "causal_attention.cuh"
#include "cross_entropy_head.cuh"
#include "dropout.cuh"
#include "embedding.cuh"
#include "gelu.cuh"
#include "layer_norm.cuh"
#include "linear.cuh"
#include "mean_squared_error.cuh"
#include "relu.cuh"
#include "rms_norm.cuh"
#include "silu.cuh"
#include "softmax_cross_entropy.cuh"
