// SPDX-License-Identifier: MIT
/// BitMask on a CUDA device: the same bytes as bit_mask.hpp makes on the host.
///
/// Reports errors of arguments and of the launch. A blob of another codec or shape decodes to NaN: the host does not
/// read blobs.
#pragma once

#include "bit_groups.cuh"
#include "bit_mask.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct ADACC_ONE_LIBRARY codec_kernel<BitMask, Cuda>
    : detail::BitGroupsOnCuda<BitMask, detail::IsPositive> {};

}}  // namespace adacc::v0_1
