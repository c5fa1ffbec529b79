// SPDX-License-Identifier: MIT
/// adacc in libtorch: saved tensors in fewer bytes, checkpoints, and what memory they take. Link
/// adacc::torch; docs/torch.md is the page about it.
///
/// Everything is in namespace adacc::torch. Where your code says `torch::` to libtorch, do not write
/// `using namespace adacc`: the compiler would find two of them (and say so).
#pragma once

#include "torch/budget.hpp"
#include "torch/checkpoint.hpp"
#include "torch/memory_count.hpp"
#include "torch/module_name.hpp"
#include "torch/policy.hpp"
#include "torch/saved_tensors.hpp"
