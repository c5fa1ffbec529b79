// SPDX-License-Identifier: MIT
/// Int4Outlier: four bits an element, scales per small group, and the few outliers kept exactly.
///
/// The format is the table of offsets at the top of codec/quant/layout.hpp, with codes of 4 bits.
#pragma once

#include "quant/codec.hpp"

namespace adacc { inline namespace v0_1 {

/// Compress<Int4OutlierWith<Int4Options{.group = 128}>>.
template <Int4Options O>
using Int4OutlierWith = QuantCodec<4, O>;

/// The default: groups of 64 rows along a column.
using Int4Outlier = Int4OutlierWith<Int4Options{}>;

}}  // namespace adacc::v0_1
