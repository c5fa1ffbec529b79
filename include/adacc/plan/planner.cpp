// SPDX-License-Identifier: MIT
/// make_plan() and smallest_peak() for the other sources of a program, all of which are compiled with
/// ADACC_SEPARATE_PLANNER (core/config.hpp).
#include "planner.hpp"

#if !defined(ADACC_SEPARATE_PLANNER)
#error "without ADACC_SEPARATE_PLANNER planners are inline, and this source has nothing to give"
#endif
