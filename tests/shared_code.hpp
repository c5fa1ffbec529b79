// SPDX-License-Identifier: MIT
/// What builds with sanitizers compile once, optimized: the inline functions of all that is included
/// here, and the templates that these use. See shared_code.cmake. A header that is missing here costs
/// time, not correctness: add what a profile of slow tests names.
#pragma once

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/train.hpp>

#include <adacc/cost/evaluate.hpp>
#include <adacc/evolve/evolution.hpp>
#include <adacc/plan/pipeline/planner.hpp>
#include <adacc/ranks/data_parallel/data_parallel.hpp>
#include <adacc/ranks/pipeline/pipeline.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/stash/estimate.hpp>
#include <adacc/stash/measure.hpp>
#include <adacc/stash/probe.hpp>
#include <adacc/stash/stash.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/store/scratch_file.hpp>
#include <adacc/testing/group_check.hpp>
#include <adacc/testing/layer_check.hpp>

#include "plan/gpt_graphs.hpp"
#include "stash/residual_trainer.hpp"
#include "step/small_gpt.hpp"
#include "train/growing_net.hpp"

namespace shared_code {

using namespace adacc;

/// Its layers' loops are most of the time of the tests that evolve.
inline Result<Training<>> growing() {
  return Training<>::make(growing_net::net, growing_net::shape);
}

/// Gradients are checked in double.
inline Result<Step<double>> in_double(const gpt::Gpt<gpt::RetainSet>& net, const Program& program) {
  return Step<double>::make(net, program);
}

}  // namespace shared_code
