// SPDX-License-Identifier: MIT
/// Every header of adacc in the order of the alphabet, in one unit of several.
#include <all_forwards.hpp>

#include "train.hpp"

Findings find_forwards() { return train(); }
