// SPDX-License-Identifier: MIT
/// Self-attention to the past alone, as in a language model.
#pragma once

#include "attention.hpp"

namespace adacc { inline namespace v0_1 {

/// A position sees itself and those before it.
using CausalAttention = Attention<Mask::causal>;

}}  // namespace adacc::v0_1
