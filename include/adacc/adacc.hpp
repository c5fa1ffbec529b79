// SPDX-License-Identifier: MIT
/// adacc: train neural networks inside a memory budget.
///
/// The host umbrella, std only. Read it as the data flows: a model of layers and policies is
/// lowered to a graph; a plan gives every activation a policy; schedule and layout turn both into
/// instructions and offsets; the step runs them inside one arena. For a training loop of one's own
/// there is the stash instead of model and step. Ready-made layers (on Eigen) are in adacc/layer/,
/// optimizers in adacc/optimizer/, training and checkpoints in adacc/train/.
#pragma once

#include "core/any_view.hpp"
#include "core/array.hpp"
#include "core/bfloat16.hpp"
#include "core/bytes.hpp"
#include "core/clock.hpp"
#include "core/config.hpp"
#include "core/context.hpp"
#include "core/cpu.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "core/executor.hpp"
#include "core/random.hpp"
#include "core/shape.hpp"
#include "core/view.hpp"

#include "codec/blob.hpp"
#include "codec/codec.hpp"
#include "codec/codec_list.hpp"
#include "codec/row_errors.hpp"
#include "codec/statistics.hpp"

#include "policy/compress.hpp"
#include "policy/form.hpp"
#include "policy/offload.hpp"
#include "policy/planned.hpp"
#include "policy/policy.hpp"
#include "policy/recompute.hpp"
#include "policy/retain.hpp"

#include "model/codec_traits.hpp"
#include "model/contract.hpp"
#include "model/erased_layer.hpp"
#include "model/frozen.hpp"
#include "model/graph.hpp"
#include "model/graph_builder.hpp"
#include "model/layer.hpp"
#include "model/network.hpp"
#include "model/parameter.hpp"
#include "model/repeat.hpp"
#include "model/residual.hpp"
#include "model/sequential.hpp"
#include "model/split.hpp"

#include "program/declinable.hpp"
#include "program/exact.hpp"
#include "program/fixed_program.hpp"
#include "program/instruction.hpp"
#include "program/layout.hpp"
#include "program/liveness.hpp"
#include "program/passes/transfers.hpp"
#include "program/plan.hpp"
#include "program/program.hpp"
#include "program/schedule.hpp"
#include "program/scheduler.hpp"

#include "store/memory_store.hpp"
#include "store/store.hpp"
#include "store/transfers_under_way.hpp"

#include "step/arena.hpp"
#include "step/bound_program.hpp"
#include "step/cursor.hpp"
#include "step/dispatch.hpp"
#include "step/dispatch_table.hpp"
#include "step/fixed_dispatch.hpp"
#include "step/step.hpp"

#include "stash/model.hpp"
#include "stash/stash.hpp"
