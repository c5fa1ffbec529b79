// SPDX-License-Identifier: MIT
/// The check of the positions of packed documents (KernelCall::positions), before a step reads them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/context.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Why `positions` are none of the tokens of an input of shape (batch, time, ...). Each sequence begins at 0; behind
/// position p comes p + 1, or 0, where a document begins.
template <class Context>
Error check_positions(View<const std::int32_t> positions, Shape input) {
  if constexpr (context_traits<Context>::own_memory) {
    return Error::misuse(
        "documents packed into sequences (positions of the context) are kept apart on threads of "
        "the host alone: on a "
        "device, let each sequence be one document");
  } else {
    const std::size_t time = input.rank() < 2 ? 0 : input[1];
    if (positions.size() != (time == 0 ? 0 : input[0] * time))
      return Error::misuse("the context has ", positions.size(),
                           " positions of packed documents, and the input of shape ", input,
                           " has another number of tokens (batch times time)");
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::int32_t before = i % time == 0 ? -1 : positions[i - 1];
      if (positions[i] != 0 && positions[i] != before + 1)
        return Error::misuse("the position ", positions[i], " of token ", i % time, " of sequence ",
                             i / time, " of the batch follows ", before,
                             ": a document begins with 0, and each token adds 1");
    }
    return {};
  }
}

}}}  // namespace adacc::v0_1::detail
