// SPDX-License-Identifier: MIT
/// Which outliers of a tile get places: the highest levels; of the first level that is too large, the first ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../quantize.hpp"
#include "tile.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// The level of which only some outliers get places, and how many; all levels above get theirs.
struct OutlierCut {
  int level;
  std::uint32_t left;
};
template <class Tile>
ADACC_HD OutlierCut outlier_cut(const Tile& tile, std::size_t places) {
  // As a rule all outliers have places.
  if (tile.shared.flagged <= places) return {-1, 0};
  OutlierCut cut = {outlier_levels - 1, static_cast<std::uint32_t>(places)};
  for (; cut.level >= 0 && tile.shared.levels[cut.level] <= cut.left; --cut.level)
    cut.left -= tile.shared.levels[cut.level];
  return cut;
}

}}}  // namespace adacc::v0_1::detail
