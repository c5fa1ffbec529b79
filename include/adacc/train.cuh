// SPDX-License-Identifier: MIT
/// The second umbrella on CUDA devices: for programs that train a network of ready-made layers there.
///
/// adacc.cuh and beside it device memory, the twins of layers and losses, and of updates of parameters. A
/// step is Step<float, Cuda> (core/cuda.cuh); docs/cuda.md has the whole story. Needs Eigen, as the layers
/// do; link with cudart and cublasLt.
#pragma once

#include "adacc.cuh"

#include "core/device_block.cuh"

#include "layer/attention.cuh"
#include "layer/cross_entropy_head.cuh"
#include "layer/cuda/products.cuh"
#include "layer/dropout.cuh"
#include "layer/embedding.cuh"
#include "layer/erf_gelu.cuh"
#include "layer/gelu.cuh"
#include "layer/layer_norm.cuh"
#include "layer/linear.cuh"
#include "layer/lora_linear.cuh"
#include "layer/mean_squared_error.cuh"
#include "layer/relu.cuh"
#include "layer/rms_norm.cuh"
#include "layer/rotary_embedding.cuh"
#include "layer/silu.cuh"
#include "layer/softmax_cross_entropy.cuh"
#include "layer/swiglu.cuh"

#include "optimizer/adafactor.cuh"
#include "optimizer/adamw.cuh"
#include "optimizer/any_optimizer.cuh"
#include "optimizer/elementwise.cuh"
#include "optimizer/gradient_norm.cuh"
#include "train/training.cuh"
