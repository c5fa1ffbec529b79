// SPDX-License-Identifier: MIT
/// Int8Outlier: eight bits an element, scales per small group, and the few outliers kept exactly.
///
/// The format is the table of offsets at the top of codec/quant/layout.hpp, with codes of 8 bits.
#pragma once

#include "quant/codec.hpp"

namespace adacc { inline namespace v0_1 {

/// Compress<Int8OutlierWith<Int8Options{.group = 128}>>.
template <Int8Options O>
using Int8OutlierWith = QuantCodec<8, O>;

/// The default: groups of 64 rows along a column.
using Int8Outlier = Int8OutlierWith<Int8Options{}>;

}}  // namespace adacc::v0_1
