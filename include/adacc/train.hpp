// SPDX-License-Identifier: MIT
/// The second umbrella: for programs that train a network of ready-made layers.
///
/// adacc.hpp and beside it, on Eigen, the layers, the codecs they tolerate, costs and plans,
/// Training with optimizers and checkpoints, token files, and threads. Compiling takes some
/// seconds; the light part alone is adacc.hpp.
#pragma once

#include "adacc.hpp"

#include "core/steady_clock.hpp"

#include "codec/bf16.hpp"
#include "codec/bit_mask.hpp"
#include "codec/int4_outlier.hpp"
#include "codec/int8_outlier.hpp"
#include "codec/packed_index.hpp"

#include "cost/estimate.hpp"
#include "cost/measure.hpp"
#include "cost/probe.hpp"
#include "plan/make_plan.hpp"

#include "layer/actor_critic_loss.hpp"
#include "layer/causal_attention.hpp"
#include "layer/channels.hpp"
#include "layer/contrastive_loss.hpp"
#include "layer/conv2d.hpp"
#include "layer/cross_entropy_head.hpp"
#include "layer/dropout.hpp"
#include "layer/embedding.hpp"
#include "layer/erf_gelu.hpp"
#include "layer/gelu.hpp"
#include "layer/group_norm.hpp"
#include "layer/hard_swish.hpp"
#include "layer/layer_norm.hpp"
#include "layer/linear.hpp"
#include "layer/lora_linear.hpp"
#include "layer/mean_squared_error.hpp"
#include "layer/pool2d.hpp"
#include "layer/pooling.hpp"
#include "layer/relu.hpp"
#include "layer/relu6.hpp"
#include "layer/rms_norm.hpp"
#include "layer/rotary_embedding.hpp"
#include "layer/silu.hpp"
#include "layer/softmax_cross_entropy.hpp"
#include "layer/swiglu.hpp"
#include "models/gpt.hpp"

#include "io/checkpoint.hpp"
#include "io/declined_text.hpp"
#include "io/packing.hpp"
#include "io/plan_text.hpp"
#include "io/profile_text.hpp"
#include "io/text.hpp"
#include "io/tokens.hpp"
#include "io/weights/llmc.hpp"
#include "io/weights/llmc_tokens.hpp"

#include "optimizer/adafactor.hpp"
#include "optimizer/adamw.hpp"
#include "optimizer/any_optimizer.hpp"
#include "optimizer/learning_rate.hpp"
#include "optimizer/lion.hpp"
#include "optimizer/sgd.hpp"
#include "train/evolving.hpp"
#include "train/forward_only.hpp"
#include "train/lengths.hpp"
#include "train/make.hpp"
#include "train/save.hpp"
#include "train/training.hpp"

#include "adapter/eigen_pool.hpp"
