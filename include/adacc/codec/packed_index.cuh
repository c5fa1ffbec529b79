// SPDX-License-Identifier: MIT
/// PackedIndexWith on a CUDA device: the same bytes as packed_index.hpp makes on the host.
///
/// Reports errors of arguments and of the launch. A blob of another codec or shape decodes to NaN: the host does not
/// read blobs.
#pragma once

#include "bit_groups.cuh"
#include "packed_index.hpp"

namespace adacc { inline namespace v0_1 {

template <int bits>
struct ADACC_ONE_LIBRARY codec_kernel<PackedIndexWith<bits>, Cuda>
    : detail::BitGroupsOnCuda<PackedIndexWith<bits>, detail::SmallIndex<bits>> {};

}}  // namespace adacc::v0_1
