// SPDX-License-Identifier: MIT
/// BitMask on a CUDA device: the same bytes as bit_mask.hpp makes on the host.
///
/// Errors are of arguments and of the launch. A blob that is not of this codec and shape decodes to
/// NaN; the host does not read it.
#pragma once

#include "bit_groups.cuh"
#include "bit_mask.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct ADACC_ONE_LIBRARY codec_kernel<BitMask, Cuda>
    : detail::BitGroupsOnCuda<BitMask, detail::IsPositive> {};

}}  // namespace adacc::v0_1
