// SPDX-License-Identifier: MIT
/// adacc in libtorch: saved tensors in fewer bytes, checkpoints, and their memory. Link adacc::torch; docs/torch.md
/// is the page about these headers.
///
/// Everything is in namespace adacc::torch. In code that writes `torch::` for libtorch, do not write `using namespace
/// adacc`: the compiler would find two namespaces `torch` (and say so).
#pragma once

#include "torch/budget.hpp"
#include "torch/checkpoint.hpp"
#include "torch/memory_count.hpp"
#include "torch/module_name.hpp"
#include "torch/policy.hpp"
#include "torch/saved_tensors.hpp"
