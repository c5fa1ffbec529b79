// SPDX-License-Identifier: MIT
/// Every header of adacc in the opposite order.
#include <all_backwards.hpp>

#include "train.hpp"

Findings find_backwards() { return train(); }
